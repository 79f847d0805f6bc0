// Binarises rows in the cooperative kernel: features as they arrive, or floats left by a stage.
#pragma once

#include "core/cuda/hopper/async_copy.cuh"
#include "core/cuda/mma_b1.cuh"
#include "pack/cuda/rows.cuh"
#include "whole_model/cuda/cooperative/rows.cuh"

namespace bitgnn::cuda::whole_model {

constexpr int kPackedWords = 4;  // packed by a warp at once; row parts are multiples of this

// Parameters of binarisation; null if absent. A measured scale has either both or neither.
struct PackTerms {
  const float* threshold;
  const float* gain;
  __device__ PackTerms from(int column) const {
    return {threshold != nullptr ? threshold + column : nullptr,
            gain != nullptr ? gain + column : nullptr};
  }
};

// A lane's features of a row: at(k) is its feature of word `k` from the current position.
template <class T>
struct LaneFeatures {
  const T* x;
  __device__ __forceinline__ float at(int k) const { return pack::to_value(x[k * kWarp]); }
  __device__ __forceinline__ void advance(int words) { x += words * kWarp; }
};

// The same in global memory, without reading past the last feature.
template <class T>
struct BoundedFeatures {
  const T* x;
  int left;
  __device__ __forceinline__ float at(int k) const {
    return k * kWarp < left ? pack::to_value(__ldg(x + k * kWarp)) : 0.0f;
  }
  __device__ __forceinline__ void advance(int words) { x += words * kWarp, left -= words * kWarp; }
};

// Packs kPackedWords words and adds the lane's share of the scale. kWhole: all features exist.
template <bool kScale, bool kShift, bool kWhole>
__device__ __forceinline__ void pack_group(const float (&x)[kPackedWords], const PackTerms& terms,
                                           int column, int left, uint32_t* to, float& sum,
                                           int lane) {
  float threshold[kPackedWords] = {}, gain[kPackedWords];
  if constexpr (kShift) {
#pragma unroll
    for (int k = 0; k < kPackedWords; ++k) {
      const bool exists = kWhole || column + k * kWarp < left;
      threshold[k] = exists ? terms.threshold[column + k * kWarp] : 0.0f;
      if constexpr (kScale) gain[k] = exists ? terms.gain[column + k * kWarp] : 0.0f;
    }
  }
  uint32_t bits[kPackedWords];
#pragma unroll
  for (int k = 0; k < kPackedWords; ++k) {
    if constexpr (kScale) {
      float distance = x[k];
      if constexpr (kShift) distance = __fmul_rn(__fsub_rn(distance, threshold[k]), gain[k]);
      if (kWhole || column + k * kWarp < left) sum = __fadd_rn(sum, fabsf(distance));
    }
    bits[k] = __ballot_sync(kFullWarp, x[k] >= threshold[k]);
  }
  if (lane == 0) *reinterpret_cast<uint4*>(to) = make_uint4(bits[0], bits[1], bits[2], bits[3]);
}

// Packs `words` words of a row with one warp; `left` of its features exist. Writes up to the next
// multiple of kPackedWords words; bits past the features are arbitrary, because the products mask
// them. Adds the lane's |(x - threshold) * gain| in the canonical order. kShift: there is a
// threshold and, if the scale is measured, a gain.
template <bool kScale, bool kShift, class Features>
__device__ __forceinline__ void pack_shifted(Features features, int words, int left,
                                             const PackTerms& terms, uint32_t* to, float& sum,
                                             int lane) {
  const auto load = [&](float (&x)[kPackedWords]) {
#pragma unroll
    for (int k = 0; k < kPackedWords; ++k) x[k] = features.at(k);
    features.advance(kPackedWords);
  };
  const int whole = min(words, left / kWarp) / kPackedWords * kPackedWords;
#pragma unroll 2
  for (int first = 0; first < whole; first += kPackedWords) {
    float x[kPackedWords];
    load(x);
    pack_group<kScale, kShift, true>(x, terms, first * kWarp + lane, left, to + first, sum, lane);
  }
#pragma unroll 1
  for (int first = whole; first < words; first += kPackedWords) {
    float x[kPackedWords];
    load(x);
    pack_group<kScale, kShift, false>(x, terms, first * kWarp + lane, left, to + first, sum, lane);
  }
}

template <bool kScale, class Features>
__device__ __forceinline__ void pack_part(const Features& features, int words, int left,
                                          const PackTerms& terms, uint32_t* to, float& sum,
                                          int lane) {
  if (terms.threshold == nullptr)
    pack_shifted<kScale, false>(features, words, left, terms, to, sum, lane);
  else
    pack_shifted<kScale, true>(features, words, left, terms, to, sum, lane);
}

__device__ __forceinline__ float part_scale(float sum, int size, int lane) {
  const float sums[1] = {sum};
  return pack::mean_of(pack::fold_lanes(sums, lane), size);
}

// The block's features. Offsets are in bytes from the first row.
struct FeatureRows {
  const char* x;
  int rows, parts;  // in all

  __device__ FeatureRows(const CooperativePlan& plan, const Block& block)
      : x(static_cast<const char*>(plan.args.x) +
          static_cast<int64_t>(block.first) * plan.row_bytes),
        rows(block.rows),
        parts(block.rows * plan.parts) {}
};

// A part of a row, which a warp processes in one turn. If scales are measured, the warp takes all
// parts of its rows in order.
struct FeaturePart {
  int row, word;
  uint32_t offset;

  template <bool kScale>
  __device__ __forceinline__ static int turns(const CooperativePlan& plan, const FeatureRows& rows,
                                              int warp) {
    const int own = ((kScale ? rows.rows : rows.parts) - warp + stage_warps() - 1) / stage_warps();
    return kScale ? own * plan.parts : own;
  }
  template <bool kScale>
  __device__ __forceinline__ static FeaturePart at(const CooperativePlan& plan, int warp,
                                                   int turn) {
    const int number = kScale ? turn : warp + turn * stage_warps();
    const int row = plan.by_parts.quotient(number);
    const int word = (number - row * plan.parts) * plan.part_words;
    const int in_block = kScale ? warp + row * stage_warps() : row;
    return {in_block, word, in_block * plan.row_bytes + word * (kWarp * plan.element_bytes)};
  }
  __device__ __forceinline__ int words(const CooperativePlan& plan) const {
    return min(plan.part_words, plan.feature_words - word);
  }
  __device__ __forceinline__ bool ends_row(const CooperativePlan& plan) const {
    return word + plan.part_words >= plan.feature_words;
  }
  // Offset past its last feature.
  __device__ __forceinline__ uint32_t end(const CooperativePlan& plan) const {
    const int features = min(plan.part_words * kWarp, plan.features - word * kWarp);
    return offset + features * plan.element_bytes;
  }
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// Distance of a part's start from the preceding multiple of kCopyUnit.
__device__ __forceinline__ uint32_t unit_offset(const FeatureRows& rows, const FeaturePart& part) {
  return (static_cast<uint32_t>(reinterpret_cast<uintptr_t>(rows.x)) + part.offset) % kCopyUnit;
}

// Copies the units that hold a part, except past the end of the features: see complete_part().
__device__ __forceinline__ void request_part(const CooperativePlan& plan, const FeatureRows& rows,
                                             const FeaturePart& part, uint32_t slot,
                                             uint32_t barrier) {
  const char* begin = rows.x + part.offset - unit_offset(rows, part);
  const char* end = rows.x + part.end(plan);
  end += -reinterpret_cast<uintptr_t>(end) % kCopyUnit;
  const int64_t length = (end < plan.copied_end ? end : plan.copied_end) - begin;
  barrier_expect(barrier, max(static_cast<int>(length), 0));
  if (length > 0) copy_bytes(slot, begin, static_cast<uint32_t>(length), barrier);
}

__device__ __forceinline__ bool is_incomplete(const CooperativePlan& plan, const FeatureRows& rows,
                                              const FeaturePart& part) {
  return rows.x + part.end(plan) > plan.copied_end;
}

__device__ __forceinline__ void complete_part(const CooperativePlan& plan, const FeatureRows& rows,
                                              const FeaturePart& part, char* arrived, int lane) {
  const char* start = rows.x + part.offset;
  const char* at = plan.copied_end + lane;
  if (lane < kPieceBytes && at >= start && at < rows.x + part.end(plan))
    arrived[at - start + unit_offset(rows, part)] = *at;
  __syncwarp();
}

__device__ __forceinline__ uint32_t slot_barrier(const CooperativePlan& plan,
                                                 const uint32_t* shared, int slot) {
  return shared_address(shared + plan.barriers) + (1 + slot) * 8;
}

// Requests the warp's first parts before anything else happens, one per lane.
template <bool kScale>
__device__ __forceinline__ void request_features(const CooperativePlan& plan, const Block& block,
                                                 uint32_t* shared, int warp, int lane) {
  if (lane >= plan.slots) return;
  const int slot = warp * plan.slots + lane;
  const uint32_t barrier = slot_barrier(plan, shared, slot);
  barrier_init(barrier, 1);
  barrier_init_fence();
  const FeatureRows rows(plan, block);
  if (lane < FeaturePart::turns<kScale>(plan, rows, warp))
    request_part(plan, rows, FeaturePart::at<kScale>(plan, warp, lane),
                 shared_address(shared + plan.staged) + slot * plan.slot_bytes, barrier);
}

#endif

template <bool kScale, class T>
__device__ __forceinline__ void pack_features(const CooperativePlan& plan, const Block& block,
                                              uint32_t* shared, const PackTerms& terms, int warp,
                                              int lane) {
  uint32_t* bits = shared + plan.bits;
  const int size = plan.features, pitch = plan.stages[0].pitch;
  const FeatureRows rows(plan, block);
  const int turns = FeaturePart::turns<kScale>(plan, rows, warp);
  float sum = 0.0f;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  char* first_slot =
      reinterpret_cast<char*>(shared + plan.staged) + warp * plan.slots * plan.slot_bytes;
  const uint32_t first_barrier = slot_barrier(plan, shared, warp * plan.slots);
  int k = 0, phase = 0;
#endif
#pragma unroll 1
  for (int turn = 0; turn < turns; ++turn) {
    const FeaturePart part = FeaturePart::at<kScale>(plan, warp, turn);
    const int left = size - part.word * kWarp;
    uint32_t* to = bits + part.row * pitch + part.word;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    char* arrived = first_slot + k * plan.slot_bytes;
    const uint32_t barrier = first_barrier + k * 8;
    barrier_wait(barrier, phase);
    if (is_incomplete(plan, rows, part)) complete_part(plan, rows, part, arrived, lane);
    const T* from = reinterpret_cast<const T*>(arrived + unit_offset(rows, part));
    pack_part<kScale>(LaneFeatures<T>{from + lane}, part.words(plan), left,
                      terms.from(part.word * kWarp), to, sum, lane);
    if (turn + plan.slots < turns) {
      __syncwarp();
      if (lane == 0) {
        asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
        request_part(plan, rows, FeaturePart::at<kScale>(plan, warp, turn + plan.slots),
                     shared_address(arrived), barrier);
      }
    }
    if (++k == plan.slots) k = 0, phase ^= 1;
#else
    const T* from = reinterpret_cast<const T*>(rows.x + part.offset);
    pack_part<kScale>(BoundedFeatures<T>{from + lane, left - lane}, part.words(plan), left,
                      terms.from(part.word * kWarp), to, sum, lane);
#endif
    if constexpr (kScale) {
      if (!part.ends_row(plan)) continue;
      const float scale = part_scale(sum, size, lane);
      if (lane == 0) reinterpret_cast<float*>(shared + plan.scales)[part.row] = scale;
      sum = 0.0f;
    }
  }
}

// Binarises the sums that a stage left in shared memory.
__device__ __forceinline__ void pack_sums(const CooperativePlan& plan, const StagePlan& stage,
                                          const Block& block, uint32_t* shared,
                                          const PackTerms& terms, int warp, int lane) {
  const float* floats = reinterpret_cast<const float*>(shared + plan.floats);
  const int size = stage.stage.size;
#pragma unroll 1
  for (int row = warp; row < block.rows; row += stage_warps()) {
    float sum = 0.0f;
    pack_part<true>(LaneFeatures<float>{floats + row * plan.float_pitch + lane}, stage.words, size,
                    terms, shared + plan.bits + row * stage.pitch, sum, lane);
    const float scale = part_scale(sum, size, lane);
    if (lane == 0) reinterpret_cast<float*>(shared + plan.scales)[row] = scale;
  }
}

}  // namespace bitgnn::cuda::whole_model

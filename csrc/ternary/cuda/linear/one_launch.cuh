// Packing and product of few float rows in one launch: a block packs eight rows into shared memory
// while its weights go straight into registers. Bound by latency. Addresses for loads and stores
// are computed before the wait for the previous kernel, so that few instructions follow it. The
// next kernel is allowed to start only after the wait: any earlier, blocks of several launches fill
// the SMs and those of later launches are distributed unevenly.
#pragma once

#include "core/cuda/dependent_launch.cuh"
#include "core/cuda/mma_b1.cuh"
#include "ternary/cuda/linear/few_weights.cuh"
#include "ternary/cuda/linear/tile.cuh"
#include "ternary/cuda/words.cuh"

namespace bitgnn::cuda::ternary {

constexpr int kFewRows = 8;  // per block

// A warp multiplies the rows with kOutputTiles tiles of 16 outputs. A block has kOutputWarps such
// warps, times kPartWarps that split a row's chunks of kSteps * 256 features. A warp loads kStages
// chunks of weights at a time, a lane kBatch pieces of rows. With kExactRows, one batch of loads
// covers everything: rows have exactly that many chunks and a block that many rows; missing rows
// repeat the last one.
template <int kOutputTiles_, int kOutputWarps_, int kPartWarps_, int kStages_, int kSteps_,
          int kBatch_, int kExactRows_ = 0>
struct TernaryFew {
  static constexpr int kOutputTiles = kOutputTiles_;
  static constexpr int kOutputWarps = kOutputWarps_;
  static constexpr int kPartWarps = kPartWarps_;
  static constexpr int kStages = kStages_;
  static constexpr int kSteps = kSteps_;
  static constexpr int kThreads = kOutputWarps * kPartWarps * 32;
  static constexpr int kOutputs = kOutputTiles * kOutputWarps * 16;
  static constexpr int kChunkWords = kSteps * kMmaWords;
  static constexpr bool kExact = kExactRows_ > 0;
  static constexpr int kPackedRows = kExact ? kExactRows_ : kFewRows;
  static constexpr int kWords = kStages * kPartWarps * kChunkWords;  // of an exact row
  static constexpr int kPieces = kPackedRows * 2 * kWords;
  static constexpr int kBatch = kExact ? (kPieces + kThreads - 1) / kThreads : kBatch_;
  static constexpr int kRowTiles = 1;  // required by exchange_sums()
  static constexpr int kTiles = kOutputTiles;
};

// Rows of floats, made of whole pieces of eight at 16-byte aligned addresses.
template <class T>
struct FewRows {
  const T* x;
  int64_t stride;
  int size;
  const float* scale;
  uint32_t neg_mask;  // 0 for boolean rows
};

struct TernaryFewPlan {
  int words;               // per row
  int chunks;              // per row
  int pitch;               // of a row's words of pos and neg in shared memory
  FastDivisor row_pieces;  // pieces of 16 floats per row
  bool fours;              // four 16-bit values are stored at a time
};

// Row pitch in words, chosen so that the lanes of a fragment read without bank conflicts.
template <class Few>
__host__ __device__ constexpr int few_pitch(int chunks) {
  constexpr int kBanks = 32, kShift = Few::kSteps == 1 ? 16 : 4;
  return (chunks * 2 * Few::kChunkWords - kShift + kBanks - 1) / kBanks * kBanks + kShift;
}

// A batch of a thread's pieces, with their sources and destinations.
template <class T, class Few>
struct FewPieces {
  const T* from[Few::kBatch];
  uint32_t* to[Few::kBatch];
  int left[Few::kBatch];  // floats left in the row from there on; <= 0 past the last piece
  LanePiece<T> piece[Few::kBatch];

  __device__ __forceinline__ void locate(const FewRows<T>& rows, const TernaryFewPlan& plan,
                                         int64_t first_row, int count, int first,
                                         uint32_t* planes) {
#pragma unroll
    for (int i = 0; i < Few::kBatch; ++i) {
      const int at = first + i * Few::kThreads;
      if constexpr (Few::kExact) {
        const int there = min(at, Few::kPieces - 1);
        const int row = there / (2 * Few::kWords), column = there % (2 * Few::kWords);
        left[i] = kLaneFloats;
        from[i] = rows.x + (first_row + min(row, count - 1)) * rows.stride + column * kLaneFloats;
        to[i] = planes + row * plan.pitch + column;
        make_ready(from[i]);
        make_ready(to[i]);
        continue;
      }
      const int pieces = count * static_cast<int>(plan.row_pieces.divisor);
      const auto row = static_cast<int>(plan.row_pieces.divide(at));
      const int column = at - row * static_cast<int>(plan.row_pieces.divisor);
      left[i] = at < pieces ? rows.size - column * kLaneFloats : -1;
      from[i] = rows.x + (first_row + row) * rows.stride + column * kLaneFloats;
      to[i] = at < pieces ? planes + row * plan.pitch + column : nullptr;
      make_ready(from[i]);
      make_ready(to[i]);
      make_ready(left[i]);
    }
  }
  __device__ __forceinline__ void load() {
#pragma unroll
    for (int i = 0; i < Few::kBatch; ++i) piece[i] = load_lane_piece(from[i], left[i]);
  }
  // Stores words of pos and neg alternately, a pair per 32 floats.
  __device__ __forceinline__ void store(const TernaryLimits<T>& limits, uint32_t neg_mask,
                                        int lane) const {
#pragma unroll
    for (int i = 0; i < Few::kBatch; ++i) {
      LaneBits bits = lane_bits(limits, piece[i]);
      bits.neg &= neg_mask;
      const uint32_t word = exchange_bits(bits, lane);
      if (Few::kExact ? (i + 1) * Few::kThreads <= Few::kPieces ||
                            static_cast<int>(threadIdx.x) + i * Few::kThreads < Few::kPieces
                      : to[i] != nullptr)
        *to[i] = word;
    }
  }
};

template <class T, class Few>
__global__ void __launch_bounds__(Few::kThreads)
    ternary_few_kernel(const __grid_constant__ TernaryBmmArgs a,
                       const __grid_constant__ FewRows<T> x,
                       const __grid_constant__ TernaryFewPlan any_plan) {
  TernaryFewPlan plan = any_plan;
  if constexpr (Few::kExact) {
    plan.words = Few::kWords;
    plan.chunks = Few::kStages * Few::kPartWarps;
    plan.pitch = few_pitch<Few>(plan.chunks);
  }
  extern __shared__ __align__(16) unsigned char memory[];
  auto* planes = reinterpret_cast<uint32_t*>(memory);
  auto* exchanged = reinterpret_cast<int4*>(planes + Few::kPackedRows * plan.pitch);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp, warp = thread / kWarp;
  const int group = fragment_group(lane), quad = fragment_quad(lane);
  const int part = warp % Few::kPartWarps, team = warp / Few::kPartWarps;
  const int block_output = static_cast<int>(blockIdx.x) * Few::kOutputs;
  const int first_output = block_output + team * Few::kOutputTiles * kMmaRows;
  const int64_t first_row = int64_t{blockIdx.y} * kFewRows;
  const int rows = static_cast<int>(min(int64_t{kFewRows}, a.rows - first_row));
  if (thread == 0)
    prefetch_cache(a.w + int64_t{block_output} * plan.words,
                   min(int64_t{Few::kOutputs}, a.out_features - block_output) * plan.words *
                       static_cast<int64_t>(sizeof(int32_t)));

  const int row_pieces = static_cast<int>(plan.row_pieces.divisor);
  const int row_words = plan.chunks * Few::kChunkWords, padding = 2 * (row_words - plan.words);
  for (int i = thread; !Few::kExact && i < rows * padding; i += Few::kThreads)
    planes[i / padding * plan.pitch + 2 * plan.words + i % padding] = 0;
  FewPieces<T, Few> pieces;
  int first = thread;
  pieces.locate(x, plan, first_row, rows, first, planes);
  FewWeights<Few> weights(a, plan.words, first_output + group, part, quad);
  int place[Few::kStages];
#pragma unroll
  for (int stage = 0; stage < Few::kStages; ++stage) {
    place[stage] =
        weights.place((Few::kExact ? 0 : part) + stage * Few::kPartWarps, plan.words, quad);
    if constexpr (!Few::kExact) make_ready(place[stage]);
  }
  const uint32_t* fragment =
      planes + min(group, Few::kExact ? Few::kPackedRows - 1 : rows - 1) * plan.pitch +
      part * 2 * Few::kChunkWords + quad * 4 * Few::kSteps;
  make_ready(fragment);
  const FourValues values(a, first_row, first_output, lane);
  if (rows <= 0) return;  // never taken; the compiler does not sink arithmetic past this branch
  wait_for_previous();

  // All loads are issued before the first is used.
  pieces.load();
  const float scale = load_in_place(x.scale);
#pragma unroll
  for (int stage = 0; stage < Few::kStages; ++stage)
    if (Few::kExact || part + stage * Few::kPartWarps < plan.chunks)
      weights.fetch(stage, place[stage]);
  LaneTerms terms[Few::kOutputTiles];
#pragma unroll
  for (int i = 0; i < Few::kOutputTiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      LoadedTerms& term = terms[i].value[half];
      if (a.x_scale != nullptr) term.x_scale = scale;
      if (a.w_scale != nullptr) term.w_scale = load_in_place(weights.scale[i][half]);
      if (a.bias != nullptr) term.bias = load_in_place(weights.bias[i][half]);
    }
  }
  let_next_start();  // the compiler does not sink the loads past it
  const TernaryLimits<T> limits(scale);
  while (true) {
    pieces.store(limits, x.neg_mask, lane);
    first += Few::kBatch * Few::kThreads;
    if (Few::kExact || first - lane >= rows * row_pieces) break;
    pieces.locate(x, plan, first_row, rows, first, planes);
    pieces.load();
  }
  __syncthreads();

  FewSums<Few> sums;
  const auto add = [&](int stage, int offset) {
#pragma unroll
    for (int step = 0; step < Few::kSteps; ++step)
      sums.add(
          weights.words[stage], step,
          *reinterpret_cast<const uint4*>(fragment + offset * 2 * Few::kChunkWords + step * 4));
  };
  if constexpr (Few::kExact) {
#pragma unroll
    for (int stage = 0; stage < Few::kStages; ++stage) add(stage, stage * Few::kPartWarps);
  } else {
#pragma unroll 1
    for (int chunk = part; chunk < plan.chunks; chunk += Few::kStages * Few::kPartWarps) {
#pragma unroll
      for (int stage = 0; stage < Few::kStages; ++stage) {
        const int at = chunk + stage * Few::kPartWarps;
        if (at >= plan.chunks) break;
        add(stage, at - part);
        const int next = at + Few::kStages * Few::kPartWarps;
        if (next < plan.chunks) weights.fetch(stage, weights.place(next, plan.words, quad));
      }
    }
  }
  int32_t dot[Few::kOutputTiles][1][4];
  sums.dots(dot);
  if constexpr (Few::kPartWarps > 1) exchange_sums<Few>(dot, exchanged, part, team, lane);
#pragma unroll
  for (int i = 0; i < Few::kOutputTiles; ++i) {
    if (Few::kPartWarps > 1 && i % Few::kPartWarps != part) continue;
    if (plan.fours) {
      values.template store<HalfOf<T>>(0, i * kMmaRows, terms[i], dot[i][0]);
    } else {
      with_value(a.type, [&](auto zero) {
        store_tile_values<decltype(zero)>(a, TilePlace{first_row, first_output + i * kMmaRows},
                                          terms[i], dot[i][0], lane);
      });
    }
  }
}

}  // namespace bitgnn::cuda::ternary

// Epilogue of aggregations: turns bit planes spread over a warp into results.
#pragma once

#include "bspmm/cuda/bounds.cuh"
#include "bspmm/cuda/count_planes.cuh"
#include "bspmm/cuda/short_sums.cuh"
#include "bspmm/cuda/values.cuh"

namespace bitgnn::cuda::bspmm {

// How a warp shares rows: lane = (row * kSplits + split) * kColumns + column, a column being kWords
// words. Folding leaves each of the kSplits lanes part of the words, or a copy if there are fewer
// words than lanes.
template <int kWordCount, int kSplitCount, int kColumnCount>
struct RowLanes {
  static constexpr int kWords = kWordCount, kSplits = kSplitCount, kColumns = kColumnCount;
  static constexpr int kRows = kWarp / (kSplits * kColumns);
  static constexpr int kRowWords = kColumns * kWords;
  static constexpr int kOwners = kSplits < kWords ? kSplits : kWords;
  static constexpr int kKept = kWords / kOwners;
  int lane;

  __device__ explicit RowLanes(int lane_in_warp) : lane(lane_in_warp) {}
  __device__ int row() const { return lane / (kSplits * kColumns); }
  __device__ int split() const { return lane / kColumns % kSplits; }
  __device__ int word() const { return lane % kColumns * kWords; }
  __device__ bool is_first_of_row() const { return lane % (kSplits * kColumns) == 0; }
  __device__ bool owns_words() const { return split() < kOwners; }
  __device__ int kept_word() const { return word() + bspmm::kept_word<kSplits, kWords>(split()); }

  template <int kPlanes>
  __device__ __forceinline__ auto fold(const CountPlanes<kWords, kPlanes>& planes) const {
    return fold_lanes<kSplits>(planes, kColumns, split());
  }

  // Calls visit(row, word, first feature in the word, counts, valid) with four features per lane,
  // for the words of lanes whose bit in `wanted` is set.
  template <int kPlanes, class Visit>
  __device__ __forceinline__ void for_quads(const CountPlanes<kKept, kPlanes>& planes,
                                            unsigned wanted, const Visit& visit) const {
    static_assert(kPlanes <= 16, "two bytes hold a count");
    constexpr int kRowOwners = kOwners * kColumns;
    const int first = lane % 8 * 4;
#pragma unroll 1
    for (int k = 0; k < kKept; ++k) {
      uint32_t word_planes[kPlanes];
#pragma unroll
      for (int p = 0; p < kPlanes; ++p) {
        word_planes[p] = planes.plane[p][0];
#pragma unroll
        for (int other = 1; other < kKept; ++other)
          if (k == other) word_planes[p] = planes.plane[p][other];
      }
      // More at once take registers from the gathers, which then keep planes in memory.
#pragma unroll 1
      for (int base = 0; base < kRows * kRowOwners; base += 4) {
        const int owner = base + lane / 8;
        const int r = owner / kRowOwners, split = owner / kColumns % kOwners;
        const int source = ((r * kSplits + split) * kColumns + owner % kColumns) % kWarp;
        const bool valid = owner < kRows * kRowOwners && (wanted >> source & 1u) != 0;
        if (!__any_sync(kFullWarp, valid)) continue;
        uint32_t low = 0, high = 0;
#pragma unroll
        for (int p = 0; p < kPlanes; ++p) {
          const uint32_t plane = __shfl_sync(kFullWarp, word_planes[p], source);
          // Spread four bits to the lowest bits of four bytes.
          const uint32_t spread = ((plane >> first & 0xf) * 0x00204081u) & 0x01010101u;
          if (p < 8) {
            low += spread << p;
          } else {
            high += spread << (p - 8);
          }
        }
        int counts[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
          counts[i] = static_cast<int>((low >> 8 * i & 0xff) + ((high >> 8 * i & 0xff) << 8));
        const int word = owner % kColumns * kWords + bspmm::kept_word<kSplits, kWords>(split);
        visit(r, word + k, first, counts, valid);
      }
    }
  }
};

// Sum of `degree` values +-1 of which `count` are +1; half of it if the values come in pairs.
template <bool kHalved>
__device__ __forceinline__ int signed_sum(int count, int degree) {
  return kHalved ? count - degree / 2 : 2 * count - degree;
}

// The same as a float, for counts and degrees below 2^23, where every step is exact: conversions
// have a sixteenth of the throughput of additions.
template <bool kHalved>
__device__ __forceinline__ float signed_float(int count, float degree) {
  constexpr uint32_t kTwoTo23 = 0x4b000000u;
  const float exact =
      __fadd_rn(__uint_as_float(kTwoTo23 + static_cast<uint32_t>(count)), -8388608.0f);
  return kHalved ? __fadd_rn(exact, -0.5f * degree) : __fmaf_rn(2.0f, exact, -degree);
}

// Entries of a vector for four features from `feature` on, of which `left` exist; `neutral` where
// there is no vector.
__device__ __forceinline__ float4 load_quad(const float* vector, int64_t feature, int left,
                                            float neutral) {
  float4 quad = make_float4(neutral, neutral, neutral, neutral);
  if (vector == nullptr || left <= 0) return quad;
  vector += feature;
  if (left == 4 && reinterpret_cast<uintptr_t>(vector) % sizeof(float4) == 0)
    return __ldg(reinterpret_cast<const float4*>(vector));
  quad.x = __ldg(vector);
  if (left > 1) quad.y = __ldg(vector + 1);
  if (left > 2) quad.z = __ldg(vector + 2);
  if (left > 3) quad.w = __ldg(vector + 3);
  return quad;
}

__device__ __forceinline__ int features_left(const AggregateArgs& a, int64_t feature, bool valid) {
  return valid ? static_cast<int>(max(int64_t{0}, min(int64_t{4}, a.features - feature))) : 0;
}

// Writes `count` of four values to consecutive places, in one access where these are aligned.
template <class T, class Vector>
__device__ __forceinline__ void store_quad(T* to, const T (&value)[4], int count, Vector whole) {
  if (count == 4 && reinterpret_cast<uintptr_t>(to) % sizeof(Vector) == 0) {
    *reinterpret_cast<Vector*>(to) = whole;
    return;
  }
#pragma unroll
  for (int k = 0; k < 4; ++k)
    if (k < count) to[k] = value[k];
}

// Writes the integer sums of four features of a word.
__device__ __forceinline__ void finish_integers(const AggregateArgs& a, int64_t row, int64_t word,
                                                int first, const int (&sums)[4], bool valid) {
  const int64_t feature = word * kWordBits + first;
  store_quad(a.out_int + row * a.features + feature, sums, features_left(a, feature, valid),
             make_int4(sums[0], sums[1], sums[2], sums[3]));
}

// The same in 16 bits.
__device__ __forceinline__ void finish_shorts(const AggregateArgs& a, int64_t row, int64_t word,
                                              int first, const int (&sums)[4], bool valid) {
  const int64_t feature = word * kWordBits + first;
  const int16_t narrow[4] = {static_cast<int16_t>(sums[0]), static_cast<int16_t>(sums[1]),
                             static_cast<int16_t>(sums[2]), static_cast<int16_t>(sums[3])};
  store_quad(a.out_short + row * a.features + feature, narrow, features_left(a, feature, valid),
             make_short4(narrow[0], narrow[1], narrow[2], narrow[3]));
}

// Writes the values or bits of four features of a word from their sums; eight adjacent lanes share
// a word.
__device__ __forceinline__ void finish_floats(const AggregateArgs& a, int64_t row, float scale,
                                              int64_t word, int first, const float (&sums)[4],
                                              bool valid) {
  const int64_t feature = word * kWordBits + first;
  const int left = features_left(a, feature, valid);
  const float4 bias = load_quad(a.bias, feature, left, -0.0f);
  const float values[4] = {
      __fadd_rn(__fmul_rn(scale, sums[0]), bias.x), __fadd_rn(__fmul_rn(scale, sums[1]), bias.y),
      __fadd_rn(__fmul_rn(scale, sums[2]), bias.z), __fadd_rn(__fmul_rn(scale, sums[3]), bias.w)};
  if (a.out_float != nullptr) {
    store_quad(a.out_float + row * a.features + feature, values, left,
               make_float4(values[0], values[1], values[2], values[3]));
    return;
  }
  const float4 threshold = load_quad(a.threshold, feature, left, 0.0f);
  uint32_t bits = (left > 0 && values[0] >= threshold.x ? 1u : 0u) |
                  (left > 1 && values[1] >= threshold.y ? 2u : 0u) |
                  (left > 2 && values[2] >= threshold.z ? 4u : 0u) |
                  (left > 3 && values[3] >= threshold.w ? 8u : 0u);
  bits <<= first;
#pragma unroll
  for (int distance = 1; distance < 8; distance *= 2)
    bits |= __shfl_xor_sync(kFullWarp, bits, distance);
  if (first == 0 && left > 0)
    a.out_bits[row * words_for(a.features) + word] = static_cast<int32_t>(bits);
}

// Writes the words that a lane of a row keeps, after clearing padding bits.
template <class Lanes>
__device__ __forceinline__ void store_bits(const AggregateArgs& a, const Lanes& lanes, int64_t row,
                                           int64_t first, uint32_t (&bits)[Lanes::kKept]) {
  const int64_t words = words_for(a.features);
  if (!lanes.owns_words() || first >= words) return;
  if (first + Lanes::kKept >= words) {
#pragma unroll
    for (int w = 0; w < Lanes::kKept; ++w)
      if (first + w == words - 1) bits[w] &= last_word_mask(a.features);
  }
  auto* to = reinterpret_cast<uint32_t*>(a.out_bits) + row * words + first;
  if (first + Lanes::kKept <= words &&
      reinterpret_cast<uintptr_t>(to) % (Lanes::kKept * sizeof(uint32_t)) == 0) {
    store_words<Lanes::kKept>(to, bits);
    return;
  }
#pragma unroll
  for (int w = 0; w < Lanes::kKept; ++w)
    if (first + w < words) to[w] = bits[w];
}

// Compares sums of +-1 with zero on the bit planes, for finite factors.
template <class Lanes, int kPlanes>
__device__ __forceinline__ void finish_signs(const AggregateArgs& a, const Lanes& lanes,
                                             const CountPlanes<Lanes::kKept, kPlanes>& planes,
                                             int64_t row, float scale, int degree, int64_t first) {
  // scale * (2 count - degree) >= 0
  const uint32_t flip = scale < 0 ? ~0u : 0u;
  const uint32_t bound = scale > 0   ? (static_cast<uint32_t>(degree) + 1) / 2
                         : scale < 0 ? static_cast<uint32_t>(degree) / 2 + 1
                                     : 0;
  uint32_t bits[Lanes::kKept];
#pragma unroll
  for (int w = 0; w < Lanes::kKept; ++w) bits[w] = planes.at_least(w, bound) ^ flip;
  store_bits(a, lanes, row, first, bits);
}

// The factor of a row, 1 without factors. Loaded before the row's neighbours: there is nothing to
// hide its latency behind afterwards.
__device__ __forceinline__ float row_factor(const AggregateArgs& a, int64_t row, bool wanted) {
  return wanted && a.row_scale != nullptr ? __ldg(a.row_scale + row) : 1.0f;
}

// Finishes a warp's rows from folded planes. `row`, `scale`, `degree` and `wanted` belong to the
// lane's row; `chunk` is the first word of the columns.
template <class Lanes, bool kHalved = false, int kPlanes>
__device__ __forceinline__ void finish_planes(const AggregateArgs& a, const BoundTable& bounds,
                                              const Lanes& lanes,
                                              const CountPlanes<Lanes::kKept, kPlanes>& planes,
                                              int64_t row, float scale, int degree, bool wanted,
                                              int64_t chunk) {
  const int64_t words = words_for(a.features);
  const int64_t first_word = chunk + lanes.kept_word();
  if (a.out_bits != nullptr) {
    bool done = false;
    if (a.threshold == nullptr && a.bias == nullptr) {
      done = wanted && isfinite(scale);
      if (done) finish_signs(a, lanes, planes, row, scale, degree, first_word);
    } else if (!kHalved && bounds.planes != nullptr) {
      if (wanted && degree < kBoundDegrees) {
        done = bounds.knows(degree, scale);
        if (first_word < bounds.pitch) {
          uint32_t bits[Lanes::kKept];
          bounds.compare(bits, planes, degree, first_word);
          if (done) store_bits(a, lanes, row, first_word, bits);
        }
      }
    }
    wanted = wanted && !done;
  }
  if constexpr (!kHalved && Lanes::kSplits == 1 && Lanes::kColumns % 2 == 0 &&
                kPlanes <= kMostShortPlanes) {
    if (a.out_short != nullptr && stores_short_runs(a)) {
      finish_short_runs(a, lanes, planes, row, degree, wanted, chunk);
      return;
    }
  }
  const unsigned left = __ballot_sync(kFullWarp, wanted);
  if (left == 0) return;
  const int64_t first_row = row - lanes.row();
  const float float_degree = static_cast<float>(degree);
  lanes.for_quads(planes, left, [&](int r, int w, int first, const int (&counts)[4], bool valid) {
    const int source = r * Lanes::kSplits * Lanes::kColumns;
    valid = valid && chunk + w < words;
    if (a.out_int != nullptr || a.out_short != nullptr) {
      const int row_degree = __shfl_sync(kFullWarp, degree, source);
      int sums[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) sums[k] = signed_sum<kHalved>(counts[k], row_degree);
      // Planes do not count as far as the degrees whose sums need more than 16 bits.
      if (a.out_short != nullptr)
        finish_shorts(a, first_row + r, chunk + w, first, sums, valid);
      else
        finish_integers(a, first_row + r, chunk + w, first, sums, valid);
      return;
    }
    const float row_scale = __shfl_sync(kFullWarp, scale, source);
    const float row_degree = __shfl_sync(kFullWarp, float_degree, source);
    float sums[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) sums[k] = signed_float<kHalved>(counts[k], row_degree);
    finish_floats(a, first_row + r, row_scale, chunk + w, first, sums, valid);
  });
}

}  // namespace bitgnn::cuda::bspmm

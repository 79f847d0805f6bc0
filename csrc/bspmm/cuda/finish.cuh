// Epilogue of aggregations: turns bit planes spread over a warp into results.
#pragma once

#include "bspmm/cuda/count_planes.cuh"
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

  // Calls visit(row, word, first feature in the word, counts, valid) with four features per lane.
  template <int kPlanes, class Visit>
  __device__ __forceinline__ void for_quads(const CountPlanes<kKept, kPlanes>& planes,
                                            const Visit& visit) const {
    static_assert(kPlanes <= 16, "two bytes hold a count");
    constexpr int kAllWords = kRows * kRowWords;
    const int first = lane % 8 * 4;
#pragma unroll 1
    for (int base = 0; base < kAllWords; base += 4) {
      const int word = base + lane / 8;
      const bool valid = word < kAllWords;
      const int column = word % kRowWords / kWords, in_column = word % kWords;
      const int split = owner_split<kSplits, kWords>(in_column);
      const int source = (word / kRowWords * kSplits + split) * kColumns + column;
      uint32_t low = 0, high = 0;
#pragma unroll
      for (int p = 0; p < kPlanes; ++p) {
        uint32_t plane = __shfl_sync(kFullWarp, planes.plane[p][0], source);
#pragma unroll
        for (int k = 1; k < kKept; ++k) {
          const uint32_t other = __shfl_sync(kFullWarp, planes.plane[p][k], source);
          if (in_column % kKept == k) plane = other;
        }
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
      for (int k = 0; k < 4; ++k)
        counts[k] = static_cast<int>((low >> 8 * k & 0xff) + ((high >> 8 * k & 0xff) << 8));
      visit(word / kRowWords, word % kRowWords, first, counts, valid);
    }
  }
};

// Sum of `degree` values +-1 of which `count` are +1; half of it if the values come in pairs.
template <bool kHalved>
__device__ __forceinline__ int signed_sum(int count, int degree) {
  return kHalved ? count - degree / 2 : 2 * count - degree;
}

// Writes the results of four features of a word; eight adjacent lanes share a word. Sums are twice
// the counts minus the degree, or half of that.
template <bool kHalved = false>
__device__ __forceinline__ void finish_quad(const AggregateArgs& a, int64_t row, int64_t word,
                                            int first, const int (&counts)[4], int degree,
                                            bool valid) {
  const int64_t feature = word * kWordBits + first;
  const int64_t place = row * a.features + feature;
  const int left =
      valid ? static_cast<int>(max(int64_t{0}, min(int64_t{4}, a.features - feature))) : 0;
  const bool whole = left == 4 && a.features % 4 == 0;
  if (a.out_int != nullptr) {
    int sums[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) sums[k] = signed_sum<kHalved>(counts[k], degree);
    if (whole && reinterpret_cast<uintptr_t>(a.out_int) % sizeof(int4) == 0) {
      *reinterpret_cast<int4*>(a.out_int + place) = make_int4(sums[0], sums[1], sums[2], sums[3]);
      return;
    }
    for (int k = 0; k < left; ++k) a.out_int[place + k] = sums[k];
    return;
  }
  float values[4];
  uint32_t bits = 0;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    if (k >= left) break;
    const int sum = signed_sum<kHalved>(counts[k], degree);
    values[k] = aggregate_value(a, row, feature + k, __int2float_rn(sum));
    if (a.out_bits != nullptr)
      bits |= static_cast<uint32_t>(aggregate_bit(a, feature + k, values[k])) << k;
  }
  if (a.out_float != nullptr) {
    if (whole && reinterpret_cast<uintptr_t>(a.out_float) % sizeof(float4) == 0) {
      *reinterpret_cast<float4*>(a.out_float + place) =
          make_float4(values[0], values[1], values[2], values[3]);
      return;
    }
#pragma unroll
    for (int k = 0; k < 4; ++k)
      if (k < left) a.out_float[place + k] = values[k];
    return;
  }
  bits <<= first;
#pragma unroll
  for (int distance = 1; distance < 8; distance *= 2)
    bits |= __shfl_xor_sync(kFullWarp, bits, distance);
  if (first == 0 && left > 0)
    a.out_bits[row * words_for(a.features) + word] = static_cast<int32_t>(bits);
}

// Finishes a warp's rows from folded planes. `row`, `degree` and `wanted` belong to the lane's row;
// `chunk` is the first word of the columns.
template <class Lanes, bool kHalved = false, int kPlanes>
__device__ __forceinline__ void finish_planes(const AggregateArgs& a, const Lanes& lanes,
                                              const CountPlanes<Lanes::kKept, kPlanes>& planes,
                                              int64_t row, int degree, bool wanted, int64_t chunk) {
  const int64_t words = words_for(a.features);
  if (a.out_bits != nullptr && a.threshold == nullptr && a.bias == nullptr) {
    const float scale = wanted && a.row_scale != nullptr ? a.row_scale[row] : 1.0f;
    if (__all_sync(kFullWarp, isfinite(scale))) {
      // scale * (2 count - degree) >= 0, evaluated on the bit planes.
      const uint32_t flip = scale < 0 ? ~0u : 0u;
      const uint32_t bound = scale > 0   ? (static_cast<uint32_t>(degree) + 1) / 2
                             : scale < 0 ? static_cast<uint32_t>(degree) / 2 + 1
                                         : 0;
      const int64_t first = chunk + lanes.kept_word();
#pragma unroll
      for (int w = 0; w < Lanes::kKept; ++w) {
        uint32_t bits = planes.at_least(w, bound) ^ flip;
        if (first + w == words - 1) bits &= last_word_mask(a.features);
        if (wanted && lanes.owns_words() && first + w < words)
          a.out_bits[row * words + first + w] = static_cast<int32_t>(bits);
      }
      return;
    }
  }
  const int64_t first_row = row - lanes.row();
  lanes.for_quads(planes, [&](int r, int w, int first, const int (&counts)[4], bool valid) {
    const int source = r * Lanes::kSplits * Lanes::kColumns;
    const bool row_wanted = __shfl_sync(kFullWarp, wanted, source);
    const int row_degree = __shfl_sync(kFullWarp, degree, source);
    finish_quad<kHalved>(a, first_row + r, chunk + w, first, counts, row_degree,
                         valid && row_wanted && chunk + w < words);
  });
}

}  // namespace bitgnn::cuda::bspmm

// Packs a few rows with one warp: coalesced loads, one vote per word, the canonical row scale.
#pragma once

#include <type_traits>

#include "core/cuda/common.cuh"
#include "core/cuda/with_quantised_type.h"
#include "pack/arguments.h"

namespace bitgnn::cuda::pack {

// words_for() of core/common.h for both host and device.
__host__ __device__ constexpr int64_t word_count(int64_t features) {
  return (features + kWordBits - 1) / kWordBits;
}

__device__ __forceinline__ float to_value(float x) { return x; }
__device__ __forceinline__ double to_value(double x) { return x; }
__device__ __forceinline__ float to_value(__half x) { return __half2float(x); }
__device__ __forceinline__ float to_value(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float to_value(uint8_t x) { return static_cast<float>(x); }

// Calls f with a zero of the element type.
template <class F>
cudaError_t with_float_type(FloatType type, const F& f) {
  if (type == FloatType::kFloat64) return f(double{});
  if (type == FloatType::kUInt8) return f(uint8_t{});
  return with_quantised_type(type, f);
}

// Scales of rows without features, if scales are wanted.
inline cudaError_t clear_scales(float* scale, int64_t rows, const Context& context) {
  if (scale == nullptr) return cudaSuccess;
  return cudaMemsetAsync(scale, 0, static_cast<size_t>(rows) * sizeof(float), context.stream);
}

// A source of rows. A Row stands at one column of one row; load(c, back) is the element c words
// ahead, minus `back` columns; next(row) stands in the row below. kScales: rows may be asked for
// their scale; kFewForms: few forms of the packing kernel are compiled. Doubles stay doubles, since
// rounding could move a value across its threshold; all other types compare in float32.
template <class T>
struct DenseRows {
  static constexpr bool kScales = true;
  static constexpr bool kFewForms = !std::is_same_v<T, float>;
  using Value = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const T* x;
  int64_t stride;

  struct Row {
    const T* x;
    __device__ __forceinline__ Value load(int c, int back) const {
      return to_value(__ldg(x + (c * kWarp - back)));
    }
    __device__ __forceinline__ void advance(int words) { x += words * kWarp; }
  };
  __device__ __forceinline__ Row row(int64_t i, int64_t column) const {
    return {x + i * stride + column};
  }
  __device__ __forceinline__ Row next(const Row& row) const { return {row.x + stride}; }
};

// A warp packs kRows rows at a time with kWords words of each in flight; word c of row r ends up in
// lane r * kSlots + c.
template <int kRows, int kWords>
struct PackTile {
  static constexpr int kSlots = kWords <= 2 ? kWords : kWords <= 4 ? 4 : kWords <= 8 ? 8 : 16;
  static_assert((kRows & (kRows - 1)) == 0, "rows are folded and chosen in pairs");
  static_assert(kRows * kSlots <= kWarp, "every word needs a lane of its own");
  static constexpr int kLanesPerRow = kWarp / kRows;  // lanes that end with the same row's sum

  __device__ static int word_row(int lane) { return lane / kSlots; }
  __device__ static int word_column(int lane) { return lane % kSlots; }
  // True if the lane holds a word.
  __device__ static bool holds(int lane) {
    return word_row(lane) < kRows && word_column(lane) < kWords;
  }
};

// vote[lane % kCount], chosen by a tree of selections on the bits of the lane number.
template <int kCount, int kBit = 1>
__device__ __forceinline__ uint32_t choose_by_lane(const uint32_t (&vote)[kCount], int lane) {
  if constexpr (kCount == 1) {
    return vote[0];
  } else {
    uint32_t half[kCount / 2];
    const bool odd = (lane & kBit) != 0;
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) half[i] = odd ? vote[2 * i + 1] : vote[2 * i];
    return choose_by_lane<kCount / 2, kBit * 2>(half, lane);
  }
}

// Adds the lanes of every row in the canonical order: lane i takes lane i + 16, then 8, 4, 2, 1.
// While there are several rows, the halves of the warp share the work of two. The result belongs to
// row lane / (32 / kRows).
template <int kStep = kWarp / 2, int kRows, class T>
__device__ __forceinline__ T fold_lanes(const T (&sum)[kRows], int lane) {
  if constexpr (kStep == 0) {
    return sum[0];
  } else if constexpr (kRows == 1) {
    const T next[1] = {sum[0] + __shfl_xor_sync(kFullWarp, sum[0], kStep)};
    return fold_lanes<kStep / 2>(next, lane);
  } else {
    T next[kRows / 2];
    const bool upper = (lane & kStep) != 0;
#pragma unroll
    for (int r = 0; r < kRows / 2; ++r) {
      const T keep = upper ? sum[r + kRows / 2] : sum[r];
      const T give = upper ? sum[r] : sum[r + kRows / 2];
      next[r] = keep + __shfl_xor_sync(kFullWarp, give, kStep);
    }
    return fold_lanes<kStep / 2>(next, lane);
  }
}

// The scale of a row of `cols` features from its folded lanes.
__device__ __forceinline__ float mean_of(float sum, int64_t cols) {
  return __fdiv_rn(sum, __ll2float_rn(cols));
}

// One turn: packs kWords words of every row. In a row's last turn the first `skip` words are
// already packed, and in the last word the lane's column may lie `back` columns past the end.
template <int kRows, int kWords, bool kScale, bool kShift, bool kLast, class Source>
__device__ __forceinline__ uint32_t pack_turn(const typename Source::Row (&row)[kRows],
                                              const float* threshold, const float* gain, int skip,
                                              int back, int lane, float (&sum)[kRows]) {
  using Value = typename Source::Value;
  using Tile = PackTile<kRows, kWords>;
  Value value[kRows][kWords];
#pragma unroll
  for (int c = 0; c < kWords; ++c) {
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      value[r][c] = row[r].load(c, kLast && c == kWords - 1 ? back : 0);
  }
  float shift[kWords] = {}, factor[kWords];
  if constexpr (kShift) {
#pragma unroll
    for (int c = 0; c < kWords; ++c) {
      const int column = c * kWarp - (kLast && c == kWords - 1 ? back : 0);
      if (threshold != nullptr) shift[c] = __ldg(threshold + column);
      if constexpr (kScale) factor[c] = gain != nullptr ? __ldg(gain + column) : 1.0f;
    }
  }
  uint32_t vote[kRows * Tile::kSlots] = {};
#pragma unroll
  for (int c = 0; c < kWords; ++c) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const Value v = value[r][c];
      vote[r * Tile::kSlots + c] =
          __ballot_sync(kFullWarp, v >= static_cast<Value>(kShift ? shift[c] : 0.0f));
      if constexpr (kScale) {
        float distance = static_cast<float>(v);
        if constexpr (kShift) distance = __fmul_rn(__fsub_rn(distance, shift[c]), factor[c]);
        const bool counts = !kLast || (c >= skip && (c < kWords - 1 || back == 0));
        if (counts) sum[r] = __fadd_rn(sum[r], fabsf(distance));
      }
    }
  }
  return choose_by_lane(vote, lane);
}

// Packs words [first_word, last_word) of rows first_row .. first_row + kRows - 1 (those past `rows`
// repeat the last one); rows must have at least kWords words. Calls store(word, bits, fresh) in
// every lane: the lane's bits are those of word `word` + its word_column(), and new if `fresh`.
// kShift is set if there is a threshold or a gain. Returns fold_lanes() of |(x - threshold) * gain|
// summed over those words, if scales are wanted.
template <int kRows, int kWords, bool kScale, bool kShift, class Source, class Store>
__device__ __forceinline__ float pack_rows(const Source& source, const PackArgs& args,
                                           int64_t first_row, int64_t rows, int first_word,
                                           int last_word, int lane, const Store& store) {
  using Tile = PackTile<kRows, kWords>;
  float sum[kRows] = {};
  const int64_t column = static_cast<int64_t>(first_word) * kWarp + lane;
  const int existing = static_cast<int>(min(rows - first_row, static_cast<int64_t>(kRows)));
  typename Source::Row row[kRows];
  row[0] = source.row(first_row, column);
#pragma unroll
  for (int r = 1; r < kRows; ++r) row[r] = r < existing ? source.next(row[r - 1]) : row[r - 1];
  const float* threshold = args.threshold != nullptr ? args.threshold + column : nullptr;
  const float* gain = args.gain != nullptr ? args.gain + column : nullptr;
  const auto advance = [&](int words) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) row[r].advance(words);
    if constexpr (kShift) {
      if (threshold != nullptr) threshold += words * kWarp;
      if (kScale && gain != nullptr) gain += words * kWarp;
    }
  };
  int word = first_word;
#pragma unroll 1
  for (; word + kWords < last_word; word += kWords) {
    store(word,
          pack_turn<kRows, kWords, kScale, kShift, false, Source>(row, threshold, gain, 0, 0, lane,
                                                                  sum),
          true);
    advance(kWords);
  }
  // The last turn ends with the last word; words shared with the previous turn are packed twice.
  const int start = last_word - kWords;
  const int skip = word - start;
  if (skip != 0) advance(-skip);
  const bool ends = last_word == word_count(args.cols);
  const int features = ends ? static_cast<int>(args.cols - 1) % kWarp + 1 : kWarp;  // in last word
  const int back = max(lane - (features - 1), 0);
  uint32_t bits = pack_turn<kRows, kWords, kScale, kShift, true, Source>(row, threshold, gain, skip,
                                                                         back, lane, sum);
  const int word_column = Tile::word_column(lane);
  if (word_column == kWords - 1) bits &= 0xffffffffu >> (kWarp - features);
  store(start, bits, word_column >= skip);
  if constexpr (kScale) return fold_lanes(sum, lane);
  return 0.0f;
}

}  // namespace bitgnn::cuda::pack

// Wide rows of product halves, with one factor per row: the intermediate between a product and the
// sums over neighbours.
#pragma once

#include <cuda_fp16.h>

#include "bspmm/narrow_sums.h"
#include "core/cuda/common.cuh"

namespace bitgnn::cuda::pairs {

constexpr int kWideElements = 8;  // 16-bit ones that a lane reads at a time
constexpr int kPartFeatures = 64;
constexpr int kPartBytes = kPartFeatures * 2;

// The feature of a part at a place of its row: eight lanes hold two runs of four features each and
// write whole lines of results.
__host__ __device__ constexpr int wide_feature(int place) {
  constexpr int kRun = 4, kRuns = kWideElements / kRun;
  return place % kWideElements / kRun * (kPartFeatures / kRuns) + place / kWideElements * kRun +
         place % kRun;
}

// Halves as 16-bit floats, which hold integers up to 2048 exactly: one conversion each.
struct HalfFloats {
  static constexpr int64_t kMostFeatures = 4096;

  __device__ static uint32_t pair(int32_t low, int32_t high) {
    const __half2 both = __floats2half2_rn(small_float(low), small_float(high));
    uint32_t word;
    memcpy(&word, &both, sizeof(word));
    return word;
  }
  // Two instructions, where a conversion would take the slowest unit: 1.5 * 2^23 + v, minus 1.5 *
  // 2^23.
  __device__ static float small_float(int32_t v) {
    return __fadd_rn(__int_as_float(0x4b400000 + v), -12582912.0f);
  }
  __device__ static float2 values(uint32_t word) {
    __half2 both;
    memcpy(&both, &word, sizeof(word));
    return __half22float2(both);
  }
};

// Halves as 16-bit integers.
struct HalfIntegers {
  static constexpr int64_t kMostFeatures = kMostShortFeatures;

  __device__ static uint32_t pair(int32_t low, int32_t high) {
    return (static_cast<uint32_t>(low) & 0xffffu) | static_cast<uint32_t>(high) << 16;
  }
  __device__ static float2 values(uint32_t word) {
    return make_float2(__int2float_rn(static_cast<int16_t>(word)),
                       __int2float_rn(static_cast<int16_t>(word >> 16)));
  }
};

// Row j of chunk c is at rows + (c * count + j) * pitch, in parts of 64 features. Features past the
// last one are meaningless.
struct WideTable {
  char* rows;
  float* factors;  // [count]
  int64_t count;
  int parts;       // per chunk
  uint32_t pitch;  // parts * kPartBytes

  __host__ __device__ char* chunk(int64_t c) const { return rows + c * count * pitch; }
  // Part `number` of all parts of a row.
  __device__ __forceinline__ char* part(int64_t row, int number) const {
    return chunk(number / parts) + row * pitch + number % parts * kPartBytes;
  }
};

}  // namespace bitgnn::cuda::pairs

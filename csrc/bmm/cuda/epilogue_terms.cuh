// Row and column terms of a product's epilogue, besides the sums of popc(a & b).
#pragma once

#include <type_traits>

#include "bmm/cuda/output.cuh"
#include "core/cuda/mma_b1.cuh"

namespace bitgnn::cuda::bmm {

__host__ __device__ constexpr bool writes_bits(BmmOutput output) {
  return output == BmmOutput::kSigns || output == BmmOutput::kBits || output == BmmOutput::kSumBits;
}
__host__ __device__ constexpr bool needs_scales(BmmOutput output) {
  return output != BmmOutput::kSigns && output != BmmOutput::kInt;
}
__host__ __device__ constexpr bool compares_values(BmmOutput output) {
  return writes_bits(output) && needs_scales(output);
}
__host__ __device__ constexpr bool writes_floats(BmmOutput output) {
  return !writes_bits(output) && needs_scales(output);
}
__host__ __device__ constexpr bool adds(BmmOutput output) {
  return output == BmmOutput::kSumBits || output == BmmOutput::kSumFloat;
}

template <BmmOutput kOutput>
using OutputConstant = std::integral_constant<BmmOutput, kOutput>;

// Column terms of a tile, in shared memory. Missing scales and biases are 1 and -0, which leave
// every value unchanged.
template <int kColumns>
struct alignas(16) ColumnTable {
  int32_t term[kColumns];  // -2 |w|; for signs multiplied by kBothRows
  float scale[kColumns];
  float bias[kColumns];
  float threshold[kColumns];
  uint32_t flip[kColumns / 32];
  uint32_t exists[kColumns / 32];
};

// Signs are computed for two rows at once in the halves of a word, which hold dot + 2^15. Products
// with more features use kBits.
constexpr uint32_t kBothRows = 0x10001;
constexpr int64_t kMostSignFeatures = 0x7fff;

// Output kind for kernels that end with slabs; scales ahead of a comparison with zero must already
// be dropped.
inline BmmOutput slab_output(const BmmArgs& a) {
  const BmmOutput output = bmm_output(a);
  return output == BmmOutput::kSigns && a.size > kMostSignFeatures ? BmmOutput::kBits : output;
}

template <BmmOutput kOutput>
__device__ __forceinline__ int32_t column_term(int32_t count) {
  const int32_t term = -2 * count;
  if constexpr (kOutput == BmmOutput::kSigns)
    return static_cast<int32_t>(static_cast<uint32_t>(term) * kBothRows);
  return term;
}

// Entries of one column, loaded ahead of use.
struct ColumnEntry {
  float scale, bias, threshold;
  uint32_t flip, exists;  // of the 32 columns that the warp loads
};

// All lanes of the warp participate; lane 0 loads a column that is a multiple of 32.
template <BmmOutput kOutput>
__device__ __forceinline__ ColumnEntry load_column(const BmmArgs& a, int64_t column) {
  const bool exists = column < a.out_features;
  ColumnEntry entry{};
  if constexpr (needs_scales(kOutput)) {
    entry.scale = exists && a.out_scale != nullptr ? a.out_scale[column] : 1.0f;
    entry.bias = exists && a.bias != nullptr ? a.bias[column] : -0.0f;
  }
  if constexpr (compares_values(kOutput))
    entry.threshold = exists && a.threshold != nullptr ? a.threshold[column] : 0.0f;
  if constexpr (writes_bits(kOutput)) {
    entry.flip = __ballot_sync(kFullWarp, exists && a.flip != nullptr && a.flip[column]);
    entry.exists = __ballot_sync(kFullWarp, exists);
  }
  return entry;
}

template <BmmOutput kOutput, int kColumns>
__device__ __forceinline__ void share_column(ColumnTable<kColumns>& table, int at,
                                             const ColumnEntry& entry) {
  if constexpr (needs_scales(kOutput)) {
    table.scale[at] = entry.scale;
    table.bias[at] = entry.bias;
  }
  if constexpr (compares_values(kOutput)) table.threshold[at] = entry.threshold;
  if constexpr (writes_bits(kOutput)) {
    if (at % 32 == 0) {
      table.flip[at / 32] = entry.flip;
      table.exists[at / 32] = entry.exists;
    }
  }
}

// (row_scale * column_scale) * dot + bias, each step rounded to float32 as in the reference; the
// table's defaults for missing terms change nothing.
__device__ __forceinline__ float slab_value(float row_scale, float column_scale, float bias,
                                            int32_t dot) {
  return __fadd_rn(__fmul_rn(__fmul_rn(row_scale, column_scale), __int2float_rn(dot)), bias);
}

// Terms of a lane's two rows, g and g + 8 of the slab.
struct SlabRows {
  int32_t term[2];  // K - 2 |x|; for signs term[0] holds both
  float scale[2];   // 1 if missing
};

template <BmmOutput kOutput>
__device__ __forceinline__ void set_row_terms(SlabRows& rows, const BmmArgs& a, int32_t count0,
                                              int32_t count1) {
  const auto size = static_cast<int32_t>(a.size);
  if constexpr (kOutput == BmmOutput::kSigns) {
    const auto low = static_cast<uint32_t>(size - 2 * count0 + 0x8000);
    const auto high = static_cast<uint32_t>(size - 2 * count1 + 0x8000);
    rows.term[0] = static_cast<int32_t>(low + (high << 16));
  } else {
    rows.term[0] = size - 2 * count0;
    rows.term[1] = size - 2 * count1;
  }
}

__device__ __forceinline__ void load_row_scales(SlabRows& rows, const BmmArgs& a, int64_t row,
                                                int lane) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t at = row + fragment_group(lane) + half * 8;
    rows.scale[half] = a.row_scale != nullptr && at < a.rows ? a.row_scale[at] : 1.0f;
  }
}

}  // namespace bitgnn::cuda::bmm

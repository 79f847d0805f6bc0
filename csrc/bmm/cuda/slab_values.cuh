// Values of a warp's slab, 16 rows by kColumns columns of sums, and where they are written.
#pragma once

#include "bmm/cuda/epilogue_terms.cuh"
#include "bmm/cuda/output.cuh"

namespace bitgnn::cuda::bmm {

// Destination of a slab: its first element, the row pitch in words or elements, and the number of
// rows and columns from there on. The addend, if any, is contiguous and starts at `addend`.
struct SlabTarget {
  int32_t* to;
  int64_t pitch;
  int64_t rows;
  int64_t columns;
  const float* addend;
  int64_t addend_pitch;
};

// Target in the product's output from row `row` and column `column`, a multiple of 32.
template <BmmOutput kOutput>
__device__ __forceinline__ SlabTarget slab_target(const BmmArgs& a, int64_t row, int64_t column) {
  SlabTarget target{nullptr, a.out_features, a.rows - row, a.out_features - column,
                    nullptr, a.out_features};
  if constexpr (adds(kOutput)) target.addend = a.addend + row * a.out_features + column;
  if constexpr (writes_bits(kOutput)) {
    target.pitch = output_words(a);
    target.to = a.out_bits + row * target.pitch + column / 32;
  } else if constexpr (kOutput == BmmOutput::kInt) {
    target.to = a.out_int + row * target.pitch + column;
  } else {
    target.to = reinterpret_cast<int32_t*>(a.out_float) + row * target.pitch + column;
  }
  return target;
}

// Per-warp staging of 16 rows by 32 values. The pitch avoids bank conflicts on fragment writes and
// keeps rows aligned for vector access.
constexpr int kStagedPitch = 40;
constexpr int kStagedWords = kMmaRows * kStagedPitch;

__device__ __forceinline__ int32_t add_value(int32_t value, const float* addend) {
  return __float_as_int(__fadd_rn(__int_as_float(value), __ldg(addend)));
}

// Writes staged values, plus their addend, as whole rows of 128 bytes.
template <BmmOutput kOutput>
__device__ __forceinline__ void store_staged_values(const SlabTarget& target, const int32_t* staged,
                                                    int column, int lane) {
  const int64_t left = target.columns - column;
  int32_t* to = target.to + column;
  if ((target.pitch & 3) == 0 && (reinterpret_cast<uintptr_t>(to) & 15) == 0) {
    const int at = lane % 8 * 4;
#pragma unroll
    for (int i = 0; i < kMmaRows; i += 4) {
      const int row = i + lane / 8;
      if (row >= target.rows || at >= left) continue;
      int4 value = *reinterpret_cast<const int4*>(staged + row * kStagedPitch + at);
      if constexpr (adds(kOutput)) {
        const float* addend = target.addend + row * target.addend_pitch + column + at;
        value = make_int4(add_value(value.x, addend), add_value(value.y, addend + 1),
                          add_value(value.z, addend + 2), add_value(value.w, addend + 3));
      }
      *reinterpret_cast<int4*>(to + row * target.pitch + at) = value;
    }
  } else {
#pragma unroll 4
    for (int row = 0; row < kMmaRows; ++row) {
      if (row >= target.rows || lane >= left) continue;
      int32_t value = staged[row * kStagedPitch + lane];
      if constexpr (adds(kOutput))
        value = add_value(value, target.addend + row * target.addend_pitch + column + lane);
      to[row * target.pitch + lane] = value;
    }
  }
}

template <BmmOutput kOutput, int kColumns>
__device__ __forceinline__ void store_slab_values(const SlabTarget& target,
                                                  const ColumnTable<kColumns>& table,
                                                  const SlabRows& rows,
                                                  const int32_t (&sum)[kColumns / 2],
                                                  int32_t* staged, int lane) {
  const int quad = fragment_quad(lane);
  int32_t* place = staged + fragment_group(lane) * kStagedPitch + quad * 2;
#pragma unroll
  for (int first = 0; first < kColumns; first += 32) {
    if (first >= target.columns) break;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int at = first + j * 8 + quad * 2;
      const int2 terms = *reinterpret_cast<const int2*>(table.term + at);
      float2 scales, biases;
      if constexpr (writes_floats(kOutput)) {
        scales = *reinterpret_cast<const float2*>(table.scale + at);
        biases = *reinterpret_cast<const float2*>(table.bias + at);
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int32_t* of = sum + (first / 8 + j) * 4 + half * 2;
        int2 value = make_int2(4 * of[0] + (terms.x + rows.term[half]),
                               4 * of[1] + (terms.y + rows.term[half]));
        if constexpr (writes_floats(kOutput)) {
          value.x = __float_as_int(slab_value(rows.scale[half], scales.x, biases.x, value.x));
          value.y = __float_as_int(slab_value(rows.scale[half], scales.y, biases.y, value.y));
        }
        *reinterpret_cast<int2*>(place + half * 8 * kStagedPitch + j * 8) = value;
      }
    }
    __syncwarp();
    store_staged_values<kOutput>(target, staged, first, lane);
    __syncwarp();
  }
}

// Writes values one by one, for shared-memory targets with densely packed rows.
template <BmmOutput kOutput, int kColumns>
__device__ __forceinline__ void stage_slab_values(const SlabTarget& target,
                                                  const ColumnTable<kColumns>& table,
                                                  const SlabRows& rows,
                                                  const int32_t (&sum)[kColumns / 2], int lane) {
  const int pitch = static_cast<int>(target.pitch);
  const int first = fragment_quad(lane) * 2;
  const int left = static_cast<int>(min(int64_t{kColumns}, target.columns)) - first;
  int32_t* const low = target.to + fragment_group(lane) * pitch + first;
  int32_t* const high = low + 8 * pitch;
#pragma unroll
  for (int at = 0; at < kColumns; at += 8) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      if (at + e >= left) continue;
      const int column = at + first + e;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        int32_t value = 4 * sum[at / 2 + half * 2 + e] + (table.term[column] + rows.term[half]);
        if constexpr (writes_floats(kOutput))
          value = __float_as_int(
              slab_value(rows.scale[half], table.scale[column], table.bias[column], value));
        (half == 0 ? low : high)[at + e] = value;
      }
    }
  }
}

}  // namespace bitgnn::cuda::bmm

// Codes of float rows: a warp loads up to 128 neighbouring values of several rows and rounds them.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "core/cuda/common.cuh"
#include "int8/arguments.h"

namespace bitgnn::cuda::int8 {

constexpr int kChunk = 128;  // codes of a row that a warp makes at once
constexpr int kLaneCodes = kChunk / kWarp;
constexpr int kBatch = 8;  // rows whose loads are in flight together

// Column within a chunk of a lane's k-th value. In vectors, a lane holds neighbours.
template <bool kVector>
__device__ __forceinline__ int lane_column(int lane, int k) {
  return kVector ? lane * kLaneCodes + k : lane + k * kWarp;
}

// Value of a float16 or bfloat16, whose bits may have others above them.
template <class T>
__device__ __forceinline__ float half_value(uint32_t bits) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    return __uint_as_float(bits << 16);
  else
    return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
}

// A lane's values of one row and chunk as they are in memory. Volatile loads stay ahead of the
// waits that follow them. Rows are read once, so they do not displace other data in L2.
template <class T, bool kVector>
struct LaneValues {
  static constexpr bool kPairs = kVector && sizeof(T) == 2;
  uint32_t raw[kPairs ? kLaneCodes / 2 : kLaneCodes];

  // Loads the values from `from` on, the lane's first one, of which `existing` exist.
  __device__ __forceinline__ void load(const T* from, int existing) {
    if constexpr (kPairs) {
      raw[0] = raw[1] = 0;
      if (existing > 0)
        asm volatile("ld.global.cs.v2.b32 {%0, %1}, [%2];\n"
                     : "=r"(raw[0]), "=r"(raw[1])
                     : "l"(from));
    } else if constexpr (kVector) {
      raw[0] = raw[1] = raw[2] = raw[3] = 0;
      if (existing > 0)
        asm volatile("ld.global.cs.v4.b32 {%0, %1, %2, %3}, [%4];\n"
                     : "=r"(raw[0]), "=r"(raw[1]), "=r"(raw[2]), "=r"(raw[3])
                     : "l"(from));
    } else {
#pragma unroll
      for (int k = 0; k < kLaneCodes; ++k) {
        raw[k] = 0;
        if (k * kWarp >= existing) continue;
        if constexpr (sizeof(T) == 2) {
          uint16_t half;
          asm volatile("ld.global.cs.b16 %0, [%1];\n" : "=h"(half) : "l"(from + k * kWarp));
          raw[k] = half;
        } else {
          asm volatile("ld.global.cs.b32 %0, [%1];\n" : "=r"(raw[k]) : "l"(from + k * kWarp));
        }
      }
    }
  }

  __device__ __forceinline__ float value(int k) const {
    if constexpr (sizeof(T) == 4)
      return __uint_as_float(raw[k]);
    else
      return half_value<T>(kPairs ? raw[k / 2] >> (k % 2 * 16) : raw[k]);
  }
};

// Scales of a lane's columns in a chunk; 0 past the last column, so that codes there are 0.
struct LaneScales {
  float centre[kLaneCodes];
  float inverse_step[kLaneCodes];

  // From arrays of whole chunks in shared memory.
  template <bool kVector>
  __device__ __forceinline__ void read(const float* centres, const float* inverse_steps, int chunk,
                                       int lane) {
    const int first = chunk * kChunk + lane_column<kVector>(lane, 0);
    if constexpr (kVector) {
      const auto c = *reinterpret_cast<const float4*>(centres + first);
      const auto s = *reinterpret_cast<const float4*>(inverse_steps + first);
      centre[0] = c.x, centre[1] = c.y, centre[2] = c.z, centre[3] = c.w;
      inverse_step[0] = s.x, inverse_step[1] = s.y, inverse_step[2] = s.z, inverse_step[3] = s.w;
    } else {
#pragma unroll
      for (int k = 0; k < kLaneCodes; ++k) {
        centre[k] = centres[first + k * kWarp];
        inverse_step[k] = inverse_steps[first + k * kWarp];
      }
    }
  }

  // From the arguments.
  template <bool kVector>
  __device__ __forceinline__ void load(const Int8PackArgs& a, int64_t chunk, int lane) {
#pragma unroll
    for (int k = 0; k < kLaneCodes; ++k) {
      const int64_t column = chunk * kChunk + lane_column<kVector>(lane, k);
      const bool exists = column < a.size;
      centre[k] = exists ? __ldg(a.centre + column) : 0.0f;
      inverse_step[k] = exists ? __ldg(a.inverse_step + column) : 0.0f;
    }
  }
};

// Whole number nearest to (x - centre) * inverse_step, at least -127; the conversion rounds half to
// even, saturates and turns NaN into 0.
__device__ __forceinline__ int32_t rounded_level(float x, float centre, float inverse_step) {
  const float level = __fmul_rn(__fsub_rn(x, centre), inverse_step);
  int32_t rounded;
  asm("{\n.reg .f32 bounded;\n"
      "max.NaN.f32 bounded, %1, 0fC2FE0000;\n"  // -127
      "cvt.rni.s32.f32 %0, bounded;\n}\n"
      : "=r"(rounded)
      : "f"(level));
  return rounded;
}

// Bytes of four numbers, saturated; the first is the lowest.
__device__ __forceinline__ uint32_t saturated_bytes(int32_t q0, int32_t q1, int32_t q2,
                                                    int32_t q3) {
  uint32_t bytes;
  asm("{\n.reg .b32 upper;\n"
      "cvt.pack.sat.s8.s32.b32 upper, %4, %3, 0;\n"
      "cvt.pack.sat.s8.s32.b32 %0, %2, %1, upper;\n}\n"
      : "=r"(bytes)
      : "r"(q0), "r"(q1), "r"(q2), "r"(q3));
  return bytes;
}

// Codes of a lane's values: byte k is that of lane_column(lane, k).
template <class T, bool kVector>
__device__ __forceinline__ uint32_t lane_codes(const LaneValues<T, kVector>& values,
                                               const LaneScales& scales) {
  int32_t level[kLaneCodes];
#pragma unroll
  for (int k = 0; k < kLaneCodes; ++k)
    level[k] = rounded_level(values.value(k), scales.centre[k], scales.inverse_step[k]);
  return saturated_bytes(level[0], level[1], level[2], level[3]);
}

// Stores a lane's codes in a row of 128 bytes whose 16-byte units lie at their index XOR `swizzle`.
template <bool kVector>
__device__ __forceinline__ void store_codes(unsigned char* row, uint32_t codes, int lane,
                                            int swizzle) {
  if constexpr (kVector) {
    *reinterpret_cast<uint32_t*>(row + (lane * kLaneCodes ^ swizzle * 16)) = codes;
  } else {
#pragma unroll
    for (int k = 0; k < kLaneCodes; ++k)
      row[(lane + k * kWarp) ^ swizzle * 16] = static_cast<unsigned char>(codes >> (8 * k));
  }
}

// Loads a lane's values of kBatch rows from `first_row` on in a chunk.
template <class T, bool kVector>
__device__ __forceinline__ void load_batch(LaneValues<T, kVector> (&to)[kBatch],
                                           const Int8PackArgs& a, int64_t first_row, int chunk,
                                           int lane) {
  const int first = chunk * kChunk + lane_column<kVector>(lane, 0);
  const T* from = static_cast<const T*>(a.x) + first_row * a.row_stride + first;
  const auto left = static_cast<int>(a.size) - first;
#pragma unroll
  for (int r = 0; r < kBatch; ++r) {
    to[r].load(from, first_row + r < a.rows ? left : 0);
    from += a.row_stride;
  }
}

// Calls f with a zero of the element type.
template <class F>
__device__ __forceinline__ void with_float_type(FloatType type, const F& f) {
  if (type == FloatType::kFloat32)
    f(float{});
  else if (type == FloatType::kFloat16)
    f(__half{});
  else
    f(__nv_bfloat16{});
}

// Whether rows consist of whole vectors of `bytes`, which are aligned.
inline bool has_vectors(const Int8PackArgs& a, int64_t bytes) {
  const int64_t size = element_bytes(a.type);
  return a.size * size % bytes == 0 && a.row_stride * size % bytes == 0 &&
         is_aligned(a.x, static_cast<size_t>(bytes));
}

// Whether a lane's values are such vectors.
inline bool has_vector_rows(const Int8PackArgs& a) {
  return has_vectors(a, kLaneCodes * element_bytes(a.type));
}

}  // namespace bitgnn::cuda::int8

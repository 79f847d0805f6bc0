// Results of the warpgroup product of 8-bit rows: sums that start at minus the threshold, and the
// slab of a warp, with addends from the ring and float results by whole lines.
#pragma once

#include <cstddef>

#include "bspmm/arguments.h"
#include "int8/cuda/hopper/stages.cuh"

namespace bitgnn::cuda::int8 {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Writes 16 rows by 32 columns of values as whole lines, which pass through `scratch`: 2 KB of the
// warp, 16-byte units of row r at their index XOR 2 (r % 4), free of bank conflicts.
__device__ __forceinline__ void store_lines(const Int8BmmArgs& a, unsigned char* scratch,
                                            const SlabValues& value, int64_t row, int64_t column,
                                            int lane) {
  const int group = fragment_group(lane), unit = lane % 8;
  unsigned char* const to = scratch + group * kSwizzleBytes;
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int at = (i / 2 * 32 + fragment_quad(lane) * 8) ^ group % 4 * 32;
    *reinterpret_cast<float2*>(to + i % 2 * 8 * kSwizzleBytes + at) = value[i / 2][i % 2];
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kMmaRows; i += 4) {
    const int at = i + lane / 8;
    const auto line = *reinterpret_cast<const float4*>(scratch + at * kSwizzleBytes +
                                                       (unit * 16 ^ lane / 8 * 32));
    if (row + at < a.rows && column + unit * 4 < a.out_features)
      *reinterpret_cast<float4*>(a.out_float + (row + at) * a.out_features + column + unit * 4) =
          line;
  }
}

// Largest number of features for which a sum less a threshold fits in int32.
constexpr int64_t kMostDifferenceFeatures = kMostInt8Features / 2;
static_assert(kMostChunks * kChunk <= kMostDifferenceFeatures, "differences fit in int32");

// Sums that are compared with integers start at minus the threshold and are negative where the bit
// is 0. The starts of a lane's four sums of eight columns lie together, in place of terms that
// comparisons of integers do not need.
template <int kColumns>
__device__ __forceinline__ int4* sum_starts(bmm::ColumnTable<kColumns>& table) {
  static_assert(offsetof(bmm::ColumnTable<kColumns>, bias) == kColumns * sizeof(int2),
                "starts take the place of terms and scales");
  return reinterpret_cast<int4*>(table.term);
}

// Replaces the terms by the starts, and inverts all bits. All threads of the block participate.
template <int kColumns>
__device__ __forceinline__ void set_sum_starts(bmm::ColumnTable<kColumns>& table, int thread) {
  int2 below{};
  if (thread < kColumns / 2) below = reinterpret_cast<const int2*>(table.term)[thread];
  __syncthreads();
  if (thread < kColumns / 2)
    sum_starts(table)[thread] = make_int4(-1 - below.x, -1 - below.y, -1 - below.x, -1 - below.y);
  if (thread < kColumns / kWarp) table.flip[thread] = ~table.flip[thread];
}

template <Int8Output kOutput, int kColumns>
__device__ __forceinline__ void start_sums(int32_t (&sum)[kColumns / 2],
                                           bmm::ColumnTable<kColumns>& table, int lane) {
  if constexpr (kOutput == Int8Output::kBits) {
#pragma unroll
    for (int j = 0; j < kColumns / 8; ++j)
      *reinterpret_cast<int4*>(sum + j * 4) = sum_starts(table)[j * 4 + fragment_quad(lane)];
  }
}

// Sign bits of started sums as bmm::store_parts() takes them.
template <int kColumns>
__device__ __forceinline__ void sign_parts(uint32_t (&bits)[bmm::slab_parts(kColumns)],
                                           const int32_t (&sum)[kColumns / 2]) {
#pragma unroll
  for (int i = 31; i >= 0; --i) {
    const int at = i % 16 / 2 * 4 + i / 16 * 2 + i % 2;
#pragma unroll
    for (int part = 0; part < bmm::slab_parts(kColumns); ++part)
      bits[part] = __funnelshift_l(static_cast<uint32_t>(sum[part * 32 + at]), bits[part], 1);
  }
}

// Adds the staged addends of 16 rows and 32 columns to values. `rows` is the warp's part of a slot.
__device__ __forceinline__ void add_staged(SlabValues& value, const unsigned char* rows, int lane) {
  const int group = fragment_group(lane);
#pragma unroll
  for (int i = 0; i < 8; ++i)
    add_values(value[i / 2][i % 2], *reinterpret_cast<const float2*>(
                                        rows + (group + i % 2 * 8) * kSwizzleBytes +
                                        ((i / 2 * 32 + fragment_quad(lane) * 8) ^ group * 16)));
}

// A lane's two rows of a slab, as neighbours' sums need them.
struct SumRows {
  float scale[2];
  const int32_t* longer[2];  // sums of a row whose degree is above kMostShortDegree, else null
  bool has_longer;           // some lane of the warp has such a row

  __device__ __forceinline__ void load(const Int8BmmArgs& a, int64_t row, int lane) {
    const NeighbourSums& n = a.neighbours;
    const auto pointer = [&](int64_t i) {
      return n.rowptr64 ? __ldg(static_cast<const long long*>(n.rowptr) + i)
                        : static_cast<long long>(__ldg(static_cast<const int*>(n.rowptr) + i));
    };
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t at = row + fragment_group(lane) + half * 8;
      scale[half] = 1.0f;
      longer[half] = nullptr;
      if (at >= a.rows) continue;
      if (n.row_scale != nullptr) scale[half] = __ldg(n.row_scale + at);
      const int64_t begin = pointer(at);
      if (pointer(at + 1) - begin > kMostShortDegree)
        longer[half] = n.long_sums + long_row_place(begin) * a.out_features;
    }
    has_longer = __any_sync(kFullWarp, longer[0] != nullptr || longer[1] != nullptr);
  }
};

// Two signed 16-bit integers as floats: their upper bit inverted, they are the low bits of floats
// of 2^23 and above. Conversions of such integers have a quarter of the throughput.
__device__ __forceinline__ float2 short_floats(uint32_t pair) {
  constexpr uint32_t kTwoTo23 = 0x4b000000u;
  constexpr float kOffset = 8388608.0f + 32768.0f;
  const uint32_t shifted = pair ^ 0x80008000u;
  return make_float2(__fsub_rn(__uint_as_float(__byte_perm(shifted, kTwoTo23, 0x7610)), kOffset),
                     __fsub_rn(__uint_as_float(__byte_perm(shifted, kTwoTo23, 0x7632)), kOffset));
}

// Adds the addends of 16 rows and 32 columns, from `first` of the table and `column` on. Their sums
// are in `rows`, the warp's part of a slot for twice as many columns; with kLonger, some rows have
// theirs elsewhere.
template <bool kLonger, int kColumns>
__device__ __forceinline__ void add_sums(SlabValues& value, const Int8BmmArgs& a,
                                         const bmm::ColumnTable<kColumns>& table, const SumRows& of,
                                         const unsigned char* rows, int first, int64_t column,
                                         int lane) {
  const int group = fragment_group(lane), pair = fragment_quad(lane) * 2;
  const auto* biases = reinterpret_cast<const float*>(table.term);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int j = i / 2, half = i % 2;
    const int unit = first % kSumSlotColumns / 8 + j;
    float2 sum = short_floats(*reinterpret_cast<const uint32_t*>(
        rows + (group + half * 8) * kSwizzleBytes + ((unit ^ group) * 16 + pair * 2)));
    if constexpr (kLonger) {
      const int64_t at = column + j * 8 + pair;
      if (of.longer[half] != nullptr && at < a.out_features)
        sum = make_float2(__int2float_rn(of.longer[half][at]),
                          __int2float_rn(of.longer[half][at + 1]));
    }
    const float2 bias = *reinterpret_cast<const float2*>(biases + first + j * 8 + pair);
    add_values(value[j][half], make_float2(__fadd_rn(__fmul_rn(of.scale[half], sum.x), bias.x),
                                           __fadd_rn(__fmul_rn(of.scale[half], sum.y), bias.y)));
  }
}

// Writes the slab of a warp; staged addends come from the ring. `scratch` is 2 KB of the warp, used
// if there are none.
template <Int8Output kOutput, int kColumns, int kRings>
__device__ __forceinline__ void finish_slab(const WgmmaMemory<kColumns, kRings>& shared,
                                            const Int8BmmArgs& a, const WgmmaPlan& plan,
                                            unsigned char* scratch,
                                            const int32_t (&sum)[kColumns / 2], int64_t row,
                                            int64_t column, StageRing& ring, const SumRows& of,
                                            int lane) {
  const auto& table = shared.tail.columns;
  uint32_t bits[bmm::slab_parts(kColumns)] = {};
  if constexpr (kOutput == Int8Output::kBits) {
    sign_parts<kColumns>(bits, sum);
  } else {
    const int first_byte = static_cast<int>(row % kWgmmaRows) * kSwizzleBytes;
#pragma unroll
    for (int slot = 0; slot < kColumns / kSlotColumns; ++slot) {
      const int first = slot * kSlotColumns;
      if (column + first >= a.out_features) break;
      SlabValues value;
      bool releases = plan.staged;
      if constexpr (kOutput == Int8Output::kSumBits) {
        scaled_values(value, table, sum, first, lane);
        const bool opens = first % kSumSlotColumns == 0;
        if (opens) ring.wait_full();
        releases = !opens || column + first + kSlotColumns >= a.out_features;
        // Checks of every sum would be a third of the epilogue's instructions.
        if (of.has_longer)
          add_sums<true>(value, a, table, of, ring.stage() + first_byte, first, column + first,
                         lane);
        else
          add_sums<false>(value, a, table, of, ring.stage() + first_byte, first, column + first,
                          lane);
      } else if (plan.staged) {
        scaled_values(value, table, sum, first, lane);
        ring.wait_full();
        scratch = ring.stage() + first_byte;
        add_staged(value, scratch, lane);
      } else {
        slab_values(value, a, table, sum, first, row, column, lane);
      }
      if constexpr (kOutput == Int8Output::kFloat) {
        if (plan.lines)
          store_lines(a, scratch, value, row, column + first, lane);
        else
          store_values(a, value, row, column + first, lane);
      } else if (slot % 2 == 0) {
        compare_values<0>(bits[slot / 2], value, table.threshold + slot / 2 * 64, lane);
      } else {
        compare_values<1>(bits[slot / 2], value, table.threshold + slot / 2 * 64, lane);
      }
      if (releases) {
        // An arrival may overtake reads. Stored values depend on them; bits are not stored yet.
        if constexpr (kOutput != Int8Output::kFloat) wgmma_write_fence();
        __syncwarp();
        if (lane == 0) barrier_arrive(ring.empty());
        ring.advance();
      }
    }
  }
  if constexpr (kOutput != Int8Output::kFloat)
    bmm::store_parts(bits_target(a, row, column), table, bits, lane);
}

#endif

}  // namespace bitgnn::cuda::int8

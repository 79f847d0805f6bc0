// Hopper's product of contiguous float rows, binarised on the way, with packed weights that shared
// memory holds, to bits: the copy engine keeps bringing rows to slots that each warp has of its own
// while the warps pack and multiply those before. Bound by the read of the float rows.
#pragma once

#include <algorithm>

#include "bitgnn/cuda/async_copy.cuh"
#include "bitgnn/cuda/bmm_agreements.cuh"
#include "bitgnn/cuda/bmm_slab.cuh"
#include "bitgnn/cuda/dependent_launch.cuh"
#include "bitgnn/cuda/shared_memory.h"

namespace bitgnn::cuda {

constexpr int kBulkMostWarps = 16;
constexpr int kBulkSlots = 2;         // a warp
constexpr int kBulkRows = 4;          // packed at once; so many rows are whole 16-byte units
constexpr int kBulkBytes = 8 * 1024;  // about as much as a slot holds
constexpr int kBulkStep = kMmaWords * kWordBits;  // columns of a product
constexpr int kBulkBits = kBulkStep / kWarp;      // a lane packs of them

// The column in a step that is bit k of a lane.
template <int kVector>
__device__ __forceinline__ int bulk_column(int k, int lane) {
  return k / kVector * kVector * kWarp + lane * kVector + k % kVector;
}

__device__ __forceinline__ uint32_t row_fragment_address(const uint32_t* rows, int pitch,
                                                         int lane) {
  return shared_address(rows + (lane & 15) * pitch + (lane >> 4) * 4);
}

// How a block's shared memory is laid out: slots, weights, the columns' table, thresholds, packed
// rows, barriers. Each warp has slots, packed rows and barriers of its own.
struct BulkPlan {
  int cols;
  int steps;      // products that cover them
  int words;      // of a row of weights
  int pitch;      // words from one row to the next, of rows and weights alike
  int passes;     // over 64 output columns each
  int slot_rows;  // a power of two of at most 16
  int warps;
  int64_t tiles;  // of 16 rows
  bool shifted;
  bool passes_by;  // more rows than the second-level cache holds: they are not to displace others

  __host__ __device__ int columns() const { return passes * kAgreementColumns; }
  __host__ __device__ int slot_bytes() const { return slot_rows * cols * 4; }
  __host__ __device__ int warp_bytes() const {
    return kBulkSlots * (slot_bytes() + 8) + kMmaRows * pitch * 4;
  }
  __host__ __device__ int shared_bytes() const {
    return (columns() * pitch + AgreementTable::words(columns()) +
            (shifted ? steps * kBulkStep : 0)) *
           4;
  }
  __host__ __device__ int64_t bytes() const {
    return int64_t{warps} * warp_bytes() + shared_bytes();
  }
};

// Four neighbouring fields of kVector bits, each to the low bits of a byte.
template <int kVector>
__device__ __forceinline__ uint32_t spread_fields(uint32_t x) {
  if constexpr (kVector == 4) {
    x = (x | x << 8) & 0x00ff00ffu;
    return (x | x << 4) & 0x0f0f0f0fu;
  } else if constexpr (kVector == 2) {
    x = (x | x << 12) & 0x000f000fu;
    return (x | x << 6) & 0x03030303u;
  } else {
    return (x * 0x00204081u) & 0x01010101u;
  }
}

// Copies the weights to shared memory, zeros behind each row and in missing rows, with the features
// in the order in which lanes pack them: byte l of a step holds kVector neighbouring features of
// each 32 kVector, those from kVector l on.
template <int kVector>
__device__ __forceinline__ void load_bulk_weights(const BmmArgs& a, const BulkPlan& plan,
                                                  uint32_t* weights) {
  constexpr int kFields = 4 * kVector;  // bits of four lanes
#pragma unroll 2
  for (int i = threadIdx.x; i < plan.columns() * plan.steps; i += blockDim.x) {
    const int column = i / plan.steps;
    const int first = i % plan.steps * kMmaWords;
    const int existing = column < a.out_features ? plan.words - first : 0;
    const int32_t* from = a.w + static_cast<int64_t>(column) * plan.words + first;
    uint32_t word[kMmaWords], ordered[kMmaWords] = {};
#pragma unroll
    for (int k = 0; k < kMmaWords; ++k)
      word[k] = k < existing ? static_cast<uint32_t>(__ldg(from + k)) : 0u;
#pragma unroll
    for (int j = 0; j < kMmaWords; ++j) {
      const int bit = kFields * j;
#pragma unroll
      for (int k = 0; k < kBulkBits / kVector; ++k) {
        const uint32_t fields =
            word[kVector * k + bit / kWordBits] >> (bit % kWordBits) & ((1u << kFields) - 1u);
        ordered[j] |= spread_fields<kVector>(fields) << (kVector * k);
      }
    }
    auto* to = reinterpret_cast<uint4*>(weights + column * plan.pitch + first);
    to[0] = make_uint4(ordered[0], ordered[1], ordered[2], ordered[3]);
    to[1] = make_uint4(ordered[4], ordered[5], ordered[6], ordered[7]);
  }
}

// Packs a step of kBulkRows rows, a byte of each, whose first column of the lane is at `x`.
template <bool kShift, int kVector>
__device__ __forceinline__ void pack_bulk(const float* x, int cols, const float (&limit)[kBulkBits],
                                          uint32_t mask, uint8_t* to, int pitch_bytes) {
  float value[kBulkRows][kBulkBits];
#pragma unroll
  for (int r = 0; r < kBulkRows; ++r) {
#pragma unroll
    for (int k = 0; k < kBulkBits; k += kVector) {
      const float* from = x + r * cols + k * kWarp;
      if constexpr (kVector == 4)
        *reinterpret_cast<float4*>(&value[r][k]) = *reinterpret_cast<const float4*>(from);
      else if constexpr (kVector == 2)
        *reinterpret_cast<float2*>(&value[r][k]) = *reinterpret_cast<const float2*>(from);
      else
        value[r][k] = *from;
    }
  }
#pragma unroll
  for (int r = 0; r < kBulkRows; ++r) {
    uint32_t bits = 0;
#pragma unroll
    for (int k = kBulkBits - 1; k >= 0; --k) {
      if constexpr (kShift) {
        if (value[r][k] >= limit[k]) bits |= 1u << k;
      } else {
        // Negative from zero on, either zero included; what is no number becomes a positive one.
        const float less = __fsub_rn(__int_as_float(static_cast<int>(0x80000001u)), value[r][k]);
        bits = __funnelshift_l(__float_as_uint(less), bits, 1);
      }
    }
    to[r * pitch_bytes] = static_cast<uint8_t>(bits & mask);
  }
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// As copy_bytes(), through lines of the second-level cache that are given up first.
__device__ __forceinline__ void copy_passing_bytes(uint32_t to, const void* from, uint32_t bytes,
                                                   uint32_t barrier) {
  asm volatile(
      "{\n.reg .b64 policy;\n"
      "createpolicy.fractional.L2::evict_first.b64 policy, 1.0;\n"
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1], %2, [%3], policy;\n}\n" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

// Starts to bring up to slot_rows rows to a slot, if there are any; what the copy engine does not
// take, less than its unit, the thread copies.
__device__ __forceinline__ void start_bulk(const PackArgs& pack, const BulkPlan& plan, int64_t rows,
                                           int64_t row, float* slot, uint32_t full) {
  constexpr int kUnit = 16;
  const auto existing = static_cast<int>(min(rows - row, static_cast<int64_t>(plan.slot_rows)));
  if (existing <= 0) return;
  const float* from = static_cast<const float*>(pack.x) + row * plan.cols;
  const int elements = existing * plan.cols;
  const int whole = elements * 4 / kUnit * kUnit;
  for (int i = whole / 4; i < elements; ++i) slot[i] = from[i];
  barrier_expect(full, whole);
  if (whole == 0) return;
  if (plan.passes_by)
    copy_passing_bytes(shared_address(slot), from, static_cast<uint32_t>(whole), full);
  else
    copy_bytes(shared_address(slot), from, static_cast<uint32_t>(whole), full);
}

#endif

// kSame: all columns compare with zero. kShift: the rows compare with thresholds.
template <bool kSame, bool kShift, int kVector>
__global__ void __launch_bounds__(kBulkMostWarps* kWarp, 1)
    bmm_packing_bulk_kernel(const PackArgs pack, const BmmArgs a, const BulkPlan plan) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) unsigned char memory[];
  const int lane = threadIdx.x % kWarp;
  const int warp = threadIdx.x / kWarp;
  const int columns = plan.columns();
  auto* slots = reinterpret_cast<float*>(memory + warp * kBulkSlots * plan.slot_bytes());
  auto* weights = reinterpret_cast<uint32_t*>(memory + plan.warps * kBulkSlots * plan.slot_bytes());
  const AgreementTable table = agreement_table(weights + columns * plan.pitch, columns);
  auto* thresholds =
      reinterpret_cast<float*>(weights + columns * plan.pitch + AgreementTable::words(columns));
  auto* all_packed =
      reinterpret_cast<uint32_t*>(thresholds) + (kShift ? plan.steps * kBulkStep : 0);
  uint32_t* packed = all_packed + warp * kMmaRows * plan.pitch;
  auto* barriers = reinterpret_cast<uint64_t*>(all_packed + plan.warps * kMmaRows * plan.pitch);
  const uint32_t full = shared_address(barriers + warp * kBulkSlots);
  const int slot_floats = plan.slot_rows * plan.cols;

  let_next_start();
  // Blocks take turns, so that the last tiles are shared evenly.
  const int64_t stride = static_cast<int64_t>(gridDim.x) * plan.warps;
  int64_t tile = static_cast<int64_t>(warp) * gridDim.x + blockIdx.x;
  int64_t next_row = tile * kMmaRows;  // that is to be brought
  if (lane == 0) {
    for (int i = 0; i < kBulkSlots; ++i) barrier_init(full + i * 8, 1);
    barrier_init_fence();
  }
  __syncwarp();
  wait_for_previous();
  const auto bring = [&](int slot) {
    if (lane == 0)
      start_bulk(pack, plan, a.rows, next_row, slots + slot * slot_floats, full + slot * 8);
    next_row += plan.slot_rows;
    if (next_row % kMmaRows == 0) next_row += (stride - 1) * kMmaRows;
  };
  for (int i = 0; i < kBulkSlots; ++i) bring(i);

  load_bulk_weights<kVector>(a, plan, weights);
  set_agreements(table, a, columns, plan.steps * kBulkStep, static_cast<int>(blockDim.x), lane);
  if constexpr (kShift) {
    for (int c = threadIdx.x; c < plan.steps * kBulkStep; c += blockDim.x)
      thresholds[c] = c < plan.cols ? __ldg(pack.threshold + c) : 0.0f;
  }
  __syncthreads();

  uint32_t last_mask = 0;  // which of the lane's columns exist in the last step
#pragma unroll
  for (int k = 0; k < kBulkBits; ++k) {
    if ((plan.steps - 1) * kBulkStep + bulk_column<kVector>(k, lane) < plan.cols)
      last_mask |= 1u << k;
  }
  const int quad = fragment_quad(lane);
  const uint32_t w = column_fragments_address(weights, plan.pitch, lane);
  const uint32_t fragment = row_fragment_address(packed, plan.pitch, lane);
  const auto pair_bytes = static_cast<uint32_t>(plan.pitch) * 2 * kMmaColumns * 4;
  const int32_t same_start = agreement_start(a, 0, plan.steps * kBulkStep);
  int slot = 0, phase = 0;
  for (; tile < plan.tiles; tile += stride) {
    const int64_t first_row = tile * kMmaRows;
    for (int part = 0; part < kMmaRows && first_row + part < a.rows; part += plan.slot_rows) {
      barrier_wait(full + slot * 8, phase);
      const float* from = slots + slot * slot_floats + lane * kVector;
      for (int step = 0; step < plan.steps; ++step, from += kBulkStep) {
        const uint32_t mask = step + 1 < plan.steps ? (1u << kBulkBits) - 1u : last_mask;
        float limit[kBulkBits];
        if constexpr (kShift) {
#pragma unroll
          for (int k = 0; k < kBulkBits; ++k)
            limit[k] = thresholds[step * kBulkStep + bulk_column<kVector>(k, lane)];
        }
        for (int r = 0; r < plan.slot_rows; r += kBulkRows)
          pack_bulk<kShift, kVector>(
              from + r * plan.cols, plan.cols, limit, mask,
              reinterpret_cast<uint8_t*>(packed + (part + r) * plan.pitch + step * kMmaWords) +
                  lane,
              plan.pitch * 4);
      }
      __syncwarp();
      bring(slot);
      slot ^= 1;
      if (slot == 0) phase ^= 1;
    }
#pragma unroll 1
    for (int pass = 0; pass < plan.passes; ++pass) {
      const uint32_t columns_at = w + pass * (kAgreementColumns / (2 * kMmaColumns)) * pair_bytes;
      const auto* starts = reinterpret_cast<const int4*>(table.starts + pass * kAgreementColumns);
      AgreementSums<1> sum;
      uint32_t x[1][4];
      load_matrices(fragment, x[0][0], x[0][1], x[0][2], x[0][3]);
      add_agreements<kSame, true, 1>(sum, x, columns_at, pair_bytes, same_start, starts, quad);
      for (int step = 1; step < plan.steps; ++step) {
        const uint32_t at = step * kMmaWords * 4;
        load_matrices(fragment + at, x[0][0], x[0][1], x[0][2], x[0][3]);
        add_agreements<kSame, false, 1>(sum, x, columns_at + at, pair_bytes, 0, starts, quad);
      }
      const uint2 words = gather_words(collect_signs(sum[0]), 0, quad);
      const int64_t row = first_row + fragment_group(lane) + quad * (kMmaRows / 2);
      if (quad < 2 && row < a.rows) store_agreements(a, table, words, row, pass);
    }
    __syncwarp();
  }
#endif
}

inline BulkPlan bulk_plan(const BmmArgs& args, const Context& context) {
  BulkPlan plan{};
  plan.cols = static_cast<int>(args.size);
  plan.words = static_cast<int>(words_for(args.size));
  plan.steps = static_cast<int>(ceil_div(plan.words, kMmaWords));
  plan.pitch = tile_pitch(plan.steps * kMmaWords);
  plan.passes = static_cast<int>(ceil_div(args.out_features, kAgreementColumns));
  plan.shifted = args.pack->threshold != nullptr;
  plan.slot_rows = kBulkRows;
  while (plan.slot_rows < kMmaRows && 2 * plan.slot_bytes() <= kBulkBytes) plan.slot_rows *= 2;
  plan.tiles = ceil_div(args.rows, kMmaRows);
  plan.passes_by = args.rows * args.size * 4 > context.device.cache_bytes;
  const int64_t fitting = (context.device.shared_bytes - plan.shared_bytes()) / plan.warp_bytes();
  plan.warps = static_cast<int>(std::clamp<int64_t>(fitting, 0, kBulkMostWarps));
  return plan;
}

template <bool kSame, bool kShift, int kVector>
cudaError_t launch_bmm_packing_bulk(const BmmArgs& args, const BulkPlan& plan,
                                    const Context& context) {
  const auto kernel = bmm_packing_bulk_kernel<kSame, kShift, kVector>;
  const cudaError_t status = grant_shared_memory(kernel, plan.bytes());
  if (status != cudaSuccess) return status;
  const int64_t blocks = std::min<int64_t>(plan.tiles, context.device.sm_count);
  return launch_dependent(kernel, grid_size(blocks), plan.warps * kWarp,
                          static_cast<size_t>(plan.bytes()), context, *args.pack, args, plan);
}

}  // namespace bitgnn::cuda

// Building blocks of products whose float rows are loaded by the TMA: the shared-memory layout, the
// order of features in it, loading rows and packing them.
#pragma once

#include "bmm/arguments.h"
#include "bmm/cuda/agreements.cuh"
#include "bmm/cuda/epilogue.cuh"
#include "core/cuda/hopper/async_copy.cuh"

namespace bitgnn::cuda::bmm {

constexpr int kBulkMostWarps = 16;
constexpr int kBulkRows = 4;  // rows packed at once; this many are whole 16-byte units
constexpr int kBulkStep = kMmaWords * kWordBits;  // columns per product
constexpr int kBulkBits = kBulkStep / kWarp;      // columns packed by a lane

// Column within a step that is bit k of a lane.
template <int kVector>
__device__ __forceinline__ int bulk_column(int k, int lane) {
  return k / kVector * kVector * kWarp + lane * kVector + k % kVector;
}

__device__ __forceinline__ uint32_t row_fragment_address(const uint32_t* rows, int pitch,
                                                         int lane) {
  return shared_address(rows + (lane & 15) * pitch + (lane >> 4) * 4);
}

// Shape of a product's rows and weights, and their shared-memory layout.
struct BulkShape {
  int cols;
  int steps;      // products of kBulkStep columns per row
  int words;      // of a weight row
  int pitch;      // row pitch in words, for rows and weights alike
  int passes;     // over 64 output columns each
  int slot_rows;  // rows per slot, a power of two of at most 16
  int64_t tiles;  // tiles of 16 rows
  bool shifted;
  bool passes_by;  // the rows exceed L2 and must not evict other data

  __host__ __device__ int columns() const { return passes * kAgreementColumns; }
  // Size of a slot, including what the last step reads past its last row: that must not belong to
  // another slot, whose copy may be in flight.
  __host__ __device__ int slot_floats() const {
    constexpr int kUnitFloats = 4;
    const int behind = steps * kBulkStep - cols;
    return slot_rows * cols + (behind + kUnitFloats - 1) / kUnitFloats * kUnitFloats;
  }
  __host__ __device__ int slot_bytes() const { return slot_floats() * 4; }
  // Weights, column table and thresholds.
  __host__ __device__ int shared_bytes() const {
    return (columns() * pitch + AgreementTable::words(columns()) +
            (shifted ? steps * kBulkStep : 0)) *
           4;
  }
};

// Fills in everything except slot_rows.
inline BulkShape bulk_shape(const BmmArgs& args, const Context& context) {
  BulkShape shape{};
  shape.cols = static_cast<int>(args.size);
  shape.words = static_cast<int>(words_for(args.size));
  shape.steps = static_cast<int>(ceil_div(shape.words, kMmaWords));
  shape.pitch = tile_pitch(shape.steps * kMmaWords);
  shape.passes = static_cast<int>(ceil_div(args.out_features, kAgreementColumns));
  shape.shifted = args.pack->threshold != nullptr;
  shape.tiles = ceil_div(args.rows, kMmaRows);
  shape.passes_by = args.rows * args.size * 4 > context.device.cache_bytes;
  return shape;
}

// Spreads four adjacent fields of kVector bits to the low bits of one byte each.
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

// One step of a column's weights, zero-padded: step i % steps of column i / steps.
struct BulkWeights {
  uint32_t word[kMmaWords];

  __device__ __forceinline__ void fetch(const BmmArgs& a, const BulkShape& shape, int i) {
    const int column = i / shape.steps;
    const int first = i % shape.steps * kMmaWords;
    const int existing = column < a.out_features ? shape.words - first : 0;
    const int32_t* from = a.w + static_cast<int64_t>(column) * shape.words + first;
#pragma unroll
    for (int k = 0; k < kMmaWords; ++k)
      word[k] = k < existing ? static_cast<uint32_t>(__ldg(from + k)) : 0u;
  }

  // Stores them in shared memory in the feature order in which lanes pack: byte l of a step holds
  // kVector consecutive features of every 32 kVector, starting with feature kVector l.
  template <int kVector>
  __device__ __forceinline__ void store(const BulkShape& shape, int i, uint32_t* weights) const {
    constexpr int kFields = 4 * kVector;  // bits from four lanes
    uint32_t ordered[kMmaWords] = {};
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
    auto* to = reinterpret_cast<uint4*>(weights + i / shape.steps * shape.pitch +
                                        i % shape.steps * kMmaWords);
    to[0] = make_uint4(ordered[0], ordered[1], ordered[2], ordered[3]);
    to[1] = make_uint4(ordered[4], ordered[5], ordered[6], ordered[7]);
  }
};

// Packs the lane's byte of one step for each of kBulkRows rows; `x` is the lane's first column.
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
        // Negative for value >= 0, including both zeros; NaN becomes a positive NaN.
        const float less = __fsub_rn(__int_as_float(static_cast<int>(0x80000001u)), value[r][k]);
        bits = __funnelshift_l(__float_as_uint(less), bits, 1);
      }
    }
    to[r * pitch_bytes] = static_cast<uint8_t>(bits & mask);
  }
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// Like copy_bytes(), with an L2 evict-first policy.
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

// Starts the bulk copy of up to slot_rows rows to a slot, if any are left; the thread copies the
// remainder that is smaller than the copy unit.
__device__ __forceinline__ void start_bulk(const PackArgs& pack, const BulkShape& shape,
                                           int64_t rows, int64_t row, float* slot, uint32_t full) {
  constexpr int kUnit = 16;
  const auto existing = static_cast<int>(min(rows - row, static_cast<int64_t>(shape.slot_rows)));
  if (existing <= 0) return;
  const float* from = static_cast<const float*>(pack.x) + row * shape.cols;
  const int elements = existing * shape.cols;
  const int whole = elements * 4 / kUnit * kUnit;
  for (int i = whole / 4; i < elements; ++i) slot[i] = from[i];
  barrier_expect(full, whole);
  if (whole == 0) return;
  if (shape.passes_by)
    copy_passing_bytes(shared_address(slot), from, static_cast<uint32_t>(whole), full);
  else
    copy_bytes(shared_address(slot), from, static_cast<uint32_t>(whole), full);
}

#endif

// Mask of the lane's columns that exist in the last step.
template <int kVector>
__device__ __forceinline__ uint32_t last_bulk_mask(const BulkShape& shape, int lane) {
  uint32_t mask = 0;
#pragma unroll
  for (int k = 0; k < kBulkBits; ++k) {
    if ((shape.steps - 1) * kBulkStep + bulk_column<kVector>(k, lane) < shape.cols) mask |= 1u << k;
  }
  return mask;
}

// Loads the thresholds of a lane's columns in a step.
template <int kVector>
__device__ __forceinline__ void load_limits(float (&limit)[kBulkBits], const float* thresholds,
                                            int step, int lane) {
#pragma unroll
  for (int k = 0; k < kBulkBits; ++k)
    limit[k] = thresholds[step * kBulkStep + bulk_column<kVector>(k, lane)];
}

// Operands with which a lane multiplies packed rows with the weights of a block.
struct BulkProduct {
  AgreementTable table;
  uint32_t weights;     // the lane's load_matrices() address
  uint32_t pair_bytes;  // between groups of 16 columns
  int32_t same_start;
};

// Multiplies the 16 rows from `first_row` on, whose fragments are at `fragment`, with the columns
// of a pass, and writes the bits.
template <bool kSame>
__device__ __forceinline__ void multiply_bulk(const BmmArgs& a, const BulkShape& shape,
                                              const BulkProduct& product, uint32_t fragment,
                                              int64_t first_row, int pass, int lane) {
  const int quad = fragment_quad(lane);
  const uint32_t columns_at =
      product.weights + pass * (kAgreementColumns / (2 * kMmaColumns)) * product.pair_bytes;
  const auto* starts =
      reinterpret_cast<const int4*>(product.table.starts + pass * kAgreementColumns);
  AgreementSums sum;
  uint32_t x[4];
  load_matrices(fragment, x[0], x[1], x[2], x[3]);
  add_agreements<kSame, true>(sum, x, columns_at, product.pair_bytes, product.same_start, starts,
                              quad);
  for (int step = 1; step < shape.steps; ++step) {
    const uint32_t at = step * kMmaWords * 4;
    load_matrices(fragment + at, x[0], x[1], x[2], x[3]);
    add_agreements<kSame, false>(sum, x, columns_at + at, product.pair_bytes, 0, starts, quad);
  }
  const uint2 words = gather_words(collect_signs(sum), 0, quad);
  const int64_t row = first_row + fragment_group(lane) + quad * (kMmaRows / 2);
  if (quad < 2 && row < a.rows) store_agreements(a, product.table, words, row, pass);
}

}  // namespace bitgnn::cuda::bmm

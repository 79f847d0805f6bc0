// The ways of batched products of packed ternary and boolean rows, among which route.cu
// chooses.
#pragma once

#include "core/cuda/launch.h"
#include "ternary/arguments.h"

namespace bitgnn::cuda::ternary {

// Ternary rows of few words, straight from memory.
bool suits_ternary_short(const TernaryMatmulArgs& args);
cudaError_t multiply_ternary_short(const TernaryMatmulArgs& args, const Context& context);

// Boolean rows with few ternary columns, straight from memory.
bool suits_ternary_narrow(const TernaryMatmulArgs& args);
cudaError_t multiply_ternary_narrow(const TernaryMatmulArgs& args, const Context& context);

// Warpgroup products on Hopper, where tiles keep at least half the multiprocessors busy.
bool suits_ternary_planes(const TernaryMatmulArgs& args, const Context& context);
cudaError_t multiply_ternary_planes(const TernaryMatmulArgs& args, const Context& context);

// Whether operands begin at multiples of so many words wherever a row or matrix does.
inline bool begins_at(const TernaryOperand& x, int64_t words) {
  return x.batch_strides[0] % words == 0 && x.batch_strides[1] % words == 0 &&
         x.row_stride % words == 0 && is_aligned(x.words, static_cast<size_t>(4 * words));
}

// Whether offsets of so many rows fit 32 bits.
inline bool has_near_rows(const TernaryOperand& x, int64_t rows) {
  constexpr int64_t kMost = int64_t{1} << 31;
  return (x.row_stride + 1) * rows < kMost && (x.counts_row_stride + 1) * rows < kMost;
}

// Whether results can be stored 16 bytes at once, eight next to each other.
inline bool stores_eights(const TernaryMatmulArgs& a) {
  return a.columns % 8 == 0 && is_aligned(a.out);
}

}  // namespace bitgnn::cuda::ternary

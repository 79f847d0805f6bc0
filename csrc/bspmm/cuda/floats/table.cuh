// Copies of dense rows for gathering: aligned pieces of a few features, chunk by chunk, so that the
// active part stays in the L2 cache.
#pragma once

#include <type_traits>

#include "bspmm/arguments.h"
#include "core/cuda/common.cuh"

namespace bitgnn::cuda::bspmm {

constexpr int kTableThreads = 256;
constexpr int kFragmentBytes = 16;

// The table from which pieces are gathered: piece c of row j is at x + c * chunk_bytes + j *
// pitch_bytes.
struct RowTable {
  const char* x;
  uint32_t pitch_bytes;
  uint64_t chunk_bytes;
};

// Pieces of `lanes` fragments. A float32 copy is multiplied by the column factors, if any, exactly
// as if edge by edge.
template <class Element>
__global__ void __launch_bounds__(kTableThreads)
    copy_table_kernel(const __grid_constant__ AggregateArgs a, int64_t chunks, int lanes,
                      char* table) {
  constexpr int kElements = kFragmentBytes / static_cast<int>(sizeof(Element));
  const int64_t id = static_cast<int64_t>(blockIdx.x) * kTableThreads + threadIdx.x;
  const int64_t row = id / (chunks * lanes);
  if (row >= a.cols) return;
  const int64_t chunk = id % (chunks * lanes) / lanes;
  const int lane = static_cast<int>(id % lanes);
  const int64_t first = (chunk * lanes + lane) * kElements;
  const auto* x = static_cast<const Element*>(a.x) + row * a.x_stride + first;
  Element v[kElements];
  memset(v, 0, sizeof(v));
#pragma unroll
  for (int i = 0; i < kElements; ++i)
    if (first + i < a.features) v[i] = x[i];
  if constexpr (std::is_same_v<Element, float>) {
    if (a.col_scale != nullptr) {
#pragma unroll
      for (int i = 0; i < kElements; ++i) v[i] = __fmul_rn(a.col_scale[row], v[i]);
    }
  }
  uint4 fragment;
  memcpy(&fragment, v, sizeof(fragment));
  *reinterpret_cast<uint4*>(table + ((chunk * a.cols + row) * lanes + lane) * kFragmentBytes) =
      fragment;
}

}  // namespace bitgnn::cuda::bspmm

// Sums of packed neighbours plus a product of packed rows, compared with a threshold, in one
// launch.
//
// The weights stay in shared memory and every warp takes slabs of 16 rows: it counts their
// neighbours like aggregate_rows but leaves the bit planes of the counts in shared memory,
// multiplies the same rows with the weights on tensor cores and adds the sums in the epilogue.
// Neither term ever reaches global memory. Hubs, whose counts take more planes, are left to the
// first blocks, which search for them. Bound by the gathers and the arithmetic of the epilogue.
#pragma once

#include "bmm/cuda/output.cuh"
#include "bspmm/arguments.h"
#include "core/cuda/shared_memory.h"
#include "pairs/cuda/joint/hubs.cuh"

namespace bitgnn::cuda::pairs {

// Layout of a block's shared memory, in bytes from its start, for both launcher and kernel.
struct JoinPlan {
  bmm::TallPlan product;  // for the rows and weights
  size_t sum_bias;        // float [features]
  size_t weights;         // [features, w_pitch] words
  size_t warps;           // private memory of each warp, `warp_bytes` long:
  size_t warp_bytes;      // its slab of x, planes [16, Shape::kPitch] and JoinRow [16]
  size_t bytes;           // in total
  unsigned hub_blocks;
};

template <class Shape, int kThreads>
JoinPlan plan_join(const BmmArgs& p) {
  JoinPlan plan{};
  plan.product.words = static_cast<int>(words_for(p.size));
  plan.product.steps = static_cast<int>(ceil_div(plan.product.words, kMmaWords));
  plan.product.passes = Shape::kFeatures / kJoinColumns;
  plan.product.w_pitch = tile_pitch(plan.product.steps * kMmaWords);
  plan.product.slabs = ceil_div(p.rows, bmm::kTallRows);
  size_t at = plan.product.passes * sizeof(bmm::ColumnTable<kJoinColumns>);
  const auto take = [&at](size_t bytes) {
    const size_t start = at;
    at += (bytes + 15) / 16 * 16;
    return start;
  };
  plan.sum_bias = take(Shape::kFeatures * sizeof(float));
  plan.weights = take(size_t{Shape::kFeatures} * plan.product.w_pitch * sizeof(uint32_t));
  const size_t row_words = static_cast<size_t>(plan.product.words) + Shape::kPitch;
  plan.warp_bytes = bmm::kTallRows * (row_words * sizeof(uint32_t) + sizeof(JoinRow));
  plan.warps = take(plan.warp_bytes * (kThreads / kWarp));
  plan.bytes = at;
  return plan;
}

// blockIdx.y selects the block's features, as many as Shape has words for; Source is as for
// aggregate_rows.
template <class Shape, class Short, class Source>
__global__ void __launch_bounds__(Short::kThreads, Short::kBlocks)
    aggregate_product(const __grid_constant__ Source source,
                      const __grid_constant__ AggregateArgs a,
                      const __grid_constant__ BmmArgs whole,
                      const __grid_constant__ JoinPlan plan) {
  constexpr int kFeatures = Shape::kFeatures;
  constexpr int kWarps = Short::kThreads / kWarp;
  extern __shared__ __align__(16) uint32_t memory[];
  const int64_t chunk = static_cast<int64_t>(blockIdx.y) * Shape::kRowWords;
  let_next_start();
  wait_for_previous();
  if (blockIdx.x < plan.hub_blocks) {
    join_hubs<Shape, Short>(source, a, whole, plan.hub_blocks, chunk);
    return;
  }
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarp, lane = thread % kWarp;
  auto* tables = reinterpret_cast<bmm::ColumnTable<kJoinColumns>*>(memory);
  auto* const bytes = reinterpret_cast<unsigned char*>(memory);
  auto* sum_bias = reinterpret_cast<float*>(bytes + plan.sum_bias);
  auto* weights = reinterpret_cast<uint32_t*>(bytes + plan.weights);
  auto* x = reinterpret_cast<uint32_t*>(bytes + plan.warps + warp * plan.warp_bytes);
  uint32_t* staged = x + bmm::kTallRows * plan.product.words;
  auto* joined = reinterpret_cast<JoinRow*>(staged + bmm::kTallRows * Shape::kPitch);
  const int64_t first_feature = chunk * kWordBits;
  BmmArgs p = whole;
  p.w += first_feature * plan.product.words;
  p.out_features = min(int64_t{kFeatures}, whole.out_features - first_feature);
  if (p.out_scale != nullptr) p.out_scale += first_feature;
  if (p.bias != nullptr) p.bias += first_feature;
  if (p.threshold != nullptr) p.threshold += first_feature;
  if (p.flip != nullptr) p.flip += first_feature;

  bmm::load_weights(weights, p, plan.product);
  for (int o = thread; o < kFeatures; o += Short::kThreads) {
    bmm::share_column<bmm::BmmOutput::kBits>(tables[o / kJoinColumns], o % kJoinColumns,
                                             bmm::load_column<bmm::BmmOutput::kBits>(p, o));
    sum_bias[o] = a.bias != nullptr && o < p.out_features ? a.bias[first_feature + o] : -0.0f;
  }
  asm volatile("cp.async.wait_all;\n" ::: "memory");
  __syncthreads();
  for (int o = thread; o < p.out_features; o += Short::kThreads) {
    int32_t count = 0;
    for (int word = 0; word < plan.product.steps * kMmaWords; word += 4) {
      const uint4 v = *reinterpret_cast<const uint4*>(weights + o * plan.product.w_pitch + word);
      count += __popc(v.x) + __popc(v.y) + __popc(v.z) + __popc(v.w);
    }
    tables[o / kJoinColumns].term[o % kJoinColumns] =
        bmm::column_term<bmm::BmmOutput::kBits>(count);
  }
  __syncthreads();

  const int group = fragment_group(lane), quad = fragment_quad(lane);
  const uint32_t w = column_fragments_address(weights, plan.product.w_pitch, lane);
  const int64_t output_pitch = words_for(whole.out_features);
  const int64_t stride = static_cast<int64_t>(gridDim.x - plan.hub_blocks) * kWarps;
#pragma unroll 1
  for (int64_t slab = static_cast<int64_t>(blockIdx.x - plan.hub_blocks) * kWarps + warp;
       slab < plan.product.slabs; slab += stride) {
    const int64_t first_row = slab * bmm::kTallRows;
    // The rows arrive while the neighbours are counted.
    bmm::load_slab(x, p, plan.product, slab, lane);
    count_slab<Shape, Short>(source, a, first_row, chunk, staged, joined, lane);
    asm volatile("cp.async.wait_all;\n" ::: "memory");
    __syncwarp();
    const JoinRow of_rows[2] = {joined[group], joined[group + 8]};
    const int planes = __reduce_max_sync(kFullWarp, max(of_rows[0].planes, of_rows[1].planes));
    bmm::SlabRows rows;
    bmm::load_row_scales(rows, p, first_row, lane);
#pragma unroll 1
    for (int pass = 0; pass < kFeatures / kJoinColumns; ++pass) {
      int32_t sum[kJoinColumns / 2] = {};
      int32_t row_counts[4] = {};
      const int place = pass * kJoinColumns * plan.product.w_pitch;
      bmm::multiply_slab<kJoinColumns>(sum, row_counts, true, plan.product, x,
                                       w + static_cast<uint32_t>(place) * sizeof(uint32_t), lane);
      bmm::set_row_terms<bmm::BmmOutput::kBits>(rows, p, row_counts[0], row_counts[2]);
      const uint32_t* low_row = staged + group * Shape::kPitch + pass * kJoinWords;
      const uint32_t* const of_planes[2] = {low_row, low_row + 8 * Shape::kPitch};
      JoinBytes low{}, high{};
      add_planes(low, of_planes, 0, min(planes, 8), Shape::kRowWords, quad);
      const float* const biases = sum_bias + pass * kJoinColumns;
      uint32_t bits;
      if (Shape::kPlanes <= 8 || planes <= 8) {
        bits = join_bits<false>(tables[pass], biases, rows, of_rows, low, high, sum, quad);
      } else {
        add_planes(high, of_planes, 8, planes, Shape::kRowWords, quad);
        bits = join_bits<true>(tables[pass], biases, rows, of_rows, low, high, sum, quad);
      }
      store_joined(tables[pass], bmm::gather_words(bits, 0, quad), joined,
                   whole.out_bits + first_row * output_pitch + chunk + pass * kJoinWords,
                   output_pitch, p.out_features - pass * kJoinColumns, lane);
    }
    __syncwarp();
  }
}

// Launches as many blocks as are resident, plus one per multiprocessor for hubs.
template <class Shape, class Short, class Source>
cudaError_t launch_join(const Source& source, const AggregateArgs& a, const BmmArgs& p,
                        const Context& context) {
  JoinPlan plan = plan_join<Shape, Short::kThreads>(p);
  const auto kernel = aggregate_product<Shape, Short, Source>;
  cudaError_t status = grant_shared_memory(kernel, static_cast<int64_t>(plan.bytes));
  if (status != cudaSuccess) return status;
  int resident = 0;
  status =
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, Short::kThreads, plan.bytes);
  if (status != cudaSuccess) return status;
  if (resident == 0) return cudaErrorInvalidConfiguration;
  plan.hub_blocks = static_cast<unsigned>(context.device.sm_count);
  const int64_t blocks = std::min(ceil_div(plan.product.slabs, Short::kThreads / kWarp),
                                  static_cast<int64_t>(resident) * context.device.sm_count);
  const dim3 grid(grid_size(blocks + plan.hub_blocks),
                  grid_size(ceil_div(words_for(a.features), Shape::kRowWords)));
  return launch_dependent(kernel, grid, Short::kThreads, plan.bytes, context, source, a, p, plan);
}

}  // namespace bitgnn::cuda::pairs

// Launches attention on bits with the keys and values of a head resident in shared memory.
#include "attention/arguments.h"
#include "attention/cuda/hopper/resident.cuh"

#include <algorithm>

#include "attention/cuda/plan.h"
#include "attention/cuda/routes.h"
#include "core/cuda/with_quantised_type.h"

namespace bitgnn::cuda::attention {
namespace {

// Number of blocks among which the queries of a head are split: the one with the lowest estimated
// time, from cycle counts measured on an H200.
int64_t parts_of_queries(const TernaryAttentionArgs& a, const Device& device) {
  constexpr double kStart = 4000.0;    // per block
  constexpr double kPack = 10.0;       // per key
  constexpr double kProduct = 7000.0;  // per 64 queries of every warpgroup and chunk of keys
  const int64_t tiles = ceil_div(a.queries, 64), heads = a.batch * a.heads;
  const auto chunks = static_cast<double>(ceil_div(a.keys, kResidentChunk));
  int64_t best = 1;
  double least = 0.0;
  for (int64_t parts = 1; parts <= std::max<int64_t>(1, ceil_div(tiles, kResidentGroups));
       ++parts) {
    const auto waves = static_cast<double>(ceil_div(heads * parts, device.sm_count));
    const auto rounds = static_cast<double>(ceil_div(tiles, parts * kResidentGroups));
    const double cycles =
        waves * (kStart + kPack * static_cast<double>(a.keys) + rounds * chunks * kProduct);
    if (parts == 1 || cycles < least) best = parts, least = cycles;
  }
  return best;
}

template <class T, bool kAligned>
cudaError_t launch(const ResidentArgs& args, const Context& context) {
  const TernaryAttentionArgs& a = args.attention;
  const auto kernel = ternary_attention_resident_kernel<T, kAligned>;
  const ResidentLayout layout(a.keys);
  const cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, layout.total);
  if (status != cudaSuccess) return status;
  const dim3 blocks(grid_size(parts_of_queries(a, context.device)), grid_size(a.heads),
                    grid_size(a.batch));
  return launch_dependent(kernel, blocks, kResidentThreads, static_cast<size_t>(layout.total),
                          context, args);
}

// A power passes through 64 additions in its chunk, one per chunk, and those across four lanes.
ResidentArgs resident_args(const TernaryAttentionArgs& a) {
  ResidentArgs args{};
  args.attention = a;
  args.plan = plan_attention<64>(a, 64 + kMostResidentKeys / kResidentChunk + 8);
  return args;
}

bool reads_vectors(const TernaryFloatOperand& x) {
  const int64_t strides[] = {x.batch_strides[0], x.batch_strides[1], x.row_stride};
  return has_aligned_rows(x.x, x.type, strides);
}

}  // namespace

cudaError_t attention_resident(const TernaryAttentionArgs& a, const Context& context) {
  ResidentArgs args = resident_args(a);
  args.vector_keys = is_aligned(a.k.words, 8) && a.k.row_stride % 2 == 0 &&
                     a.k.batch_strides[0] % 2 == 0 && a.k.batch_strides[1] % 2 == 0;
  return launch<int32_t, true>(args, context);
}

cudaError_t attention_ternary_floats(const TernaryFloatAttentionArgs& args,
                                     const Context& context) {
  const TernaryAttentionArgs& a = args.attention;
  if (a.batch * a.heads * a.queries * a.size == 0) return cudaSuccess;
  ResidentArgs all = resident_args(a);
  all.q = args.q, all.k = args.k, all.v = args.v;
  return with_quantised_type(args.q.type, [&](auto zero) {
    using T = decltype(zero);
    return reads_vectors(args.q) && reads_vectors(args.k) && reads_vectors(args.v)
               ? launch<T, true>(all, context)
               : launch<T, false>(all, context);
  });
}

}  // namespace bitgnn::cuda::attention

// BMM + BSpMM with wide rows of 16-bit halves as intermediates.
#include "bmm/arguments.h"
#include "pairs/cuda/wide/sums.cuh"

#include <algorithm>
#include <type_traits>

#include "core/cuda/shared_memory.h"
#include "pairs/cuda/routes.h"
#include "pairs/cuda/wide/product.cuh"
#include "pairs/cuda/wide/split_product.cuh"

namespace bitgnn::cuda::pairs {
namespace {

constexpr int64_t kMostWarpRows = 16;
constexpr int64_t kLeastLong = 48;               // minimum edges of rows that take a block,
constexpr int64_t kLeastLongAlone = 256;         // the same if a warp takes one row at a time,
constexpr int64_t kLongFactor = 8;               // and this multiple of the mean
constexpr int64_t kLongBlocks = 2;               // per multiprocessor, at most
constexpr int64_t kMostWeightBytes = 100 << 10;  // in shared memory, for at least two blocks
constexpr int64_t kProductBlocks = 4;            // per multiprocessor
constexpr int64_t kSplitBlocks = 2;              // per multiprocessor; beyond, rows share weights

template <class Elements>
cudaError_t launch_product(const BmmArgs& product, const WideWeights& layout,
                           const WideTable& table, const NarrowFactors& factors,
                           const Context& context) {
  // Few long rows leave most multiprocessors without a block of eight warps that share weights.
  const int64_t slabs = ceil_div(product.rows, kMmaRows);
  if (layout.steps >= kSplitWarps && slabs * layout.parts <= kSplitBlocks * context.device.sm_count)
    return launch_dependent(wide_split_kernel<Elements>,
                            dim3(grid_size(slabs), grid_size(layout.parts)), kSplitThreads, 0,
                            context, product, layout.words, layout.steps, table, factors);
  const auto kernel = wide_product_kernel<Elements>;
  const cudaError_t error = grant_shared_memory(kernel, layout.bytes());
  if (error != cudaSuccess) return error;
  const int64_t blocks = std::min<int64_t>(ceil_div(product.rows, kMmaRows * kWideProductWarps),
                                           kProductBlocks * context.device.sm_count);
  return launch_dependent(kernel, grid_size(blocks), kWideProductThreads,
                          static_cast<size_t>(layout.bytes()), context, product, layout, table,
                          factors);
}

// Via dot products, if the weights do not fit or tensor cores have no 1-bit products.
template <class Elements>
cudaError_t launch_copy(const BmmArgs& given, int parts, const WideTable& table,
                        const NarrowFactors& factors, const Context& context) {
  BmmArgs product = given;
  product.out_int = static_cast<int32_t*>(context.workspace.take(
      static_cast<size_t>(product.rows * product.out_features) * sizeof(int32_t)));
  const cudaError_t error = bmm::bmm(product, context);
  if (error != cudaSuccess) return error;
  const dim3 grid(grid_size(ceil_div(product.rows * kPartLanes, kWideProductThreads)),
                  grid_size(parts));
  return launch_dependent(wide_copy_kernel<Elements>, grid, kWideProductThreads, 0, context,
                          static_cast<const int32_t*>(product.out_int), product.out_features, table,
                          factors);
}

template <class Elements, int kLanes>
cudaError_t launch_sums(WideLaunch d, bool has_factors, unsigned chunks, const Context& context) {
  constexpr int64_t kGroups = kWarp / kLanes;
  const AggregateArgs& a = d.a;
  const int64_t multiprocessors = context.device.sm_count, parts = d.table.parts;
  // All warps at once, unless there are too many rows.
  const int64_t warps = multiprocessors * kWideBlocks * kWideWarps;
  d.vectors = a.features % 4 == 0 && is_aligned(a.out_float);
  d.warp_rows = static_cast<int>(std::clamp(ceil_div(a.rows, warps), kGroups, kMostWarpRows));
  const int64_t least = kGroups == 1 ? kLeastLongAlone : kLeastLong;
  d.long_degree = static_cast<int>(
      std::min<int64_t>(std::max(least, kLongFactor * (a.edges / a.rows)), INT32_MAX));
  d.long_blocks =
      grid_size(ceil_div(multiprocessors * std::min(parts, kLongBlocks), parts) * parts);
  const dim3 grid(grid_size(d.long_blocks + ceil_div(a.rows, kWideWarps * d.warp_rows)), chunks);
  const auto launch = [&](auto sum) {
    return launch_dependent(aggregate_wide_kernel<Elements, decltype(sum)::value, kLanes>, grid,
                            kWideThreads, 0, context, d);
  };
  if (!has_factors) return launch(std::integral_constant<NarrowSum, NarrowSum::kPlain>());
  if (d.odd || d.shift != nullptr)
    return launch(std::integral_constant<NarrowSum, NarrowSum::kFactorsOnes>());
  return launch(std::integral_constant<NarrowSum, NarrowSum::kFactors>());
}

template <class Elements>
cudaError_t launch(const NarrowArgs& args, const NarrowFactors& factors, const Context& context) {
  BmmArgs product = args.product;
  WideLaunch d{};
  d.a = args.sums;
  d.out_scale = product.out_scale;
  product.out_scale = nullptr;
  d.shift = args.shift;
  d.odd = product.size % 2 != 0;
  constexpr int64_t kMostParts = kWarp * kWideElements / kPartFeatures;
  const int64_t parts = ceil_div(product.out_features, kPartFeatures);
  d.table.parts = static_cast<int>(parts > 2 ? kMostParts : parts);
  d.table.pitch = static_cast<uint32_t>(d.table.parts * kPartBytes);
  d.table.count = product.rows;
  const int64_t chunks = ceil_div(parts, d.table.parts);
  d.table.rows = static_cast<char*>(
      context.workspace.take(static_cast<size_t>(chunks * product.rows * d.table.pitch)));
  d.table.factors = static_cast<float*>(
      context.workspace.take(static_cast<size_t>(product.rows) * sizeof(float)));
  const WideWeights layout = WideWeights::of(product, chunks * d.table.parts);
  const bool direct = context.device.has_bit_products() && layout.bytes() <= kMostWeightBytes;
  if (product.rows > 0) {
    const cudaError_t error =
        direct ? launch_product<Elements>(product, layout, d.table, factors, context)
               : launch_copy<Elements>(product, layout.parts, d.table, factors, context);
    if (error != cudaSuccess) return error;
  }
  if (parts == 1) return launch_sums<Elements, 8>(d, factors.exist(), grid_size(chunks), context);
  if (parts == 2) return launch_sums<Elements, 16>(d, factors.exist(), grid_size(chunks), context);
  return launch_sums<Elements, 32>(d, factors.exist(), grid_size(chunks), context);
}

}  // namespace

cudaError_t aggregate_wide(const NarrowArgs& args, const NarrowFactors& factors,
                           const Context& context) {
  return args.product.size <= HalfFloats::kMostFeatures
             ? launch<HalfFloats>(args, factors, context)
             : launch<HalfIntegers>(args, factors, context);
}

}  // namespace bitgnn::cuda::pairs

// BMM + BSpMM with narrow integers in between: packs, multiplies and aggregates, by the number of
// columns.
#include "bitgnn/cuda/aggregate_narrow.cuh"

#include <algorithm>

#include "bitgnn/cuda/narrow_forms.cuh"
#include "bitgnn/cuda/narrow_product.h"

namespace bitgnn::cuda {
namespace {

constexpr int64_t kMostShort = 32767;      // dot products that 16 bits hold
constexpr int64_t kShortVector = 8;        // shorts of a fragment
constexpr int64_t kLongFactor = 8;         // long rows have so many times the mean degree,
constexpr int64_t kLeastLong = kSumPiece;  // but at least a piece
constexpr int64_t kManyEdges = 1 << 23;    // from here on long rows must start early,
constexpr unsigned kLongBlocks = 2;        // in so many blocks a multiprocessor

template <class Row>
cudaError_t launch_sums(NarrowLaunch d, const Context& context) {
  using Share = NarrowShare<Row, kSumSlots, 4>;
  const AggregateArgs& a = d.a;
  d.chunk_stride = a.cols * Row::kPitchBytes;
  d.long_degree = std::max(kLeastLong, kLongFactor * (a.edges / a.rows));
  d.long_blocks =
      a.edges < kManyEdges ? 0 : kLongBlocks * static_cast<unsigned>(context.device.sm_count);
  const dim3 grid(grid_size(d.long_blocks + ceil_div(a.rows, Share::kGroups)),
                  grid_size(ceil_div(a.features, Row::kFeatures)));
  const auto launch = [&](auto sum) {
    return launch_dependent(aggregate_narrow_kernel<Share, decltype(sum)::value>, grid,
                            kNarrowThreads, 0, context, d);
  };
  if constexpr (Row::kFactor == FactorPlace::kNone)
    return launch(std::integral_constant<NarrowSum, NarrowSum::kPlain>());
  else if (d.odd)
    return launch(std::integral_constant<NarrowSum, NarrowSum::kFactorsOdd>());
  else
    return launch(std::integral_constant<NarrowSum, NarrowSum::kFactors>());
}

cudaError_t aggregate_columns(const NarrowArgs& args, const NarrowFactors& factors,
                              const Context& context) {
  const BmmArgs& product = args.product;
  NarrowLaunch d{};
  d.a = args.sums;
  d.out_scale = args.sums.out_scale;
  d.odd = product.size % 2 != 0;
  const auto launch = [&](auto form) {
    using Row = typename decltype(form)::Row;
    const int64_t bytes =
        ceil_div(product.out_features, Row::kFeatures) * product.rows * Row::kPitchBytes;
    auto* table = static_cast<char*>(context.workspace.take(static_cast<size_t>(bytes)));
    d.table = table;
    const cudaError_t error = narrow_product(product, factors, table, context);
    return error != cudaSuccess ? error : launch_sums<Row>(d, context);
  };
  return factors.exist() ? with_factored_form(product.size, product.out_features, launch)
                         : with_plain_form(product.size, product.out_features, launch);
}

// Rows of shorts, or of floats where products are too large for them, strictly in edge order.
cudaError_t aggregate_wide(const NarrowArgs& args, const NarrowFactors& factors,
                           const Context& context) {
  BmmArgs product = args.product;
  AggregateArgs sums = args.sums;
  sums.col_scale = factors.col_scale != nullptr ? factors.col_scale : factors.x_scale;
  if (factors.x_scale != nullptr && factors.col_scale != nullptr) {
    auto* both = static_cast<float*>(
        context.workspace.take(static_cast<size_t>(product.rows) * sizeof(float)));
    const cudaError_t error = narrow_factors(factors, product.rows, both, context);
    if (error != cudaSuccess) return error;
    sums.col_scale = both;
  }
  const bool shorts = product.size <= kMostShort;
  sums.x_stride = shorts ? ceil_div(sums.features, kShortVector) * kShortVector : sums.features;
  void* table = context.workspace.take(static_cast<size_t>(product.rows * sums.x_stride) *
                                       (shorts ? sizeof(uint16_t) : sizeof(float)));
  sums.x = table;
  cudaError_t error = cudaSuccess;
  if (shorts) {
    sums.x_type = RowType::kInt16;
    error = short_product(product, sums.x_stride, factors.exist(), static_cast<uint16_t*>(table),
                          context);
  } else {
    sums.x_type = RowType::kFloat32;
    product.out_float = static_cast<float*>(table);
    error = bmm(product, context);
  }
  return error != cudaSuccess ? error : aggregate_dense(sums, context);
}

}  // namespace

cudaError_t aggregate_narrow(const NarrowArgs& given, const Context& context) {
  NarrowArgs args = given;
  BmmArgs& product = args.product;
  if (args.sums.rows == 0 || args.sums.features == 0) return cudaSuccess;
  NarrowFactors factors{product.row_scale, args.sums.col_scale};
  if (product.pack != nullptr) {
    PackArgs pack = *product.pack;
    pack.words = static_cast<int32_t*>(context.workspace.take(
        static_cast<size_t>(product.rows * words_for(product.size)) * sizeof(int32_t)));
    if (product.packed_scale)
      pack.scale = static_cast<float*>(
          context.workspace.take(static_cast<size_t>(product.rows) * sizeof(float)));
    const cudaError_t error = cuda::pack(pack, product.rows, context);
    if (error != cudaSuccess) return error;
    product.x = pack.words;
    product.pack = nullptr;
    if (product.packed_scale) factors.x_scale = pack.scale;
  }
  args.sums.out_scale = product.out_scale;
  product.row_scale = product.out_scale = nullptr;
  product.packed_scale = false;
  return product.out_features <= kMostNarrowColumns ? aggregate_columns(args, factors, context)
                                                    : aggregate_wide(args, factors, context);
}

}  // namespace bitgnn::cuda

// BMM + BSpMM with narrow integers in between: packs, multiplies and aggregates.
#include "bitgnn/cuda/aggregate_narrow.cuh"

#include <algorithm>

#include "bitgnn/cuda/narrow_forms.cuh"
#include "bitgnn/cuda/narrow_product.h"

namespace bitgnn::cuda {
namespace {

// Wider rows are worth their chunks where neighbours are read often and three elements share a
// word.
constexpr int64_t kMostColumns = 48;
constexpr int64_t kWideUses = 16;
constexpr int64_t kMostWideFeatures = TenBitElements::kMostFeatures;
constexpr int64_t kLongFactor = 8;             // long rows have so many times the mean degree,
constexpr int64_t kLeastLong = 2 * kSumPiece;  // but two pieces at least
constexpr int64_t kManyEdges = 1 << 23;        // from here on long rows must start early,
constexpr unsigned kLongBlocks = 2;            // in so many blocks a multiprocessor

template <class Row>
cudaError_t launch_sums(NarrowLaunch d, const Context& context) {
  // Single lanes hold little enough for more loads in flight.
  using Share = NarrowShare<Row, Row::kLanes == 1 ? 8 : 4>;
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
  BmmArgs product = args.product;
  NarrowLaunch d{};
  d.a = args.sums;
  d.out_scale = product.out_scale;
  product.out_scale = nullptr;
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

// The same with float rows in between, strictly in edge order.
cudaError_t aggregate_floats(const NarrowArgs& args, const Context& context) {
  BmmArgs product = args.product;
  AggregateArgs sums = args.sums;
  product.out_float = static_cast<float*>(context.workspace.take(
      static_cast<size_t>(product.rows * product.out_features) * sizeof(float)));
  const cudaError_t error = bmm(product, context);
  if (error != cudaSuccess) return error;
  sums.x = product.out_float;
  sums.x_type = RowType::kFloat32;
  sums.x_stride = product.out_features;
  return aggregate_dense(sums, context);
}

bool stays_narrow(const NarrowArgs& args) {
  if (args.product.out_features <= kMostColumns) return true;
  return args.sums.edges >= kWideUses * args.sums.cols && args.product.size <= kMostWideFeatures;
}

}  // namespace

cudaError_t aggregate_narrow(const NarrowArgs& given, const Context& context) {
  NarrowArgs args = given;
  BmmArgs& product = args.product;
  if (args.sums.rows == 0 || args.sums.features == 0) return cudaSuccess;
  if (!stays_narrow(args)) return aggregate_floats(args, context);
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
  product.row_scale = nullptr;
  product.packed_scale = false;
  return aggregate_columns(args, factors, context);
}

}  // namespace bitgnn::cuda

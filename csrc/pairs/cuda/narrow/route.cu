// Chooses the kernels of BMM + BSpMM: packing, a product that becomes narrow integers or wide rows,
// and their sums.
#include "bmm/arguments.h"
#include "bspmm/arguments.h"
#include "core/cuda/variants.h"
#include "pack/arguments.h"
#include "pairs/arguments.h"
#include "pairs/cuda/narrow/sums_launch.cuh"
#include "pairs/cuda/routes.h"

namespace bitgnn::cuda::pairs {
namespace {

// Wider rows are worth their chunks if neighbours are read often and three elements share a word.
constexpr int64_t kMostColumns = 48;
constexpr int64_t kWideUses = 16;
constexpr int64_t kMostWideFeatures = TenBitElements::kMostFeatures;

constexpr int32_t kLeastHeavy = 512;  // rows of a given order that are shorter never take a block
constexpr int32_t kHeavyFactor = 2;   // blocks that add up pieces are slower than warps for an edge

// The given order, if there is one.
cudaError_t order_narrow(const NarrowCall& call, const Context& context, bspmm::RowOrder* order) {
  if (call.order == nullptr) return cudaSuccess;
  static_assert(sizeof(bspmm::RowSpan) == 2 * sizeof(*call.order), "an order consists of spans");
  static_assert(kLeastHeavy % kOrderStep == 0, "no light row comes before a heavy one");
  *order = {reinterpret_cast<const bspmm::RowSpan*>(call.order),
            std::max(kLeastHeavy, kHeavyFactor * bspmm::heavy_degree(call.sums.edges)), 0};
  return cudaSuccess;
}

// True if a root term's products are held like those that are summed, and the sum kernel adds them.
bool suits_joined_root(const NarrowCall& call, bool has_factors) {
  constexpr int64_t kMostWords = 16;  // longer rows are left to a kernel of their own
  return call.root != nullptr && words_for(call.root->size) <= kMostWords &&
         with_form(call.product.size, call.product.out_features, has_factors, [&](auto form) {
           return takes("pairs/narrow, joined root",
                        call.root->size <= decltype(form)::Row::Elements::kMostFeatures);
         });
}

cudaError_t aggregate_columns(const NarrowCall& call, const NarrowFactors& factors,
                              const Context& context) {
  BmmArgs product = call.product;
  NarrowLaunch d{};
  d.a = call.sums;
  d.head = {call.head, d.a.out_float, call.classes, d.a.features};
  d.out_scale = product.out_scale;
  product.out_scale = nullptr;
  d.shift = call.shift;
  d.odd = product.size % 2 != 0;
  const auto new_table = [&](int64_t rows, int64_t* stride) {
    const int64_t chunks =
        with_form(product.size, product.out_features, factors.exist(), [&](auto form) {
          using Row = typename decltype(form)::Row;
          *stride = rows * Row::kPitchBytes;
          return ceil_div(product.out_features, Row::kFeatures);
        });
    return static_cast<char*>(context.workspace.take(static_cast<size_t>(chunks * *stride)));
  };
  char* table = new_table(product.rows, &d.chunk_stride);
  d.table = table;
  BmmArgs root{};
  char* root_table = nullptr;
  if (suits_joined_root(call, factors.exist())) {
    root = *call.root;
    root_table = new_table(root.rows, &d.root.chunk_stride);
    d.root.table = root_table;
    d.root.odd = root.size % 2 != 0;
    d.root.row_scale = root.row_scale;
    d.root.out_scale = root.out_scale;
    d.root.bias = root.bias;
    root.row_scale = root.out_scale = root.bias = nullptr;
  }
  // The order comes before the product, as the sums may overlap with it while they read the order.
  cudaError_t error = order_narrow(call, context, &d.order);
  if (error == cudaSuccess)
    error = narrow_product(product, factors, table, root_table != nullptr ? &root : nullptr,
                           root_table, context);
  if (error != cudaSuccess) return error;
  if (d.order.rows != nullptr)
    return launch_ordered_sums(d, product.size, factors.exist(), context);
  // For rows of several lanes, the kernel with heads is the faster one.
  return with_form(product.size, product.out_features, factors.exist(), [&](auto form) {
    using Row = typename decltype(form)::Row;
    if constexpr (Row::kLanes == 1)
      if (takes("pairs/narrow, headless", call.head == Head::kNone))
        return launch_sums<CsrPattern, false, Row>(d, context);
    return launch_headed_sums(d, product.size, factors.exist(), context);
  });
}

bool has_factors(const NarrowArgs& args) {
  const BmmArgs& product = args.product;
  return product.row_scale != nullptr || product.packed_scale || args.sums.col_scale != nullptr;
}

// True if the product is held as narrow integers. Rows of more than 48 features that few edges read
// take the wide form, which has no head. Both sum in the same order.
bool suits_narrow(const NarrowArgs& args) {
  return takes("pairs/narrow", args.product.out_features <= kMostColumns ||
                                   (args.sums.edges >= kWideUses * args.sums.cols &&
                                    args.product.size <= kMostWideFeatures));
}

}  // namespace

// True if the lanes that sum a row hold all of its features, as a head requires.
cudaError_t suits_head(const NarrowCall& call, Head, bool* holds, const Context&) {
  const int64_t features = call.product.out_features;
  *holds = suits_narrow(call) &&
           with_form(call.product.size, features, has_factors(call),
                     [&](auto form) { return features <= decltype(form)::Row::kFeatures; });
  return cudaSuccess;
}

namespace {

// Everything except a root term that the sum kernel cannot add itself.
cudaError_t aggregate_neighbours(const NarrowCall& given, const Context& context) {
  NarrowCall call = given;
  BmmArgs& product = call.product;
  const bool narrow = suits_narrow(call);
  NarrowFactors factors{product.row_scale, call.sums.col_scale};
  if (product.pack != nullptr) {
    PackArgs pack = *product.pack;
    pack.words = static_cast<int32_t*>(context.workspace.take(
        static_cast<size_t>(product.rows * words_for(product.size)) * sizeof(int32_t)));
    if (product.packed_scale)
      pack.scale = static_cast<float*>(
          context.workspace.take(static_cast<size_t>(product.rows) * sizeof(float)));
    const cudaError_t error = pack::pack(pack, product.rows, context);
    if (error != cudaSuccess) return error;
    product.x = pack.words;
    product.pack = nullptr;
    if (product.packed_scale) factors.x_scale = pack.scale;
  }
  product.row_scale = nullptr;
  product.packed_scale = false;
  if (!narrow) return aggregate_wide(call, factors, context);
  return aggregate_columns(call, factors, context);
}

}  // namespace

cudaError_t aggregate_narrow(const NarrowCall& call, const Context& context) {
  if (call.sums.rows == 0 || call.sums.features == 0) return cudaSuccess;
  const cudaError_t error = aggregate_neighbours(call, context);
  if (error != cudaSuccess || call.root == nullptr) return error;
  if (suits_narrow(call) && suits_joined_root(call, has_factors(call))) return error;
  BmmArgs root = *call.root;
  root.addend = root.out_float = call.sums.out_float;
  return bmm::bmm(root, context);
}

}  // namespace bitgnn::cuda::pairs

// Launches products whose results become narrow rows.
#include "bmm/cuda/launch.h"
#include "pairs/cuda/narrow/product.h"

#include "pairs/cuda/narrow/forms.cuh"
#include "pairs/cuda/narrow/product.cuh"

namespace bitgnn::cuda::pairs {
namespace {

constexpr int64_t kMostWords = 16;              // of rows that are counted directly
constexpr int64_t kMostCounts = 1 << 28;        // beyond, tensor cores and a copy are faster
constexpr int64_t kMostWeightBytes = 16 << 10;  // in shared memory

unsigned product_blocks(int64_t threads) {
  return grid_size(ceil_div(threads, kNarrowProductThreads));
}

template <class Row>
cudaError_t launch_copy(const BmmArgs& given, const NarrowTarget& target, unsigned chunks,
                        const Context& context) {
  BmmArgs product = given;
  product.out_int = static_cast<int32_t*>(context.workspace.take(
      static_cast<size_t>(product.rows * product.out_features) * sizeof(int32_t)));
  const cudaError_t error = bmm::bmm(product, context);
  if (error != cudaSuccess) return error;
  return launch_dependent(
      narrow_copy_kernel<Row>, dim3(product_blocks(product.rows * Row::kLanes), chunks),
      kNarrowProductThreads, 0, context, static_cast<const int32_t*>(product.out_int), product.rows,
      product.out_features, target);
}

template <class Row, int kWords>
cudaError_t launch_direct(const BmmArgs& product, const NarrowTarget& target, unsigned chunks,
                          const Context& context) {
  return launch_dependent(
      narrow_product_kernel<Row, kWords>, dim3(product_blocks(product.rows * Row::kLanes), chunks),
      kNarrowProductThreads, static_cast<size_t>(product.out_features) * kWords * sizeof(int32_t),
      context, product, static_cast<int>(words_for(product.size)), target);
}

template <class Row>
cudaError_t launch_form(const BmmArgs& product, const NarrowTarget& target,
                        const Context& context) {
  const int64_t words = words_for(product.size);
  const auto chunks = static_cast<unsigned>(ceil_div(product.out_features, Row::kFeatures));
  const bool direct = words <= kMostWords && product.out_features * words * 4 <= kMostWeightBytes &&
                      product.rows * product.out_features * words <= kMostCounts;
  if (!direct) return launch_copy<Row>(product, target, chunks, context);
  if (words <= 2) return launch_direct<Row, 2>(product, target, chunks, context);
  if (words <= 4) return launch_direct<Row, 4>(product, target, chunks, context);
  if (words <= 8) return launch_direct<Row, 8>(product, target, chunks, context);
  return launch_direct<Row, 16>(product, target, chunks, context);
}

}  // namespace

cudaError_t narrow_product(const BmmArgs& product, const NarrowFactors& factors, char* table,
                           const Context& context) {
  if (product.rows == 0) return cudaSuccess;
  const NarrowTarget target{table, factors.x_scale, factors.col_scale};
  return with_form(product.size, product.out_features, factors.exist(), [&](auto form) {
    return launch_form<typename decltype(form)::Row>(product, target, context);
  });
}

}  // namespace bitgnn::cuda::pairs

// Launches products whose results become narrow rows.
#include "bmm/cuda/launch.h"
#include "pairs/cuda/routes.h"

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

// Least features of the products that take a form: smaller elements hold the others, all of them
// but for rows of more than eight bytes without factors, which have no form.
template <class Row>
constexpr int64_t least_features() {
  using Elements = typename Row::Elements;
  if (std::is_same_v<Elements, ShortElements>) return TenBitElements::kMostFeatures + 1;
  constexpr int kMostPlainBytes = 8;
  const bool behind_bytes =
      std::is_same_v<Elements, TenBitElements> &&
      (Row::kFactor != FactorPlace::kNone || Row::kFeatures <= kMostPlainBytes);
  return behind_bytes ? ByteElements::kMostFeatures + 1 : 0;
}

// True if products of a form may have rows of kWords words, but more than half as many.
template <class Row, int kWords>
constexpr bool kCounts = words_for(least_features<Row>()) <= kWords &&
                         2 * words_for(Row::Elements::kMostFeatures) > kWords;

// Counts directly, in the least number of words that hold a row.
template <class Row, int kWords = 2>
cudaError_t launch_counts(const BmmArgs& product, const NarrowTarget& target, unsigned chunks,
                          const Context& context) {
  if constexpr (kWords < kMostWords)
    if (words_for(product.size) > kWords)
      return launch_counts<Row, 2 * kWords>(product, target, chunks, context);
  if constexpr (kCounts<Row, kWords>)
    return launch_direct<Row, kWords>(product, target, chunks, context);
  return cudaErrorInvalidValue;
}

template <class Row>
cudaError_t launch_form(const BmmArgs& product, const NarrowTarget& target,
                        const Context& context) {
  const int64_t words = words_for(product.size);
  const auto chunks = static_cast<unsigned>(ceil_div(product.out_features, Row::kFeatures));
  const bool direct = words <= kMostWords && product.out_features * words * 4 <= kMostWeightBytes &&
                      product.rows * product.out_features * words <= kMostCounts;
  return direct ? launch_counts<Row>(product, target, chunks, context)
                : launch_copy<Row>(product, target, chunks, context);
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

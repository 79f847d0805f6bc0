// Launches products whose results become narrow rows.
#include <algorithm>

#include "bmm/arguments.h"
#include "pairs/cuda/routes.h"

#include "pairs/cuda/narrow/forms.cuh"
#include "pairs/cuda/narrow/product.cuh"

namespace bitgnn::cuda::pairs {
namespace {

constexpr int64_t kMostWords = 16;              // of rows that are counted directly
constexpr int64_t kMostCounts = 1 << 28;        // beyond, tensor cores and a copy are faster
constexpr int64_t kMostWeightBytes = 16 << 10;  // in shared memory
constexpr int64_t kMostTensorWords = 64;        // of rows whose weights leave room for many blocks

unsigned product_blocks(int64_t threads) {
  return grid_size(ceil_div(threads, kNarrowProductThreads));
}

template <class Row>
cudaError_t launch_copy(const NarrowProduct& given, unsigned chunks, const Context& context) {
  BmmArgs product = given.a;
  if (product.rows == 0) return cudaSuccess;
  product.out_int = static_cast<int32_t*>(context.workspace.take(
      static_cast<size_t>(product.rows * product.out_features) * sizeof(int32_t)));
  const cudaError_t error = bmm::bmm(product, context);
  if (error != cudaSuccess) return error;
  return launch_dependent(
      narrow_copy_kernel<Row>, dim3(product_blocks(product.rows * Row::kLanes), chunks),
      kNarrowProductThreads, 0, context, static_cast<const int32_t*>(product.out_int), product.rows,
      product.out_features, given.target);
}

// Launches one product or, with a root term, two.
template <class Row, int kWords>
cudaError_t launch_direct(const NarrowProducts& both, unsigned chunks, unsigned products,
                          const Context& context) {
  const int64_t rows = std::max(both.product[0].a.rows, both.product[1].a.rows);
  return launch_dependent(
      narrow_product_kernel<Row, kWords>,
      dim3(product_blocks(rows * Row::kLanes), chunks, products), kNarrowProductThreads,
      static_cast<size_t>(both.product[0].a.out_features) * kWords * 4, context, both);
}

// True if rows consist of aligned pairs of words.
bool has_pairs(const BmmArgs& a) {
  return words_for(a.size) % 2 == 0 && is_aligned(a.x, sizeof(uint2)) &&
         is_aligned(a.w, sizeof(uint2));
}

template <class Row>
cudaError_t launch_tensor(const NarrowProducts& both, unsigned chunks, unsigned products,
                          const Context& context) {
  const int64_t rows = std::max(both.product[0].a.rows, both.product[1].a.rows);
  const int steps = (std::max(both.words[0], both.words[1]) + kMmaWords - 1) / kMmaWords;
  const auto warps = ceil_div(rows, kMmaRows);
  return launch_dependent(
      narrow_tensor_kernel<Row>, dim3(product_blocks(warps * kWarp), chunks, products),
      kNarrowProductThreads, static_cast<size_t>(steps) * (Row::kUsed / 2) * kWarp * sizeof(uint2),
      context, both);
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

// Counts directly, in the least number of words that hold the rows.
template <class Row, int kWords = 2>
cudaError_t launch_counts(const NarrowProducts& both, unsigned chunks, unsigned products,
                          const Context& context) {
  if constexpr (kWords < kMostWords)
    if (std::max(both.words[0], both.words[1]) > kWords)
      return launch_counts<Row, 2 * kWords>(both, chunks, products, context);
  if constexpr (kCounts<Row, kWords>)
    return launch_direct<Row, kWords>(both, chunks, products, context);
  return cudaErrorInvalidValue;
}

template <class Row>
cudaError_t launch_form(const NarrowProducts& both, unsigned products, const Context& context) {
  const BmmArgs& a = both.product[0].a;
  const int64_t words = std::max(both.words[0], both.words[1]);
  const auto chunks = static_cast<unsigned>(ceil_div(a.out_features, Row::kFeatures));
  if constexpr (Row::kLanes == kMostLanes)
    if (context.device.has_bit_products() && words <= kMostTensorWords && has_pairs(a) &&
        has_pairs(both.product[1].a))
      return launch_tensor<Row>(both, chunks, products, context);
  const int64_t rows = std::max(a.rows, both.product[1].a.rows);
  if (words <= kMostWords && a.out_features * words * 4 <= kMostWeightBytes &&
      rows * a.out_features * words <= kMostCounts)
    return launch_counts<Row>(both, chunks, products, context);
  cudaError_t error = cudaSuccess;
  for (unsigned i = 0; i < products && error == cudaSuccess; ++i)
    error = launch_copy<Row>(both.product[i], chunks, context);
  return error;
}

}  // namespace

cudaError_t narrow_product(const BmmArgs& product, const NarrowFactors& factors, char* table,
                           const BmmArgs* root, char* root_table, const Context& context) {
  NarrowProducts both{};
  both.product[0] = {product, {table, factors.x_scale, factors.col_scale}};
  both.words[0] = static_cast<int>(words_for(product.size));
  if (root != nullptr) {
    both.product[1] = {*root, {root_table, nullptr, nullptr}};
    both.words[1] = static_cast<int>(words_for(root->size));
  }
  if (std::max(product.rows, both.product[1].a.rows) == 0) return cudaSuccess;
  return with_form(product.size, product.out_features, factors.exist(), [&](auto form) {
    return launch_form<typename decltype(form)::Row>(both, root != nullptr ? 2 : 1, context);
  });
}

}  // namespace bitgnn::cuda::pairs

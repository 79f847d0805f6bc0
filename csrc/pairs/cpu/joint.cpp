// Sums of packed neighbours plus a product of packed or 8-bit rows, on the CPU.
#include <type_traits>

#include "core/cpu/backend.h"
#include "pairs/arguments.h"

namespace bitgnn::cpu {
namespace {

// Computes the product with the sums as its addend; aggregate(arguments) computes the sums.
template <class Product, class Aggregate>
void join(AggregateArgs sums, Product product, const Aggregate& aggregate) {
  const Tensor floats = Backend::empty({sums.rows, sums.features}, ScalarType::Float);
  sums.out_float = static_cast<float*>(floats.data_ptr());
  aggregate(sums);
  product.addend = sums.out_float;
  if constexpr (std::is_same_v<Product, bitgnn::Int8BmmArgs>)
    multiply_int8(product);
  else
    bmm(product);
}

}  // namespace

void aggregate_product(const AggregateArgs& sums, const bitgnn::BmmArgs& product) {
  join(sums, product, aggregate_bits);
}

void aggregate_product_int8(const AggregateArgs& sums, const bitgnn::Int8BmmArgs& product) {
  join(sums, product, aggregate_bits);
}

void aggregate_product_sliced(const SlicedArgs& sums, const bitgnn::BmmArgs& product) {
  join(sums.csr, product, [&](const AggregateArgs& a) {
    SlicedArgs sliced = sums;
    sliced.csr = a;
    aggregate_sliced(sliced);
  });
}

}  // namespace bitgnn::cpu

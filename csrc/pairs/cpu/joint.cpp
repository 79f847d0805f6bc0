// Sums of packed neighbours plus a product of packed or 8-bit rows, on the CPU.
#include <type_traits>

#include "core/cpu/backend.h"

namespace bitgnn::cpu {
namespace {

// Computes the product with the sums as its addend; aggregate(arguments) computes the sums.
template <class Product, class Aggregate>
void join(const Backend& backend, AggregateArgs sums, Product product, const Aggregate& aggregate) {
  const Tensor floats = backend.empty({sums.rows, sums.features}, ScalarType::Float);
  sums.out_float = static_cast<float*>(floats.data_ptr());
  aggregate(sums);
  product.addend = sums.out_float;
  if constexpr (std::is_same_v<Product, bitgnn::Int8BmmArgs>)
    backend.multiply_int8(product);
  else
    backend.multiply(product);
}

}  // namespace

void Backend::aggregate_product(const AggregateArgs& sums, const bitgnn::BmmArgs& product) const {
  join(*this, sums, product, [&](const AggregateArgs& a) { aggregate_bits(a); });
}

void Backend::aggregate_product(const AggregateArgs& sums,
                                const bitgnn::Int8BmmArgs& product) const {
  join(*this, sums, product, [&](const AggregateArgs& a) { aggregate_bits(a); });
}

void Backend::aggregate_product(const SlicedArgs& sums, const bitgnn::BmmArgs& product) const {
  join(*this, sums.csr, product, [&](const AggregateArgs& a) {
    SlicedArgs sliced = sums;
    sliced.csr = a;
    aggregate_sliced(sliced);
  });
}

}  // namespace bitgnn::cpu

// Sums of packed neighbours plus a product of packed rows, on the CPU.
#include "core/cpu/backend.h"

namespace bitgnn::cpu {
namespace {

// Computes the product with the sums as its addend; aggregate(arguments) computes the sums.
template <class Aggregate>
void join(const Backend& backend, AggregateArgs sums, bitgnn::BmmArgs product,
          const Aggregate& aggregate) {
  const Tensor floats = backend.empty({sums.rows, sums.features}, ScalarType::Float);
  sums.out_float = static_cast<float*>(floats.data_ptr());
  aggregate(sums);
  product.addend = sums.out_float;
  backend.multiply(product);
}

}  // namespace

void Backend::aggregate_product(const AggregateArgs& sums, const bitgnn::BmmArgs& product) const {
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

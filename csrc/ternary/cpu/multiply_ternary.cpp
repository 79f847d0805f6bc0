// CPU backend of ternary packing and of products with +-1 weights.
#include <vector>

#include "bmm/cpu/panels.h"
#include "capabilities/cpu/kernel_table.h"
#include "core/cpu/backend.h"
#include "ternary/arguments.h"

namespace bitgnn::cpu {
namespace {

constexpr int64_t kMultiplyGrain = 1 << 18;  // word products per thread, as in bmm/cpu/bmm.cpp
constexpr int64_t kPackGrain = 1 << 17;      // values per thread
constexpr int64_t kFinishWork = 64;          // epilogue cost per row and panel, in word products
// Up to this many rows, building weight panels would cost more than it saves.
constexpr int64_t kRowsInPlace = 8;

void pack_planes(const TernaryPackArgs& a, int64_t planes) {
  split(a.rows(), grain(a.size, kPackGrain), kernels().pack_ternary, a, planes);
}

}  // namespace

void pack_ternary(const TernaryPackArgs& a) { pack_planes(a, a.boolean ? 1 : 2); }

void pack_ternary_columns(const TernaryColumnPackArgs& a) {
  const int64_t chunks = a.batches[0] * a.batches[1] * words_for(a.features);
  split(chunks, grain(a.length * kWordBits, kPackGrain), kernels().pack_ternary_columns, a);
}

void multiply_ternary(const TernaryBmmArgs& a) {
  const int64_t words = words_for(a.size), panels = words_for(a.out_features);
  TernaryProduct product{&a, nullptr, nullptr};
  std::vector<int32_t> flip;
  if (a.flip != nullptr) {
    flip = pack_flags(a.flip, a.out_features);
    product.flip = flip.data();
  }
  ops::OptionalTensor weights;
  if (a.rows > kRowsInPlace) {
    weights = Backend::empty({panels, words, kWordBits}, ScalarType::Int);
    pack_panels(a.w, a.out_features, words, false, weights->mutable_data_ptr<int32_t>());
    product.panels = weights->const_data_ptr<int32_t>();
  }
  const int64_t threads = torch::stable::get_num_threads();
  const int64_t panel_work = words * kWordBits + kFinishWork;
  split_either(product.panels != nullptr && (a.rows >= panels || panels < threads), a.rows,
               grain(panel_work * panels, kMultiplyGrain), panels,
               grain(panel_work * a.rows, kMultiplyGrain), kernels().multiply_ternary, product);
}

void linear_ternary(const TernaryLinearArgs& a) {
  const int64_t rows = a.product.rows;
  const Tensor words = Backend::empty({rows, 2, words_for(a.pack.size)}, ScalarType::Int);
  const Tensor counts = Backend::empty({rows}, ScalarType::Int);
  TernaryPackArgs pack = a.pack;
  pack.words = words.mutable_data_ptr<int32_t>();
  pack.counts = counts.mutable_data_ptr<int32_t>();
  pack_planes(pack, 2);
  TernaryBmmArgs product = a.product;
  product.x = pack.words;
  product.counts = pack.counts;
  multiply_ternary(product);
}

}  // namespace bitgnn::cpu

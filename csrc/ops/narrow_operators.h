// BMM + BSpMM with the product held as narrow integers in between, for any backend.
#pragma once

#include "bitgnn/narrow_sums.h"
#include "ops/fused_operators.h"

namespace bitgnn::ops {

template <class Backend>
struct NarrowOperators {
  using Problems = BspmmProblems<Backend>;
  using Problem = typename Problems::Problem;
  using Fused = FusedOperators<Backend>;

  static Tensor bmm_bspmm_narrow(const Tensor& x_in, const Tensor& w_in, int64_t size,
                                 const Tensor& rowptr, const Tensor& indices,
                                 const OptionalTensor& x_scale, const OptionalTensor& w_scale,
                                 const OptionalTensor& x_threshold, const OptionalTensor& x_gain,
                                 bool scale, const OptionalTensor& row, const OptionalTensor& col,
                                 const OptionalTensor& bias) {
    const char* op = "bmm_bspmm_narrow";
    Fused::check_x_scale(x_in, x_scale, op);
    if (size > kMostShortFeatures)
      return Fused::bmm_bspmm(x_in, w_in, size, rowptr, indices, x_scale, w_scale, x_threshold,
                              x_gain, scale, row, col, bias, {}, false, false);
    Problem p(x_in, op);
    NarrowArgs args{};
    PackArgs pack{};
    const Tensor w = bit_rows(p.backend, w_in, size, op, "w");
    FloatVector threshold, gain;
    if (x_in.scalar_type() == ScalarType::Int) {
      STD_TORCH_CHECK(!x_threshold.has_value() && !x_gain.has_value() && !scale, op,
                      ": x_threshold, x_gain and scale must be left out with packed x");
      p.x = bit_rows(p.backend, x_in, size, op, "x");
      args.product.x = p.x.template const_data_ptr<int32_t>();
    } else {
      p.x = packable_rows(p.backend, x_in, op, "x");
      check_size(p.x.size(1), size, op, "features of x");
      threshold = FloatVector(p.backend, x_threshold, size, op, "x_threshold");
      gain = FloatVector(p.backend, x_gain, size, op, "x_gain");
      pack = pack_args(p.x, threshold, gain, op);
      args.product.pack = &pack;
      args.product.packed_scale = scale;
    }
    const FloatVector x_factor(p.backend, x_scale, p.x.size(0), op, "x_scale");
    const FloatVector w_factor(p.backend, w_scale, w.size(0), op, "w_scale");
    args.product.w = w.template const_data_ptr<int32_t>();
    args.product.rows = p.x.size(0);
    args.product.size = size;
    args.product.out_features = w.size(0);
    args.product.row_scale = x_factor.get();
    args.product.out_scale = w_factor.get();
    Problems::set_csr(p, rowptr, indices);
    p.csr.cols = p.x.size(0);
    p.csr.features = w.size(0);
    p.col = FloatVector(p.backend, col, p.csr.cols, op, "col");
    p.csr.col_scale = p.col.get();
    Tensor out = Problems::finish(p, Output::kFloat, row, bias, {});
    args.sums = p.csr;
    p.backend.aggregate_narrow(args);
    return out;
  }
};

template <class Backend, class Library>
void register_narrow(Library& m) {
  m.impl("bmm_bspmm_narrow", TORCH_BOX(&NarrowOperators<Backend>::bmm_bspmm_narrow));
}

}  // namespace bitgnn::ops

// Pairs of operators in one call, BMM + ADD and BMM + BSpMM, for any backend.
#pragma once

#include "bmm/operators.h"
#include "bspmm/operators.h"

namespace bitgnn::ops {

template <class Backend>
struct FusedOperators {
  using Bmm = BmmOperators<Backend>;
  using Bspmm = BspmmOperators<Backend>;
  using Request = typename Bmm::Request;

  // int32 activations are packed words; others are binarised here.
  static Tensor product(const Request& q, const Tensor& x, const Tensor& w,
                        const OptionalTensor& x_threshold, const OptionalTensor& x_gain,
                        bool scale) {
    const Backend backend(x, q.op, "x");
    if (x.scalar_type() != ScalarType::Int)
      return Bmm::multiply_float(backend, q, x, bit_rows(backend, w, q.size, q.op, "w"),
                                 x_threshold, x_gain, scale);
    BITGNN_CHECK(!x_threshold.has_value() && !x_gain.has_value() && !scale, q.op,
                 ": x_threshold, x_gain and scale must be left out with packed x");
    return Bmm::multiply_bits(backend, q, x, w);
  }

  static void check_x_scale(const Tensor& x, const OptionalTensor& x_scale, const char* op) {
    BITGNN_CHECK(!x_scale.has_value() || x.scalar_type() == ScalarType::Int, op,
                 ": x_scale must be left out with float x, whose scale is measured");
  }

  static Tensor bmm_add(const Tensor& x, const Tensor& w, const Tensor& addend, int64_t size,
                        const OptionalTensor& x_scale, const OptionalTensor& w_scale,
                        const OptionalTensor& bias, const OptionalTensor& threshold,
                        const OptionalTensor& flip, const OptionalTensor& x_threshold,
                        const OptionalTensor& x_gain, bool scale, bool out_bits) {
    const char* op = "bmm_add";
    check_x_scale(x, x_scale, op);
    BITGNN_CHECK(out_bits || (!threshold.has_value() && !flip.has_value()), op,
                 ": threshold and flip must be left out with out_bits=False");
    const Output output = out_bits ? Output::kBits : Output::kFloat;
    const Request q{op, size, x_scale, w_scale, bias, threshold, flip, output, addend};
    return product(q, x, w, x_threshold, x_gain, scale);
  }

  static Tensor bmm_bspmm(const Tensor& x, const Tensor& w, int64_t size, const Tensor& rowptr,
                          const Tensor& indices, const OptionalTensor& x_scale,
                          const OptionalTensor& w_scale, const OptionalTensor& x_threshold,
                          const OptionalTensor& x_gain, bool scale, const OptionalTensor& row,
                          const OptionalTensor& col, const OptionalTensor& bias,
                          const OptionalTensor& threshold, bool hidden_bits, bool out_bits,
                          bool trusted) {
    const char* op = "bmm_bspmm";
    check_x_scale(x, x_scale, op);
    BITGNN_CHECK(!hidden_bits || (!x_scale.has_value() && !w_scale.has_value() && !scale), op,
                 ": scales must be left out with hidden_bits=True, where they cannot act");
    BITGNN_CHECK(!hidden_bits || !col.has_value(), op,
                 ": col must be left out with hidden_bits=True, where it cannot act");
    BITGNN_CHECK(out_bits || !threshold.has_value(), op,
                 ": threshold must be left out with out_bits=False");
    BITGNN_CHECK(!out_bits || !bias.has_value(), op, ": bias must be left out with out_bits=True");
    if (!trusted) {
      check_dim(x, 2, op, "x");
      typename Bspmm::Problem p(x, op);
      Bspmm::Problems::set_csr(p, rowptr, indices);
      Bspmm::Problems::check_csr(p, x.size(0), false);
    }
    const Output middle = hidden_bits ? Output::kBits : Output::kFloat;
    const Request q{op, size, x_scale, w_scale, {}, {}, {}, middle};
    const Tensor hidden = product(q, x, w, x_threshold, x_gain, scale);
    const Output output = out_bits ? Output::kBits : Output::kFloat;
    if (hidden_bits)
      return Bspmm::bits_times_pattern(op, hidden, w.size(0), rowptr, indices, output, row, bias,
                                       threshold, true);
    return Bspmm::dense_times_pattern(op, hidden, rowptr, indices, output, row, col, bias,
                                      threshold, true);
  }
};

}  // namespace bitgnn::ops

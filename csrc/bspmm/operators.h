// The eight BSpMM variants over CSR.
#pragma once

#include "bspmm/problem.h"

namespace bitgnn::ops {

template <class Backend>
struct BspmmOperators {
  using Problems = BspmmProblems<Backend>;
  using Problem = typename Problems::Problem;

  static Tensor bits_times_pattern(const char* op, const Tensor& x, int64_t size,
                                   const Tensor& rowptr, const Tensor& indices, Output output,
                                   const OptionalTensor& row, const OptionalTensor& bias,
                                   const OptionalTensor& threshold, bool trusted) {
    Problem p(x, op);
    Problems::set_csr(p, rowptr, indices);
    Problems::set_bits(p, x, size);
    Problems::check_csr(p, p.csr.cols, trusted);
    Tensor out = Problems::finish(p, output, row, bias, threshold);
    if (out.numel() > 0) p.backend.launch(kernel::aggregate_bits, p.csr);
    return out;
  }

  static Tensor bbb(const Tensor& x, int64_t size, const Tensor& rowptr, const Tensor& indices,
                    const OptionalTensor& row, const OptionalTensor& threshold, bool trusted) {
    return bits_times_pattern("bspmm_bbb", x, size, rowptr, indices, Output::kBits, row, {},
                              threshold, trusted);
  }

  static Tensor bbf(const Tensor& x, int64_t size, const Tensor& rowptr, const Tensor& indices,
                    const OptionalTensor& row, const OptionalTensor& bias, bool integer,
                    bool trusted) {
    const char* op = "bspmm_bbf";
    return bits_times_pattern(op, x, size, rowptr, indices,
                              Problems::value_output(integer, row, bias, op), row, bias, {},
                              trusted);
  }

  static Tensor dense_times_pattern(const char* op, const Tensor& x, const Tensor& rowptr,
                                    const Tensor& indices, Output output, const OptionalTensor& row,
                                    const OptionalTensor& col, const OptionalTensor& bias,
                                    const OptionalTensor& threshold, bool trusted) {
    Problem p(x, op);
    Problems::set_csr(p, rowptr, indices);
    Problems::set_dense(p, x, true);
    Problems::check_csr(p, p.csr.cols, trusted);
    BITGNN_CHECK(!Problems::holds_integers(p) || !col.has_value(), op,
                 ": col must be left out with integer x, whose sums are exact");
    BITGNN_CHECK(Problems::holds_integers(p) || output != Output::kInt, op,
                 ": integer=True needs x to be int8 or int16, got ",
                 torch::headeronly::toString(x.scalar_type()));
    p.col = FloatVector(p.backend, col, p.csr.cols, op, "col");
    p.csr.col_scale = p.col.get();
    Tensor out = Problems::finish(p, output, row, bias, threshold);
    if (out.numel() > 0) p.backend.launch(kernel::aggregate_dense, p.csr);
    return out;
  }

  static Tensor fbb(const Tensor& x, const Tensor& rowptr, const Tensor& indices,
                    const OptionalTensor& row, const OptionalTensor& col,
                    const OptionalTensor& threshold, bool trusted) {
    return dense_times_pattern("bspmm_fbb", x, rowptr, indices, Output::kBits, row, col, {},
                               threshold, trusted);
  }

  static Tensor fbf(const Tensor& x, const Tensor& rowptr, const Tensor& indices,
                    const OptionalTensor& row, const OptionalTensor& col,
                    const OptionalTensor& bias, bool integer, bool trusted) {
    const char* op = "bspmm_fbf";
    return dense_times_pattern(op, x, rowptr, indices,
                               Problems::value_output(integer, row, bias, op), row, col, bias, {},
                               trusted);
  }

  static Tensor bits_times_matrix(const char* op, const Tensor& x, int64_t size,
                                  const Tensor& rowptr, const Tensor& indices, const Tensor& values,
                                  Output output, const OptionalTensor& x_scale,
                                  const OptionalTensor& bias, const OptionalTensor& threshold,
                                  bool trusted) {
    Problem p(x, op);
    Problems::set_csr(p, rowptr, indices);
    Problems::set_bits(p, x, size);
    Problems::check_csr(p, p.csr.cols, trusted);
    Problems::set_values(p, values);
    p.col = FloatVector(p.backend, x_scale, p.csr.cols, op, "x_scale");
    p.csr.col_scale = p.col.get();
    Tensor out = Problems::finish(p, output, {}, bias, threshold);
    if (out.numel() > 0) p.backend.launch(kernel::aggregate_dense, p.csr);
    return out;
  }

  static Tensor bfb(const Tensor& x, int64_t size, const Tensor& rowptr, const Tensor& indices,
                    const Tensor& values, const OptionalTensor& x_scale,
                    const OptionalTensor& threshold, bool trusted) {
    return bits_times_matrix("bspmm_bfb", x, size, rowptr, indices, values, Output::kBits, x_scale,
                             {}, threshold, trusted);
  }

  static Tensor bff(const Tensor& x, int64_t size, const Tensor& rowptr, const Tensor& indices,
                    const Tensor& values, const OptionalTensor& x_scale, const OptionalTensor& bias,
                    bool trusted) {
    return bits_times_matrix("bspmm_bff", x, size, rowptr, indices, values, Output::kFloat, x_scale,
                             bias, {}, trusted);
  }

  static Tensor dense_times_matrix(const char* op, const Tensor& x, const Tensor& rowptr,
                                   const Tensor& indices, const Tensor& values, Output output,
                                   const OptionalTensor& bias, const OptionalTensor& threshold,
                                   bool trusted) {
    Problem p(x, op);
    Problems::set_csr(p, rowptr, indices);
    Problems::set_dense(p, x, false);
    Problems::check_csr(p, p.csr.cols, trusted);
    Problems::set_values(p, values);
    Tensor out = Problems::finish(p, output, {}, bias, threshold);
    if (out.numel() > 0) p.backend.launch(kernel::aggregate_dense, p.csr);
    return out;
  }

  static Tensor ffb(const Tensor& x, const Tensor& rowptr, const Tensor& indices,
                    const Tensor& values, const OptionalTensor& threshold, bool trusted) {
    return dense_times_matrix("bspmm_ffb", x, rowptr, indices, values, Output::kBits, {}, threshold,
                              trusted);
  }

  static Tensor fff(const Tensor& x, const Tensor& rowptr, const Tensor& indices,
                    const Tensor& values, const OptionalTensor& bias, bool trusted) {
    return dense_times_matrix("bspmm_fff", x, rowptr, indices, values, Output::kFloat, bias, {},
                              trusted);
  }
};

}  // namespace bitgnn::ops

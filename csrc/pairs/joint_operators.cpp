// A sum of packed neighbours plus a product of packed or 8-bit rows in one operator, for any
// backend: the output bits of GraphSAGE and GraphConv layers.
#include "bmm/operators.h"
#include "bspmm/arguments.h"
#include "bspmm/layout_operators.h"
#include "core/registration.h"
#include "int8/operators.h"
#include "pairs/arguments.h"

namespace bitgnn::ops {

template <class Backend>
struct JointOperators {
  using Bmm = BmmOperators<Backend>;
  using Problems = BspmmProblems<Backend>;
  using Problem = typename Problems::Problem;
  using Request = typename Bmm::Request;

  // Sets the factors of the sums; their rows and neighbours must be set before.
  static void set_factors(Problem& p, const OptionalTensor& row, const OptionalTensor& sum_bias) {
    p.row = FloatVector(p.backend, row, p.csr.rows, p.op, "row");
    p.bias = FloatVector(p.backend, sum_bias, p.csr.features, p.op, "sum_bias");
    p.csr.row_scale = p.row.get();
    p.csr.bias = p.bias.get();
  }

  static int64_t outputs(const Tensor& w, const char* op) {
    check_dim(w, 2, op, "w");
    return w.size(0);
  }

  // Calls run(arguments of the product) with the output allocated.
  template <class Run>
  static Tensor join(const Problem& p, const Tensor& x_in, const Tensor& w_in, int64_t size,
                     const OptionalTensor& x_scale, const OptionalTensor& w_scale,
                     const OptionalTensor& bias, const OptionalTensor& threshold,
                     const OptionalTensor& flip, const Run& run) {
    const Tensor x = bit_rows(p.backend, x_in, size, p.op, "x");
    const Tensor w = bit_rows(p.backend, w_in, size, p.op, "w");
    check_size(x.size(0), p.csr.rows, p.op, "rows of x");
    Request q{p.op, size, x_scale, w_scale, bias, threshold, flip, Output::kBits};
    q.is_summand = true;
    return Bmm::multiply_with(p.backend, q, &x, nullptr, false, x.size(0), w, run);
  }

  static Tensor csr(const Tensor& neighbours, const Tensor& rowptr, const Tensor& indices,
                    const Tensor& x, const Tensor& w, int64_t size, const OptionalTensor& row,
                    const OptionalTensor& sum_bias, const OptionalTensor& x_scale,
                    const OptionalTensor& w_scale, const OptionalTensor& bias,
                    const OptionalTensor& threshold, const OptionalTensor& flip, bool trusted) {
    Problem p(neighbours, "bspmm_bmm", "neighbours");
    Problems::set_csr(p, rowptr, indices);
    Problems::set_bits(p, neighbours, outputs(w, p.op), "neighbours");
    Problems::check_csr(p, p.csr.cols, trusted);
    set_factors(p, row, sum_bias);
    return join(p, x, w, size, x_scale, w_scale, bias, threshold, flip,
                [&](const BmmArgs& product) {
                  p.backend.launch(kernel::aggregate_product, p.csr, product);
                });
  }

  static Tensor int8(const Tensor& neighbours, const Tensor& rowptr, const Tensor& indices,
                     const Tensor& codes_in, const Tensor& weight, int64_t size,
                     const OptionalTensor& row, const OptionalTensor& sum_bias,
                     const OptionalTensor& scale, const OptionalTensor& shift,
                     const OptionalTensor& threshold, bool trusted) {
    Problem p(neighbours, "bspmm_bmm_iib", "neighbours");
    check_int8_size(size, p.op, "size");
    Problems::set_csr(p, rowptr, indices);
    check_dim(weight, 2, p.op, "weight");
    Problems::set_bits(p, neighbours, weight.size(0), "neighbours");
    Problems::check_csr(p, p.csr.cols, trusted);
    set_factors(p, row, sum_bias);
    const Tensor codes = code_rows(p.backend, codes_in, size, p.op, "codes");
    check_size(codes.size(0), p.csr.rows, p.op, "rows of codes");
    Int8BmmArgs args{};
    args.codes = codes.template const_data_ptr<int8_t>();
    args.rows = codes.size(0);
    args.size = size;
    return Int8Operators<Backend>::multiply_with(
        p.backend, args, weight, {scale, shift, {}, {}, {}, threshold, Output::kBits}, p.op,
        [&] { p.backend.launch(kernel::aggregate_product_int8, p.csr, args); });
  }

  static Tensor sliced(const Tensor& neighbours, const Tensor& rowptr, const Tensor& local_indices,
                       const Tensor& group_steps, const Tensor& group_places,
                       const Tensor& slice_groups, const Tensor& row_slots, const Tensor& row_items,
                       int64_t slice_size, int64_t places, const Tensor& x, const Tensor& w,
                       int64_t size, const OptionalTensor& row, const OptionalTensor& sum_bias,
                       const OptionalTensor& x_scale, const OptionalTensor& w_scale,
                       const OptionalTensor& bias, const OptionalTensor& threshold,
                       const OptionalTensor& flip, bool trusted) {
    Problem p(neighbours, "bspmm_bmm_sliced", "neighbours");
    SlicedArgs args = BspmmLayoutOperators<Backend>::sliced_args(
        p, neighbours, outputs(w, p.op), rowptr, local_indices, group_steps, group_places,
        slice_groups, row_slots, row_items, slice_size, places, trusted, "neighbours");
    set_factors(p, row, sum_bias);
    args.csr = p.csr;
    return join(p, x, w, size, x_scale, w_scale, bias, threshold, flip,
                [&](const BmmArgs& product) {
                  p.backend.launch(kernel::aggregate_product_sliced, args, product);
                });
  }
};

BITGNN_OPERATORS(table) {
  const std::string joint =
      "Tensor x, Tensor w, int size, Tensor? row=None, Tensor? sum_bias=None, "
      "Tensor? x_scale=None, Tensor? w_scale=None, Tensor? bias=None, Tensor? threshold=None, "
      "Tensor? flip=None, bool trusted=False) -> Tensor";
  table.template add<&JointOperators<Backend>::csr>(
      "bspmm_bmm(Tensor neighbours, Tensor rowptr, Tensor indices, " + joint);
  table.template add<&JointOperators<Backend>::int8>(
      "bspmm_bmm_iib(Tensor neighbours, Tensor rowptr, Tensor indices, Tensor codes, "
      "Tensor weight, int size, Tensor? row=None, Tensor? sum_bias=None, Tensor? scale=None, "
      "Tensor? shift=None, Tensor? threshold=None, bool trusted=False) -> Tensor");
  table.template add<&JointOperators<Backend>::sliced>(
      "bspmm_bmm_sliced(Tensor neighbours, Tensor rowptr, Tensor local_indices, "
      "Tensor group_steps, Tensor group_places, Tensor slice_groups, Tensor row_slots, "
      "Tensor row_items, int slice_size, int places, " +
      joint);
}

}  // namespace bitgnn::ops

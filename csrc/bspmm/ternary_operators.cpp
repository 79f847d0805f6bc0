// BSpMM of ternary rows over CSR: sums of neighbours' values in {-1, 0, +1}, for any backend.
#include "bspmm/arguments.h"
#include "bspmm/problem.h"
#include "core/registration.h"

namespace bitgnn::ops {

template <class Backend>
struct BspmmTernaryOperators {
  using Problems = BspmmProblems<Backend>;
  using Problem = typename Problems::Problem;

  static Tensor aggregate(const char* op, const Tensor& x, int64_t size, const Tensor& rowptr,
                          const Tensor& indices, Output output, const OptionalTensor& row,
                          const OptionalTensor& bias, const OptionalTensor& threshold,
                          bool trusted) {
    Problem p(x, op);
    Problems::set_csr(p, rowptr, indices);
    BITGNN_CHECK(size >= 0, op, ": size must not be negative, got ", size);
    check_dtype(x, ScalarType::Int, op, "x");
    check_dim(x, 3, op, "x");
    check_size(x.size(1), 2, op, "planes of x");
    check_size(x.size(2), words_for(size), op, "words of a plane of x");
    p.x = as_contiguous(x);
    p.csr.x = p.x.data_ptr();
    p.csr.x_type = RowType::kBits;
    p.csr.x_stride = 2 * words_for(size);
    p.csr.features = size;
    p.csr.cols = p.x.size(0);
    Problems::check_csr(p, p.csr.cols, trusted);
    Tensor out = Problems::finish(p, output, row, bias, threshold);
    if (out.numel() > 0) p.backend.launch(kernel::aggregate_ternary, p.csr);
    return out;
  }

  static Tensor tbb(const Tensor& x, int64_t size, const Tensor& rowptr, const Tensor& indices,
                    const OptionalTensor& row, const OptionalTensor& threshold, bool trusted) {
    return aggregate("bspmm_tbb", x, size, rowptr, indices, Output::kBits, row, {}, threshold,
                     trusted);
  }

  static Tensor tbf(const Tensor& x, int64_t size, const Tensor& rowptr, const Tensor& indices,
                    const OptionalTensor& row, const OptionalTensor& bias, bool integer,
                    bool trusted) {
    const char* op = "bspmm_tbf";
    return aggregate(op, x, size, rowptr, indices, Problems::value_output(integer, row, bias, op),
                     row, bias, {}, trusted);
  }
};

BITGNN_OPERATORS(table) {
  table.template add<&BspmmTernaryOperators<Backend>::tbb>(
      "bspmm_tbb(Tensor x, int size, Tensor rowptr, Tensor indices, Tensor? row=None, "
      "Tensor? threshold=None, bool trusted=False) -> Tensor");
  table.template add<&BspmmTernaryOperators<Backend>::tbf>(
      "bspmm_tbf(Tensor x, int size, Tensor rowptr, Tensor indices, Tensor? row=None, "
      "Tensor? bias=None, bool integer=False, bool trusted=False) -> Tensor");
}

}  // namespace bitgnn::ops

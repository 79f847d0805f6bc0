// Classes of sums of packed rows over CSR, for any backend.
#include "bspmm/classes.h"
#include "bspmm/problem.h"
#include "core/registration.h"

namespace bitgnn::ops {

template <class Backend>
struct ClassesOperators {
  using Problems = BspmmProblems<Backend>;
  using Problem = typename Problems::Problem;

  static Tensor bspmm_classes(const Tensor& x, int64_t size, const Tensor& rowptr,
                              const Tensor& indices, const OptionalTensor& row,
                              const OptionalTensor& bias, bool trusted) {
    const char* op = "bspmm_classes";
    BITGNN_CHECK(size != 0, op, ": size must be at least 1, got 0");
    Problem p(x, op);
    Problems::set_csr(p, rowptr, indices);
    Problems::set_pitched_bits(p, x, size);
    Problems::check_csr(p, p.csr.cols, trusted);
    Problems::set_epilogue(p, row, bias, {});
    Tensor out = p.backend.empty({p.csr.rows}, ScalarType::Long);
    const ClassesArgs args{p.csr, out.template mutable_data_ptr<int64_t>()};
    if (p.csr.rows > 0) p.backend.launch(kernel::aggregate_classes, args);
    return out;
  }
};

BITGNN_OPERATORS(table) {
  table.template add<&ClassesOperators<Backend>::bspmm_classes>(
      "bspmm_classes(Tensor x, int size, Tensor rowptr, Tensor indices, Tensor? row=None, "
      "Tensor? bias=None, bool trusted=False) -> Tensor");
}

}  // namespace bitgnn::ops

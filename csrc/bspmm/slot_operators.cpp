// Sums of narrow float rows in the order of narrow_sums.h, for any backend.
#include "bspmm/arguments.h"
#include "bspmm/problem.h"
#include "core/registration.h"

namespace bitgnn::ops {

template <class Backend>
struct SlotOperators {
  using Problems = BspmmProblems<Backend>;
  using Problem = typename Problems::Problem;

  static Tensor bspmm_slots(const Tensor& x, const Tensor& rowptr, const Tensor& indices,
                            const OptionalTensor& row, const OptionalTensor& bias,
                            const OptionalTensor& addend_in, bool trusted) {
    const char* op = "bspmm_slots";
    Problem p(x, op);
    Problems::set_csr(p, rowptr, indices);
    check_dtype(x, ScalarType::Float, op, "x");
    Problems::set_dense(p, x, false);
    Problems::check_csr(p, p.csr.cols, trusted);
    SlotSumsArgs args{};
    OptionalTensor addend;
    if (addend_in.has_value()) {
      check_addend(p.backend, *addend_in, p.csr.rows, p.csr.features, op);
      addend = with_unit_column_stride(*addend_in);
      args.addend = addend->template const_data_ptr<float>();
      args.addend_stride = addend->stride(0);
    }
    Tensor out = Problems::finish(p, Output::kFloat, row, bias, {});
    args.sums = p.csr;
    if (out.numel() > 0) p.backend.launch(kernel::aggregate_slots, args);
    return out;
  }
};

BITGNN_OPERATORS(table) {
  table.template add<&SlotOperators<Backend>::bspmm_slots>(
      "bspmm_slots(Tensor x, Tensor rowptr, Tensor indices, Tensor? row=None, Tensor? bias=None, "
      "Tensor? addend=None, bool trusted=False) -> Tensor");
}

}  // namespace bitgnn::ops

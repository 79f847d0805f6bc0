// Schemas of the operators of operators.h.
#include "ternary/operators.h"

#include "core/registration.h"

namespace bitgnn::ops {

BITGNN_OPERATORS(table) {
  const std::string ternary =
      "Tensor x, Tensor counts, Tensor w, SymInt size, Tensor? x_scale=None, Tensor? w_scale=None, "
      "Tensor? bias=None, ";
  table.template add<&TernaryOperators<Backend>::pack_ternary>(
      "pack_ternary(Tensor x, Tensor scale) -> (Tensor, Tensor)");
  table.template add<&TernaryOperators<Backend>::pack_bool>(
      "pack_bool(Tensor x, Tensor scale) -> (Tensor, Tensor)");
  table.template add<&TernaryOperators<Backend>::pack_columns>(
      "pack_ternary_columns(Tensor x, Tensor scale) -> (Tensor, Tensor)");
  table.template add<&TernaryOperators<Backend>::tbf>("bmm_tbf(" + ternary +
                                                      "ScalarType? dtype=None) -> Tensor");
  table.template add<&TernaryOperators<Backend>::tbb>(
      "bmm_tbb(" + ternary + "Tensor? threshold=None, Tensor? flip=None) -> Tensor");
  table.template add<&TernaryOperators<Backend>::linear>(
      "linear_ternary(Tensor x, Tensor w, SymInt size, Tensor scale, Tensor? w_scale=None, "
      "Tensor? bias=None, ScalarType? dtype=None, bool boolean=False) -> Tensor");
}

}  // namespace bitgnn::ops

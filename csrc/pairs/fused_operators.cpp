// Schemas of the operators of fused_operators.h.
#include "pairs/fused_operators.h"

#include "core/registration.h"

namespace bitgnn::ops {

BITGNN_OPERATORS(table) {
  table.template add<&FusedOperators<Backend>::bmm_add>(
      "bmm_add(Tensor x, Tensor w, Tensor addend, int size, Tensor? x_scale=None, "
      "Tensor? w_scale=None, Tensor? bias=None, Tensor? threshold=None, Tensor? flip=None, "
      "Tensor? x_threshold=None, Tensor? x_gain=None, bool scale=False, bool out_bits=False) "
      "-> Tensor");
  table.template add<&FusedOperators<Backend>::bmm_bspmm>(
      "bmm_bspmm(Tensor x, Tensor w, int size, Tensor rowptr, Tensor indices, "
      "Tensor? x_scale=None, Tensor? w_scale=None, Tensor? x_threshold=None, "
      "Tensor? x_gain=None, bool scale=False, Tensor? row=None, Tensor? col=None, "
      "Tensor? bias=None, Tensor? threshold=None, bool hidden_bits=True, "
      "bool out_bits=False, bool trusted=False) -> Tensor");
}

}  // namespace bitgnn::ops

// Schemas of the operators of operators.h.
#include "bmm/operators.h"

#include "core/registration.h"

namespace bitgnn::ops {

BITGNN_OPERATORS(table) {
  table.template add<&BmmOperators<Backend>::bbb>(
      "bmm_bbb(Tensor x, Tensor w, int size, Tensor? x_scale=None, Tensor? w_scale=None, "
      "Tensor? bias=None, Tensor? threshold=None, Tensor? flip=None) -> Tensor");
  table.template add<&BmmOperators<Backend>::bbf>(
      "bmm_bbf(Tensor x, Tensor w, int size, Tensor? x_scale=None, Tensor? w_scale=None, "
      "Tensor? bias=None, bool integer=False) -> Tensor");
  table.template add<&BmmOperators<Backend>::fbb>(
      "bmm_fbb(Tensor x, Tensor w, Tensor? w_scale=None, Tensor? bias=None, "
      "Tensor? threshold=None, Tensor? flip=None, Tensor? x_threshold=None, "
      "Tensor? x_gain=None, bool scale=True) -> Tensor");
  table.template add<&BmmOperators<Backend>::fbf>(
      "bmm_fbf(Tensor x, Tensor w, Tensor? w_scale=None, Tensor? bias=None, "
      "Tensor? x_threshold=None, Tensor? x_gain=None, bool scale=True, bool integer=False) "
      "-> Tensor");
  table.template add<&BmmOperators<Backend>::bfb>(
      "bmm_bfb(Tensor x, Tensor w, Tensor? x_scale=None, Tensor? bias=None, "
      "Tensor? threshold=None, Tensor? flip=None, bool scale=True) -> Tensor");
  table.template add<&BmmOperators<Backend>::bff>(
      "bmm_bff(Tensor x, Tensor w, Tensor? x_scale=None, Tensor? bias=None, bool scale=True, "
      "bool integer=False) -> Tensor");
  table.template add<&BmmOperators<Backend>::ffb>(
      "bmm_ffb(Tensor x, Tensor w, Tensor? bias=None, Tensor? threshold=None, "
      "Tensor? flip=None, Tensor? x_threshold=None, Tensor? x_gain=None, bool scale=True) "
      "-> Tensor");
}

}  // namespace bitgnn::ops

// Schemas of the operators of operators.h.
#include "bspmm/operators.h"

#include "core/registration.h"

namespace bitgnn::ops {

BITGNN_OPERATORS(table) {
  table.template add<&BspmmOperators<Backend>::bbb>(
      "bspmm_bbb(Tensor x, int size, Tensor rowptr, Tensor indices, Tensor? row=None, "
      "Tensor? threshold=None, bool trusted=False) -> Tensor");
  table.template add<&BspmmOperators<Backend>::bbf>(
      "bspmm_bbf(Tensor x, int size, Tensor rowptr, Tensor indices, Tensor? row=None, "
      "Tensor? bias=None, bool integer=False, bool trusted=False) -> Tensor");
  table.template add<&BspmmOperators<Backend>::fbb>(
      "bspmm_fbb(Tensor x, Tensor rowptr, Tensor indices, Tensor? row=None, "
      "Tensor? col=None, Tensor? threshold=None, bool trusted=False) -> Tensor");
  table.template add<&BspmmOperators<Backend>::fbf>(
      "bspmm_fbf(Tensor x, Tensor rowptr, Tensor indices, Tensor? row=None, "
      "Tensor? col=None, Tensor? bias=None, bool integer=False, bool trusted=False) -> Tensor");
  table.template add<&BspmmOperators<Backend>::bfb>(
      "bspmm_bfb(Tensor x, int size, Tensor rowptr, Tensor indices, Tensor values, "
      "Tensor? x_scale=None, Tensor? threshold=None, bool trusted=False) -> Tensor");
  table.template add<&BspmmOperators<Backend>::bff>(
      "bspmm_bff(Tensor x, int size, Tensor rowptr, Tensor indices, Tensor values, "
      "Tensor? x_scale=None, Tensor? bias=None, bool trusted=False) -> Tensor");
  table.template add<&BspmmOperators<Backend>::ffb>(
      "bspmm_ffb(Tensor x, Tensor rowptr, Tensor indices, Tensor values, "
      "Tensor? threshold=None, bool trusted=False) -> Tensor");
  table.template add<&BspmmOperators<Backend>::fff>(
      "bspmm_fff(Tensor x, Tensor rowptr, Tensor indices, Tensor values, Tensor? bias=None, bool "
      "trusted=False) "
      "-> Tensor");
}

}  // namespace bitgnn::ops

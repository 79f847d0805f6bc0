// Schemas of the operators of operators.h.
#include "int8/operators.h"

#include "core/registration.h"

namespace bitgnn::ops {

BITGNN_OPERATORS(table) {
  const std::string codes = "Tensor codes, Tensor weight, ";
  const std::string quantised = "Tensor x, Tensor centre, Tensor inverse_step, Tensor weight, ";
  const std::string scaled_dot = "Tensor? scale=None, Tensor? shift=None";
  const std::string compared_dot = "Tensor? threshold=None, Tensor? flip=None) -> Tensor";
  table.template add<&Int8Operators<Backend>::pack>(
      "pack_int8(Tensor x, Tensor centre, Tensor inverse_step) -> Tensor");
  table.template add<&Int8Operators<Backend>::iif>("bmm_iif(" + codes + "int size, " + scaled_dot +
                                                   ", Tensor? addend=None) -> Tensor");
  table.template add<&Int8Operators<Backend>::iib>("bmm_iib(" + codes + "int size, " +
                                                   compared_dot);
  table.template add<&Int8Operators<Backend>::add_iib>("bmm_add_iib(" + codes +
                                                       "Tensor addend, int size, " + scaled_dot +
                                                       ", Tensor? threshold=None) -> Tensor");
  table.template add<&Int8Operators<Backend>::fif>("bmm_fif(" + quantised + scaled_dot +
                                                   ") -> Tensor");
  table.template add<&Int8Operators<Backend>::fib>("bmm_fib(" + quantised + compared_dot);
}

}  // namespace bitgnn::ops

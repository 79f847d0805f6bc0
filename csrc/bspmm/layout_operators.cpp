// Schemas of the operators of layout_operators.h.
#include "bspmm/layout_operators.h"

#include "core/registration.h"

namespace bitgnn::ops {

BITGNN_OPERATORS(table) {
  const std::string sliced =
      "Tensor x, int size, Tensor rowptr, Tensor local_indices, Tensor group_steps, "
      "Tensor group_places, Tensor slice_groups, Tensor row_slots, Tensor row_items, "
      "int slice_size, int places, Tensor? row=None, ";
  table.template add<&BspmmLayoutOperators<Backend>::bbb_frdc>(
      "bspmm_bbb_frdc(Tensor x, int size, Tensor tile_rowptr, Tensor tile_cols, Tensor tiles, "
      "int num_rows, Tensor? row=None, Tensor? threshold=None, bool trusted=False) -> "
      "Tensor");
  table.template add<&BspmmLayoutOperators<Backend>::bbf_frdc>(
      "bspmm_bbf_frdc(Tensor x, int size, Tensor tile_rowptr, Tensor tile_cols, Tensor tiles, "
      "int num_rows, Tensor? row=None, Tensor? bias=None, bool integer=False, bool "
      "trusted=False) "
      "-> Tensor");
  table.template add<&BspmmLayoutOperators<Backend>::bbb_sliced>(
      "bspmm_bbb_sliced(" + sliced + "Tensor? threshold=None, bool trusted=False) -> Tensor");
  table.template add<&BspmmLayoutOperators<Backend>::bbf_sliced>(
      "bspmm_bbf_sliced(" + sliced +
      "Tensor? bias=None, bool integer=False, bool trusted=False) -> Tensor");
}

}  // namespace bitgnn::ops

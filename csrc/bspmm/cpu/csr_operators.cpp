// The operator that builds a CSR pattern from edges; see csr_from_edges.h.
#include "bspmm/cpu/csr_from_edges.h"

#include <limits>
#include <tuple>

#include "core/cpu/backend.h"

namespace bitgnn::cpu {
namespace {

template <class Index>
bool fill(const Tensor& sources, const Tensor& destinations, int64_t num_rows, int64_t num_cols,
          bool self_loops, const Tensor& rowptr, const Tensor& indices) {
  EdgeArgs<Index> args{};
  args.sources = sources.const_data_ptr<Index>();
  args.destinations = destinations.const_data_ptr<Index>();
  args.edges = sources.size(0);
  args.rows = num_rows;
  args.cols = num_cols;
  args.self_loops = self_loops;
  args.rowptr = rowptr.mutable_data_ptr<int32_t>();
  args.indices = indices.mutable_data_ptr<int32_t>();
  return csr_from_edges(args);
}

// Row pointer int32 [num_rows + 1] and columns int32 [E] of the pattern given by edges, int32 or
// int64 [E]. With self_loops, one loop per node replaces the existing ones, and there is room for
// [E + num_rows] columns, of which rowptr[num_rows] are filled.
std::tuple<Tensor, Tensor> csr_operator(const Tensor& sources_in, const Tensor& destinations_in,
                                        int64_t num_rows, int64_t num_cols, bool self_loops) {
  const char* op = "csr_from_edges";
  const Backend backend(sources_in, op, "sources");
  backend.check(destinations_in, op, "destinations");
  ops::check_dim(sources_in, 1, op, "sources");
  ops::check_dim(destinations_in, 1, op, "destinations");
  ops::check_size(destinations_in.size(0), sources_in.size(0), op, "entries of destinations");
  const ScalarType dtype = sources_in.scalar_type();
  BITGNN_CHECK(dtype == ScalarType::Int || dtype == ScalarType::Long, op,
               ": sources must be int32 or int64, got ", torch::headeronly::toString(dtype));
  ops::check_dtype(destinations_in, dtype, op, "destinations");
  BITGNN_CHECK(num_rows >= 0 && num_cols >= 0, op,
               ": num_rows and num_cols must not be negative, got ", num_rows, " and ", num_cols);
  BITGNN_CHECK(!self_loops || num_rows == num_cols, op,
               ": self_loops needs as many rows as columns, got ", num_rows, " and ", num_cols);
  const int64_t room = sources_in.size(0) + (self_loops ? num_rows : 0);
  constexpr int64_t limit = std::numeric_limits<int32_t>::max();
  BITGNN_CHECK(room <= limit && num_rows < limit && num_cols < limit, op,
               ": edges, rows and columns must be fewer than 2^31, got ", room, ", ", num_rows,
               " and ", num_cols);
  const Tensor sources = ops::as_contiguous(sources_in);
  const Tensor destinations = ops::as_contiguous(destinations_in);
  const Tensor rowptr = backend.empty({num_rows + 1}, ScalarType::Int);
  const Tensor indices = backend.empty({room}, ScalarType::Int);
  const bool fits =
      dtype == ScalarType::Int
          ? fill<int32_t>(sources, destinations, num_rows, num_cols, self_loops, rowptr, indices)
          : fill<int64_t>(sources, destinations, num_rows, num_cols, self_loops, rowptr, indices);
  BITGNN_CHECK(fits, op, ": sources must lie in [0, ", num_cols, ") and destinations in [0, ",
               num_rows, "), got one outside");
  return {rowptr, indices};
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(bitgnn, m) {
  m.def(
      "csr_from_edges(Tensor sources, Tensor destinations, int num_rows, int num_cols, "
      "bool self_loops=False) -> (Tensor, Tensor)");
}

STABLE_TORCH_LIBRARY_IMPL(bitgnn, CPU, m) { m.impl("csr_from_edges", TORCH_BOX(&csr_operator)); }

}  // namespace bitgnn::cpu

// sample_neighbors, for mini-batches: checks its arguments and hands out its results. The CPU alone
// has it.
#include <algorithm>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "sampling/cpu/neighbour_sampler.h"

namespace bitgnn::cpu {
namespace {

using Tensors = std::vector<Tensor>;

constexpr const char* kOp = "sample_neighbors";
constexpr int64_t kMostDraws = 1 << 24;  // of a node with replacement

Tensor index_vector(const Backend& backend, const Tensor& t, const char* name, size_t place) {
  const std::string full = std::string(name) + "[" + std::to_string(place) + "]";
  ops::check_operand(backend, t, ScalarType::Long, 1, kOp, full.c_str());
  return ops::as_contiguous(t);
}

Tensors index_vectors(const Backend& backend, const Tensors& all, const char* name) {
  Tensors checked;
  for (size_t i = 0; i < all.size(); ++i) checked.push_back(index_vector(backend, all[i], name, i));
  return checked;
}

void check_each(const std::vector<int64_t>& numbers, int64_t least, int64_t most,
                const char* name) {
  for (const int64_t number : numbers)
    BITGNN_CHECK(number >= least && number <= most, kOp, ": ", name, " must be from ", least,
                 " to ", most, ", got ", number);
}

void check_count(size_t found, size_t expected, const char* what) {
  ops::check_size(static_cast<int64_t>(found), static_cast<int64_t>(expected), kOp, what);
}

// Counts [rows, columns], of which row(i) points to the i-th row.
template <class Row>
Tensor matrix(const Backend& backend, size_t rows, int64_t columns, const Row& row) {
  Tensor out = backend.empty({static_cast<int64_t>(rows), columns}, ScalarType::Long);
  int64_t* to = out.mutable_data_ptr<int64_t>();
  for (size_t i = 0; i < rows; ++i) to = std::copy_n(row(i), columns, to);
  return out;
}

// Samples neighbours hop by hop, starting from `seeds`, int64 [S] of each node type. A relation r
// leads from nodes of type sources[r] to nodes of type destinations[r] and is held in CSC: colptrs
// int64 [num_nodes[destinations[r]] + 1], rows int64 [E]. Its fan-outs are fanouts[r, hop], -1
// being all neighbours. Every node is a destination in the hop after the one that found it.
//
// Returns nodes [n] of each type, seeds first; with `disjoint` the number of the seed that each of
// them belongs to, counted through all types; for each relation source and destination [e] among
// these nodes, and the edge [e] of its CSC; the numbers of nodes [types, hops + 1] and of edges
// [relations, hops] that were found in each hop. With `induced`, edges are all those between the
// nodes.
std::tuple<Tensors, Tensors, Tensors, Tensors, Tensors, Tensor, Tensor> sample_neighbors(
    const Tensors& colptrs_in, const Tensors& rows_in, const Tensors& seeds_in,
    std::vector<int64_t> num_nodes, std::vector<int64_t> sources, std::vector<int64_t> destinations,
    std::vector<int64_t> fanouts, int64_t random_seed, bool replace, bool disjoint, bool induced) {
  const size_t types = num_nodes.size(), relations = sources.size();
  BITGNN_CHECK(types > 0, kOp, ": num_nodes must have an entry for each node type, got none");
  check_count(seeds_in.size(), types, "the number of seeds");
  check_count(colptrs_in.size(), relations, "the number of colptrs");
  check_count(rows_in.size(), relations, "the number of rows");
  check_count(destinations.size(), relations, "the number of destinations");
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max() - 1;
  check_each(num_nodes, 0, kMost, "num_nodes");
  check_each(sources, 0, static_cast<int64_t>(types) - 1, "sources");
  check_each(destinations, 0, static_cast<int64_t>(types) - 1, "destinations");
  check_each(fanouts, -1, replace ? kMostDraws : kMost, "fanouts");
  const size_t hops = relations > 0 ? fanouts.size() / relations : 0;
  BITGNN_CHECK(fanouts.size() == hops * relations, kOp,
               ": fanouts must have one entry a relation and hop, got ", fanouts.size(), " for ",
               relations, " relations");

  const Backend backend(seeds_in[0], kOp, "seeds[0]");
  const Tensors colptrs = index_vectors(backend, colptrs_in, "colptrs");
  const Tensors rows = index_vectors(backend, rows_in, "rows");
  const Tensors seeds = index_vectors(backend, seeds_in, "seeds");
  std::vector<Relation> held;
  for (size_t r = 0; r < relations; ++r) {
    const auto source = static_cast<size_t>(sources[r]);
    const auto destination = static_cast<size_t>(destinations[r]);
    BITGNN_CHECK(colptrs[r].size(0) == num_nodes[destination] + 1, kOp, ": colptrs[", r,
                 "] must have ", num_nodes[destination] + 1, " entries, got ", colptrs[r].size(0));
    held.push_back({colptrs[r].const_data_ptr<int64_t>(), rows[r].const_data_ptr<int64_t>(),
                    fanouts.data() + r * hops, rows[r].size(0), source, destination});
  }
  int64_t num_seeds = 0;
  for (const Tensor& t : seeds) num_seeds += t.size(0);

  NeighbourSampler sampler(backend, std::move(held), num_nodes, num_seeds,
                           {static_cast<uint64_t>(random_seed), replace, disjoint, induced});
  for (size_t type = 0; type < types; ++type)
    sampler.add_seeds(type, seeds[type].const_data_ptr<int64_t>(), seeds[type].size(0));
  sampler.sample(static_cast<int64_t>(hops));

  Tensors nodes, batches, edge_rows, edge_cols, edges;
  for (size_t type = 0; type < types; ++type) {
    nodes.push_back(sampler.nodes(type));
    batches.push_back(sampler.batch(type));
  }
  for (size_t r = 0; r < relations; ++r) {
    const SampledEdges& found = sampler.edges(r);
    edge_rows.push_back(found.row);
    edge_cols.push_back(found.col);
    edges.push_back(found.edge);
  }
  const auto columns = static_cast<int64_t>(hops);
  const Tensor node_counts =
      matrix(backend, types, columns + 1, [&](size_t i) { return sampler.node_counts(i).begin(); });
  const Tensor edge_counts = matrix(backend, relations, columns,
                                    [&](size_t i) { return sampler.edges(i).counts.begin(); });
  return {nodes, batches, edge_rows, edge_cols, edges, node_counts, edge_counts};
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(bitgnn, m) {
  m.def(
      "sample_neighbors(Tensor[] colptrs, Tensor[] rows, Tensor[] seeds, int[] num_nodes, "
      "int[] sources, int[] destinations, int[] fanouts, int random_seed, bool replace=False, "
      "bool disjoint=False, bool induced=False) "
      "-> (Tensor[], Tensor[], Tensor[], Tensor[], Tensor[], Tensor, Tensor)");
}

STABLE_TORCH_LIBRARY_IMPL(bitgnn, CPU, m) {
  m.impl("sample_neighbors", TORCH_BOX(&sample_neighbors));
}

}  // namespace bitgnn::cpu

// The operator that samples neighbourhoods for mini-batches; the CPU alone has it.
#pragma once

#include <tuple>
#include <vector>

#include "core/operands.h"

namespace bitgnn::cpu {

using Tensors = std::vector<ops::Tensor>;

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
std::tuple<Tensors, Tensors, Tensors, Tensors, Tensors, ops::Tensor, ops::Tensor>
sample_neighbors_operator(const Tensors& colptrs, const Tensors& rows, const Tensors& seeds,
                          std::vector<int64_t> num_nodes, std::vector<int64_t> sources,
                          std::vector<int64_t> destinations, std::vector<int64_t> fanouts,
                          int64_t random_seed, bool replace, bool disjoint, bool induced);

}  // namespace bitgnn::cpu

// Samples neighbourhoods hop by hop, with the same result for any number of threads.
//
// Bound by random reads of the graph: a hop draws the edges into all its nodes in parallel, each
// node from a random stream of its own, and numbers the sources it found one after the other.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "core/cpu/backend.h"
#include "sampling/cpu/node_table.h"

namespace bitgnn::cpu {

// Edges from nodes of one type to nodes of another, in CSC.
struct Relation {
  const int64_t* colptr;   // [nodes of the destination's type + 1]
  const int64_t* row;      // [edges], sources
  const int64_t* fanouts;  // [hops], -1 is all
  int64_t edges;
  size_t source, destination;  // node types
};

// Edges of a sample: source and destination as numbers among its nodes, and the graph's edge.
struct SampledEdges {
  Tensor row, col, edge;        // int64 [edges]
  std::vector<int64_t> counts;  // of each hop
};

class NeighbourSampler {
 public:
  struct Options {
    uint64_t random_seed;
    bool replace, disjoint, induced;
  };

  NeighbourSampler(const Backend& backend, std::vector<Relation> relations,
                   std::vector<int64_t> num_nodes, int64_t num_seeds, const Options& options);

  // Adds the nodes of a type that sampling starts from, each the start of a subgraph of its own if
  // disjoint.
  void add_seeds(size_t type, const int64_t* seeds, int64_t count);
  void sample(int64_t hops);

  // Nodes of a type, and the seeds that they belong to.
  Tensor nodes(size_t type) const;
  Tensor batch(size_t type) const;
  const std::vector<int64_t>& node_counts(size_t type) const { return node_counts_[type]; }
  const SampledEdges& edges(size_t relation) const { return edges_[relation]; }

 private:
  struct Neighbours {
    int64_t begin, degree;  // among a relation's edges
  };

  // A node's key is its number in the graph, behind all nodes of the seeds before if disjoint.
  int64_t node_of(size_t type, int64_t key) const {
    return options_.disjoint ? key % num_nodes_[type] : key;
  }
  int64_t batch_of(size_t type, int64_t key) const {
    return options_.disjoint ? key / num_nodes_[type] : 0;
  }

  // Reads of the graph, which note a wrong entry and go on as if it were empty or 0.
  Neighbours neighbours(const Relation& r, int64_t node);
  int64_t source_key(const Relation& r, int64_t edge, int64_t batch);
  // Fails if such a read found a wrong entry.
  void check_reads(size_t relation) const;

  // Adds room for edges, counts[i] of the i-th node; the counts become the place of each first one.
  void make_room(size_t relation, std::vector<int64_t>& counts);
  // Draws edges into the nodes [begin, end) of the destination's type and numbers their sources.
  void draw(size_t relation, int64_t hop, int64_t begin, int64_t end);
  // Makes all edges between the nodes those of the sample.
  void induce(size_t relation);

  const Backend& backend_;
  std::vector<Relation> relations_;
  std::vector<int64_t> num_nodes_;
  Options options_;
  int64_t num_seeds_ = 0;
  std::vector<NodeTable> tables_;
  std::vector<std::vector<int64_t>> node_counts_;
  std::vector<SampledEdges> edges_;
  std::atomic<int64_t> wrong_node_{-1}, wrong_edge_{-1};  // places in colptr and in row
};

}  // namespace bitgnn::cpu

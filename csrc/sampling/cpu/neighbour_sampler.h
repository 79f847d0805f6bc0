// Samples neighbourhoods hop by hop, with the same result for any number of threads.
//
// Bound by random reads of the graph: a hop draws the edges of all its nodes in parallel, each node
// from a random stream of its own, and numbers the sources it found one after the other.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "core/cpu/backend.h"
#include "sampling/cpu/node_table.h"

namespace bitgnn::cpu {

// Edges from nodes of one type to nodes of another, in CSC.
struct Relation {
  const int64_t* colptr;   // [nodes of the destination + 1]
  const int64_t* row;      // [edges], sources
  const int64_t* fanouts;  // [hops], -1 is all
  int64_t edges;
  size_t source, destination;  // node types
};

// Vectors that grow together: source and destination of a sample's edges, and the edges themselves.
class EdgeList {
 public:
  explicit EdgeList(const Backend& backend) : backend_(backend) { grow(0); }

  int64_t size() const { return size_; }
  const Tensor& vector(size_t which) const { return vectors_[which]; }
  int64_t* row() { return data(0); }
  int64_t* col() { return data(1); }
  int64_t* edge() { return data(2); }

  // Appends `more` edges, to be written by the caller.
  void grow(int64_t more);
  void clear();

 private:
  int64_t* data(size_t which) { return vectors_[which].mutable_data_ptr<int64_t>(); }

  const Backend& backend_;
  int64_t size_ = 0;
  std::vector<Tensor> vectors_;
};

class NeighbourSampler {
 public:
  struct Options {
    uint64_t random_seed;
    bool replace, disjoint, induced;
  };

  NeighbourSampler(const Backend& backend, std::vector<Relation> relations,
                   std::vector<int64_t> num_nodes, int64_t num_seeds, const Options& options);

  // Adds the nodes that sampling starts from, type by type, and numbers them if disjoint.
  void add_seeds(size_t type, const int64_t* seeds, int64_t count);
  void sample(int64_t hops);

  // Nodes of a type and the seeds that they belong to.
  Tensor nodes(size_t type) const;
  Tensor batch(size_t type) const;
  const EdgeList& edges(size_t relation) const { return edges_[relation]; }
  const std::vector<int64_t>& node_counts(size_t type) const { return node_counts_[type]; }
  const std::vector<int64_t>& edge_counts(size_t relation) const { return edge_counts_[relation]; }

 private:
  // Keys of nodes are their numbers in the graph, behind those of the seeds before if disjoint.
  int64_t node_of(size_t type, int64_t key) const {
    return options_.disjoint ? key % num_nodes_[type] : key;
  }
  int64_t batch_of(size_t type, int64_t key) const {
    return options_.disjoint ? key / num_nodes_[type] : 0;
  }

  // Neighbours of a node among the relation's edges.
  struct Neighbours {
    int64_t begin, degree;
  };
  Neighbours neighbours(const Relation& r, int64_t node);
  // Key of an edge's source.
  int64_t source_key(const Relation& r, int64_t edge, int64_t batch);

  // Makes room for counts[0 .. size) edges and turns the counts into the place of each first one.
  void make_room(size_t relation, std::vector<int64_t>& counts);
  void draw(size_t relation, int64_t hop, int64_t begin, int64_t end);
  void induce(size_t relation);
  // Fails if a read found an argument wrong.
  void check_reads(size_t relation) const;

  const Backend& backend_;
  std::vector<Relation> relations_;
  std::vector<int64_t> num_nodes_;
  Options options_;
  int64_t seeds_ = 0;
  std::vector<NodeTable> tables_;
  std::vector<EdgeList> edges_;
  std::vector<std::vector<int64_t>> node_counts_, edge_counts_;
  // Where threads found a wrong entry: a node of colptr, an edge of row.
  std::atomic<int64_t> wrong_node_{-1}, wrong_edge_{-1};
};

}  // namespace bitgnn::cpu

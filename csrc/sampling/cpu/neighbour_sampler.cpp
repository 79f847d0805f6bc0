// Draws, numbers and induces the edges of a sample; see neighbour_sampler.h.
#include "sampling/cpu/neighbour_sampler.h"

#include <algorithm>
#include <utility>

#include "sampling/cpu/place_set.h"
#include "sampling/cpu/random_stream.h"

namespace bitgnn::cpu {
namespace {

constexpr int64_t kNodeGrain = 256;  // nodes per thread, whose edges take about 50 us
constexpr int64_t kBlock = 32;       // nodes whose edges are drawn before their sources are read
constexpr int64_t kAhead = 16;       // sources whose slots are prefetched

int64_t draws_of(int64_t degree, int64_t fanout, bool replace) {
  if (fanout < 0 || degree == 0) return degree;
  return replace ? fanout : std::min(fanout, degree);
}

// `count` of `degree` places: with `replace` each drawn by itself, else all of them or a set, every
// set being equally likely (Robert Floyd's algorithm).
void draw_places(RandomStream& stream, int64_t degree, int64_t count, bool replace, PlaceSet& taken,
                 int64_t* places) {
  if (replace || count == degree) {
    for (int64_t j = 0; j < count; ++j) places[j] = replace ? stream.below(degree) : j;
    return;
  }
  taken.reserve(degree);
  for (int64_t j = 0; j < count; ++j) {
    const int64_t last = degree - count + j;
    places[j] = stream.below(last + 1);
    if (!taken.insert(places[j])) taken.insert(places[j] = last);
  }
  for (int64_t j = 0; j < count; ++j) taken.erase(places[j]);
}

}  // namespace

NeighbourSampler::NeighbourSampler(const Backend& backend, std::vector<Relation> relations,
                                   std::vector<int64_t> num_nodes, int64_t num_seeds,
                                   const Options& options)
    : backend_(backend),
      relations_(std::move(relations)),
      num_nodes_(std::move(num_nodes)),
      options_(options),
      node_counts_(num_nodes_.size()) {
  for (const int64_t nodes : num_nodes_) {
    int64_t bound = nodes;
    BITGNN_CHECK(!options.disjoint || !__builtin_mul_overflow(nodes, num_seeds, &bound),
                 "sample_neighbors: num_nodes and seeds must have products below 2^63, got ", nodes,
                 " and ", num_seeds);
    tables_.emplace_back(bound);
  }
  const auto none = [&] { return backend.empty({0}, ScalarType::Long); };
  for (size_t r = 0; r < relations_.size(); ++r) edges_.push_back({none(), none(), none(), {}});
}

void NeighbourSampler::add_seeds(size_t type, const int64_t* seeds, int64_t count) {
  const int64_t nodes = num_nodes_[type];
  for (int64_t i = 0; i < count; ++i) {
    BITGNN_CHECK(seeds[i] >= 0 && seeds[i] < nodes, "sample_neighbors: seeds[", type,
                 "] must lie in [0, ", nodes, "), got ", seeds[i], " at ", i);
    tables_[type].append(options_.disjoint ? num_seeds_ * nodes + seeds[i] : seeds[i]);
    ++num_seeds_;
  }
}

void NeighbourSampler::sample(int64_t hops) {
  std::vector<int64_t> begin(tables_.size()), end(tables_.size(), 0);
  for (int64_t hop = 0; hop <= hops; ++hop) {
    for (size_t type = 0; type < tables_.size(); ++type) {
      begin[type] = std::exchange(end[type], tables_[type].size());
      node_counts_[type].push_back(end[type] - begin[type]);
    }
    for (size_t r = 0; hop < hops && r < relations_.size(); ++r) {
      const size_t type = relations_[r].destination;
      draw(r, hop, begin[type], end[type]);
    }
  }
  for (size_t r = 0; options_.induced && r < relations_.size(); ++r) induce(r);
}

NeighbourSampler::Neighbours NeighbourSampler::neighbours(const Relation& r, int64_t node) {
  const int64_t begin = r.colptr[node], end = r.colptr[node + 1];
  if (begin >= 0 && begin <= end && end <= r.edges) return {begin, end - begin};
  wrong_node_.store(node, std::memory_order_relaxed);
  return {0, 0};
}

int64_t NeighbourSampler::source_key(const Relation& r, int64_t edge, int64_t batch) {
  const int64_t source = r.row[edge], nodes = num_nodes_[r.source];
  if (source >= 0 && source < nodes) return batch * nodes + source;
  wrong_edge_.store(edge, std::memory_order_relaxed);
  return 0;
}

void NeighbourSampler::check_reads(size_t relation) const {
  const Relation& r = relations_[relation];
  const int64_t node = wrong_node_.load(), edge = wrong_edge_.load();
  BITGNN_CHECK(node < 0, "sample_neighbors: colptrs[", relation, "] must ascend within [0, ",
               r.edges, "], got ", r.colptr[node], " and ", r.colptr[node + 1], " at ", node);
  BITGNN_CHECK(edge < 0, "sample_neighbors: rows[", relation, "] must lie in [0, ",
               num_nodes_[r.source], "), got ", r.row[edge], " at ", edge);
}

void NeighbourSampler::make_room(size_t relation, std::vector<int64_t>& counts) {
  check_reads(relation);
  SampledEdges& found = edges_[relation];
  const int64_t before = found.edge.size(0);
  int64_t place = before;
  for (int64_t& count : counts) place += std::exchange(count, place);
  for (Tensor* held : {&found.row, &found.col, &found.edge}) {
    Tensor grown = backend_.empty({place}, ScalarType::Long);
    std::copy_n(held->const_data_ptr<int64_t>(), before, grown.mutable_data_ptr<int64_t>());
    *held = grown;
  }
}

void NeighbourSampler::draw(size_t relation, int64_t hop, int64_t begin, int64_t end) {
  const Relation& r = relations_[relation];
  SampledEdges& found = edges_[relation];
  const int64_t fanout = r.fanouts[hop], before = found.edge.size(0);
  const int64_t* keys = tables_[r.destination].keys().data() + begin;
  const bool replace = options_.replace && fanout >= 0;
  const int64_t nodes = fanout == 0 ? 0 : end - begin;
  // Place of each node's first edge, and at last the end of the last one's.
  std::vector<int64_t> places(static_cast<size_t>(nodes) + 1, 0);
  split(nodes, kNodeGrain, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t degree = neighbours(r, node_of(r.destination, keys[i])).degree;
      places[static_cast<size_t>(i)] = draws_of(degree, fanout, replace);
    }
  });
  make_room(relation, places);

  int64_t* row = found.row.mutable_data_ptr<int64_t>();
  int64_t* col = found.col.mutable_data_ptr<int64_t>();
  int64_t* edge = found.edge.mutable_data_ptr<int64_t>();
  const auto draw_edges = [&](int64_t i, PlaceSet& taken) {
    const int64_t place = places[static_cast<size_t>(i)];
    const int64_t draws = places[static_cast<size_t>(i + 1)] - place;
    const Neighbours all = neighbours(r, node_of(r.destination, keys[i]));
    RandomStream stream(options_.random_seed, relation, static_cast<uint64_t>(begin + i));
    draw_places(stream, all.degree, draws, replace, taken, edge + place);
    for (int64_t j = place; j < place + draws; ++j) {
      edge[j] += all.begin;
      __builtin_prefetch(r.row + edge[j]);
    }
  };
  const auto read_sources = [&](int64_t i) {
    const int64_t batch = batch_of(r.destination, keys[i]);
    const int64_t last = places[static_cast<size_t>(i + 1)];
    for (int64_t j = places[static_cast<size_t>(i)]; j < last; ++j) {
      row[j] = source_key(r, edge[j], batch);
      col[j] = begin + i;
    }
  };
  split(nodes, kNodeGrain, [&](int64_t first, int64_t last) {
    PlaceSet taken;
    for (int64_t block = first; block < last; block += kBlock) {
      const int64_t block_end = std::min(block + kBlock, last);
      for (int64_t i = block; i < block_end; ++i) draw_edges(i, taken);
      for (int64_t i = block; i < block_end; ++i) read_sources(i);
    }
  });
  check_reads(relation);

  NodeTable& table = tables_[r.source];
  const int64_t size = found.edge.size(0);
  for (int64_t j = before; j < size; ++j) {
    table.prefetch(row[std::min(j + kAhead, size - 1)]);
    row[j] = table.insert(row[j]);
  }
  found.counts.push_back(size - before);
}

void NeighbourSampler::induce(size_t relation) {
  const Relation& r = relations_[relation];
  const NodeTable& sources = tables_[r.source];
  const std::vector<int64_t>& keys = tables_[r.destination].keys();
  // Calls visit(edge, source) for each edge from a node of the sample into its i-th.
  const auto edges_into = [&](int64_t i, const auto& visit) {
    const int64_t key = keys[static_cast<size_t>(i)], batch = batch_of(r.destination, key);
    const Neighbours all = neighbours(r, node_of(r.destination, key));
    const int64_t end = all.begin + all.degree;
    for (int64_t edge = all.begin; edge < end; ++edge) {
      sources.prefetch(source_key(r, std::min(edge + kAhead, end - 1), batch));
      const int64_t source = sources.find(source_key(r, edge, batch));
      if (source >= 0) visit(edge, source);
    }
  };
  const auto nodes = static_cast<int64_t>(keys.size());
  // Room for all edges into each node, and how many of them were found.
  std::vector<int64_t> starts(keys.size() + 1, 0), places(keys.size(), 0);
  for (size_t i = 0; i < keys.size(); ++i)
    starts[i + 1] = starts[i] + neighbours(r, node_of(r.destination, keys[i])).degree;
  check_reads(relation);
  Tensor room_row = backend_.empty({starts.back()}, ScalarType::Long);
  Tensor room_edge = backend_.empty({starts.back()}, ScalarType::Long);
  int64_t* all_rows = room_row.mutable_data_ptr<int64_t>();
  int64_t* all_edges = room_edge.mutable_data_ptr<int64_t>();
  split(nodes, kNodeGrain, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t start = starts[static_cast<size_t>(i)];
      int64_t& count = places[static_cast<size_t>(i)];
      edges_into(i, [&](int64_t edge, int64_t source) {
        all_rows[start + count] = source;
        all_edges[start + count++] = edge;
      });
    }
  });
  const std::vector<int64_t> counts = places;
  SampledEdges& found = edges_[relation];
  found.edge = backend_.empty({0}, ScalarType::Long);
  make_room(relation, places);
  int64_t* row = found.row.mutable_data_ptr<int64_t>();
  int64_t* col = found.col.mutable_data_ptr<int64_t>();
  int64_t* to = found.edge.mutable_data_ptr<int64_t>();
  split(nodes, kNodeGrain, [&](int64_t first, int64_t last) {
    for (auto i = static_cast<size_t>(first); i < static_cast<size_t>(last); ++i) {
      std::copy_n(all_rows + starts[i], counts[i], row + places[i]);
      std::fill_n(col + places[i], counts[i], static_cast<int64_t>(i));
      std::copy_n(all_edges + starts[i], counts[i], to + places[i]);
    }
  });
}

Tensor NeighbourSampler::nodes(size_t type) const {
  const std::vector<int64_t>& keys = tables_[type].keys();
  Tensor out = backend_.empty({tables_[type].size()}, ScalarType::Long);
  std::transform(keys.begin(), keys.end(), out.mutable_data_ptr<int64_t>(),
                 [&](int64_t key) { return node_of(type, key); });
  return out;
}

Tensor NeighbourSampler::batch(size_t type) const {
  const std::vector<int64_t>& keys = tables_[type].keys();
  Tensor out = backend_.empty({options_.disjoint ? tables_[type].size() : 0}, ScalarType::Long);
  if (options_.disjoint)
    std::transform(keys.begin(), keys.end(), out.mutable_data_ptr<int64_t>(),
                   [&](int64_t key) { return batch_of(type, key); });
  return out;
}

}  // namespace bitgnn::cpu

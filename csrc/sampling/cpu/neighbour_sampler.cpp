// Draws, numbers and induces the edges of a sample; see neighbour_sampler.h.
#include "sampling/cpu/neighbour_sampler.h"

#include <algorithm>
#include <utility>

#include "sampling/cpu/random_stream.h"

namespace bitgnn::cpu {
namespace {

constexpr int64_t kNodeGrain = 256;  // nodes per thread, whose neighbours take about 10 us
constexpr int64_t kBlock = 32;       // nodes whose edges are drawn before their sources are read
constexpr int64_t kAhead = 16;       // keys whose slots are prefetched

int64_t draws_of(int64_t degree, int64_t fanout, bool replace) {
  if (fanout < 0 || degree == 0) return degree;
  return replace ? fanout : std::min(fanout, degree);
}

// A set of places among a node's neighbours; every use leaves it empty.
class PlaceSet {
 public:
  void reserve(int64_t places) {
    const auto words = static_cast<size_t>(places / 64 + 1);
    if (words_.size() < words) words_.resize(words);
  }
  // False if the place is there.
  bool insert(int64_t place) {
    uint64_t& word = words_[static_cast<size_t>(place / 64)];
    const uint64_t bit = uint64_t{1} << (place % 64);
    const bool is_new = (word & bit) == 0;
    word |= bit;
    return is_new;
  }
  void clear_word(int64_t place) { words_[static_cast<size_t>(place / 64)] = 0; }

 private:
  std::vector<uint64_t> words_;
};

// `count` of a node's `degree` places: with `replace` each drawn by itself, else all of them, or a
// set by Robert Floyd's algorithm, every one being equally likely.
void draw_places(RandomStream& stream, int64_t degree, int64_t count, bool replace, PlaceSet& taken,
                 int64_t* places) {
  if (!replace && count < degree) {
    taken.reserve(degree);
    for (int64_t j = 0; j < count; ++j) {
      const int64_t last = degree - count + j;
      int64_t place = stream.below(last + 1);
      if (!taken.insert(place)) taken.insert(place = last);
      places[j] = place;
    }
    for (int64_t j = 0; j < count; ++j) taken.clear_word(places[j]);
    return;
  }
  for (int64_t j = 0; j < count; ++j) places[j] = replace ? stream.below(degree) : j;
}

}  // namespace

void EdgeList::grow(int64_t more) {
  std::vector<Tensor> grown;
  for (size_t i = 0; i < 3; ++i) {
    grown.push_back(backend_.empty({size_ + more}, ScalarType::Long));
    if (size_ > 0) std::copy_n(data(i), size_, grown[i].mutable_data_ptr<int64_t>());
  }
  vectors_ = std::move(grown);
  size_ += more;
}

void EdgeList::clear() {
  size_ = 0;
  grow(0);
}

NeighbourSampler::NeighbourSampler(const Backend& backend, std::vector<Relation> relations,
                                   std::vector<int64_t> num_nodes, int64_t num_seeds,
                                   const Options& options)
    : backend_(backend),
      relations_(std::move(relations)),
      num_nodes_(std::move(num_nodes)),
      options_(options),
      edges_(relations_.size(), EdgeList(backend)),
      node_counts_(num_nodes_.size()),
      edge_counts_(relations_.size()) {
  for (const int64_t nodes : num_nodes_) {
    int64_t bound = nodes;
    BITGNN_CHECK(!options.disjoint || !__builtin_mul_overflow(nodes, num_seeds, &bound),
                 "sample_neighbors: num_nodes and seeds must have products below 2^63, got ", nodes,
                 " and ", num_seeds);
    tables_.emplace_back(bound);
  }
}

void NeighbourSampler::add_seeds(size_t type, const int64_t* seeds, int64_t count) {
  const int64_t nodes = num_nodes_[type];
  for (int64_t i = 0; i < count; ++i) {
    BITGNN_CHECK(seeds[i] >= 0 && seeds[i] < nodes, "sample_neighbors: seeds[", type,
                 "] must lie in [0, ", nodes, "), got ", seeds[i], " at ", i);
    tables_[type].append(options_.disjoint ? seeds_ * nodes + seeds[i] : seeds[i]);
    ++seeds_;
  }
}

void NeighbourSampler::sample(int64_t hops) {
  std::vector<int64_t> begin(tables_.size(), 0), end(tables_.size());
  for (int64_t hop = 0; hop <= hops; ++hop) {
    for (size_t type = 0; type < tables_.size(); ++type) {
      begin[type] = hop > 0 ? end[type] : 0;
      end[type] = tables_[type].size();
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
  int64_t place = edges_[relation].size();
  for (int64_t& count : counts) place += std::exchange(count, place);
  edges_[relation].grow(place - edges_[relation].size());
}

void NeighbourSampler::draw(size_t relation, int64_t hop, int64_t begin, int64_t end) {
  const Relation& r = relations_[relation];
  EdgeList& list = edges_[relation];
  const int64_t fanout = r.fanouts[hop], *keys = tables_[r.destination].keys().data();
  const int64_t before = list.size();
  std::vector<int64_t> places(static_cast<size_t>(fanout == 0 ? 0 : end - begin));
  split(static_cast<int64_t>(places.size()), kNodeGrain, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t degree = neighbours(r, node_of(r.destination, keys[begin + i])).degree;
      places[static_cast<size_t>(i)] = draws_of(degree, fanout, options_.replace);
    }
  });
  make_room(relation, places);
  int64_t *row = list.row(), *col = list.col(), *edge = list.edge();
  split(static_cast<int64_t>(places.size()), kNodeGrain, [&](int64_t first, int64_t last) {
    PlaceSet taken;
    for (int64_t block = first; block < last; block += kBlock) {
      const int64_t block_end = std::min(block + kBlock, last);
      for (int64_t i = block; i < block_end; ++i) {
        const int64_t number = begin + i;
        const Neighbours found = neighbours(r, node_of(r.destination, keys[number]));
        const int64_t draws = draws_of(found.degree, fanout, options_.replace);
        RandomStream stream(options_.random_seed, relation, static_cast<uint64_t>(number));
        int64_t* const drawn = edge + places[static_cast<size_t>(i)];
        draw_places(stream, found.degree, draws, options_.replace && fanout >= 0, taken, drawn);
        for (int64_t j = 0; j < draws; ++j) {
          drawn[j] += found.begin;
          __builtin_prefetch(r.row + drawn[j]);
        }
      }
      for (int64_t i = block; i < block_end; ++i) {
        const int64_t batch = batch_of(r.destination, keys[begin + i]);
        const int64_t end_place =
            i + 1 < end - begin ? places[static_cast<size_t>(i + 1)] : list.size();
        for (int64_t j = places[static_cast<size_t>(i)]; j < end_place; ++j) {
          row[j] = source_key(r, edge[j], batch);
          col[j] = begin + i;
        }
      }
    }
  });
  check_reads(relation);
  NodeTable& table = tables_[r.source];
  for (int64_t j = before; j < list.size(); ++j) {
    table.prefetch(row[std::min(j + kAhead, list.size() - 1)]);
    row[j] = table.insert(row[j]);
  }
  edge_counts_[relation].push_back(list.size() - before);
  if (options_.induced) list.clear();
}

void NeighbourSampler::induce(size_t relation) {
  const Relation& r = relations_[relation];
  EdgeList& list = edges_[relation];
  const NodeTable& sources = tables_[r.source];
  const std::vector<int64_t>& keys = tables_[r.destination].keys();
  // Calls found(edge, source) for each edge to a node from another one.
  const auto visit = [&](int64_t number, const auto& found) {
    const int64_t key = keys[static_cast<size_t>(number)], batch = batch_of(r.destination, key);
    const Neighbours all = neighbours(r, node_of(r.destination, key));
    const int64_t end = all.begin + all.degree;
    for (int64_t edge = all.begin; edge < end; ++edge) {
      sources.prefetch(source_key(r, std::min(edge + kAhead, end - 1), batch));
      const int64_t source = sources.find(source_key(r, edge, batch));
      if (source >= 0) found(edge, source);
    }
  };
  std::vector<int64_t> places(keys.size(), 0);
  const auto nodes = static_cast<int64_t>(keys.size());
  split(nodes, kNodeGrain, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i)
      visit(i, [&](int64_t, int64_t) { ++places[static_cast<size_t>(i)]; });
  });
  make_room(relation, places);
  int64_t *row = list.row(), *col = list.col(), *edge = list.edge();
  split(nodes, kNodeGrain, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      int64_t place = places[static_cast<size_t>(i)];
      visit(i, [&](int64_t e, int64_t source) {
        row[place] = source;
        col[place] = i;
        edge[place++] = e;
      });
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

// A set of places among a node's neighbours, used for one node after the other.
#pragma once

#include <cstdint>
#include <vector>

namespace bitgnn::cpu {

// One bit a place; all are clear between two nodes, as each erases what it inserted.
class PlaceSet {
 public:
  // Prepares for places in [0, count).
  void reserve(int64_t count) {
    const auto words = static_cast<size_t>(count / 64 + 1);
    if (words_.size() < words) words_.resize(words);
  }

  // False if the place is there.
  bool insert(int64_t place) {
    uint64_t& word = words_[static_cast<size_t>(place / 64)];
    const uint64_t before = word;
    word |= bit(place);
    return word != before;
  }

  void erase(int64_t place) { words_[static_cast<size_t>(place / 64)] &= ~bit(place); }

 private:
  static uint64_t bit(int64_t place) { return uint64_t{1} << (place % 64); }

  std::vector<uint64_t> words_;
};

}  // namespace bitgnn::cpu

// The nodes of a sample, numbered in the order in which they were found.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "core/check.h"

namespace bitgnn::cpu {

// A hash table with open addressing. Slots hold numbers of keys, 4 bytes each, so that the table
// stays in a core's own cache for long; while there is a slot for every key that may come, a key is
// its own slot.
class NodeTable {
 public:
  // Keys lie in [0, bound).
  explicit NodeTable(int64_t bound) : bound_(bound) { resize(kFirstSlots); }

  const std::vector<int64_t>& keys() const { return keys_; }
  int64_t size() const { return static_cast<int64_t>(keys_.size()); }

  // Appends a key even if it is there; find() gives its first number.
  void append(int64_t key) {
    const int64_t number = size();
    if (insert(key) != number) keys_.push_back(key);
  }

  // The number of a key, a new one if it is not there.
  int64_t insert(int64_t key) {
    int32_t* slot = &slots_[place(key)];
    while (*slot != kEmpty && !holds(*slot, key)) slot = next(slot);
    if (*slot != kEmpty) return *slot;
    const int64_t number = size();
    BITGNN_CHECK(number < std::numeric_limits<int32_t>::max(),
                 "sample_neighbors: a sample must have fewer than 2^31 nodes");
    *slot = static_cast<int32_t>(number);
    keys_.push_back(key);
    if (!is_direct_ && 2 * keys_.size() > slots_.size()) resize(4 * slots_.size());
    return number;
  }

  // The number of a key, -1 if it is not there.
  int64_t find(int64_t key) const {
    const int32_t* slot = &slots_[place(key)];
    while (*slot != kEmpty && !holds(*slot, key)) slot = next(slot);
    return *slot;
  }

  void prefetch(int64_t key) const { __builtin_prefetch(&slots_[place(key)]); }

 private:
  static constexpr int32_t kEmpty = -1;
  static constexpr size_t kFirstSlots = size_t{1} << 12;

  size_t place(int64_t key) const {
    if (is_direct_) return static_cast<size_t>(key);
    return static_cast<size_t>((static_cast<uint64_t>(key) * 0x9e3779b97f4a7c15u) >> shift_);
  }

  // Whether the key of a slot's number is this one.
  bool holds(int32_t number, int64_t key) const {
    return is_direct_ || keys_[static_cast<size_t>(number)] == key;
  }

  // Slots are as many as a power of two; the end leads to the start.
  template <class Slot>
  Slot* next(Slot* slot) const {
    return ++slot == slots_.data() + slots_.size() ? const_cast<Slot*>(slots_.data()) : slot;
  }

  void resize(size_t slots) {
    is_direct_ = static_cast<uint64_t>(bound_) <= slots;
    slots_.assign(slots, kEmpty);
    shift_ = 64;
    for (size_t left = slots; left > 1; left /= 2) --shift_;
    for (size_t i = 0; i < keys_.size(); ++i) {
      int32_t* slot = &slots_[place(keys_[i])];
      while (*slot != kEmpty && !holds(*slot, keys_[i])) slot = next(slot);
      if (*slot == kEmpty) *slot = static_cast<int32_t>(i);
    }
  }

  int64_t bound_;
  bool is_direct_ = false;
  int shift_ = 64;
  std::vector<int32_t> slots_;
  std::vector<int64_t> keys_;
};

}  // namespace bitgnn::cpu

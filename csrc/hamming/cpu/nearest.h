// The nearest codes of a query among those seen so far.
#pragma once

#include <cstdint>
#include <vector>

namespace bitgnn::cpu {

// Takes codes in the order of their indices. A histogram of the distances says which of the codes
// to come are near enough: once k are held, those nearer than the k-th, as equally near ones have
// larger indices. No function is inline: vector kernels of all capabilities share them.
class Nearest {
 public:
  Nearest(int64_t size, int64_t k);

  // Codes at this distance or farther are none of the k nearest.
  int32_t limit() const;
  // Adds a code nearer than the limit.
  void add(int64_t index, int32_t distance);
  // Adds those among the codes of `later`, which have larger indices, that are near enough.
  void add_all(const Nearest& later);
  // Writes the k nearest; as many must have been added.
  void write(int32_t* distances, int64_t* indices) const;

 private:
  struct Hit {
    int64_t index;
    int32_t distance;
  };

  // Forgets codes that are none of the k nearest.
  void compact();

  int64_t k_;
  int64_t most_;                 // hits to hold before a compaction
  int32_t limit_;                // the k-th distance, once k hits are held
  int64_t below_ = 0;            // hits nearer than the limit: fewer than k
  std::vector<int64_t> counts_;  // [size + 2] of distances up to the limit
  std::vector<Hit> hits_;        // in the order of their indices
};

}  // namespace bitgnn::cpu

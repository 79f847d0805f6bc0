// Random numbers that depend on a seed and a node alone, not on the order in which threads draw.
#pragma once

#include <cstdint>

namespace bitgnn::cpu {

// SplitMix64 (Steele, Lea and Flood, 2014) with a start of its own for each relation and node.
class RandomStream {
 public:
  RandomStream(uint64_t seed, uint64_t relation, uint64_t node)
      : state_(mix(mix(seed + kStep * relation) + node)) {}

  // Uniform in [0, bound): the high word of a product, whose bias is below bound / 2^64.
  int64_t below(int64_t bound) {
    state_ += kStep;
    __extension__ using Wide = unsigned __int128;
    return static_cast<int64_t>((static_cast<Wide>(mix(state_)) * static_cast<Wide>(bound)) >> 64);
  }

 private:
  static constexpr uint64_t kStep = 0x9e3779b97f4a7c15u;

  static uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  uint64_t state_;
};

}  // namespace bitgnn::cpu

// The nearest codes of a query among those seen so far, by counting their distances.
#include "hamming/cpu/nearest.h"

#include <algorithm>

namespace bitgnn::cpu {
namespace {

constexpr int64_t kLeastHits = 1 << 10;

}  // namespace

Nearest::Nearest(int64_t size, int64_t k)
    : k_(k),
      most_(std::max(4 * k, kLeastHits)),
      limit_(static_cast<int32_t>(size) + 1),
      counts_(static_cast<size_t>(size) + 2) {}

int32_t Nearest::limit() const { return limit_; }

void Nearest::add(int64_t index, int32_t distance) {
  if (static_cast<int64_t>(hits_.size()) == most_) compact();
  hits_.push_back({index, distance});
  ++counts_[static_cast<size_t>(distance)];
  ++below_;
  while (below_ >= k_) below_ -= counts_[static_cast<size_t>(--limit_)];
}

void Nearest::add_all(const Nearest& later) {
  for (const Hit& hit : later.hits_)
    if (hit.distance < limit_) add(hit.index, hit.distance);
}

void Nearest::compact() {
  int64_t room = k_ - below_;  // for hits at the limit
  const auto is_far = [&](const Hit& hit) {
    return hit.distance > limit_ || (hit.distance == limit_ && room-- <= 0);
  };
  hits_.erase(std::remove_if(hits_.begin(), hits_.end(), is_far), hits_.end());
}

void Nearest::write(int32_t* distances, int64_t* indices) const {
  std::vector<int64_t> places(static_cast<size_t>(limit_) + 1);
  for (size_t d = 1; d < places.size(); ++d) places[d] = places[d - 1] + counts_[d - 1];
  for (const Hit& hit : hits_) {
    if (hit.distance > limit_) continue;
    const int64_t place = places[static_cast<size_t>(hit.distance)]++;
    if (place >= k_) continue;
    distances[place] = hit.distance;
    indices[place] = hit.index;
  }
}

}  // namespace bitgnn::cpu

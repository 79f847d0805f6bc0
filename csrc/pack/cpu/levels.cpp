// Thermometer bits on the CPU.
#include <limits>
#include <vector>

#include "core/cpu/backend.h"

namespace bitgnn::cpu {
namespace {

constexpr int64_t kLevelGrain = 1 << 15;  // groups per thread, some 40 us

// Adjacent bits of one feature, as many as one compare takes. Missing thresholds are NaN, which no
// value reaches.
std::vector<LevelGroup> groups_of(const LevelPackArgs& a) {
  std::vector<LevelGroup> groups;
  for (int64_t i = 0; i < a.size; ++i) {
    const int64_t column = a.columns != nullptr ? a.columns[i] : i / kLevelSlot;
    if (groups.empty() || groups.back().column != column || groups.back().levels == kGroupLevels) {
      LevelGroup group{column, 0, {}};
      for (float& threshold : group.thresholds) threshold = std::numeric_limits<float>::quiet_NaN();
      groups.push_back(group);
    }
    LevelGroup& last = groups.back();
    last.thresholds[last.levels++] = a.thresholds[i];
  }
  return groups;
}

}  // namespace

void Backend::pack_levels(const LevelPackArgs& a, int64_t rows) const {
  if (a.size == 0) return;
  const std::vector<LevelGroup> groups = groups_of(a);
  const auto count = static_cast<int64_t>(groups.size());
  const LevelGroups all{a, groups.data(), count};
  split(rows, grain(count, kLevelGrain), kernels().pack_levels, all);
}

}  // namespace bitgnn::cpu

// Variants that calls took and that benchmarks leave out, of all threads.
#include "core/cuda/variants.h"

#include <algorithm>
#include <mutex>
#include <sstream>
#include <vector>

namespace bitgnn::cuda {
namespace {

struct Watch {
  std::mutex mutex;
  std::vector<std::string> left_out, taken;
};

Watch& watch() {
  static Watch watch;
  return watch;
}

bool holds(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

std::atomic<bool> variants_are_watched{false};

bool note_variant(const char* variant) {
  Watch& w = watch();
  const std::lock_guard<std::mutex> lock(w.mutex);
  if (holds(w.left_out, variant)) return false;
  if (!holds(w.taken, variant)) w.taken.emplace_back(variant);
  return true;
}

std::string leave_out_variants(const std::string& variants) {
  Watch& w = watch();
  const std::lock_guard<std::mutex> lock(w.mutex);
  std::string taken;
  for (const std::string& name : w.taken) taken += (taken.empty() ? "" : ";") + name;
  w.taken.clear();
  w.left_out.clear();
  std::istringstream text(variants);
  for (std::string name; std::getline(text, name, ';');) w.left_out.push_back(name);
  variants_are_watched = !variants.empty();
  return taken;
}

}  // namespace bitgnn::cuda

// Selects the CPU kernels once: the best the CPU supports, or those set by BITGNN_CPU_CAPABILITY.
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#include "core/cpu/kernel_table.h"

namespace bitgnn::cpu {
namespace {

struct Candidate {
  const KernelTable* table;
  bool supported;
};

// Slowest first.
const Candidate* candidates(int* count) {
#if defined(__x86_64__)
  static const Candidate all[] = {
      {&kPortableKernels, true},
      {&kAvx2Kernels, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                          __builtin_cpu_supports("popcnt") && __builtin_cpu_supports("bmi2")},
      {&kAvx512Kernels,
       __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vpopcntdq") && __builtin_cpu_supports("avx512vnni")},
  };
  *count = 3;
#else
  static const Candidate all[] = {{&kPortableKernels, true}};
  *count = 1;
#endif
  return all;
}

const KernelTable& choose() {
  int count = 0;
  const Candidate* all = candidates(&count);
  const char* wanted = std::getenv("BITGNN_CPU_CAPABILITY");
  if (wanted != nullptr && *wanted != '\0') {
    for (int i = 0; i < count; ++i)
      if (all[i].supported && std::strcmp(all[i].table->name, wanted) == 0) return *all[i].table;
    throw std::runtime_error(
        std::string("BITGNN_CPU_CAPABILITY is '") + wanted +
        "', but must be one of those this CPU runs: " + available_capabilities());
  }
  const KernelTable* best = all[0].table;
  for (int i = 1; i < count; ++i)
    if (all[i].supported) best = all[i].table;
  return *best;
}

}  // namespace

const KernelTable& kernels() {
  static const KernelTable& chosen = choose();
  return chosen;
}

const char* available_capabilities() {
  static const std::string names = [] {
    int count = 0;
    const Candidate* all = candidates(&count);
    std::string s;
    for (int i = 0; i < count; ++i)
      if (all[i].supported) s += (s.empty() ? "" : ",") + std::string(all[i].table->name);
    return s;
  }();
  return names.c_str();
}

}  // namespace bitgnn::cpu

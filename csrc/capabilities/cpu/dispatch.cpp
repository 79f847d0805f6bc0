// Selects the CPU kernels once: the best the CPU supports, or those set by BITGNN_CPU_CAPABILITY.
#include <torch/csrc/stable/library.h>

#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#include "capabilities/cpu/kernel_table.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace bitgnn::cpu {
namespace {

struct Candidate {
  const KernelTable* table;
  bool supported;
};

#if defined(__x86_64__)
// True if the CPU has AMX tiles of 8-bit integers, and Linux lets this process use their registers,
// which it must be asked for.
bool has_tiles() {
#if defined(__linux__)
  constexpr unsigned kTileBits = (1u << 24) | (1u << 25);  // AMX-TILE and AMX-INT8
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & kTileBits) == kTileBits &&
         syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}
#endif

// Slowest first.
const Candidate* candidates(int* count) {
#if defined(__x86_64__)
  static const bool has_avx512 =
      __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512vpopcntdq") && __builtin_cpu_supports("avx512vnni");
  static const Candidate all[] = {
      {&kPortableKernels, true},
      {&kAvx2Kernels, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                          __builtin_cpu_supports("popcnt") && __builtin_cpu_supports("bmi2")},
      {&kAvx512Kernels, has_avx512},
      {&kAmxKernels, has_avx512 && has_tiles()},
  };
  *count = 4;
#else
  static const Candidate all[] = {{&kPortableKernels, true}};
  *count = 1;
#endif
  return all;
}

// Comma-separated names of the capabilities this CPU can run, slowest first.
std::string available_capabilities() {
  int count = 0;
  const Candidate* all = candidates(&count);
  std::string names;
  for (int i = 0; i < count; ++i)
    if (all[i].supported) names += (names.empty() ? "" : ",") + std::string(all[i].table->name);
  return names;
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

namespace {

std::string cpu_capability() { return kernels().name; }

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(bitgnn, m) {
  m.def("cpu_capability() -> str");
  m.def("available_cpu_capabilities() -> str");
}

STABLE_TORCH_LIBRARY_IMPL(bitgnn, CompositeExplicitAutograd, m) {
  m.impl("cpu_capability", TORCH_BOX(&cpu_capability));
  m.impl("available_cpu_capabilities", TORCH_BOX(&available_capabilities));
}

}  // namespace bitgnn::cpu

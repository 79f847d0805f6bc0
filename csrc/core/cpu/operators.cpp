// Operators of the library itself on the CPU: its capability, its buffers and recordings.
#include <string>

#include "core/cpu/backend.h"
#include "core/cpu/buffer_cache.h"
#include "core/cpu/kernel_table.h"
#include "core/recording_operators.h"

namespace {

std::string cpu_capability() { return bitgnn::cpu::kernels().name; }
std::string available_cpu_capabilities() { return bitgnn::cpu::available_capabilities(); }

}  // namespace

STABLE_TORCH_LIBRARY(bitgnn, m) {
  m.def("cpu_capability() -> str");
  m.def("available_cpu_capabilities() -> str");
  m.def("release_buffers() -> ()");
  m.def("set_buffer_cache(bool enabled) -> bool");
  m.def("bind_recording(Tensor[] constants, str names, int[] code) -> int");
  m.def("run_recording(Tensor x, Tensor? second, int number) -> Tensor");
  m.def("drop_recording(Tensor x, int number) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL(bitgnn, CompositeExplicitAutograd, m) {
  m.impl("cpu_capability", TORCH_BOX(&cpu_capability));
  m.impl("available_cpu_capabilities", TORCH_BOX(&available_cpu_capabilities));
  m.impl("release_buffers", TORCH_BOX(&bitgnn::cpu::release_buffers));
  m.impl("set_buffer_cache", TORCH_BOX(&bitgnn::cpu::set_buffer_cache));
}

STABLE_TORCH_LIBRARY_IMPL(bitgnn, CPU, m) {
  bitgnn::ops::register_recordings<bitgnn::cpu::Backend>(m);
}

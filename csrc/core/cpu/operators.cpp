// Operators of the library itself on the CPU: its buffers and recordings.
#include "core/cpu/backend.h"
#include "core/cpu/buffer_cache.h"
#include "core/recording_operators.h"

STABLE_TORCH_LIBRARY(bitgnn, m) {
  m.def("release_buffers() -> ()");
  m.def("set_buffer_cache(bool enabled) -> bool");
  m.def("bind_recording(Tensor[] constants, str names, int[] code) -> int");
  m.def("run_recording(Tensor x, Tensor? second, int number) -> Tensor");
  m.def("drop_recording(Tensor x, int number) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL(bitgnn, CompositeExplicitAutograd, m) {
  m.impl("release_buffers", TORCH_BOX(&bitgnn::cpu::release_buffers));
  m.impl("set_buffer_cache", TORCH_BOX(&bitgnn::cpu::set_buffer_cache));
}

STABLE_TORCH_LIBRARY_IMPL(bitgnn, CPU, m) {
  bitgnn::ops::register_recordings<bitgnn::cpu::Backend>(m);
}

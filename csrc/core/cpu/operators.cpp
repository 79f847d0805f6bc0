// Registers every operator's CPU kernel.
#include "sampling/operators.h"
#include "core/all_operators.h"
#include "core/cpu/backend.h"
#include "core/recording_operators.h"

STABLE_TORCH_LIBRARY_IMPL(bitgnn, CPU, m) {
  bitgnn::ops::register_all<bitgnn::cpu::Backend>(m);
  bitgnn::ops::register_recordings<bitgnn::cpu::Backend>(m);
  m.impl("csr_from_edges", TORCH_BOX(&bitgnn::cpu::csr_from_edges_operator));
  m.impl("sample_neighbors", TORCH_BOX(&bitgnn::cpu::sample_neighbors_operator));
}

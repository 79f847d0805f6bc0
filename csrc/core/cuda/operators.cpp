// Registers every operator's CUDA kernel.
#include "bmm/operators.h"
#include "attention/operators.h"
#include "bmm/digits_operators.h"
#include "bspmm/layout_operators.h"
#include "bspmm/operators.h"
#include "bspmm/slot_operators.h"
#include "bspmm/ternary_operators.h"
#include "conv/add_operators.h"
#include "conv/operators.h"
#include "conv/pool_operators.h"
#include "core/cuda/backend.h"
#include "core/schema.h"
#include "first_layers/operators.h"
#include "pack/join_operators.h"
#include "pack/level_operators.h"
#include "pack/operators.h"
#include "pack/patch_operators.h"
#include "pairs/fused_operators.h"
#include "pairs/joint_operators.h"
#include "pairs/narrow_operators.h"
#include "ternary/operators.h"
#include "training/operators.h"
#include "whole_model/linear_chain_operators.h"

#include <sstream>

namespace {

using bitgnn::ops::Tensor;

template <class Backend, class Library>
void register_all(Library& m) {
  using namespace bitgnn::ops;
  register_pack<Backend>(m);
  register_levels<Backend>(m);
  register_bmm<Backend>(m);
  register_conv<Backend>(m);
  register_conv_add<Backend>(m);
  register_fixed_conv<Backend>(m);
  register_bit_pool<Backend>(m);
  register_patches<Backend>(m);
  register_bspmm<Backend>(m);
  register_bspmm_layouts<Backend>(m);
  register_bspmm_ternary<Backend>(m);
  register_joins<Backend>(m);
  register_fused<Backend>(m);
  register_narrow<Backend>(m);
  register_joint<Backend>(m);
  register_bits_linear<Backend>(m);
  register_slots<Backend>(m);
  register_linear_chain<Backend>(m);
  register_quantise<Backend>(m);
  register_ternary<Backend>(m);
  register_ternary_attention<Backend>(m);
}

void set_dry_device(int64_t capability, int64_t sm_count, int64_t shared_bytes,
                    int64_t cache_bytes) {
  const bitgnn::cuda::Device device{static_cast<int>(capability), static_cast<int>(sm_count),
                                    static_cast<int>(shared_bytes), cache_bytes};
  bitgnn::cuda::set_dry_device(bitgnn::cuda::as_compiled(device));
}

// A line for each launch (blocks, threads, bytes of shared memory, kernel) behind one with the
// bytes of scratch memory, since the last call.
std::string take_dry_notes() {
  const bitgnn::cuda::DryNotes notes = bitgnn::cuda::take_dry_notes();
  std::ostringstream text;
  text << notes.scratch_bytes;
  for (const bitgnn::cuda::DryLaunch& l : notes.launches)
    text << '\n'
         << l.blocks.x << ' ' << l.blocks.y << ' ' << l.blocks.z << ' ' << l.threads.x << ' '
         << l.shared_bytes << ' ' << l.kernel;
  return text.str();
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(bitgnn, CUDA, m) { register_all<bitgnn::cuda::Backend>(m); }

// The same operators without a device, for bitgnn.ops.route.
STABLE_TORCH_LIBRARY(bitgnn_dry, m) {
  bitgnn::ops::define_operators(m);
  m.def("set_device(int capability, int sm_count, int shared_bytes, int cache_bytes) -> ()");
  m.def("take_notes() -> str");
}

STABLE_TORCH_LIBRARY_IMPL(bitgnn_dry, CPU, m) { register_all<bitgnn::cuda::DryBackend>(m); }

STABLE_TORCH_LIBRARY_IMPL(bitgnn_dry, CompositeExplicitAutograd, m) {
  m.impl("set_device", TORCH_BOX(&set_dry_device));
  m.impl("take_notes", TORCH_BOX(&take_dry_notes));
}

// Operators of the library itself on CUDA: recordings and dry runs.
#include <sstream>

#include "core/cuda/backend.h"
#include "core/cuda/variants.h"
#include "core/recording_operators.h"

namespace {

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

std::string leave_out(std::string variants) { return bitgnn::cuda::leave_out_variants(variants); }

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(bitgnn, CUDA, m) {
  bitgnn::ops::register_recordings<bitgnn::cuda::Backend>(m);
}

STABLE_TORCH_LIBRARY(bitgnn_dry, m) {
  m.def("set_device(int capability, int sm_count, int shared_bytes, int cache_bytes) -> ()");
  m.def("take_notes() -> str");
  m.def("leave_out_variants(str variants) -> str");
}

STABLE_TORCH_LIBRARY_IMPL(bitgnn_dry, CompositeExplicitAutograd, m) {
  m.impl("set_device", TORCH_BOX(&set_dry_device));
  m.impl("take_notes", TORCH_BOX(&take_dry_notes));
  m.impl("leave_out_variants", TORCH_BOX(&leave_out));
}

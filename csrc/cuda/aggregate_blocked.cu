// Launches the aggregation of packed rows over a column-blocked pattern.
#include "bitgnn/cuda/aggregate_blocked.cuh"

namespace bitgnn::cuda {
namespace {

template <int kWords, int kColumns>
cudaError_t launch_blocked(const BlockedArgs& args, const Context& context) {
  using Short = ShortRows<32, 6, 4, 256, 3>;
  const BlockedRows source{args};
  if (args.csr.edges < 16 * args.csr.rows)
    return launch_rows<Short, kWords, 4, kColumns>(source, args.csr, context);
  return launch_rows<Short, kWords, kWarp / kColumns, kColumns>(source, args.csr, context);
}

}  // namespace

cudaError_t aggregate_blocked(const BlockedArgs& args, const Context& context) {
  const bool vectors = words_for(args.csr.features) % 4 == 0 && args.csr.x_stride % 4 == 0 &&
                       reinterpret_cast<uintptr_t>(args.csr.x) % sizeof(uint4) == 0;
  return vectors ? launch_blocked<4, 1>(args, context) : launch_blocked<1, 4>(args, context);
}

}  // namespace bitgnn::cuda

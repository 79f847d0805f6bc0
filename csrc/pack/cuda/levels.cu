// Packs thermometer bits on CUDA.
#include <algorithm>

#include "pack/cuda/launch.h"
#include "pack/cuda/levels.cuh"

namespace bitgnn::cuda::pack {
namespace {

constexpr int kManyRows = 8, kFewRows = 2;  // of a warp at a time
constexpr int64_t kMostPasses = 4;          // over rows with the columns of one block

template <class T>
cudaError_t pack_typed(const LevelPackArgs& args, int64_t rows, const Context& context) {
  // Blocks of many rows, and again of several passes, where every multiprocessor has some.
  const int64_t some = 4 * int64_t{context.device.sm_count};
  const int64_t blocks = level_blocks(args, rows, kManyRows);
  if (blocks < some) return launch_pack_levels<kFewRows, T>(args, rows, 1, context);
  const int64_t passes = std::min(blocks / some, kMostPasses);
  return launch_pack_levels<kManyRows, T>(args, rows, passes, context);
}

}  // namespace

cudaError_t pack_levels(const LevelPackArgs& args, int64_t rows, const Context& context) {
  return with_float_type(
      args.type, [&](auto zero) { return pack_typed<decltype(zero)>(args, rows, context); });
}

}  // namespace bitgnn::cuda::pack

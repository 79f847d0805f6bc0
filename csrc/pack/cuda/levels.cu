// Packs thermometer bits on CUDA.
#include "pack/cuda/launch.h"
#include "pack/cuda/level_slots.cuh"
#include "pack/cuda/levels.cuh"

namespace bitgnn::cuda::pack {
namespace {

// As many steps of words a block as leave every multiprocessor some blocks.
int steps_of(const LevelPackArgs& args, int64_t rows, const Context& context) {
  const int64_t steps = ceil_div(word_count(args.size), int64_t{kLevelWarps});
  const int64_t blocks = steps * ceil_div(rows, int64_t{kLevelRows});
  const int64_t some = 4 * int64_t{context.device.sm_count};
  return blocks < 2 * some ? 1 : blocks < kLevelSteps * some ? 2 : kLevelSteps;
}

}  // namespace

cudaError_t pack_levels(const LevelPackArgs& args, int64_t rows, const Context& context) {
  if (args.columns == nullptr)
    return with_float_type(args.type, [&](auto zero) {
      return launch_pack_level_slots<decltype(zero)>(args, rows, context);
    });
  return with_float_type(args.type, [&](auto zero) {
    return launch_pack_levels<decltype(zero)>(args, rows, steps_of(args, rows, context), context);
  });
}

}  // namespace bitgnn::cuda::pack

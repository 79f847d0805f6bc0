// Packs thermometer bits on CUDA.
#include "pack/cuda/launch.h"
#include "pack/cuda/levels.cuh"

namespace bitgnn::cuda::pack {
namespace {

// From here on every multiprocessor has several blocks of eight rows a warp.
constexpr int64_t kManyWords = int64_t{1} << 18;

template <class T>
cudaError_t pack_typed(const LevelPackArgs& args, int64_t rows, const Context& context) {
  if (rows * word_count(args.size) >= kManyWords)
    return launch_pack_levels<8, T>(args, rows, 4, context);
  return launch_pack_levels<2, T>(args, rows, 1, context);
}

}  // namespace

cudaError_t pack_levels(const LevelPackArgs& args, int64_t rows, const Context& context) {
  return with_float_type(
      args.type, [&](auto zero) { return pack_typed<decltype(zero)>(args, rows, context); });
}

}  // namespace bitgnn::cuda::pack

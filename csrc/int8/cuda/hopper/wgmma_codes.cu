// Launches warpgroup products of packed 8-bit rows.
#include "int8/cuda/hopper/wgmma_launch.cuh"

namespace bitgnn::cuda::int8 {

bool holds_wgmma(int64_t size, int columns, const Context& context) {
  const auto holds = [&](auto constant) {
    constexpr int kColumns = decltype(constant)::value;
    return ceil_div(size, kChunk) <= kMostChunks &&
           wgmma_stages<kColumns, false>(size, context) >= kLeastStages &&
           wgmma_stages<kColumns, true>(size, context) >= kLeastStages;
  };
  return columns == 256   ? holds(std::integral_constant<int, 256>())
         : columns == 128 ? holds(std::integral_constant<int, 128>())
                          : holds(std::integral_constant<int, 64>());
}

cudaError_t int8_wgmma_codes(const Int8BmmArgs& args, int columns, const Context& context) {
  if (args.neighbours.sums != nullptr)
    return launch_int8_wgmma<Int8Output::kSumBits, false>(args, columns, context);
  return with_int8_output(args, [&](auto output) {
    return launch_int8_wgmma<decltype(output)::value, false>(args, columns, context);
  });
}

}  // namespace bitgnn::cuda::int8

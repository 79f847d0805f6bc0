// Selects the kernel of a packed-row product by device and shape, and launches it.
#include <algorithm>
#include <type_traits>

#include "bmm/arguments.h"
#include "bmm/cuda/compared_slab.cuh"
#include "bmm/cuda/hopper/wgmma_launch.cuh"
#include "bmm/cuda/many_rows.cuh"
#include "bmm/cuda/mma.cuh"
#include "bmm/cuda/output.cuh"
#include "bmm/cuda/routes.h"
#include "bmm/cuda/stationary_weights.cuh"
#include "core/cuda/variants.h"

namespace bitgnn::cuda::bmm {
namespace {

using LargeTile = MmaTile<128, 128, 32, 64, 3>;
using WideTile = MmaTile<64, 128, 16, 64, 3>;
using SmallTile = MmaTile<64, 64, 32, 32, 3>;
using NarrowTile = MmaTile<64, 32, 16, 32, 3>;

// Calls f with the output kind, one without an addend, as a compile-time constant.
template <class F>
cudaError_t with_output(const BmmArgs& args, const F& f) {
  switch (slab_output(args)) {
    case BmmOutput::kSigns:
      return f(OutputConstant<BmmOutput::kSigns>{});
    case BmmOutput::kBits:
      return f(OutputConstant<BmmOutput::kBits>{});
    case BmmOutput::kFloat:
      return f(OutputConstant<BmmOutput::kFloat>{});
    case BmmOutput::kInt:
      return f(OutputConstant<BmmOutput::kInt>{});
    default:
      return cudaErrorInvalidValue;
  }
}

// The same for outputs with an addend.
template <class F>
cudaError_t with_sum_output(const BmmArgs& args, const F& f) {
  return args.out_float != nullptr ? f(OutputConstant<BmmOutput::kSumFloat>{})
                                   : f(OutputConstant<BmmOutput::kSumBits>{});
}

template <class Tile>
cudaError_t run_mma(const BmmArgs& args, const Context& context) {
  const bool vectors = words_for(args.size) % 4 == 0 && is_aligned(args.x) && is_aligned(args.w);
  return with_output(args, [&](auto output) {
    constexpr BmmOutput kOutput = decltype(output)::value;
    return vectors ? launch_bmm_mma<Tile, BmmUnit::kTensor, kOutput, 4>(args, context)
                   : launch_bmm_mma<Tile, BmmUnit::kTensor, kOutput, 1>(args, context);
  });
}

// Products with an addend accompany an aggregation and are mostly tall; one tile shape serves the
// others.
cudaError_t run_sum(const BmmArgs& args, bool tall, const Context& context) {
  return with_sum_output(args, [&](auto output) {
    constexpr BmmOutput kOutput = decltype(output)::value;
    if (tall && args.out_features <= 32) return launch_bmm_tall<32, kOutput>(args, context);
    if (tall && args.out_features <= 64) return launch_bmm_tall<64, kOutput>(args, context);
    if (tall) return launch_bmm_tall<128, kOutput>(args, context);
    return launch_bmm_mma<NarrowTile, BmmUnit::kTensor, kOutput, 1>(args, context);
  });
}

cudaError_t run_logic(const BmmArgs& args, const Context& context) {
  if (args.addend != nullptr) {
    return with_sum_output(args, [&](auto output) {
      return launch_bmm_mma<SmallTile, BmmUnit::kLogic, decltype(output)::value, 1>(args, context);
    });
  }
  return with_output(args, [&](auto output) {
    return launch_bmm_mma<SmallTile, BmmUnit::kLogic, decltype(output)::value, 1>(args, context);
  });
}

cudaError_t run_wgmma(const BmmArgs& args, const Context& context) {
  return with_output(
      args, [&](auto output) { return launch_bmm_wgmma<decltype(output)::value>(args, context); });
}

template <int kColumns>
cudaError_t run_tall(const BmmArgs& args, const Context& context) {
  return with_output(args, [&](auto output) {
    return launch_bmm_tall<kColumns, decltype(output)::value>(args, context);
  });
}

bool suits_few(const BmmArgs& args, const Context& context) {
  constexpr int64_t kMostRows = 16;
  constexpr int64_t kMostFeatures = 1 << 22;
  return context.device.has_bit_products() && args.rows <= kMostRows && args.size > 0 &&
         args.size <= kMostFeatures && args.addend == nullptr && args.pack == nullptr;
}

// True for many rows with bit outputs that can be compared as integers.
bool suits_compared(const BmmArgs& args, const Context& context) {
  constexpr int64_t kLeastRows = 1 << 15;  // fewer do not amortise both copies of the weights
  constexpr int64_t kMostRows = 1 << 28;   // slab passes are counted in 32 bits
  constexpr int64_t kMostColumns = 256;
  constexpr int64_t kMostFeatures = 1 << 13;
  return args.rows >= kLeastRows && args.rows < kMostRows && args.out_bits != nullptr &&
         args.addend == nullptr && args.row_scale == nullptr && args.size > 0 &&
         args.size <= kMostFeatures && args.out_features <= kMostColumns && is_aligned(args.x) &&
         is_aligned(args.out_bits) &&
         compared_plan(args).bytes(kComparedLeastWarps) <= context.device.shared_bytes;
}

// Of these, short rows whose results fit in half of L2 with them. Beyond that, slabs that are
// copied ahead wait less for rows.
bool suits_compared_direct(const BmmArgs& args, const Context& context) {
  constexpr int64_t kLeastWords = 4;  // shorter rows are bound by reading alone
  const int64_t words = words_for(args.size);
  const int64_t row_bytes =
      (words + words_for(args.out_features)) * static_cast<int64_t>(sizeof(int32_t));
  return words >= kLeastWords && words <= kStationaryMostSteps * kMmaWords &&
         2 * args.rows * row_bytes <= context.device.cache_bytes;
}

// True for many rows with weights that fit in shared memory.
bool suits_tall(const BmmArgs& args, const Context& context) {
  constexpr int64_t kLeastRows = 1 << 15;
  constexpr int64_t kMostOutputs = 512;
  constexpr int64_t kMostFeatures = 1 << 13;
  if (args.rows < kLeastRows || args.out_features > kMostOutputs || args.size > kMostFeatures ||
      !is_aligned(args.x) || !is_aligned(args.out_bits) || !is_aligned(args.out_int) ||
      !is_aligned(args.out_float))
    return false;
  TallPlan plan{};
  const size_t bits = args.out_features <= 64
                          ? plan_tall<64, BmmOutput::kBits>(plan, args, kManyWarps)
                          : plan_tall<128, BmmOutput::kBits>(plan, args, kManyWarps);
  const size_t values = args.out_features <= 64
                            ? plan_tall<64, BmmOutput::kFloat>(plan, args, kManyWarps)
                            : plan_tall<128, BmmOutput::kFloat>(plan, args, kManyWarps);
  return std::max(bits, values) <= static_cast<size_t>(context.device.shared_bytes);
}

// wgmma pays off once there are enough tiles and K is long; with many long rows fewer tiles
// suffice.
bool suits_wgmma(const BmmArgs& args) {
  constexpr int64_t kLeastFeatures = 1024;
  constexpr int64_t kManyRows = 512, kLong = 1 << 12, kVeryLong = 1 << 14;
  const bool is_long = args.rows >= kManyRows && args.size >= kLong;
  const int64_t least_tiles = !is_long ? 64 : args.size >= kVeryLong ? 8 : 16;
  constexpr int64_t kMostTiles = 1 << 30;
  const int64_t tiles = ceil_div(args.rows, 128) * ceil_div(args.out_features, 256);
  return args.size >= kLeastFeatures && args.out_features >= 256 && tiles >= least_tiles &&
         tiles < kMostTiles && args.rows <= INT32_MAX && args.out_features <= INT32_MAX;
}

}  // namespace

cudaError_t bmm(const BmmArgs& given, const Context& context) {
  if (given.rows == 0 || given.out_features == 0) return cudaSuccess;
  if (given.pack != nullptr) return bmm_packing(given, context);
  BmmArgs args = given;
  if (bmm_output(args) == BmmOutput::kSigns) {
    // Positive scales ahead of a comparison with zero have no effect.
    args.row_scale = nullptr;
    args.out_scale = nullptr;
  }
  if (!context.device.has_bit_products()) return run_logic(args, context);
  if (takes("bmm/few_rows", suits_few(args, context))) return bmm_few(args, context);
  if (takes("bmm/compared", suits_compared(args, context)))
    return takes("bmm/compared_registers", suits_compared_direct(args, context))
               ? bmm_compared_direct(args, context)
               : bmm_compared(args, context);
  const bool tall = suits_tall(args, context);
  if (args.addend != nullptr) return run_sum(args, takes("bmm/many_rows", tall), context);
  const bool vectors = words_for(args.size) % 4 == 0 && is_aligned(args.x) && is_aligned(args.w);
  if (takes("bmm/hopper/wgmma",
            context.device.is_hopper() && suits_wgmma(args) && (vectors || !tall)))
    return run_wgmma(args, context);
  if (takes("bmm/many_rows", tall)) {
    if (args.out_features <= 32) return run_tall<32>(args, context);
    return args.out_features <= 64 ? run_tall<64>(args, context) : run_tall<128>(args, context);
  }
  const int64_t multiprocessors = context.device.sm_count;
  const int64_t large = ceil_div(args.rows, 128) * ceil_div(args.out_features, 128);
  const int64_t wide = ceil_div(args.rows, 64) * ceil_div(args.out_features, 128);
  const int64_t small = ceil_div(args.rows, 64) * ceil_div(args.out_features, 64);
  if (takes("bmm/mma, 64 x 32", args.out_features <= 32 || small < multiprocessors))
    return run_mma<NarrowTile>(args, context);
  if (takes("bmm/mma, 128 x 128", args.out_features > 64 && large >= multiprocessors))
    return run_mma<LargeTile>(args, context);
  if (takes("bmm/mma, 64 x 128", args.out_features > 64 && wide >= multiprocessors / 2))
    return run_mma<WideTile>(args, context);
  return run_mma<SmallTile>(args, context);
}

}  // namespace bitgnn::cuda::bmm

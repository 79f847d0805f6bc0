// Selects the kernel of an 8-bit product by device and shape, and launches it.
#include <algorithm>

#include "core/cuda/common.cuh"
#include "core/cuda/variants.h"
#include "int8/arguments.h"
#include "int8/cuda/quantise.cuh"
#include "int8/cuda/routes.h"

namespace bitgnn::cuda::int8 {
namespace {

// Outputs whose weights a block of the warpgroup kernel keeps: the fewest that hold all of them,
// or less if shared memory does not hold their weights or if there are few rows. 0 if the kernel
// does not suit.
int wgmma_columns(const Int8BmmArgs& args, const Context& context) {
  constexpr int64_t kTileRows = 64;
  constexpr int kMost = 256, kLeast = 64;
  if (!context.device.is_hopper() || args.size == 0 || args.rows > INT32_MAX - kTileRows ||
      args.out_features > INT32_MAX - kMost)
    return 0;
  const auto tiles = [&](int columns) {
    return ceil_div(args.rows, kTileRows) * ceil_div(args.out_features, columns);
  };
  int columns = kMost;
  while (columns > kLeast &&
         (columns / 2 >= args.out_features || !holds_wgmma(args.size, columns, context) ||
          tiles(columns / 2) <= context.device.sm_count))
    columns /= 2;
  if (!holds_wgmma(args.size, columns, context)) return 0;
  return takes("int8/hopper/wgmma", tiles(columns) >= context.device.sm_count / 4) ? columns : 0;
}

// True if no product quantises rows like these.
bool must_pack(const Int8BmmArgs& args, bool hopper) {
  if (args.pack == nullptr) return false;
  return args.addend != nullptr ||
         (!hopper && args.pack->type != FloatType::kFloat32 && !has_vector_rows(*args.pack));
}

// Whether rows are quantised once, into scratch memory, rather than inside a product whose blocks
// compute `columns` outputs each.
bool packs_first(const Int8BmmArgs& args, bool hopper, int columns) {
  if (args.pack == nullptr) return false;
  const int64_t reads = ceil_div(args.out_features, columns);  // of every row
  if (!hopper) return reads > 1;
  // Writing floats holds up the only warpgroup that multiplies.
  const bool writes_much = 4 * args.out_features * int64_t{sizeof(float)} >
                           3 * args.size * element_bytes(args.pack->type);
  if (args.out_float != nullptr) return reads > 1 || writes_much;
  return reads > 2;
}

}  // namespace

bool adds_neighbour_sums(const Int8BmmArgs& args, const Context& context) {
  constexpr int64_t kUnitSums = 8;  // of 16 bytes
  return args.codes != nullptr && args.out_features % kUnitSums == 0 &&
         wgmma_columns(args, context) > 0;
}

cudaError_t multiply_int8(const Int8BmmArgs& given, const Context& context) {
  if (given.rows == 0 || given.out_features == 0) return cudaSuccess;
  constexpr int kLargeRows = 128, kLargeColumns = 128, kSmallColumns = 32;
  const int columns = wgmma_columns(given, context);
  const int64_t tiles =
      ceil_div(given.rows, kLargeRows) * ceil_div(given.out_features, kLargeColumns);
  Int8BmmArgs args = given;
  const bool packs = packs_first(given, columns > 0, columns > 0 ? columns : kLargeColumns);
  if (must_pack(given, columns > 0) || takes("int8/pack", packs)) {
    Int8PackArgs pack = *given.pack;
    pack.codes = static_cast<int8_t*>(
        context.workspace.take(static_cast<size_t>(pack.rows * int8_pitch(pack.size))));
    const cudaError_t status = pack_int8(pack, context);
    if (status != cudaSuccess) return status;
    args.pack = nullptr;
    args.codes = pack.codes;
  }
  if (columns > 0)
    return args.pack != nullptr ? int8_wgmma_floats(args, columns, context)
                                : int8_wgmma_codes(args, columns, context);
  const bool small = takes("int8/mma, small tile",
                           given.out_features <= kSmallColumns || tiles < context.device.sm_count);
  return args.pack != nullptr ? int8_mma_floats(args, small, context)
                              : int8_mma_codes(args, small, context);
}

}  // namespace bitgnn::cuda::int8

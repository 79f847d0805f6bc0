// Selects the kernels for float activations times packed weights, and launches the product whose
// weights stay in shared memory.
#include "bmm/arguments.h"
#include "bmm/cuda/routes.h"

#include <algorithm>

#include "bmm/arguments.h"
#include "bmm/cuda/epilogue_terms.cuh"
#include "bmm/cuda/floats/resident.cuh"
#include "bmm/cuda/hopper/packing_tma.cuh"
#include "core/cuda/variants.h"
#include "pack/arguments.h"

namespace bitgnn::cuda::bmm {
namespace {

constexpr int64_t kMaxWords = 1 << 14;       // keeps sizes in 32 bits
constexpr int64_t kMaxColumns = 1 << 14;     // likewise
constexpr int64_t kSharedBytes = 88 * 1024;  // per block; beyond, too few blocks are resident
constexpr int64_t kMostResident = 256;       // columns on Hopper, with many rows
constexpr int64_t kTurnsForLargeTiles = 6;   // per multiprocessor
constexpr int64_t kFewColumns = 96;

// Rows per iteration, by the words per row and the number of rows.
int tile_rows(const BmmArgs& args, const Context& context) {
  const int64_t words = words_for(args.size);
  if (words < 4) return 128;
  // With few rows, small tiles give every multiprocessor some work.
  if (words >= 8 && args.rows < kTurnsForLargeTiles * 32 * context.device.sm_count) return 16;
  // Many columns keep a block from reading for long; shorter iterations interleave better.
  return args.out_features > kFewColumns ? 32 : 64;
}

// True if the weights stay in a block's shared memory. On Hopper, products of many rows with many
// outputs are faster apart, where half of the multiprocessors get a tile of the warpgroup product.
bool suits_resident(const BmmArgs& args, const Context& context) {
  const int64_t words = words_for(args.size);
  if (words < 1 || words > kMaxWords || args.out_features > kMaxColumns) return false;
  if (context.device.is_hopper() && args.out_features > kMostResident &&
      args.rows >= 64 * context.device.sm_count)
    return false;
  return packing_layout(args, tile_rows(args, context)).bytes() <=
         std::min<int64_t>(kSharedBytes, context.device.shared_bytes);
}

template <int kRows, int kWords, PackingMode kMode, class T>
cudaError_t launch_tile(const BmmArgs& args, const Context& context) {
  const pack::DenseRows<T> source{static_cast<const T*>(args.pack->x), args.pack->row_stride};
  return launch_bmm_packing<kRows, kWords, kMode>(source, args, tile_rows(args, context), context);
}

template <PackingMode kMode, class T>
cudaError_t launch(const BmmArgs& args, const Context& context) {
  const int64_t words = words_for(args.size);
  if (words == 1) return launch_tile<16, 1, kMode, T>(args, context);
  if (words < 4) return launch_tile<8, 2, kMode, T>(args, context);
  if (tile_rows(args, context) == 16) return launch_tile<2, 8, kMode, T>(args, context);
  return launch_tile<4, 4, kMode, T>(args, context);
}

template <class T>
cudaError_t launch_typed(const BmmArgs& args, const Context& context) {
  switch (packing_mode(args)) {
    case PackingMode::kCompared:
      return launch<PackingMode::kCompared, T>(args, context);
    case PackingMode::kValues:
      return launch<PackingMode::kValues, T>(args, context);
    default:
      return launch<PackingMode::kScaled, T>(args, context);
  }
}

// True if rows can be packed on the fly, which needs 1-bit products and a common type of elements.
bool suits_packing(const BmmArgs& args, const Context& context) {
  const FloatType type = args.pack->type;
  return context.device.has_bit_products() && type != FloatType::kFloat64 &&
         type != FloatType::kUInt8;
}

// True for bit outputs of many contiguous float32 rows on Hopper.
bool suits_bulk(const BmmArgs& args, const Context& context) {
  constexpr int64_t kLeastRows = 5000;     // fewer do not amortise starting large blocks
  constexpr int64_t kManyRows = 1 << 15;   // enough even with few warps
  constexpr int64_t kMostRows = 1 << 30;   // keeps row counts in 32 bits
  constexpr int64_t kLeastFeatures = 32;   // shorter rows are bound by their count
  constexpr int64_t kMostFeatures = 1536;  // longer rows leave room for too few warps
  constexpr int64_t kMostColumns = 256;
  constexpr int kLeastWarps = 4;
  constexpr int kWarpsForFewRows = 8;
  const bool suits = context.device.is_hopper() && args.pack->type == FloatType::kFloat32 &&
                     packing_mode(args) == PackingMode::kCompared &&
                     args.pack->row_stride == args.size && args.size >= kLeastFeatures &&
                     args.size <= kMostFeatures && args.out_features <= kMostColumns &&
                     args.rows >= kLeastRows && args.rows < kMostRows && is_aligned(args.pack->x) &&
                     is_aligned(args.out_bits);
  return suits &&
         bulk_plan(args, context).teams >= (args.rows < kManyRows ? kWarpsForFewRows : kLeastWarps);
}

// Of these, long rows that teams of warps should share. With few columns this gains nothing if a
// warp has only one tile, or if many warps fit.
bool suits_teams(const BmmArgs& args, const Context& context) {
  constexpr int64_t kLeastFeatures = 256;
  constexpr int kManyWarps = 12;
  const BulkPlan plan = bulk_plan(args, context);
  const bool few = plan.tiles <= int64_t{context.device.sm_count} * plan.teams;
  const bool alone = plan.passes == 1 && (few || plan.teams >= kManyWarps);
  return plan.cols >= kLeastFeatures && !alone;
}

// Packs the rows into scratch memory, for a product of packed rows.
cudaError_t bmm_apart(const BmmArgs& given, const Context& context) {
  BmmArgs args = given;
  PackArgs pack = *given.pack;
  pack.scale = nullptr;
  const auto rows = static_cast<size_t>(args.rows);
  const auto words = static_cast<size_t>(words_for(args.size));
  pack.words = static_cast<int32_t*>(context.workspace.take(rows * words * sizeof(int32_t)));
  if (args.packed_scale && needs_scales(bmm_output(args)))
    pack.scale = static_cast<float*>(context.workspace.take(rows * sizeof(float)));
  const cudaError_t status = pack::pack(pack, args.rows, context);
  if (status != cudaSuccess) return status;
  args.pack = nullptr;
  args.x = pack.words;
  if (args.packed_scale) args.row_scale = pack.scale;
  args.packed_scale = false;
  return bmm(args, context);
}

}  // namespace

cudaError_t bmm_packing(const BmmArgs& args, const Context& context) {
  if (args.rows == 0 || args.out_features == 0) return cudaSuccess;
  if (!suits_packing(args, context)) return bmm_apart(args, context);
  if (takes("bmm/hopper/packing_tma", suits_bulk(args, context))) {
    const bool teams = takes("bmm/hopper/packing_tma, teams", suits_teams(args, context));
    return bmm_packing_tma(args, teams, context);
  }
  if (!takes("bmm/floats/resident", suits_resident(args, context))) return bmm_apart(args, context);
  return with_quantised_type(
      args.pack->type, [&](auto zero) { return launch_typed<decltype(zero)>(args, context); });
}

}  // namespace bitgnn::cuda::bmm

// Chooses the kernel of a ternary linear product by device and shape.
#include "core/cuda/variants.h"
#include "core/cuda/with_quantised_type.h"
#include "ternary/arguments.h"
#include "ternary/cuda/hopper/linear_resident.cuh"
#include "ternary/cuda/hopper/linear_some_rows.cuh"
#include "ternary/cuda/hopper/linear_wgmma_plan.h"
#include "ternary/cuda/linear/tile_launch.cuh"
#include "ternary/cuda/routes.h"

namespace bitgnn::cuda::ternary {
namespace {

// True if packing the rows in every block that needs them beats a separate packing kernel.
bool suits_fused(const TernaryLinearArgs& args, const Context& context) {
  const TernaryPackArgs& p = args.pack;
  const TernaryBmmArgs& a = args.product;
  constexpr int64_t kMostRows = 160, kMostSize = 16384, kMostBytes = 8 << 20, kColumns = 96;
  if (!context.device.has_bit_products() || !has_vector_weights(a) || p.size % 8 != 0 ||
      p.size > kMostSize || !has_aligned_rows(p.x, p.type, p.strides))
    return false;
  const int64_t row_bytes = p.size * element_bytes(p.type);
  return a.rows <= 2 || (a.rows <= kMostRows &&
                         ceil_div(a.out_features, kColumns) * a.rows * row_bytes <= kMostBytes);
}

// True for value outputs with enough tiles of whole, aligned rows.
bool suits_wgmma(const TernaryBmmArgs& a, const Context& context) {
  constexpr int64_t kLeastRows = 96, kLeastOutputs = 128, kLeastTiles = 32;
  const int64_t tiles = ceil_div(a.rows, kTernaryTileRows) * ceil_div(a.out_features, 128);
  return context.device.is_hopper() && a.out_bits == nullptr && a.size > 0 &&
         words_for(a.size) % 4 == 0 && is_aligned(a.w) && is_aligned(a.x) && a.rows >= kLeastRows &&
         a.out_features >= kLeastOutputs && tiles >= kLeastTiles;
}

// True for a few dozen long rows.
bool suits_groups(const TernaryLinearArgs& args, const Context& context) {
  constexpr int64_t kLeastRows = 3, kMostRows = 160, kLeastSize = 2048;
  const TernaryPackArgs& p = args.pack;
  const TernaryBmmArgs& a = args.product;
  const int64_t chunks = ceil_div(words_for(p.size), kGroupChunkWords);
  const int64_t blocks = ceil_div(a.rows, kGroupRows) * ceil_div(a.out_features, kGroupOutputs);
  return context.device.is_hopper() && a.rows >= kLeastRows && a.rows <= kMostRows &&
         p.size >= kLeastSize && p.size % kPieceFloats == 0 && chunks <= kGroupMostChunks &&
         has_vector_weights(a) && has_aligned_rows(p.x, p.type, p.strides) &&
         (blocks <= context.device.sm_count || !suits_wgmma(a, context));
}

// True for very many rows with weights that fit in shared memory.
bool suits_resident(const TernaryLinearArgs& args, const Context& context) {
  constexpr int64_t kLeastRows = 1536;
  const TernaryBmmArgs& a = args.product;
  if (a.rows < kLeastRows || a.out_features < kResidentColumns || a.out_features % 32 != 0 ||
      !is_aligned(a.out) || !suits_stream(args.pack) || !suits_wgmma(a, context))
    return false;
  const Residence residence(a, context);
  if (residence.lanes == 0) return false;
  // Tiles are better if less than three quarters of the SMs would be doing useful work.
  const int64_t places = residence.longest() * kResidentColumns * context.device.sm_count;
  return 4 * a.rows * a.out_features >= 3 * places;
}

template <class Tile>
bool suits_tile(const TernaryBmmArgs& a, const Context& context) {
  return ternary_tile_bytes<Tile>(a) <= context.device.shared_bytes;
}

// Product of packed rows for any shape and device.
cudaError_t multiply_packed(const TernaryBmmArgs& a, const Context& context) {
  if (a.size == 0 || !context.device.has_bit_products() || !suits_tile<TernaryFewTile>(a, context))
    return multiply_ternary_simt(a, context);
  if (takes("ternary/linear/tile, many rows",
            a.rows > TernarySomeTile::kRows && suits_tile<TernaryManyTile>(a, context)))
    return multiply_ternary_tile<TernaryManyTile>(a, context);
  if (takes("ternary/linear/tile, some rows",
            a.rows > TernaryFewTile::kRows && suits_tile<TernarySomeTile>(a, context)))
    return multiply_ternary_tile<TernarySomeTile>(a, context);
  return multiply_ternary_tile<TernaryFewTile>(a, context);
}

cudaError_t linear_fused(const TernaryLinearArgs& args, const Context& context) {
  switch (args.pack.type) {
    case FloatType::kFloat32:
      return linear_ternary_float(args, context);
    case FloatType::kFloat16:
      return linear_ternary_half(args, context);
    default:
      return linear_ternary_bfloat16(args, context);
  }
}

}  // namespace

bool suits_stream(const TernaryPackArgs& a) {
  return a.sizes[2] == a.rows() && a.size % kPieceFloats == 0 && a.rows() < (1 << 30) &&
         a.size < (1 << 30) && has_aligned_rows(a.x, a.type, a.strides);
}

cudaError_t multiply_ternary(const TernaryBmmArgs& args, const Context& context) {
  if (args.rows == 0 || args.out_features == 0) return cudaSuccess;
  TernaryBmmArgs a = args;
  if (a.out_bits != nullptr && a.bias == nullptr && a.threshold == nullptr)
    a.x_scale = a.w_scale = nullptr;  // positive scales do not change a comparison with zero
  return takes("ternary/hopper/linear_wgmma", suits_wgmma(a, context))
             ? multiply_ternary_wgmma(a, context)
             : multiply_packed(a, context);
}

cudaError_t linear_ternary(const TernaryLinearArgs& args, const Context& context) {
  const TernaryBmmArgs& a = args.product;
  if (a.rows == 0 || a.out_features == 0) return cudaSuccess;
  constexpr int64_t kLongSize = 3584;  // from here on, packing in every block takes too long
  const bool groups = suits_groups(args, context);
  const char* const some_rows = "ternary/hopper/linear_some_rows";
  if (takes(some_rows, groups && a.size >= kLongSize)) return linear_ternary_groups(args, context);
  if (takes("ternary/linear/one_launch", suits_fused(args, context)))
    return linear_fused(args, context);
  if (takes(some_rows, groups)) return linear_ternary_groups(args, context);
  if (takes("ternary/hopper/linear_resident", suits_resident(args, context)))
    return linear_ternary_resident(args, context);
  if (takes("ternary/hopper/linear_wgmma", suits_wgmma(a, context)))
    return linear_ternary_wgmma(args, context);
  // Pack both planes even for boolean rows: the product of packed rows requires them.
  const int64_t row_words = 2 * words_for(a.size);
  auto* packed = static_cast<int32_t*>(
      context.workspace.take(static_cast<size_t>(a.rows * (row_words + 1)) * sizeof(int32_t)));
  TernaryPackArgs pack = args.pack;
  TernaryBmmArgs product = a;
  product.x = pack.words = packed;
  product.counts = pack.counts = packed + a.rows * row_words;
  const cudaError_t status = pack_ternary_planes(pack, context);
  return status != cudaSuccess ? status : multiply_packed(product, context);
}

}  // namespace bitgnn::cuda::ternary

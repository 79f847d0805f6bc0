// Chooses the kernel of a ternary linear product by device and shape.
#include "core/cuda/with_quantised_type.h"
#include "ternary/cuda/launch.h"
#include "ternary/cuda/linear/tile_launch.cuh"
#include "ternary/cuda/routes.h"

namespace bitgnn::cuda::ternary {
namespace {

// True if packing the rows in every block that needs them beats a separate packing kernel.
bool suits_fused(const TernaryLinearArgs& args, const Context& context) {
  const TernaryPackArgs& p = args.pack;
  const TernaryBmmArgs& a = args.product;
  constexpr int64_t kMostRows = 160, kMostSize = 16384, kMostBytes = 8 << 20, kColumns = 96;
  const bool fits = context.device.has_bit_products() && has_vector_weights(a) && p.size % 8 == 0 &&
                    p.size <= kMostSize && has_aligned_rows(p.x, p.type, p.strides);
  if (!fits) return false;
  const int64_t row_bytes = p.size * element_bytes(p.type);
  return a.rows <= 2 || (a.rows <= kMostRows &&
                         ceil_div(a.out_features, kColumns) * a.rows * row_bytes <= kMostBytes);
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

cudaError_t multiply_ternary(const TernaryBmmArgs& args, const Context& context) {
  if (args.rows == 0 || args.out_features == 0) return cudaSuccess;
  TernaryBmmArgs a = args;
  if (a.out_bits != nullptr && a.bias == nullptr && a.threshold == nullptr)
    a.x_scale = a.w_scale = nullptr;  // positive scales do not change a comparison with zero
  return suits_ternary_wgmma(a, context) ? multiply_ternary_wgmma(a, context)
                                         : multiply_ternary_tile(a, context);
}

cudaError_t linear_ternary(const TernaryLinearArgs& args, const Context& context) {
  const TernaryBmmArgs& a = args.product;
  if (a.rows == 0 || a.out_features == 0) return cudaSuccess;
  constexpr int64_t kLongSize = 3584;  // from here on, packing in every block takes too long
  const bool groups = suits_ternary_groups(args, context);
  if (groups && a.size >= kLongSize) return linear_ternary_groups(args, context);
  if (suits_fused(args, context)) return linear_fused(args, context);
  if (groups) return linear_ternary_groups(args, context);
  if (suits_ternary_resident(args, context)) return linear_ternary_resident(args, context);
  if (suits_ternary_wgmma(a, context)) return linear_ternary_wgmma(args, context);
  // Pack both planes even for boolean rows: the product of packed rows requires them.
  const int64_t row_words = 2 * words_for(a.size);
  auto* packed = static_cast<int32_t*>(
      context.workspace.take(static_cast<size_t>(a.rows * (row_words + 1)) * sizeof(int32_t)));
  TernaryPackArgs pack = args.pack;
  TernaryBmmArgs product = a;
  product.x = pack.words = packed;
  product.counts = pack.counts = packed + a.rows * row_words;
  const cudaError_t status = pack_ternary_planes(pack, context);
  return status != cudaSuccess ? status : multiply_ternary_tile(product, context);
}

}  // namespace bitgnn::cuda::ternary

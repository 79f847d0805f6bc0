// Chooses and launches the kernel for attention on bits.
#include <algorithm>

#include "attention/arguments.h"
#include "attention/cuda/hopper/resident_tiles.cuh"
#include "attention/cuda/image.cuh"
#include "attention/cuda/plain.cuh"
#include "attention/cuda/plan.h"
#include "attention/cuda/ring.cuh"
#include "attention/cuda/routes.h"
#include "core/check.h"
#include "core/cuda/variants.h"

namespace bitgnn::cuda::attention {
namespace {

bool aligned(const TernaryOperand& x, int64_t words) {
  const bool strides = x.batch_strides[0] % words == 0 && x.batch_strides[1] % words == 0 &&
                       x.row_stride % words == 0;
  return strides && is_aligned(x.words, words * sizeof(int32_t));
}

// Heads whose keys and values fit in shared memory together.
bool suits_resident(const TernaryAttentionArgs& a, const Device& device) {
  constexpr int64_t kMostHeads = 65535;  // limit of gridDim.y and gridDim.z
  return takes("attention/hopper/resident",
               device.is_hopper() && a.size > 32 && a.size <= 64 && a.keys > 0 &&
                   a.keys <= kMostResidentKeys &&
                   ResidentLayout(a.keys).total <= device.shared_bytes && a.heads <= kMostHeads &&
                   a.batch <= kMostHeads && !needs_shifted_powers<64>(a));
}

template <int kDim>
constexpr size_t kRingBytes = sizeof(AttentionShared<kDim>) + 128;  // plus slack for alignment

// Heads of that many values; blocks of some devices have too little shared memory.
template <int kDim>
bool suits_ring(const TernaryAttentionArgs& a, const Context& context) {
  return takes("attention/ring",
               a.size > kDim - 32 && a.size <= kDim &&
                   kRingBytes<kDim> <= static_cast<size_t>(context.device.shared_bytes));
}

template <int kDim>
cudaError_t launch(const TernaryAttentionArgs& a, const Context& context) {
  using S = AttentionShape<kDim>;
  const bool shifted = needs_shifted_powers<kDim>(a);
  // Each of a lane's chains of additions covers an eighth of the keys.
  const AttentionPlan plan =
      plan_attention<kDim>(a, static_cast<double>(a.keys) / 8 + S::kStageKeys);
  // Workspace: keys and values in tile order, and the powers of the scores; if shifted, those of
  // score - largest from -2 * kDim on.
  const int64_t stages = ceil_div(a.keys, S::kStageKeys);
  const auto bytes =
      static_cast<size_t>(a.batch * a.kv_heads * stages) * sizeof(AttentionStage<kDim>);
  auto* image = static_cast<AttentionStage<kDim>*>(context.workspace.take(bytes + sizeof(float)));
  auto* table = static_cast<float*>(context.workspace.take(S::kScores * sizeof(float)));
  const AttentionTable powers{table, S::kScores, plan.step,
                              shifted ? -2.0 * kDim * plan.step : -plan.base};
  cudaError_t status = cudaSuccess;
  if (stages > 0)
    status = launch_dependent(attention_image_kernel<kDim>,
                              dim3(grid_size(stages), grid_size(a.kv_heads), grid_size(a.batch)),
                              kImageThreads, 0, context, a, powers, image, aligned(a.k, 2),
                              aligned(a.v, 2) && words_for(a.keys) % 2 == 0);
  if (status != cudaSuccess) return status;
  const auto kernel =
      shifted ? ternary_attention_kernel<kDim, true> : ternary_attention_kernel<kDim, false>;
  constexpr size_t kBytes = kRingBytes<kDim>;
  status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                static_cast<int>(kBytes));
  if (status != cudaSuccess) return status;
  const dim3 blocks(grid_size(ceil_div(a.queries, S::kRows)), grid_size(a.heads),
                    grid_size(a.batch));
  return launch_dependent(kernel, blocks, S::kThreads, kBytes, context, a, plan,
                          static_cast<const AttentionStage<kDim>*>(image),
                          static_cast<const float*>(table));
}

template <class T>
cudaError_t launch_plain(const TernaryAttentionArgs& a, const Context& context) {
  const PlainAttentionLayout layout(a.size);
  if (layout.total > context.device.shared_bytes) return cudaErrorInvalidValue;
  const auto kernel = plain_attention_kernel<T>;
  const cudaError_t status = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(layout.total));
  if (status != cudaSuccess) return status;
  return launch_dependent(kernel, dim3(grid_size(a.batch * a.heads * a.queries)), kPlainThreads,
                          static_cast<size_t>(layout.total), context, a);
}

// Most sequences per launch: the limit of gridDim.z.
constexpr int64_t kMostSequences = 65535;

TernaryAttentionArgs sequences(const TernaryAttentionArgs& a, int64_t first, int64_t count) {
  TernaryAttentionArgs part = a;
  part.batch = count;
  for (TernaryOperand* x : {&part.q, &part.k, &part.v}) x->words += first * x->batch_strides[0];
  if (a.mask != nullptr) part.mask += first * words_for(a.keys);
  const int64_t bytes = a.type == ValueType::kFloat32 ? 4 : 2;
  part.out = static_cast<char*>(a.out) + first * a.out_strides[0] * bytes;
  return part;
}

int64_t largest_head(const Device& device) {
  int64_t size = 128;
  while (PlainAttentionLayout(size + 32).total <= device.shared_bytes) size += 32;
  return size;
}

cudaError_t attend(const TernaryAttentionArgs& a, const Context& context) {
  if (suits_resident(a, context.device)) return attention_resident(a, context);
  if (suits_ring<32>(a, context)) return launch<32>(a, context);
  if (suits_ring<64>(a, context)) return launch<64>(a, context);
  if (suits_ring<96>(a, context)) return launch<96>(a, context);
  if (suits_ring<128>(a, context)) return launch<128>(a, context);
  if (a.type == ValueType::kFloat32) return launch_plain<float>(a, context);
  if (a.type == ValueType::kFloat16) return launch_plain<__half>(a, context);
  return launch_plain<__nv_bfloat16>(a, context);
}

}  // namespace

cudaError_t suits_floats(const TernaryFloatAttentionArgs& args, bool* suits,
                         const Context& context) {
  *suits = args.q.type == args.k.type && args.q.type == args.v.type &&
           suits_resident(args.attention, context.device);
  return cudaSuccess;
}

cudaError_t attention_ternary(const TernaryAttentionArgs& a, const Context& context) {
  const int64_t largest = largest_head(context.device);
  BITGNN_CHECK(a.size <= largest, "attention_ternary: heads must have at most ", largest,
               " features on this device, got ", a.size);
  if (a.batch * a.heads * a.queries * a.size == 0) return cudaSuccess;
  cudaError_t status = cudaSuccess;
  for (int64_t first = 0; first < a.batch && status == cudaSuccess; first += kMostSequences)
    status = attend(sequences(a, first, std::min(kMostSequences, a.batch - first)), context);
  return status;
}

}  // namespace bitgnn::cuda::attention

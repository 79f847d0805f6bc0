// Registers every operator's CUDA kernel.
#include "cuda/backend.h"
#include "ops/bit_pool_operators.h"
#include "ops/bits_linear_operators.h"
#include "ops/bmm_operators.h"
#include "ops/bspmm_layout_operators.h"
#include "ops/bspmm_operators.h"
#include "ops/bspmm_ternary_operators.h"
#include "ops/conv_add_operators.h"
#include "ops/conv_operators.h"
#include "ops/cooperative_operators.h"
#include "ops/fixed_conv_operators.h"
#include "ops/fused_operators.h"
#include "ops/join_operators.h"
#include "ops/joint_operators.h"
#include "ops/linear_chain_operators.h"
#include "ops/narrow_operators.h"
#include "ops/pack_operators.h"
#include "ops/patch_operators.h"
#include "ops/quantise_operators.h"
#include "ops/slot_operators.h"
#include "ops/ternary_attention_operators.h"
#include "ops/ternary_operators.h"

STABLE_TORCH_LIBRARY_IMPL(bitgnn, CUDA, m) {
  bitgnn::ops::register_pack<bitgnn::cuda::Backend>(m);
  bitgnn::ops::register_bmm<bitgnn::cuda::Backend>(m);
  bitgnn::ops::register_conv<bitgnn::cuda::Backend>(m);
  bitgnn::ops::register_conv_add<bitgnn::cuda::Backend>(m);
  bitgnn::ops::register_fixed_conv<bitgnn::cuda::Backend>(m);
  bitgnn::ops::register_bit_pool<bitgnn::cuda::Backend>(m);
  bitgnn::ops::register_patches<bitgnn::cuda::Backend>(m);
  bitgnn::ops::register_bspmm<bitgnn::cuda::Backend>(m);
  bitgnn::ops::register_bspmm_layouts<bitgnn::cuda::Backend>(m);
  bitgnn::ops::register_bspmm_ternary<bitgnn::cuda::Backend>(m);
  bitgnn::ops::register_joins<bitgnn::cuda::Backend>(m);
  bitgnn::ops::register_fused<bitgnn::cuda::Backend>(m);
  bitgnn::ops::register_narrow<bitgnn::cuda::Backend>(m);
  bitgnn::ops::register_cooperative<bitgnn::cuda::Backend>(m);
  bitgnn::ops::register_joint<bitgnn::cuda::Backend>(m);
  bitgnn::ops::register_bits_linear<bitgnn::cuda::Backend>(m);
  bitgnn::ops::register_slots<bitgnn::cuda::Backend>(m);
  bitgnn::ops::register_linear_chain<bitgnn::cuda::Backend>(m);
  bitgnn::ops::register_quantise<bitgnn::cuda::Backend>(m);
  bitgnn::ops::register_ternary<bitgnn::cuda::Backend>(m);
  bitgnn::ops::register_ternary_attention<bitgnn::cuda::Backend>(m);
}

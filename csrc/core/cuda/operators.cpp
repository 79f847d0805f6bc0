// Registers every operator's CUDA kernel.
#include "bmm/operators.h"
#include "attention/operators.h"
#include "bmm/digits_operators.h"
#include "bspmm/layout_operators.h"
#include "bspmm/operators.h"
#include "bspmm/slot_operators.h"
#include "bspmm/ternary_operators.h"
#include "conv/add_operators.h"
#include "conv/operators.h"
#include "conv/pool_operators.h"
#include "core/cuda/backend.h"
#include "first_layers/operators.h"
#include "pack/join_operators.h"
#include "pack/level_operators.h"
#include "pack/operators.h"
#include "pack/patch_operators.h"
#include "pairs/fused_operators.h"
#include "pairs/joint_operators.h"
#include "pairs/narrow_operators.h"
#include "ternary/operators.h"
#include "training/operators.h"
#include "whole_model/cooperative_operators.h"
#include "whole_model/linear_chain_operators.h"

STABLE_TORCH_LIBRARY_IMPL(bitgnn, CUDA, m) {
  bitgnn::ops::register_pack<bitgnn::cuda::Backend>(m);
  bitgnn::ops::register_levels<bitgnn::cuda::Backend>(m);
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

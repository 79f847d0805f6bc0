// Registers every operator's CPU kernel.
#include "bmm/operators.h"
#include "attention/operators.h"
#include "bmm/digits_operators.h"
#include "bspmm/cpu/csr_operators.h"
#include "bspmm/layout_operators.h"
#include "bspmm/operators.h"
#include "bspmm/slot_operators.h"
#include "bspmm/ternary_operators.h"
#include "conv/add_operators.h"
#include "conv/operators.h"
#include "conv/pool_operators.h"
#include "core/cpu/backend.h"
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
#include "whole_model/linear_chain_operators.h"

STABLE_TORCH_LIBRARY_IMPL(bitgnn, CPU, m) {
  bitgnn::ops::register_pack<bitgnn::cpu::Backend>(m);
  bitgnn::ops::register_levels<bitgnn::cpu::Backend>(m);
  bitgnn::ops::register_bmm<bitgnn::cpu::Backend>(m);
  bitgnn::ops::register_bspmm<bitgnn::cpu::Backend>(m);
  bitgnn::ops::register_bspmm_layouts<bitgnn::cpu::Backend>(m);
  bitgnn::ops::register_joins<bitgnn::cpu::Backend>(m);
  bitgnn::ops::register_fused<bitgnn::cpu::Backend>(m);
  bitgnn::ops::register_joint<bitgnn::cpu::Backend>(m);
  bitgnn::ops::register_bits_linear<bitgnn::cpu::Backend>(m);
  bitgnn::ops::register_slots<bitgnn::cpu::Backend>(m);
  bitgnn::ops::register_linear_chain<bitgnn::cpu::Backend>(m);
  bitgnn::ops::register_quantise<bitgnn::cpu::Backend>(m);
  bitgnn::ops::register_narrow<bitgnn::cpu::Backend>(m);
  bitgnn::ops::register_conv<bitgnn::cpu::Backend>(m);
  bitgnn::ops::register_conv_add<bitgnn::cpu::Backend>(m);
  bitgnn::ops::register_fixed_conv<bitgnn::cpu::Backend>(m);
  bitgnn::ops::register_bit_pool<bitgnn::cpu::Backend>(m);
  bitgnn::ops::register_patches<bitgnn::cpu::Backend>(m);
  bitgnn::ops::register_bspmm_ternary<bitgnn::cpu::Backend>(m);
  bitgnn::ops::register_ternary<bitgnn::cpu::Backend>(m);
  bitgnn::ops::register_ternary_attention<bitgnn::cpu::Backend>(m);
  m.impl("csr_from_edges", TORCH_BOX(&bitgnn::cpu::csr_from_edges_operator));
}

// Registers every operator's CPU kernel.
#include "cpu/backend.h"
#include "cpu/csr_from_edges.h"
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
#include "ops/level_operators.h"
#include "ops/linear_chain_operators.h"
#include "ops/narrow_operators.h"
#include "ops/pack_operators.h"
#include "ops/patch_operators.h"
#include "ops/quantise_operators.h"
#include "ops/slot_operators.h"
#include "ops/ternary_attention_operators.h"
#include "ops/ternary_operators.h"

STABLE_TORCH_LIBRARY_IMPL(bitgnn, CPU, m) {
  bitgnn::ops::register_pack<bitgnn::cpu::Backend>(m);
  bitgnn::ops::register_levels<bitgnn::cpu::Backend>(m);
  bitgnn::ops::register_bmm<bitgnn::cpu::Backend>(m);
  bitgnn::ops::register_bspmm<bitgnn::cpu::Backend>(m);
  bitgnn::ops::register_bspmm_layouts<bitgnn::cpu::Backend>(m);
  bitgnn::ops::register_joins<bitgnn::cpu::Backend>(m);
  bitgnn::ops::register_fused<bitgnn::cpu::Backend>(m);
  bitgnn::ops::register_cooperative<bitgnn::cpu::Backend>(m);
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

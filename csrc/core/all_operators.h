// Registers the kernels of every operator for one backend.
#pragma once

#include "attention/operators.h"
#include "bmm/digits_operators.h"
#include "bmm/operators.h"
#include "bspmm/layout_operators.h"
#include "bspmm/operators.h"
#include "bspmm/slot_operators.h"
#include "bspmm/ternary_operators.h"
#include "conv/add_operators.h"
#include "conv/operators.h"
#include "conv/pool_operators.h"
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

namespace bitgnn::ops {

template <class Backend, class Library>
void register_all(Library& m) {
  register_pack<Backend>(m);
  register_levels<Backend>(m);
  register_bmm<Backend>(m);
  register_conv<Backend>(m);
  register_conv_add<Backend>(m);
  register_fixed_conv<Backend>(m);
  register_bit_pool<Backend>(m);
  register_patches<Backend>(m);
  register_bspmm<Backend>(m);
  register_bspmm_layouts<Backend>(m);
  register_bspmm_ternary<Backend>(m);
  register_joins<Backend>(m);
  register_fused<Backend>(m);
  register_narrow<Backend>(m);
  register_joint<Backend>(m);
  register_bits_linear<Backend>(m);
  register_slots<Backend>(m);
  register_linear_chain<Backend>(m);
  register_quantise<Backend>(m);
  register_ternary<Backend>(m);
  register_ternary_attention<Backend>(m);
}

}  // namespace bitgnn::ops

// Registers every operator of core/schema.h for one backend.
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
  m.impl("pack", TORCH_BOX(&PackOperators<Backend>::pack));
  m.impl("pack_scaled", TORCH_BOX(&PackOperators<Backend>::pack_scaled));
  m.impl("pack_standardized", TORCH_BOX(&PackOperators<Backend>::pack_standardized));
  m.impl("unpack", TORCH_BOX(&PackOperators<Backend>::unpack));
  m.impl("transpose_bits", TORCH_BOX(&PackOperators<Backend>::transpose_bits));
  m.impl("pack_levels", TORCH_BOX(&LevelOperators<Backend>::pack_levels));
  m.impl("pack_patches", TORCH_BOX(&PatchOperators<Backend>::pack));
  m.impl("add_bbb", TORCH_BOX(&JoinOperators<Backend>::add_bbb));
  m.impl("add_bbf", TORCH_BOX(&JoinOperators<Backend>::add_bbf));
  m.impl("add_ffb", TORCH_BOX(&JoinOperators<Backend>::add_ffb));
  m.impl("concat_bbb", TORCH_BOX(&JoinOperators<Backend>::concat_bbb));
  m.impl("concat_bbf", TORCH_BOX(&JoinOperators<Backend>::concat_bbf));
  m.impl("concat_ffb", TORCH_BOX(&JoinOperators<Backend>::concat_ffb));

  m.impl("bmm_bbb", TORCH_BOX(&BmmOperators<Backend>::bbb));
  m.impl("bmm_bbf", TORCH_BOX(&BmmOperators<Backend>::bbf));
  m.impl("bmm_fbb", TORCH_BOX(&BmmOperators<Backend>::fbb));
  m.impl("bmm_fbf", TORCH_BOX(&BmmOperators<Backend>::fbf));
  m.impl("bmm_bfb", TORCH_BOX(&BmmOperators<Backend>::bfb));
  m.impl("bmm_bff", TORCH_BOX(&BmmOperators<Backend>::bff));
  m.impl("bmm_ffb", TORCH_BOX(&BmmOperators<Backend>::ffb));
  m.impl("bits_linear", TORCH_BOX(&BitsLinearOperators<Backend>::bits_linear));

  m.impl("bspmm_bbb", TORCH_BOX(&BspmmOperators<Backend>::bbb));
  m.impl("bspmm_bbf", TORCH_BOX(&BspmmOperators<Backend>::bbf));
  m.impl("bspmm_fbb", TORCH_BOX(&BspmmOperators<Backend>::fbb));
  m.impl("bspmm_fbf", TORCH_BOX(&BspmmOperators<Backend>::fbf));
  m.impl("bspmm_bfb", TORCH_BOX(&BspmmOperators<Backend>::bfb));
  m.impl("bspmm_bff", TORCH_BOX(&BspmmOperators<Backend>::bff));
  m.impl("bspmm_ffb", TORCH_BOX(&BspmmOperators<Backend>::ffb));
  m.impl("bspmm_fff", TORCH_BOX(&BspmmOperators<Backend>::fff));
  m.impl("bspmm_bbb_frdc", TORCH_BOX(&BspmmLayoutOperators<Backend>::bbb_frdc));
  m.impl("bspmm_bbf_frdc", TORCH_BOX(&BspmmLayoutOperators<Backend>::bbf_frdc));
  m.impl("bspmm_bbb_sliced", TORCH_BOX(&BspmmLayoutOperators<Backend>::bbb_sliced));
  m.impl("bspmm_bbf_sliced", TORCH_BOX(&BspmmLayoutOperators<Backend>::bbf_sliced));
  m.impl("bspmm_tbb", TORCH_BOX(&BspmmTernaryOperators<Backend>::tbb));
  m.impl("bspmm_tbf", TORCH_BOX(&BspmmTernaryOperators<Backend>::tbf));
  m.impl("bspmm_slots", TORCH_BOX(&SlotOperators<Backend>::bspmm_slots));

  m.impl("bmm_add", TORCH_BOX(&FusedOperators<Backend>::bmm_add));
  m.impl("bmm_bspmm", TORCH_BOX(&FusedOperators<Backend>::bmm_bspmm));
  m.impl("bmm_bspmm_narrow", TORCH_BOX(&NarrowOperators<Backend>::bmm_bspmm_narrow));
  m.impl("bspmm_bmm", TORCH_BOX(&JointOperators<Backend>::csr));
  m.impl("bspmm_bmm_sliced", TORCH_BOX(&JointOperators<Backend>::sliced));

  m.impl("conv_bbb", TORCH_BOX(&ConvOperators<Backend>::bbb));
  m.impl("conv_bbf", TORCH_BOX(&ConvOperators<Backend>::bbf));
  m.impl("pack_images", TORCH_BOX(&ConvOperators<Backend>::pack_images));
  m.impl("conv_add", TORCH_BOX(&ConvAddOperators<Backend>::add));
  m.impl("pool_bits", TORCH_BOX(&BitPoolOperators<Backend>::pool));

  m.impl("conv_fbb", TORCH_BOX(&FixedConvOperators<Backend>::fbb));
  m.impl("conv_fbf", TORCH_BOX(&FixedConvOperators<Backend>::fbf));

  m.impl("pack_ternary", TORCH_BOX(&TernaryOperators<Backend>::pack_ternary));
  m.impl("pack_bool", TORCH_BOX(&TernaryOperators<Backend>::pack_bool));
  m.impl("pack_ternary_columns", TORCH_BOX(&TernaryOperators<Backend>::pack_columns));
  m.impl("bmm_tbf", TORCH_BOX(&TernaryOperators<Backend>::tbf));
  m.impl("bmm_tbb", TORCH_BOX(&TernaryOperators<Backend>::tbb));
  m.impl("linear_ternary", TORCH_BOX(&TernaryOperators<Backend>::linear));

  m.impl("matmul_ttf", TORCH_BOX(&TernaryAttentionOperators<Backend>::matmul_ttf));
  m.impl("matmul_btf", TORCH_BOX(&TernaryAttentionOperators<Backend>::matmul_btf));
  m.impl("attention_ternary", TORCH_BOX(&TernaryAttentionOperators<Backend>::attention));
  m.impl("attention_ternary_floats",
         TORCH_BOX(&TernaryAttentionOperators<Backend>::attention_ternary_floats));

  m.impl("round_levels", TORCH_BOX(&QuantiseOperators<Backend>::round_levels));
  m.impl("clip_gradients", TORCH_BOX(&QuantiseOperators<Backend>::clip_gradients));
  m.impl("shift_signs", TORCH_BOX(&QuantiseOperators<Backend>::shift_signs));

  m.impl("linear_chain", TORCH_BOX(&LinearChainOperators<Backend>::linear_chain));
}

}  // namespace bitgnn::ops

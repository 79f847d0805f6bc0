// Every operator of core/schema.h for one backend, and their registration.
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
#include "int8/operators.h"
#include "pack/csr_operators.h"
#include "pack/join_operators.h"
#include "pack/operators.h"
#include "pack/patch_operators.h"
#include "pairs/fused_operators.h"
#include "pairs/joint_operators.h"
#include "pairs/narrow_operators.h"
#include "ternary/operators.h"
#include "training/looked_up_operators.h"
#include "training/operators.h"
#include "whole_model/linear_chain_operators.h"

namespace bitgnn::ops {

// `table.add<&function>(name)` takes each operator.
template <class Backend, class Table>
void add_all(Table& table) {
  table.template add<&PackOperators<Backend>::pack>("pack");
  table.template add<&PackOperators<Backend>::pack_scaled>("pack_scaled");
  table.template add<&PackOperators<Backend>::pack_standardized>("pack_standardized");
  table.template add<&CsrPackOperators<Backend>::pack>("pack_csr");
  table.template add<&PackOperators<Backend>::unpack>("unpack");
  table.template add<&PackOperators<Backend>::transpose_bits>("transpose_bits");
  table.template add<&PatchOperators<Backend>::pack>("pack_patches");
  table.template add<&JoinOperators<Backend>::add_bbb>("add_bbb");
  table.template add<&JoinOperators<Backend>::add_bbf>("add_bbf");
  table.template add<&JoinOperators<Backend>::add_ffb>("add_ffb");
  table.template add<&JoinOperators<Backend>::concat_bbb>("concat_bbb");
  table.template add<&JoinOperators<Backend>::concat_bbf>("concat_bbf");
  table.template add<&JoinOperators<Backend>::concat_ffb>("concat_ffb");

  table.template add<&BmmOperators<Backend>::bbb>("bmm_bbb");
  table.template add<&BmmOperators<Backend>::bbf>("bmm_bbf");
  table.template add<&BmmOperators<Backend>::fbb>("bmm_fbb");
  table.template add<&BmmOperators<Backend>::fbf>("bmm_fbf");
  table.template add<&BmmOperators<Backend>::bfb>("bmm_bfb");
  table.template add<&BmmOperators<Backend>::bff>("bmm_bff");
  table.template add<&BmmOperators<Backend>::ffb>("bmm_ffb");
  table.template add<&BitsLinearOperators<Backend>::bits_linear>("bits_linear");

  table.template add<&Int8Operators<Backend>::pack>("pack_int8");
  table.template add<&Int8Operators<Backend>::iif>("bmm_iif");
  table.template add<&Int8Operators<Backend>::iib>("bmm_iib");
  table.template add<&Int8Operators<Backend>::add_iib>("bmm_add_iib");
  table.template add<&Int8Operators<Backend>::fif>("bmm_fif");
  table.template add<&Int8Operators<Backend>::fib>("bmm_fib");

  table.template add<&BspmmOperators<Backend>::bbb>("bspmm_bbb");
  table.template add<&BspmmOperators<Backend>::bbf>("bspmm_bbf");
  table.template add<&BspmmOperators<Backend>::fbb>("bspmm_fbb");
  table.template add<&BspmmOperators<Backend>::fbf>("bspmm_fbf");
  table.template add<&BspmmOperators<Backend>::bfb>("bspmm_bfb");
  table.template add<&BspmmOperators<Backend>::bff>("bspmm_bff");
  table.template add<&BspmmOperators<Backend>::ffb>("bspmm_ffb");
  table.template add<&BspmmOperators<Backend>::fff>("bspmm_fff");
  table.template add<&BspmmLayoutOperators<Backend>::bbb_frdc>("bspmm_bbb_frdc");
  table.template add<&BspmmLayoutOperators<Backend>::bbf_frdc>("bspmm_bbf_frdc");
  table.template add<&BspmmLayoutOperators<Backend>::bbb_sliced>("bspmm_bbb_sliced");
  table.template add<&BspmmLayoutOperators<Backend>::bbf_sliced>("bspmm_bbf_sliced");
  table.template add<&BspmmTernaryOperators<Backend>::tbb>("bspmm_tbb");
  table.template add<&BspmmTernaryOperators<Backend>::tbf>("bspmm_tbf");
  table.template add<&SlotOperators<Backend>::bspmm_slots>("bspmm_slots");

  table.template add<&FusedOperators<Backend>::bmm_add>("bmm_add");
  table.template add<&FusedOperators<Backend>::bmm_bspmm>("bmm_bspmm");
  table.template add<&NarrowOperators<Backend>::bmm_bspmm_narrow>("bmm_bspmm_narrow");
  table.template add<&JointOperators<Backend>::csr>("bspmm_bmm");
  table.template add<&JointOperators<Backend>::int8>("bspmm_bmm_iib");
  table.template add<&JointOperators<Backend>::sliced>("bspmm_bmm_sliced");

  table.template add<&ConvOperators<Backend>::bbb>("conv_bbb");
  table.template add<&ConvOperators<Backend>::bbf>("conv_bbf");
  table.template add<&ConvOperators<Backend>::pack_images>("pack_images");
  table.template add<&ConvAddOperators<Backend>::add>("conv_add");
  table.template add<&BitPoolOperators<Backend>::pool>("pool_bits");

  table.template add<&FixedConvOperators<Backend>::fbb>("conv_fbb");
  table.template add<&FixedConvOperators<Backend>::fbf>("conv_fbf");

  table.template add<&TernaryOperators<Backend>::pack_ternary>("pack_ternary");
  table.template add<&TernaryOperators<Backend>::pack_bool>("pack_bool");
  table.template add<&TernaryOperators<Backend>::pack_columns>("pack_ternary_columns");
  table.template add<&TernaryOperators<Backend>::tbf>("bmm_tbf");
  table.template add<&TernaryOperators<Backend>::tbb>("bmm_tbb");
  table.template add<&TernaryOperators<Backend>::linear>("linear_ternary");

  table.template add<&TernaryAttentionOperators<Backend>::matmul_ttf>("matmul_ttf");
  table.template add<&TernaryAttentionOperators<Backend>::matmul_btf>("matmul_btf");
  table.template add<&TernaryAttentionOperators<Backend>::attention>("attention_ternary");
  table.template add<&TernaryAttentionOperators<Backend>::attention_ternary_floats>(
      "attention_ternary_floats");

  table.template add<&QuantiseOperators<Backend>::round_levels>("round_levels");
  table.template add<&QuantiseOperators<Backend>::clip_gradients>("clip_gradients");
  table.template add<&QuantiseOperators<Backend>::shift_signs>("shift_signs");
  table.template add<&QuantiseOperators<Backend>::centre_gradients>("centre_gradients");
  table.template add<&QuantiseOperators<Backend>::scale_sums>("scale_sums");
  table.template add<&LookedUpOperators<Backend>::fold_weight>("fold_weight");
  table.template add<&LookedUpOperators<Backend>::activation_bits>("activation_bits");
  table.template add<&LookedUpOperators<Backend>::unpack_pair>("unpack_pair");
  table.template add<&LookedUpOperators<Backend>::row_signs>("row_signs");
  table.template add<&LookedUpOperators<Backend>::straight_through>("straight_through");

  table.template add<&LinearChainOperators<Backend>::linear_chain>("linear_chain");
}

template <class Library>
struct DispatcherTable {
  Library& library;

  template <auto function>
  void add(const char* name) {
    library.impl(name, TORCH_BOX(function));
  }
};

template <class Backend, class Library>
void register_all(Library& m) {
  DispatcherTable<Library> table{m};
  add_all<Backend>(table);
}

}  // namespace bitgnn::ops

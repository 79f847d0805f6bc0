// Schemas of all operators, for each namespace that registers kernels for them.
#pragma once

#include <torch/csrc/stable/library.h>

namespace bitgnn::ops {

template <class Library>
void define_operators(Library& m) {
  m.def(
      "csr_from_edges(Tensor sources, Tensor destinations, int num_rows, int num_cols, "
      "bool self_loops=False) -> (Tensor, Tensor)");
  m.def(
      "sample_neighbors(Tensor[] colptrs, Tensor[] rows, Tensor[] seeds, int[] num_nodes, "
      "int[] sources, int[] destinations, int[] fanouts, int random_seed, bool replace=False, "
      "bool disjoint=False, bool induced=False) "
      "-> (Tensor[], Tensor[], Tensor[], Tensor[], Tensor[], Tensor, Tensor)");

  m.def("pack(Tensor x, Tensor? threshold=None) -> Tensor");
  m.def("pack_scaled(Tensor x, Tensor? threshold=None, Tensor? gain=None) -> (Tensor, Tensor)");
  m.def("pack_standardized(Tensor x, bool relu=False, bool scaled=False) -> (Tensor, Tensor)");
  m.def(
      "pack_csr(Tensor rowptr, Tensor indices, Tensor values, int size, Tensor? threshold=None) "
      "-> Tensor");
  m.def("pack_int8(Tensor x, Tensor centre, Tensor inverse_step) -> Tensor");
  m.def("unpack(Tensor words, int size, Tensor? scale=None) -> Tensor");
  m.def("transpose_bits(Tensor words, int size) -> Tensor");

  m.def(
      "bmm_bbb(Tensor x, Tensor w, int size, Tensor? x_scale=None, Tensor? w_scale=None, "
      "Tensor? bias=None, Tensor? threshold=None, Tensor? flip=None) -> Tensor");
  m.def(
      "bmm_bbf(Tensor x, Tensor w, int size, Tensor? x_scale=None, Tensor? w_scale=None, "
      "Tensor? bias=None, bool integer=False) -> Tensor");
  m.def(
      "bmm_fbb(Tensor x, Tensor w, Tensor? w_scale=None, Tensor? bias=None, "
      "Tensor? threshold=None, Tensor? flip=None, Tensor? x_threshold=None, "
      "Tensor? x_gain=None, bool scale=True) -> Tensor");
  m.def(
      "bmm_fbf(Tensor x, Tensor w, Tensor? w_scale=None, Tensor? bias=None, "
      "Tensor? x_threshold=None, Tensor? x_gain=None, bool scale=True, bool integer=False) "
      "-> Tensor");
  m.def(
      "bmm_bfb(Tensor x, Tensor w, Tensor? x_scale=None, Tensor? bias=None, "
      "Tensor? threshold=None, Tensor? flip=None, bool scale=True) -> Tensor");
  m.def(
      "bmm_bff(Tensor x, Tensor w, Tensor? x_scale=None, Tensor? bias=None, bool scale=True, "
      "bool integer=False) -> Tensor");
  m.def(
      "bmm_ffb(Tensor x, Tensor w, Tensor? bias=None, Tensor? threshold=None, "
      "Tensor? flip=None, Tensor? x_threshold=None, Tensor? x_gain=None, bool scale=True) "
      "-> Tensor");

  const std::string codes = "Tensor codes, Tensor weight, ";
  const std::string quantised = "Tensor x, Tensor centre, Tensor inverse_step, Tensor weight, ";
  const std::string scaled_dot = "Tensor? scale=None, Tensor? shift=None";
  const std::string compared_dot = "Tensor? threshold=None, Tensor? flip=None) -> Tensor";
  m.def(("bmm_iif(" + codes + "int size, " + scaled_dot + ", Tensor? addend=None) -> Tensor")
            .c_str());
  m.def(("bmm_iib(" + codes + "int size, " + compared_dot).c_str());
  m.def(("bmm_add_iib(" + codes + "Tensor addend, int size, " + scaled_dot +
         ", Tensor? threshold=None) -> Tensor")
            .c_str());
  m.def(("bmm_fif(" + quantised + scaled_dot + ") -> Tensor").c_str());
  m.def(("bmm_fib(" + quantised + compared_dot).c_str());

  m.def(
      "bspmm_bbb(Tensor x, int size, Tensor rowptr, Tensor indices, Tensor? row=None, "
      "Tensor? threshold=None, bool trusted=False) -> Tensor");
  m.def(
      "bspmm_bbf(Tensor x, int size, Tensor rowptr, Tensor indices, Tensor? row=None, "
      "Tensor? bias=None, bool integer=False, bool trusted=False) -> Tensor");
  m.def(
      "bspmm_fbb(Tensor x, Tensor rowptr, Tensor indices, Tensor? row=None, "
      "Tensor? col=None, Tensor? threshold=None, bool trusted=False) -> Tensor");
  m.def(
      "bspmm_fbf(Tensor x, Tensor rowptr, Tensor indices, Tensor? row=None, "
      "Tensor? col=None, Tensor? bias=None, bool integer=False, bool trusted=False) -> Tensor");
  m.def(
      "bspmm_bfb(Tensor x, int size, Tensor rowptr, Tensor indices, Tensor values, "
      "Tensor? x_scale=None, Tensor? threshold=None, bool trusted=False) -> Tensor");
  m.def(
      "bspmm_bff(Tensor x, int size, Tensor rowptr, Tensor indices, Tensor values, "
      "Tensor? x_scale=None, Tensor? bias=None, bool trusted=False) -> Tensor");
  m.def(
      "bspmm_ffb(Tensor x, Tensor rowptr, Tensor indices, Tensor values, "
      "Tensor? threshold=None, bool trusted=False) -> Tensor");
  m.def(
      "bspmm_fff(Tensor x, Tensor rowptr, Tensor indices, Tensor values, Tensor? bias=None, bool "
      "trusted=False) "
      "-> Tensor");

  m.def(
      "bspmm_bbb_frdc(Tensor x, int size, Tensor tile_rowptr, Tensor tile_cols, Tensor tiles, "
      "int num_rows, Tensor? row=None, Tensor? threshold=None, bool trusted=False) -> "
      "Tensor");
  m.def(
      "bspmm_bbf_frdc(Tensor x, int size, Tensor tile_rowptr, Tensor tile_cols, Tensor tiles, "
      "int num_rows, Tensor? row=None, Tensor? bias=None, bool integer=False, bool "
      "trusted=False) "
      "-> Tensor");

  const std::string sliced =
      "Tensor x, int size, Tensor rowptr, Tensor local_indices, Tensor group_steps, "
      "Tensor group_places, Tensor slice_groups, Tensor row_slots, Tensor row_items, "
      "int slice_size, int places, Tensor? row=None, ";
  m.def(("bspmm_bbb_sliced(" + sliced + "Tensor? threshold=None, bool trusted=False) -> Tensor")
            .c_str());
  m.def(("bspmm_bbf_sliced(" + sliced +
         "Tensor? bias=None, bool integer=False, bool trusted=False) -> Tensor")
            .c_str());

  m.def(
      "bmm_add(Tensor x, Tensor w, Tensor addend, int size, Tensor? x_scale=None, "
      "Tensor? w_scale=None, Tensor? bias=None, Tensor? threshold=None, Tensor? flip=None, "
      "Tensor? x_threshold=None, Tensor? x_gain=None, bool scale=False, bool out_bits=False) "
      "-> Tensor");
  m.def(
      "bmm_bspmm(Tensor x, Tensor w, int size, Tensor rowptr, Tensor indices, "
      "Tensor? x_scale=None, Tensor? w_scale=None, Tensor? x_threshold=None, "
      "Tensor? x_gain=None, bool scale=False, Tensor? row=None, Tensor? col=None, "
      "Tensor? bias=None, Tensor? threshold=None, bool hidden_bits=True, "
      "bool out_bits=False, bool trusted=False) -> Tensor");
  const std::string narrow =
      "Tensor? x_scale=None, Tensor? w_scale=None, Tensor? x_threshold=None, "
      "Tensor? x_gain=None, bool scale=False, Tensor? row=None, Tensor? col=None, "
      "Tensor? bias=None, int head=0, Tensor? root=None, Tensor? root_w=None, int root_size=0, "
      "Tensor? root_scale=None, Tensor? root_w_scale=None, Tensor? root_bias=None";
  m.def(("bmm_bspmm_narrow(Tensor x, Tensor w, int size, Tensor rowptr, Tensor indices, " + narrow +
         ", Tensor? order=None, Tensor? shift=None, bool trusted=False) -> Tensor")
            .c_str());

  m.def(
      "bits_linear(Tensor x, Tensor digits, Tensor step, int size, Tensor? x_scale=None, "
      "Tensor? bias=None, Tensor? addend=None) -> Tensor");

  m.def(
      "bspmm_slots(Tensor x, Tensor rowptr, Tensor indices, Tensor? row=None, Tensor? bias=None, "
      "Tensor? addend=None, bool trusted=False) -> Tensor");

  const std::string joint =
      "Tensor x, Tensor w, int size, Tensor? row=None, Tensor? sum_bias=None, "
      "Tensor? x_scale=None, Tensor? w_scale=None, Tensor? bias=None, Tensor? threshold=None, "
      "Tensor? flip=None, bool trusted=False) -> Tensor";
  m.def(("bspmm_bmm(Tensor neighbours, Tensor rowptr, Tensor indices, " + joint).c_str());
  m.def(
      "bspmm_bmm_iib(Tensor neighbours, Tensor rowptr, Tensor indices, Tensor codes, "
      "Tensor weight, int size, Tensor? row=None, Tensor? sum_bias=None, Tensor? scale=None, "
      "Tensor? shift=None, Tensor? threshold=None, bool trusted=False) -> Tensor");
  m.def(("bspmm_bmm_sliced(Tensor neighbours, Tensor rowptr, Tensor local_indices, "
         "Tensor group_steps, Tensor group_places, Tensor slice_groups, Tensor row_slots, "
         "Tensor row_items, int slice_size, int places, " +
         joint)
            .c_str());

  m.def(
      "add_bbb(Tensor a, Tensor b, int size, Tensor? a_scale=None, Tensor? b_scale=None, "
      "Tensor? threshold=None) -> Tensor");
  m.def(
      "add_bbf(Tensor a, Tensor b, int size, Tensor? a_scale=None, Tensor? b_scale=None) "
      "-> Tensor");
  m.def("add_ffb(Tensor a, Tensor b, Tensor? threshold=None) -> Tensor");
  m.def("concat_bbb(Tensor a, Tensor b, int a_size, int b_size) -> Tensor");
  m.def(
      "concat_bbf(Tensor a, Tensor b, int a_size, int b_size, Tensor? a_scale=None, "
      "Tensor? b_scale=None) -> Tensor");
  m.def("concat_ffb(Tensor a, Tensor b, Tensor? threshold=None) -> Tensor");

  const std::string window = "int[] stride, int[] padding, int[] dilation, ";
  const std::string conv = "Tensor x, Tensor w, int channels, " + window + "int groups=1, ";
  const std::string scaled = "Tensor? w_scale=None, Tensor? bias=None, ";
  const std::string compared = "Tensor? threshold=None, Tensor? flip=None, Tensor? prepared=None";
  m.def(("conv_bbb(" + conv + scaled + compared +
         ", int[]? pool=None, Tensor? pool_flip=None) -> Tensor")
            .c_str());
  m.def(("conv_bbf(" + conv + scaled + "bool integer=False, Tensor? prepared=None) -> Tensor")
            .c_str());
  m.def(("conv_add(" + conv +
         "Tensor? addend=None, int[]? addend_stride=None, Tensor? threshold=None, "
         "Tensor? flip=None, bool wide=False, bool sums=True, bool bits=True, "
         "Tensor? prepared=None) -> (Tensor, Tensor)")
            .c_str());
  const std::string fixed = "Tensor x, Tensor w, float step, " + window + scaled;
  m.def(("conv_fbb(" + fixed + compared + ") -> Tensor").c_str());
  m.def(("conv_fbf(" + fixed + "bool integer=False) -> Tensor").c_str());
  m.def(
      "pool_bits(Tensor x, int[] kernel, int[] stride, int[] padding, Tensor? flip=None) -> "
      "Tensor");
  m.def("pack_images(Tensor x, Tensor? threshold=None) -> Tensor");
  m.def(
      "pack_patches(Tensor x, int[] kernel, int[] stride, int[] padding, int[] dilation, "
      "Tensor? threshold=None) -> Tensor");

  // Sizes may be sequence lengths, which an exported program leaves open.
  const std::string ternary =
      "Tensor x, Tensor counts, Tensor w, SymInt size, Tensor? x_scale=None, Tensor? w_scale=None, "
      "Tensor? bias=None, ";
  m.def("pack_ternary(Tensor x, Tensor scale) -> (Tensor, Tensor)");
  m.def("pack_bool(Tensor x, Tensor scale) -> (Tensor, Tensor)");
  m.def("pack_ternary_columns(Tensor x, Tensor scale) -> (Tensor, Tensor)");
  m.def(("bmm_tbf(" + ternary + "ScalarType? dtype=None) -> Tensor").c_str());
  m.def(("bmm_tbb(" + ternary + "Tensor? threshold=None, Tensor? flip=None) -> Tensor").c_str());
  m.def(
      "linear_ternary(Tensor x, Tensor w, SymInt size, Tensor scale, Tensor? w_scale=None, "
      "Tensor? bias=None, ScalarType? dtype=None, bool boolean=False) -> Tensor");
  m.def(
      "bspmm_tbb(Tensor x, int size, Tensor rowptr, Tensor indices, Tensor? row=None, "
      "Tensor? threshold=None, bool trusted=False) -> Tensor");
  m.def(
      "bspmm_tbf(Tensor x, int size, Tensor rowptr, Tensor indices, Tensor? row=None, "
      "Tensor? bias=None, bool integer=False, bool trusted=False) -> Tensor");
  const std::string batched = "_counts, SymInt size, Tensor? scale=None, ScalarType? dtype=None, ";
  m.def(("matmul_ttf(Tensor q, Tensor q_counts, Tensor k, Tensor k" + batched +
         "Tensor? k_scale=None) -> Tensor")
            .c_str());
  m.def(("matmul_btf(Tensor a, Tensor a_counts, Tensor v, Tensor v" + batched +
         "Tensor? v_scale=None) -> Tensor")
            .c_str());
  m.def(
      "attention_ternary(Tensor q, Tensor q_counts, Tensor k, Tensor k_counts, Tensor v, "
      "Tensor v_counts, SymInt size, SymInt length, float scale, float bool_scale, float "
      "out_scale, "
      "Tensor? mask=None, bool causal=False, ScalarType? dtype=None) -> Tensor");
  m.def(
      "attention_ternary_floats(Tensor q, Tensor k, Tensor v, Tensor q_scale, Tensor k_scale, "
      "Tensor v_scale, float scale, float bool_scale, float out_scale, Tensor? mask=None, "
      "bool causal=False, ScalarType? dtype=None) -> Tensor");

  m.def("round_levels(Tensor x, Tensor scale, int lowest, int highest) -> Tensor");
  m.def(
      "clip_gradients(Tensor grad, Tensor x, Tensor scale, int lowest, int highest, "
      "Tensor? gain=None, bool sign=False) -> (Tensor, Tensor)");
  m.def("shift_signs(Tensor weight) -> (Tensor, Tensor)");
  m.def("centre_gradients(Tensor grad, Tensor factor) -> Tensor");
  m.def("scale_sums(Tensor sums, Tensor scale, Tensor weight_scale, Tensor? bias=None) -> Tensor");
  m.def(
      "fold_weight(Tensor weight, Tensor unit, float step, bool zero_one, Tensor? offset=None, "
      "Tensor? log_gain=None) -> (Tensor, Tensor, Tensor)");
  m.def("activation_bits(Tensor x, float threshold, float factor) -> (Tensor, Tensor, Tensor)");
  m.def("unpack_pair(Tensor words, Tensor raised, int size) -> Tensor");
  m.def("row_signs(Tensor x, Tensor total) -> Tensor");
  m.def(
      "straight_through(Tensor grad, Tensor x, float slope, Tensor? window=None, "
      "Tensor? scale=None) -> Tensor");

  m.def("linear_chain(Tensor x, Tensor image, int[] layers) -> Tensor");
}

}  // namespace bitgnn::ops

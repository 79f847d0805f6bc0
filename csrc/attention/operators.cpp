// PyTorch operators of batched ternary and boolean products and of attention, for any backend.
#include "ternary/operators.h"
#include "attention/arguments.h"
#include "core/registration.h"

namespace bitgnn::ops {

template <class Backend>
struct TernaryAttentionOperators {
  static Tensor multiply(const Tensor& x_in, const Tensor& x_counts, const Tensor& y_in,
                         const Tensor& y_counts, int64_t size, const OptionalTensor& scale,
                         const OptionalTensor& y_scale, const OptionalType& dtype, bool boolean,
                         const char* op, const char* x_name, const char* y_name,
                         const char* y_scale_name) {
    const Backend backend(x_in, op, x_name);
    const PackedOperand x(backend, x_in, x_counts, boolean ? 1 : 2, size, op, x_name);
    const PackedOperand y(backend, y_in, y_counts, 2, size, op, y_name);
    bool same = x.leading == y.leading;
    for (int64_t i = 0; same && i < x.leading; ++i) same = x_in.size(i) == y_in.size(i);
    BITGNN_CHECK(same, op, ": ", y_name, " must have the leading dimensions of ", x_name,
                 ", got others");
    TernaryMatmulArgs a{};
    a.x = x.args;
    a.y = y.args;
    a.boolean = boolean;
    for (int i = 0; i < 2; ++i) a.batches[i] = x.batches[i];
    a.rows = x.rows;
    a.columns = y.rows;
    a.size = size;
    a.scale = positive_number(backend, scale, op, "scale");
    a.y_scale = positive_number(backend, y_scale, op, y_scale_name);
    a.type = value_type(dtype, true, op);
    BITGNN_CHECK(a.type != ValueType::kInt32 || (a.scale == nullptr && a.y_scale == nullptr), op,
                 ": dtype int32 gives the bare dot product: scale and ", y_scale_name,
                 " must be left out");
    Tensor out = backend.empty_of(sizes_of(x_in, x.leading, {a.rows, a.columns}),
                                  dtype.value_or(ScalarType::Float));
    a.out = out.mutable_data_ptr();
    if (out.numel() > 0) backend.launch(kernel::matmul_ternary, a);
    return out;
  }

  static Tensor matmul_ttf(const Tensor& q, const Tensor& q_counts, const Tensor& k,
                           const Tensor& k_counts, int64_t size, const OptionalTensor& scale,
                           const OptionalType& dtype, const OptionalTensor& k_scale) {
    return multiply(q, q_counts, k, k_counts, size, scale, k_scale, dtype, false, "matmul_ttf", "q",
                    "k", "k_scale");
  }

  static Tensor matmul_btf(const Tensor& a, const Tensor& a_counts, const Tensor& v,
                           const Tensor& v_counts, int64_t size, const OptionalTensor& scale,
                           const OptionalType& dtype, const OptionalTensor& v_scale) {
    return multiply(a, a_counts, v, v_counts, size, scale, v_scale, dtype, true, "matmul_btf", "a",
                    "v", "v_scale");
  }

  static Tensor attention(const Tensor& q_in, const Tensor& q_counts, const Tensor& k_in,
                          const Tensor& k_counts, const Tensor& v_in, const Tensor& v_counts,
                          int64_t size, int64_t length, double scale, double bool_scale,
                          double out_scale, const OptionalTensor& mask_in, bool causal,
                          const OptionalType& dtype) {
    const char* op = "attention_ternary";
    const Backend backend(q_in, op, "q");
    check_dim(q_in, 5, op, "q");
    check_dim(k_in, 5, op, "k");
    check_dim(v_in, 5, op, "v");
    const PackedOperand q(backend, q_in, q_counts, 2, size, op, "q");
    const PackedOperand k(backend, k_in, k_counts, 2, size, op, "k");
    const PackedOperand v(backend, v_in, v_counts, 2, length, op, "v");
    TernaryAttentionArgs a{};
    a.batch = q_in.size(0);
    a.heads = q_in.size(1);
    a.kv_heads = k_in.size(1);
    check_size(k_in.size(0), a.batch, op, "batch of k");
    check_size(v_in.size(0), a.batch, op, "batch of v");
    check_size(v_in.size(1), a.kv_heads, op, "heads of v");
    check_size(k.rows, length, op, "rows of k");
    check_size(v.rows, size, op, "rows of v");
    a.q = q.args;
    a.k = k.args;
    a.v = v.args;
    a.queries = q.rows;
    a.keys = length;
    a.size = size;
    const Numbers numbers{scale, bool_scale, out_scale, causal};
    const OptionalTensor mask = numbers.fill(backend, a, mask_in, dtype, op);
    const Tensor out = output(backend, a, dtype);
    if (out.numel() > 0) backend.launch(kernel::attention_ternary, a);
    return torch::stable::transpose(out, 1, 2);
  }

  // Packs the operands first if the backend has no kernel that packs on the fly.
  static Tensor attention_ternary_floats(const Tensor& q_in, const Tensor& k_in, const Tensor& v_in,
                                         const Tensor& q_scale, const Tensor& k_scale,
                                         const Tensor& v_scale, double scale, double bool_scale,
                                         double out_scale, const OptionalTensor& mask_in,
                                         bool causal, const OptionalType& dtype) {
    const char* op = "attention_ternary_floats";
    const Backend backend(q_in, op, "q");
    const FloatOperand q(backend, q_in, q_scale, op, "q", "q_scale");
    const FloatOperand k(backend, k_in, k_scale, op, "k", "k_scale");
    const FloatOperand v(backend, v_in, v_scale, op, "v", "v_scale");
    TernaryFloatAttentionArgs all{};
    TernaryAttentionArgs& a = all.attention;
    a.batch = q_in.size(0);
    a.heads = q_in.size(1);
    a.kv_heads = k_in.size(1);
    a.queries = q_in.size(2);
    a.keys = k_in.size(2);
    a.size = q_in.size(3);
    check_size(k_in.size(0), a.batch, op, "batch of k");
    check_size(k_in.size(3), a.size, op, "features of k");
    check_size(v_in.size(0), a.batch, op, "batch of v");
    check_size(v_in.size(1), a.kv_heads, op, "heads of v");
    check_size(v_in.size(2), a.keys, op, "rows of v");
    check_size(v_in.size(3), a.size, op, "features of v");
    const Numbers numbers{scale, bool_scale, out_scale, causal};
    const OptionalTensor mask = numbers.fill(backend, a, mask_in, dtype, op);
    all.q = q.args;
    all.k = k.args;
    all.v = v.args;
    bool suits = false;
    backend.launch(kernel::suits_floats, all, &suits);
    if (!suits) {
      using Packing = TernaryOperators<Backend>;
      const auto [q_words, q_counts] = Packing::pack_ternary(q_in, q_scale);
      const auto [k_words, k_counts] = Packing::pack_ternary(k_in, k_scale);
      const auto [v_words, v_counts] = Packing::pack_columns(v_in, v_scale);
      return attention(q_words, q_counts, k_words, k_counts, v_words, v_counts, a.size, a.keys,
                       scale, bool_scale, out_scale, mask_in, causal, dtype);
    }
    const Tensor out = output(backend, a, dtype);
    if (out.numel() > 0) backend.launch(kernel::attention_ternary_floats, all);
    return torch::stable::transpose(out, 1, 2);
  }

 private:
  // Scalar parameters of attention.
  struct Numbers {
    double scale, bool_scale, out_scale;
    bool causal;

    // Fills `a` and returns the packed mask that it points to.
    OptionalTensor fill(const Backend& backend, TernaryAttentionArgs& a,
                        const OptionalTensor& mask_in, const OptionalType& dtype,
                        const char* op) const {
      BITGNN_CHECK(a.kv_heads == a.heads || (a.kv_heads > 0 && a.heads % a.kv_heads == 0), op,
                   ": heads of k must divide the ", a.heads, " heads of q, got ", a.kv_heads);
      check_positive(scale, op, "scale");
      check_positive(bool_scale, op, "bool_scale");
      check_positive(out_scale, op, "out_scale");
      OptionalTensor mask;
      if (mask_in.has_value()) {
        mask = bit_rows(backend, *mask_in, a.keys, op, "mask");
        check_size(mask->size(0), a.batch, op, "rows of mask");
        a.mask = mask->template const_data_ptr<int32_t>();
      }
      a.causal = causal;
      a.scale = scale;
      a.bool_scale = bool_scale;
      a.out_scale = static_cast<float>(out_scale);
      a.type = value_type(dtype, false, op);
      return mask;
    }
  };

  // A float operand with the tensor that its arguments point to.
  struct FloatOperand {
    TernaryFloatOperand args{};
    Tensor x;

    FloatOperand(const Backend& backend, const Tensor& x_in, const Tensor& scale, const char* op,
                 const char* name, const char* scale_name) {
      backend.check(x_in, op, name);
      args.type = quantised_type(x_in, op, name);
      check_dim(x_in, 4, op, name);
      args.scale = positive_number(backend, scale, op, scale_name);
      x = with_inner(x_in, 1, 3);
      args.x = x.data_ptr();
      for (int i = 0; i < 2; ++i) args.batch_strides[i] = x.stride(i);
      args.row_stride = x.stride(2);
    }
  };

  // Allocates the output with the heads of a query contiguous, as the next projection reads them.
  static Tensor output(const Backend& backend, TernaryAttentionArgs& a, const OptionalType& dtype) {
    Tensor out =
        backend.empty({a.batch, a.queries, a.heads, a.size}, dtype.value_or(ScalarType::Float));
    a.out = out.mutable_data_ptr();
    a.out_strides[0] = out.stride(0);
    a.out_strides[1] = out.stride(2);
    a.out_strides[2] = out.stride(1);
    return out;
  }
};

BITGNN_OPERATORS(table) {
  const std::string batched = "_counts, SymInt size, Tensor? scale=None, ScalarType? dtype=None, ";
  table.template add<&TernaryAttentionOperators<Backend>::matmul_ttf>(
      "matmul_ttf(Tensor q, Tensor q_counts, Tensor k, Tensor k" + batched +
      "Tensor? k_scale=None) -> Tensor");
  table.template add<&TernaryAttentionOperators<Backend>::matmul_btf>(
      "matmul_btf(Tensor a, Tensor a_counts, Tensor v, Tensor v" + batched +
      "Tensor? v_scale=None) -> Tensor");
  table.template add<&TernaryAttentionOperators<Backend>::attention>(
      "attention_ternary(Tensor q, Tensor q_counts, Tensor k, Tensor k_counts, Tensor v, "
      "Tensor v_counts, SymInt size, SymInt length, float scale, float bool_scale, float "
      "out_scale, "
      "Tensor? mask=None, bool causal=False, ScalarType? dtype=None) -> Tensor");
  table.template add<&TernaryAttentionOperators<Backend>::attention_ternary_floats>(
      "attention_ternary_floats(Tensor q, Tensor k, Tensor v, Tensor q_scale, Tensor k_scale, "
      "Tensor v_scale, float scale, float bool_scale, float out_scale, Tensor? mask=None, "
      "bool causal=False, ScalarType? dtype=None) -> Tensor");
}

}  // namespace bitgnn::ops

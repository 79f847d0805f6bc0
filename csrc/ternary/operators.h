// Ternary packing and products with +-1 weights as PyTorch operators, for any backend.
#pragma once

#include <tuple>
#include <vector>

#include "ternary/operands.h"

namespace bitgnn::ops {

template <class Backend>
struct TernaryOperators {
  using Packed = std::tuple<Tensor, Tensor>;

  static Packed pack_rows(const Tensor& x_in, const Tensor& scale, bool boolean, const char* op) {
    const Backend backend(x_in, op, "x");
    TernaryPackArgs a{};
    a.type = quantised_type(x_in, op, "x");
    BITGNN_CHECK(x_in.dim() >= 1, op, ": x must have at least 1 dimension, got 0");
    a.scale = positive_number(backend, scale, op, "scale");
    const Tensor x = with_inner(x_in, 1, 3);
    const int64_t leading = x.dim() - 1;
    leading_places(x, leading, 3, a.sizes, a.strides);
    a.x = x.data_ptr();
    a.size = x.size(leading);
    a.boolean = boolean;
    const int64_t words = words_for(a.size);
    Tensor packed =
        backend.empty_of(boolean ? sizes_of(x, leading, {words}) : sizes_of(x, leading, {2, words}),
                         ScalarType::Int);
    Tensor counts = backend.empty_of(sizes_of(x, leading, {}), ScalarType::Int);
    a.words = packed.template mutable_data_ptr<int32_t>();
    a.counts = counts.template mutable_data_ptr<int32_t>();
    backend.launch(kernel::pack_ternary, a);
    return {packed, counts};
  }

  static Packed pack_ternary(const Tensor& x, const Tensor& scale) {
    return pack_rows(x, scale, false, "pack_ternary");
  }

  static Packed pack_bool(const Tensor& x, const Tensor& scale) {
    return pack_rows(x, scale, true, "pack_bool");
  }

  static Packed pack_columns(const Tensor& x_in, const Tensor& scale) {
    const char* op = "pack_ternary_columns";
    const Backend backend(x_in, op, "x");
    TernaryColumnPackArgs a{};
    a.type = quantised_type(x_in, op, "x");
    BITGNN_CHECK(x_in.dim() >= 2, op, ": x must have at least 2 dimensions, got ", x_in.dim());
    a.scale = positive_number(backend, scale, op, "scale");
    const Tensor x = with_inner(x_in, 1, 3);
    const int64_t leading = x.dim() - 2;
    leading_places(x, leading, 2, a.batches, a.batch_strides);
    a.x = x.data_ptr();
    a.length = x.size(leading);
    a.features = x.size(leading + 1);
    a.row_stride = x.stride(leading);
    Tensor packed = backend.empty_of(sizes_of(x, leading, {a.features, 2, words_for(a.length)}),
                                     ScalarType::Int);
    Tensor counts = backend.empty_of(sizes_of(x, leading, {a.features}), ScalarType::Int);
    a.words = packed.template mutable_data_ptr<int32_t>();
    a.counts = counts.template mutable_data_ptr<int32_t>();
    backend.launch(kernel::pack_ternary_columns, a);
    return {packed, counts};
  }

  // Epilogue of the integer product; owns contiguous copies of its tensors.
  struct Epilogue {
    OptionalTensor w_scale, flip;
    FloatVector bias, threshold;

    void fill(const Backend& backend, TernaryBmmArgs& a, const OptionalTensor& w_scale_in,
              const OptionalTensor& bias_in, const OptionalTensor& threshold_in,
              const OptionalTensor& flip_in, const char* op) {
      if (w_scale_in.has_value()) {
        backend.check(*w_scale_in, op, "w_scale");
        check_dtype(*w_scale_in, ScalarType::Float, op, "w_scale");
        BITGNN_CHECK(w_scale_in->dim() == 0 ||
                         (w_scale_in->dim() == 1 && w_scale_in->size(0) == a.out_features),
                     op, ": w_scale must be one number or have ", a.out_features, " entries");
        w_scale = as_contiguous(*w_scale_in);
        a.w_scale = w_scale->template const_data_ptr<float>();
        a.w_scale_stride = w_scale->dim();
      }
      bias = FloatVector(backend, bias_in, a.out_features, op, "bias");
      a.bias = bias.get();
      threshold = FloatVector(backend, threshold_in, a.out_features, op, "threshold");
      a.threshold = threshold.get();
      flip = flags(backend, flip_in, a.out_features, op);
      a.flip = data_or_null<bool>(flip);
    }
  };

  static void check_bare(const TernaryBmmArgs& a, bool scaled, const char* op) {
    BITGNN_CHECK(a.type != ValueType::kInt32 || (!scaled && a.bias == nullptr), op,
                 ": dtype int32 gives the bare dot product: scales and bias must be left out");
  }

  // Arguments of a product of packed rows, with the tensors that they point to.
  struct Product {
    Tensor x, counts, w;
    Epilogue epilogue;
    TernaryBmmArgs args{};

    Product(const Backend& backend, const Tensor& x_in, const Tensor& counts_in, const Tensor& w_in,
            int64_t size, const OptionalTensor& x_scale, const OptionalTensor& w_scale,
            const OptionalTensor& bias, const OptionalTensor& threshold, const OptionalTensor& flip,
            const char* op) {
      w = bit_rows(backend, w_in, size, op, "w");
      check_operand(backend, x_in, ScalarType::Int, 3, op, "x");
      check_size(x_in.size(1), 2, op, "planes of x");
      check_size(x_in.size(2), words_for(size), op, "words of a plane of x");
      check_operand(backend, counts_in, ScalarType::Int, 1, op, "counts");
      check_size(counts_in.size(0), x_in.size(0), op, "entries of counts");
      x = as_contiguous(x_in);
      counts = as_contiguous(counts_in);
      args.x = x.const_data_ptr<int32_t>();
      args.counts = counts.const_data_ptr<int32_t>();
      args.w = w.const_data_ptr<int32_t>();
      args.rows = x.size(0);
      args.size = size;
      args.out_features = w.size(0);
      args.x_scale = positive_number(backend, x_scale, op, "x_scale");
      epilogue.fill(backend, args, w_scale, bias, threshold, flip, op);
    }
  };

  static Tensor new_values(const Backend& backend, TernaryBmmArgs& a, const OptionalType& dtype) {
    Tensor out = backend.empty({a.rows, a.out_features}, dtype.value_or(ScalarType::Float));
    a.out = out.mutable_data_ptr();
    return out;
  }

  static Tensor tbf(const Tensor& x, const Tensor& counts, const Tensor& w, int64_t size,
                    const OptionalTensor& x_scale, const OptionalTensor& w_scale,
                    const OptionalTensor& bias, const OptionalType& dtype) {
    const char* op = "bmm_tbf";
    const Backend backend(x, op, "x");
    Product product(backend, x, counts, w, size, x_scale, w_scale, bias, {}, {}, op);
    product.args.type = value_type(dtype, true, op);
    check_bare(product.args, x_scale.has_value() || w_scale.has_value(), op);
    Tensor out = new_values(backend, product.args, dtype);
    if (out.numel() > 0) backend.launch(kernel::multiply_ternary, product.args);
    return out;
  }

  static Tensor tbb(const Tensor& x, const Tensor& counts, const Tensor& w, int64_t size,
                    const OptionalTensor& x_scale, const OptionalTensor& w_scale,
                    const OptionalTensor& bias, const OptionalTensor& threshold,
                    const OptionalTensor& flip) {
    const char* op = "bmm_tbb";
    const Backend backend(x, op, "x");
    Product product(backend, x, counts, w, size, x_scale, w_scale, bias, threshold, flip, op);
    TernaryBmmArgs& a = product.args;
    Tensor out = backend.empty({a.rows, words_for(a.out_features)}, ScalarType::Int);
    a.out_bits = out.template mutable_data_ptr<int32_t>();
    if (out.numel() > 0) backend.launch(kernel::multiply_ternary, a);
    return out;
  }

  static Tensor linear(const Tensor& x_in, const Tensor& w_in, int64_t size, const Tensor& scale,
                       const OptionalTensor& w_scale, const OptionalTensor& bias,
                       const OptionalType& dtype, bool boolean) {
    const char* op = "linear_ternary";
    const Backend backend(x_in, op, "x");
    TernaryLinearArgs a{};
    a.pack.type = quantised_type(x_in, op, "x");
    check_size(columns(x_in, op, "x"), size, op, "features of x");
    const Tensor w = bit_rows(backend, w_in, size, op, "w");
    const Tensor x = with_unit_column_stride(x_in);
    a.pack.scale = positive_number(backend, scale, op, "scale");
    leading_places(x, 1, 3, a.pack.sizes, a.pack.strides);
    a.pack.x = x.data_ptr();
    a.pack.size = size;
    a.pack.boolean = boolean;
    a.product.w = w.const_data_ptr<int32_t>();
    a.product.rows = x.size(0);
    a.product.size = size;
    a.product.out_features = w.size(0);
    a.product.type = value_type(dtype, true, op);
    Epilogue epilogue;
    epilogue.fill(backend, a.product, w_scale, bias, {}, {}, op);
    check_bare(a.product, w_scale.has_value(), op);
    // Raw sums are those of the quantised values, independent of the scale.
    a.product.x_scale = a.product.type == ValueType::kInt32 ? nullptr : a.pack.scale;
    Tensor out = new_values(backend, a.product, dtype);
    if (out.numel() > 0) backend.launch(kernel::linear_ternary, a);
    return out;
  }
};

}  // namespace bitgnn::ops

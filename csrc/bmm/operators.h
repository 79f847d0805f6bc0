// The seven BMM variants for any backend: one product, with operands packed according to the
// letters in the variant's name.
#pragma once

#include "bmm/arguments.h"
#include "core/operands.h"
#include "pack/binarise.h"

namespace bitgnn::ops {

template <class Backend>
struct BmmOperators {
  // What a variant passes to the product.
  struct Request {
    const char* op;
    int64_t size;
    OptionalTensor x_scale, w_scale, bias, threshold, flip;
    Output output;
    OptionalTensor addend{};
    bool is_summand = false;  // something else is added to the product
  };

  // A positive scale ahead of a comparison with zero has no effect and is dropped.
  static bool scale_matters(const Request& q) {
    return q.output != Output::kBits || q.bias.has_value() || q.threshold.has_value() ||
           q.addend.has_value() || q.is_summand;
  }

  // x holds packed words, or is null and `pack` gives the rows to binarise on the fly.
  static Tensor multiply(const Backend& backend, const Request& q, const Tensor* x,
                         const PackArgs* pack, bool packed_scale, int64_t rows, const Tensor& w) {
    return multiply_with(backend, q, x, pack, packed_scale, rows, w,
                         [&](const BmmArgs& args) { backend.launch(kernel::bmm, args); });
  }

  // The same, with run(arguments) computing the product.
  template <class Run>
  static Tensor multiply_with(const Backend& backend, const Request& q, const Tensor* x,
                              const PackArgs* pack, bool packed_scale, int64_t rows,
                              const Tensor& w, const Run& run) {
    const int64_t out_features = w.size(0);
    if (q.output == Output::kInt) {
      BITGNN_CHECK(!q.x_scale.has_value() && !q.w_scale.has_value() && !packed_scale, q.op,
                   ": integer=True gives the bare dot product: scales must be left out");
      BITGNN_CHECK(!q.bias.has_value(), q.op,
                   ": integer=True gives the bare dot product: bias must be left out");
    }
    const FloatVector x_scale(backend, q.x_scale, rows, q.op, "x_scale");
    const FloatVector w_scale(backend, q.w_scale, out_features, q.op, "w_scale");
    const FloatVector bias(backend, q.bias, out_features, q.op, "bias");
    const FloatVector threshold(backend, q.threshold, out_features, q.op, "threshold");
    const OptionalTensor flip = flags(backend, q.flip, out_features, q.op);
    const OptionalTensor addend = addend_rows(backend, q.addend, rows, out_features, q.op);

    const bool scaled = scale_matters(q);
    BmmArgs args{};
    args.x = x != nullptr ? x->const_data_ptr<int32_t>() : nullptr;
    args.pack = pack;
    args.w = w.const_data_ptr<int32_t>();
    args.rows = rows;
    args.size = q.size;
    args.out_features = out_features;
    args.row_scale = scaled ? x_scale.get() : nullptr;
    args.packed_scale = packed_scale && scaled;
    args.out_scale = scaled ? w_scale.get() : nullptr;
    args.bias = bias.get();
    args.addend = data_or_null<float>(addend);
    args.threshold = threshold.get();
    args.flip = data_or_null<bool>(flip);
    Tensor out = new_output(backend, args, rows, out_features, q.output);
    if (out.numel() > 0) run(args);
    return out;
  }

  static Tensor multiply_bits(const Backend& backend, const Request& q, const Tensor& x_in,
                              const Tensor& w_in) {
    const Tensor x = bit_rows(backend, x_in, q.size, q.op, "x");
    const Tensor w = bit_rows(backend, w_in, q.size, q.op, "w");
    return multiply(backend, q, &x, nullptr, false, x.size(0), w);
  }

  // Float activations, binarised inside the product.
  static Tensor multiply_float(const Backend& backend, const Request& q, const Tensor& x_in,
                               const Tensor& w, const OptionalTensor& x_threshold,
                               const OptionalTensor& x_gain, bool scale) {
    const Tensor x = packable_rows(backend, x_in, q.op, "x");
    check_size(x.size(1), q.size, q.op, "features of x");
    const FloatVector threshold(backend, x_threshold, q.size, q.op, "x_threshold");
    const FloatVector gain(backend, x_gain, q.size, q.op, "x_gain");
    const PackArgs pack = pack_args(x, threshold, gain, q.op);
    // Row scales are measured only if they affect the result.
    return multiply(backend, q, nullptr, &pack, scale && scale_matters(q), x.size(0), w);
  }

  static Bits binarise_weights(const Backend& backend, const Tensor& w_in, const char* op,
                               bool scale) {
    const Tensor w = packable_rows(backend, w_in, op, "w");
    return binarise(backend, pack_args(w, {}, {}, op), w.size(0), scale);
  }

  // A scale that is left out must lie on the device like one that acts.
  static OptionalTensor scale_if(bool scale, const OptionalTensor& t, const Backend& backend,
                                 const char* op, const char* name) {
    if (t.has_value()) backend.check(*t, op, name);
    return scale ? t : OptionalTensor();
  }

  static Output value_output(bool integer) { return integer ? Output::kInt : Output::kFloat; }

  static Tensor bbb(const Tensor& x, const Tensor& w, int64_t size, const OptionalTensor& x_scale,
                    const OptionalTensor& w_scale, const OptionalTensor& bias,
                    const OptionalTensor& threshold, const OptionalTensor& flip) {
    const char* op = "bmm_bbb";
    const Backend backend(x, op, "x");
    const Request q{op, size, x_scale, w_scale, bias, threshold, flip, Output::kBits};
    return multiply_bits(backend, q, x, w);
  }

  static Tensor bbf(const Tensor& x, const Tensor& w, int64_t size, const OptionalTensor& x_scale,
                    const OptionalTensor& w_scale, const OptionalTensor& bias, bool integer) {
    const char* op = "bmm_bbf";
    const Backend backend(x, op, "x");
    const Request q{op, size, x_scale, w_scale, bias, {}, {}, value_output(integer)};
    return multiply_bits(backend, q, x, w);
  }

  static Tensor fbb(const Tensor& x, const Tensor& w, const OptionalTensor& w_scale,
                    const OptionalTensor& bias, const OptionalTensor& threshold,
                    const OptionalTensor& flip, const OptionalTensor& x_threshold,
                    const OptionalTensor& x_gain, bool scale) {
    const char* op = "bmm_fbb";
    const Backend backend(x, op, "x");
    const int64_t size = columns(x, op, "x");
    const Request q{op,   size,      {},   scale_if(scale, w_scale, backend, op, "w_scale"),
                    bias, threshold, flip, Output::kBits};
    return multiply_float(backend, q, x, bit_rows(backend, w, size, op, "w"), x_threshold, x_gain,
                          scale);
  }

  static Tensor fbf(const Tensor& x, const Tensor& w, const OptionalTensor& w_scale,
                    const OptionalTensor& bias, const OptionalTensor& x_threshold,
                    const OptionalTensor& x_gain, bool scale, bool integer) {
    const char* op = "bmm_fbf";
    const Backend backend(x, op, "x");
    const int64_t size = columns(x, op, "x");
    const Request q{op,   size, {}, scale_if(scale, w_scale, backend, op, "w_scale"),
                    bias, {},   {}, value_output(integer)};
    return multiply_float(backend, q, x, bit_rows(backend, w, size, op, "w"), x_threshold, x_gain,
                          scale);
  }

  static Tensor bfb(const Tensor& x, const Tensor& w, const OptionalTensor& x_scale,
                    const OptionalTensor& bias, const OptionalTensor& threshold,
                    const OptionalTensor& flip, bool scale) {
    const char* op = "bmm_bfb";
    const Backend backend(x, op, "x");
    const Bits bits = binarise_weights(backend, w, op, scale);
    const Request q{op,         w.size(1),    scale_if(scale, x_scale, backend, op, "x_scale"),
                    bits.scale, bias,         threshold,
                    flip,       Output::kBits};
    return multiply_bits(backend, q, x, bits.words);
  }

  static Tensor bff(const Tensor& x, const Tensor& w, const OptionalTensor& x_scale,
                    const OptionalTensor& bias, bool scale, bool integer) {
    const char* op = "bmm_bff";
    const Backend backend(x, op, "x");
    const Bits bits = binarise_weights(backend, w, op, scale);
    const Request q{op,
                    w.size(1),
                    scale_if(scale, x_scale, backend, op, "x_scale"),
                    bits.scale,
                    bias,
                    {},
                    {},
                    value_output(integer)};
    return multiply_bits(backend, q, x, bits.words);
  }

  static Tensor ffb(const Tensor& x, const Tensor& w, const OptionalTensor& bias,
                    const OptionalTensor& threshold, const OptionalTensor& flip,
                    const OptionalTensor& x_threshold, const OptionalTensor& x_gain, bool scale) {
    const char* op = "bmm_ffb";
    const Backend backend(x, op, "x");
    const int64_t size = columns(x, op, "x");
    check_size(columns(w, op, "w"), size, op, "features of w");
    const Bits bits = binarise_weights(backend, w, op, scale);
    const Request q{op, size, {}, bits.scale, bias, threshold, flip, Output::kBits};
    return multiply_float(backend, q, x, bits.words, x_threshold, x_gain, scale);
  }
};

}  // namespace bitgnn::ops

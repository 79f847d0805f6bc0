// Operators of 8-bit rows for any backend: packing, and products with 8-bit weights.
#pragma once

#include "core/operands.h"
#include "int8/arguments.h"

namespace bitgnn::ops {

// Checks a number of features.
inline void check_int8_size(int64_t size, const char* op, const char* what) {
  BITGNN_CHECK(size >= 0 && size <= kMostInt8Features, op, ": ", what, " must lie between 0 and ",
               kMostInt8Features, ", got ", size);
}

// Rows of codes: int8 [N, int8_pitch(size)], made contiguous and aligned.
template <class Backend>
Tensor code_rows(const Backend& backend, const Tensor& t, int64_t size, const char* op,
                 const char* name) {
  check_operand(backend, t, ScalarType::Char, 2, op, name);
  BITGNN_CHECK(t.size(1) == int8_pitch(size), op, ": ", name, " must hold ", int8_pitch(size),
               " bytes a row for ", size, " features, got ", t.size(1));
  return as_aligned(t);
}

// Float rows to quantise and their scales; owns what the arguments point to.
template <class Backend>
class QuantisedRows {
 public:
  QuantisedRows(const Backend& backend, const Tensor& x, const Tensor& centre,
                const Tensor& inverse_step, const char* op)
      : rows_(checked(backend, x, op)),
        centre_(backend, centre, rows_.size(1), op, "centre"),
        inverse_step_(backend, inverse_step, rows_.size(1), op, "inverse_step") {
    args.x = rows_.data_ptr();
    args.type = packable_type(rows_, op, "x");
    args.row_stride = rows_.stride(0);
    args.rows = rows_.size(0);
    args.size = rows_.size(1);
    args.centre = centre_.get();
    args.inverse_step = inverse_step_.get();
  }

  Int8PackArgs args{};

 private:
  static Tensor checked(const Backend& backend, const Tensor& x, const char* op) {
    backend.check(x, op, "x");
    const ScalarType dtype = x.scalar_type();
    BITGNN_CHECK(
        dtype == ScalarType::Float || dtype == ScalarType::Half || dtype == ScalarType::BFloat16,
        op, ": x must be float32, float16 or bfloat16, got ", torch::headeronly::toString(dtype));
    check_dim(x, 2, op, "x");
    check_int8_size(x.size(1), op, "features of x");
    return with_unit_column_stride(x);
  }

  Tensor rows_;
  FloatVector centre_, inverse_step_;
};

template <class Backend>
struct Int8Operators {
  // What becomes of the dot products; names as in Int8BmmArgs.
  struct Finish {
    OptionalTensor scale{}, shift{}, addend{}, threshold{}, flip{}, value_threshold{};
    Output output;
  };

  static Tensor pack(const Tensor& x, const Tensor& centre, const Tensor& inverse_step) {
    const char* op = "pack_int8";
    const Backend backend(x, op, "x");
    QuantisedRows<Backend> rows(backend, x, centre, inverse_step, op);
    Tensor codes = backend.empty({rows.args.rows, int8_pitch(rows.args.size)}, ScalarType::Char);
    rows.args.codes = codes.template mutable_data_ptr<int8_t>();
    if (codes.numel() > 0) backend.launch(kernel::pack_int8, rows.args);
    return codes;
  }

  // Completes arguments that have rows and a size, and calls run() with the output allocated.
  template <class Run>
  static Tensor multiply_with(const Backend& backend, Int8BmmArgs& args, const Tensor& weight_in,
                              const Finish& finish, const char* op, const Run& run) {
    const Tensor weight = code_rows(backend, weight_in, args.size, op, "weight");
    const int64_t outputs = weight.size(0);
    const FloatVector scale(backend, finish.scale, outputs, op, "scale");
    const FloatVector shift(backend, finish.shift, outputs, op, "shift");
    const FloatVector value_threshold(backend, finish.value_threshold, outputs, op, "threshold");
    const OptionalTensor addend = addend_rows(backend, finish.addend, args.rows, outputs, op);
    const OptionalTensor flip = flags(backend, finish.flip, outputs, op);
    OptionalTensor threshold;
    if (finish.threshold.has_value()) {
      check_operand(backend, *finish.threshold, ScalarType::Int, 1, op, "threshold");
      check_size(finish.threshold->size(0), outputs, op, "entries of threshold");
      threshold = as_contiguous(*finish.threshold);
    }
    args.weight = weight.template const_data_ptr<int8_t>();
    args.out_features = outputs;
    args.scale = scale.get();
    args.shift = shift.get();
    args.addend = data_or_null<float>(addend);
    args.threshold = data_or_null<int32_t>(threshold);
    args.flip = data_or_null<bool>(flip);
    args.value_threshold = value_threshold.get();
    const bool bits = finish.output == Output::kBits;
    Tensor out = backend.empty({args.rows, bits ? words_for(outputs) : outputs},
                               bits ? ScalarType::Int : ScalarType::Float);
    if (bits)
      args.out_bits = out.template mutable_data_ptr<int32_t>();
    else
      args.out_float = out.template mutable_data_ptr<float>();
    if (out.numel() > 0) run();
    return out;
  }

  static Tensor multiply(const Backend& backend, Int8BmmArgs& args, const Tensor& weight,
                         const Finish& finish, const char* op) {
    return multiply_with(backend, args, weight, finish, op,
                         [&] { backend.launch(kernel::multiply_int8, args); });
  }

  static Tensor multiply_codes(const Tensor& codes_in, const Tensor& weight, int64_t size,
                               const Finish& finish, const char* op) {
    const Backend backend(codes_in, op, "codes");
    check_int8_size(size, op, "size");
    const Tensor codes = code_rows(backend, codes_in, size, op, "codes");
    Int8BmmArgs args{};
    args.codes = codes.template const_data_ptr<int8_t>();
    args.rows = codes.size(0);
    args.size = size;
    return multiply(backend, args, weight, finish, op);
  }

  static Tensor multiply_floats(const Tensor& x, const Tensor& centre, const Tensor& inverse_step,
                                const Tensor& weight, const Finish& finish, const char* op) {
    const Backend backend(x, op, "x");
    const QuantisedRows<Backend> rows(backend, x, centre, inverse_step, op);
    Int8BmmArgs args{};
    args.pack = &rows.args;
    args.rows = rows.args.rows;
    args.size = rows.args.size;
    return multiply(backend, args, weight, finish, op);
  }

  static Tensor iif(const Tensor& codes, const Tensor& weight, int64_t size,
                    const OptionalTensor& scale, const OptionalTensor& shift,
                    const OptionalTensor& addend) {
    return multiply_codes(codes, weight, size, {scale, shift, addend, {}, {}, {}, Output::kFloat},
                          "bmm_iif");
  }

  static Tensor iib(const Tensor& codes, const Tensor& weight, int64_t size,
                    const OptionalTensor& threshold, const OptionalTensor& flip) {
    return multiply_codes(codes, weight, size, {{}, {}, {}, threshold, flip, {}, Output::kBits},
                          "bmm_iib");
  }

  static Tensor add_iib(const Tensor& codes, const Tensor& weight, const Tensor& addend,
                        int64_t size, const OptionalTensor& scale, const OptionalTensor& shift,
                        const OptionalTensor& threshold) {
    return multiply_codes(codes, weight, size,
                          {scale, shift, addend, {}, {}, threshold, Output::kBits}, "bmm_add_iib");
  }

  static Tensor fif(const Tensor& x, const Tensor& centre, const Tensor& inverse_step,
                    const Tensor& weight, const OptionalTensor& scale,
                    const OptionalTensor& shift) {
    return multiply_floats(x, centre, inverse_step, weight,
                           {scale, shift, {}, {}, {}, {}, Output::kFloat}, "bmm_fif");
  }

  static Tensor fib(const Tensor& x, const Tensor& centre, const Tensor& inverse_step,
                    const Tensor& weight, const OptionalTensor& threshold,
                    const OptionalTensor& flip) {
    return multiply_floats(x, centre, inverse_step, weight,
                           {{}, {}, {}, threshold, flip, {}, Output::kBits}, "bmm_fib");
  }
};

}  // namespace bitgnn::ops

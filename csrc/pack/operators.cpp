// pack, pack_scaled, pack_standardized, unpack and transpose_bits for any backend.
#include <tuple>

#include "core/registration.h"
#include "pack/arguments.h"
#include "pack/binarise.h"

namespace bitgnn::ops {

template <class Backend>
struct PackOperators {
  static Tensor pack(const Tensor& x_in, const OptionalTensor& threshold_in) {
    const char* op = "pack";
    const Backend backend(x_in, op, "x");
    const Tensor x = packable_rows(backend, x_in, op, "x");
    const FloatVector threshold(backend, threshold_in, x.size(1), op, "threshold");
    return binarise(backend, pack_args(x, threshold, {}, op), x.size(0), false).words;
  }

  static std::tuple<Tensor, Tensor> pack_scaled(const Tensor& x_in,
                                                const OptionalTensor& threshold_in,
                                                const OptionalTensor& gain_in) {
    const char* op = "pack_scaled";
    const Backend backend(x_in, op, "x");
    const Tensor x = packable_rows(backend, x_in, op, "x");
    const FloatVector threshold(backend, threshold_in, x.size(1), op, "threshold");
    const FloatVector gain(backend, gain_in, x.size(1), op, "gain");
    const Bits bits = binarise(backend, pack_args(x, threshold, gain, op), x.size(0), true);
    return {bits.words, *bits.scale};
  }

  static std::tuple<Tensor, Tensor> pack_standardized(const Tensor& x_in, bool relu, bool scaled) {
    const char* op = "pack_standardized";
    const Backend backend(x_in, op, "x");
    const Tensor x = packable_rows(backend, x_in, op, "x");
    const int64_t rows = x.size(0);
    Tensor words = backend.empty({rows, words_for(x.size(1))}, ScalarType::Int);
    Tensor scale = backend.empty({scaled ? rows : 0}, ScalarType::Float);
    StandardizedPackArgs args{};
    args.x = x.data_ptr();
    args.type = packable_type(x, op, "x");
    args.row_stride = x.stride(0);
    args.cols = x.size(1);
    args.relu = relu;
    args.words = words.template mutable_data_ptr<int32_t>();
    if (scaled) args.scale = scale.template mutable_data_ptr<float>();
    if (scaled || words.numel() > 0) backend.launch(kernel::pack_standardized, args, rows);
    return {words, scale};
  }

  static Tensor unpack(const Tensor& words_in, int64_t size, const OptionalTensor& scale_in) {
    const char* op = "unpack";
    const Backend backend(words_in, op, "words");
    const Tensor words = bit_rows(backend, words_in, size, op, "words");
    const int64_t rows = words.size(0);
    const FloatVector scale(backend, scale_in, rows, op, "scale");
    Tensor out = backend.empty({rows, size}, ScalarType::Float);
    if (out.numel() == 0) return out;
    backend.launch(kernel::unpack, words.const_data_ptr<int32_t>(), rows, size, scale.get(),
                   out.mutable_data_ptr<float>());
    return out;
  }

  static Tensor transpose_bits(const Tensor& words_in, int64_t size) {
    const char* op = "transpose_bits";
    const Backend backend(words_in, op, "words");
    const Tensor words = bit_rows(backend, words_in, size, op, "words");
    const int64_t rows = words.size(0);
    Tensor out = backend.empty({size, words_for(rows)}, ScalarType::Int);
    if (out.numel() == 0) return out;
    backend.launch(kernel::transpose_bits, words.const_data_ptr<int32_t>(), rows, size,
                   out.template mutable_data_ptr<int32_t>());
    return out;
  }
};

BITGNN_OPERATORS(table) {
  table.template add<&PackOperators<Backend>::pack>(
      "pack(Tensor x, Tensor? threshold=None) -> Tensor");
  table.template add<&PackOperators<Backend>::pack_scaled>(
      "pack_scaled(Tensor x, Tensor? threshold=None, Tensor? gain=None) -> (Tensor, Tensor)");
  table.template add<&PackOperators<Backend>::pack_standardized>(
      "pack_standardized(Tensor x, bool relu=False, bool scaled=False) -> (Tensor, Tensor)");
  table.template add<&PackOperators<Backend>::unpack>(
      "unpack(Tensor words, int size, Tensor? scale=None) -> Tensor");
  table.template add<&PackOperators<Backend>::transpose_bits>(
      "transpose_bits(Tensor words, int size) -> Tensor");
}

}  // namespace bitgnn::ops

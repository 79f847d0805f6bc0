// pack, pack_scaled, unpack on the CPU.
#include <tuple>

#include "ops/tensor_utils.h"

namespace bitgnn::ops {
namespace {

constexpr int64_t kPackGrain = 1 << 18;  // features a thread, some 25 us

void run_pack(const cpu::PackArgs& args, int64_t rows) {
  const auto& table = cpu::kernels();
  torch::stable::parallel_for(0, rows, grain(args.cols, kPackGrain),
                              [&](int64_t begin, int64_t end) { table.pack(args, begin, end); });
}

Tensor pack(const Tensor& x_in, const OptionalTensor& threshold_in) {
  const char* op = "pack";
  const Tensor x = float_rows(x_in, op, "x");
  const FloatVector threshold(threshold_in, x.size(1), op, "threshold");
  Tensor words = new_cpu_tensor({x.size(0), words_for(x.size(1))}, ScalarType::Int);
  cpu::PackArgs args = pack_args(x, threshold, FloatVector({}, 0, op, "gain"), op);
  args.words = words.mutable_data_ptr<int32_t>();
  run_pack(args, x.size(0));
  return words;
}

std::tuple<Tensor, Tensor> pack_scaled(const Tensor& x_in, const OptionalTensor& threshold_in,
                                       const OptionalTensor& gain_in) {
  const char* op = "pack_scaled";
  const Tensor x = float_rows(x_in, op, "x");
  const FloatVector threshold(threshold_in, x.size(1), op, "threshold");
  const FloatVector gain(gain_in, x.size(1), op, "gain");
  Tensor words = new_cpu_tensor({x.size(0), words_for(x.size(1))}, ScalarType::Int);
  Tensor scale = new_cpu_tensor({x.size(0)}, ScalarType::Float);
  cpu::PackArgs args = pack_args(x, threshold, gain, op);
  args.words = words.mutable_data_ptr<int32_t>();
  args.scale = scale.mutable_data_ptr<float>();
  run_pack(args, x.size(0));
  return {words, scale};
}

Tensor unpack(const Tensor& words_in, int64_t size, const OptionalTensor& scale_in) {
  const char* op = "unpack";
  const Tensor words = bit_rows(words_in, size, op, "words");
  const int64_t rows = words.size(0);
  const FloatVector scale(scale_in, rows, op, "scale");
  Tensor out = new_cpu_tensor({rows, size}, ScalarType::Float);
  const int32_t* in = words.const_data_ptr<int32_t>();
  float* to = out.mutable_data_ptr<float>();
  torch::stable::parallel_for(0, rows, grain(size, kPackGrain), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float one = scale.get() != nullptr ? scale.get()[i] : 1.0f;
      expand_bits(in + i * words_for(size), size, one, to + i * size);
    }
  });
  return out;
}

}  // namespace
}  // namespace bitgnn::ops

STABLE_TORCH_LIBRARY_IMPL(bitgnn, CPU, m) {
  m.impl("pack", TORCH_BOX(&bitgnn::ops::pack));
  m.impl("pack_scaled", TORCH_BOX(&bitgnn::ops::pack_scaled));
  m.impl("unpack", TORCH_BOX(&bitgnn::ops::unpack));
}

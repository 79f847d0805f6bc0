// The seven BMM variants on the CPU: one product, with operands packed as their letters say.
#include <algorithm>

#include "ops/tensor_utils.h"

namespace bitgnn::ops {
namespace {

constexpr int64_t kMultiplyGrain = 1 << 20;  // word products a thread, some 25 us
constexpr int64_t kPackGrain = 1 << 18;      // features a thread, some 25 us
// Below this many rows, packing rows again for each thread's outputs would cost more than a pass.
constexpr int64_t kRowsToPackInside = 96;

// Weights as [ceil(out / 32), words, 32]: the lanes of a vector are 32 outputs, so products need
// no horizontal sum. Missing outputs are rows of zeros. With `parities` a word holds the XOR of its
// output's words up to it.
Tensor pack_panels(const int32_t* w, int64_t out_features, int64_t words, bool parities) {
  const int64_t panels = words_for(out_features);
  Tensor result = new_cpu_tensor({panels, words, kWordBits}, ScalarType::Int);
  int32_t* to = result.mutable_data_ptr<int32_t>();
  torch::stable::parallel_for(
      0, panels, grain(words * kWordBits, kMultiplyGrain), [&](int64_t begin, int64_t end) {
        for (int64_t p = begin; p < end; ++p) {
          int32_t* panel = to + p * words * kWordBits;
          const int64_t lanes = std::min(kWordBits, out_features - p * kWordBits);
          if (lanes < kWordBits) std::fill_n(panel, words * kWordBits, 0);
          for (int64_t l = 0; l < lanes; ++l) {
            const int32_t* from = w + (p * kWordBits + l) * words;
            for (int64_t w0 = 0; w0 < words; ++w0) panel[w0 * kWordBits + l] = from[w0];
          }
          if (!parities) continue;
          for (int64_t k = kWordBits; k < words * kWordBits; ++k) panel[k] ^= panel[k - kWordBits];
        }
      });
  return result;
}

// An operand as bits: given so, or packed here from floats with its row scale on demand.
struct Bits {
  Tensor words;
  OptionalTensor scale;
};

Bits binarise(const Tensor& t, const char* op, const char* name, bool scale,
              const FloatVector& threshold, const FloatVector& gain) {
  const Tensor rows = float_rows(t, op, name);
  Bits result{new_cpu_tensor({rows.size(0), words_for(rows.size(1))}, ScalarType::Int), {}};
  cpu::PackArgs args = pack_args(rows, threshold, gain, op);
  args.words = result.words.mutable_data_ptr<int32_t>();
  if (scale) {
    result.scale = new_cpu_tensor({rows.size(0)}, ScalarType::Float);
    args.scale = result.scale->mutable_data_ptr<float>();
  }
  const auto& table = cpu::kernels();
  torch::stable::parallel_for(0, rows.size(0), grain(rows.size(1), kPackGrain),
                              [&](int64_t begin, int64_t end) { table.pack(args, begin, end); });
  return result;
}

// What a variant asks of the product.
struct Request {
  const char* op;
  int64_t size;
  OptionalTensor x_scale, w_scale, bias, threshold, flip;
  bool integer = false;
  bool bits = false;
};

void run(const cpu::BmmArgs& args, int64_t rows) {
  const auto& table = cpu::kernels();
  const int64_t panels = words_for(args.out_features);
  const int64_t row_work = words_for(args.size) * args.out_features;
  const int64_t threads = torch::stable::get_num_threads();
  if (rows >= kRowsToPackInside || panels < threads || rows >= panels) {
    torch::stable::parallel_for(
        0, rows, grain(row_work, kMultiplyGrain),
        [&](int64_t begin, int64_t end) { table.bmm(args, begin, end, 0, panels); });
  } else {
    torch::stable::parallel_for(
        0, panels, grain(words_for(args.size) * kWordBits * rows, kMultiplyGrain),
        [&](int64_t begin, int64_t end) { table.bmm(args, 0, rows, begin, end); });
  }
}

// x as words, or null with `pack` telling how its rows are made on the fly.
Tensor multiply(const Request& q, const Tensor* x, const cpu::PackArgs* pack, bool packed_scale,
                int64_t rows, const Tensor& w) {
  const int64_t out_features = w.size(0);
  if (q.integer) {
    STD_TORCH_CHECK(!q.x_scale.has_value() && !q.w_scale.has_value() && !packed_scale, q.op,
                    ": integer=True gives the bare dot product: scales must be left out");
    STD_TORCH_CHECK(!q.bias.has_value(), q.op,
                    ": integer=True gives the bare dot product: bias must be left out");
  }
  const FloatVector x_scale(q.x_scale, rows, q.op, "x_scale");
  const FloatVector w_scale(q.w_scale, out_features, q.op, "w_scale");
  const FloatVector bias(q.bias, out_features, q.op, "bias");
  const FloatVector threshold(q.threshold, out_features, q.op, "threshold");
  OptionalTensor flip;
  if (q.flip.has_value()) {
    check_cpu(*q.flip, q.op, "flip");
    check_dtype(*q.flip, ScalarType::Bool, q.op, "flip");
    check_dim(*q.flip, 1, q.op, "flip");
    check_size(q.flip->size(0), out_features, q.op, "entries of flip");
    const Tensor given = as_contiguous(*q.flip);
    flip = new_cpu_tensor({words_for(out_features)}, ScalarType::Int);
    int32_t* to = flip->mutable_data_ptr<int32_t>();
    std::fill_n(to, words_for(out_features), 0);
    const bool* from = given.const_data_ptr<bool>();
    for (int64_t o = 0; o < out_features; ++o)
      to[o / kWordBits] = static_cast<int32_t>(static_cast<uint32_t>(to[o / kWordBits]) |
                                               (static_cast<uint32_t>(from[o]) << (o % kWordBits)));
  }
  const int64_t words = words_for(q.size);
  const bool parities = words >= cpu::kernels().parity_words;
  const Tensor panels = pack_panels(w.const_data_ptr<int32_t>(), out_features, words, parities);

  // A positive scale in front of a comparison with zero changes nothing and is left out.
  const bool scaled = !q.bits || bias.get() != nullptr || threshold.get() != nullptr;
  cpu::BmmArgs args{};
  args.x = x != nullptr ? x->const_data_ptr<int32_t>() : nullptr;
  args.pack = pack;
  args.panels = panels.const_data_ptr<int32_t>();
  args.parities = parities;
  args.size = q.size;
  args.out_features = out_features;
  args.row_scale = scaled ? x_scale.get() : nullptr;
  args.packed_scale = packed_scale && scaled;
  args.out_scale = scaled ? w_scale.get() : nullptr;
  args.bias = bias.get();
  args.threshold = threshold.get();
  args.flip = flip.has_value() ? flip->const_data_ptr<int32_t>() : nullptr;
  Tensor out = q.bits ? new_cpu_tensor({rows, words_for(out_features)}, ScalarType::Int)
                      : new_cpu_tensor({rows, out_features},
                                       q.integer ? ScalarType::Int : ScalarType::Float);
  if (q.bits) {
    args.out_bits = out.mutable_data_ptr<int32_t>();
  } else if (q.integer) {
    args.out_int = out.mutable_data_ptr<int32_t>();
  } else {
    args.out_float = out.mutable_data_ptr<float>();
  }
  run(args, rows);
  return out;
}

Tensor multiply_bits(const Request& q, const Tensor& x_in, const Tensor& w_in) {
  const Tensor x = bit_rows(x_in, q.size, q.op, "x");
  const Tensor w = bit_rows(w_in, q.size, q.op, "w");
  return multiply(q, &x, nullptr, false, x.size(0), w);
}

// Float activations: binarised block by block inside the product, unless there are too few rows
// to keep every thread busy with rows of its own.
Tensor multiply_float(Request q, const Tensor& x_in, const Tensor& w,
                      const OptionalTensor& x_threshold_in, const OptionalTensor& x_gain_in,
                      bool scale) {
  const Tensor x = float_rows(x_in, q.op, "x");
  check_size(x.size(1), q.size, q.op, "features of x");
  const FloatVector threshold(x_threshold_in, q.size, q.op, "x_threshold");
  const FloatVector gain(x_gain_in, q.size, q.op, "x_gain");
  // A row scale is measured only where it reaches the result.
  scale = scale && (!q.bits || q.bias.has_value() || q.threshold.has_value());
  if (x.size(0) < kRowsToPackInside) {
    const Bits bits = binarise(x, q.op, "x", scale, threshold, gain);
    q.x_scale = bits.scale;
    return multiply(q, &bits.words, nullptr, false, x.size(0), w);
  }
  const cpu::PackArgs args = pack_args(x, threshold, gain, q.op);
  return multiply(q, nullptr, &args, scale, x.size(0), w);
}

Bits binarise_weights(const Tensor& w, const char* op, bool scale) {
  const FloatVector none({}, 0, op, "w");
  return binarise(w, op, "w", scale, none, none);
}

int64_t columns(const Tensor& t, const char* op, const char* name) {
  check_dim(t, 2, op, name);
  return t.size(1);
}

Tensor bmm_bbb(const Tensor& x, const Tensor& w, int64_t size, const OptionalTensor& x_scale,
               const OptionalTensor& w_scale, const OptionalTensor& bias,
               const OptionalTensor& threshold, const OptionalTensor& flip) {
  return multiply_bits({"bmm_bbb", size, x_scale, w_scale, bias, threshold, flip, false, true}, x,
                       w);
}

Tensor bmm_bbf(const Tensor& x, const Tensor& w, int64_t size, const OptionalTensor& x_scale,
               const OptionalTensor& w_scale, const OptionalTensor& bias, bool integer) {
  return multiply_bits({"bmm_bbf", size, x_scale, w_scale, bias, {}, {}, integer, false}, x, w);
}

Tensor bmm_fbb(const Tensor& x, const Tensor& w, const OptionalTensor& w_scale,
               const OptionalTensor& bias, const OptionalTensor& threshold,
               const OptionalTensor& flip, const OptionalTensor& x_threshold,
               const OptionalTensor& x_gain, bool scale) {
  const int64_t size = columns(x, "bmm_fbb", "x");
  return multiply_float(
      {"bmm_fbb", size, {}, scale ? w_scale : OptionalTensor(), bias, threshold, flip, false, true},
      x, bit_rows(w, size, "bmm_fbb", "w"), x_threshold, x_gain, scale);
}

Tensor bmm_fbf(const Tensor& x, const Tensor& w, const OptionalTensor& w_scale,
               const OptionalTensor& bias, const OptionalTensor& x_threshold,
               const OptionalTensor& x_gain, bool scale, bool integer) {
  const int64_t size = columns(x, "bmm_fbf", "x");
  return multiply_float(
      {"bmm_fbf", size, {}, scale ? w_scale : OptionalTensor(), bias, {}, {}, integer, false}, x,
      bit_rows(w, size, "bmm_fbf", "w"), x_threshold, x_gain, scale);
}

Tensor bmm_bfb(const Tensor& x, const Tensor& w, const OptionalTensor& x_scale,
               const OptionalTensor& bias, const OptionalTensor& threshold,
               const OptionalTensor& flip, bool scale) {
  const Bits bits = binarise_weights(w, "bmm_bfb", scale);
  return multiply_bits({"bmm_bfb", w.size(1), scale ? x_scale : OptionalTensor(), bits.scale, bias,
                        threshold, flip, false, true},
                       x, bits.words);
}

Tensor bmm_bff(const Tensor& x, const Tensor& w, const OptionalTensor& x_scale,
               const OptionalTensor& bias, bool scale, bool integer) {
  const Bits bits = binarise_weights(w, "bmm_bff", scale);
  return multiply_bits({"bmm_bff",
                        w.size(1),
                        scale ? x_scale : OptionalTensor(),
                        bits.scale,
                        bias,
                        {},
                        {},
                        integer,
                        false},
                       x, bits.words);
}

Tensor bmm_ffb(const Tensor& x, const Tensor& w, const OptionalTensor& bias,
               const OptionalTensor& threshold, const OptionalTensor& flip,
               const OptionalTensor& x_threshold, const OptionalTensor& x_gain, bool scale) {
  const int64_t size = columns(x, "bmm_ffb", "x");
  check_size(columns(w, "bmm_ffb", "w"), size, "bmm_ffb", "features of w");
  const Bits bits = binarise_weights(w, "bmm_ffb", scale);
  return multiply_float({"bmm_ffb", size, {}, bits.scale, bias, threshold, flip, false, true}, x,
                        bits.words, x_threshold, x_gain, scale);
}

}  // namespace
}  // namespace bitgnn::ops

STABLE_TORCH_LIBRARY_IMPL(bitgnn, CPU, m) {
  m.impl("bmm_bbb", TORCH_BOX(&bitgnn::ops::bmm_bbb));
  m.impl("bmm_bbf", TORCH_BOX(&bitgnn::ops::bmm_bbf));
  m.impl("bmm_fbb", TORCH_BOX(&bitgnn::ops::bmm_fbb));
  m.impl("bmm_fbf", TORCH_BOX(&bitgnn::ops::bmm_fbf));
  m.impl("bmm_bfb", TORCH_BOX(&bitgnn::ops::bmm_bfb));
  m.impl("bmm_bff", TORCH_BOX(&bitgnn::ops::bmm_bff));
  m.impl("bmm_ffb", TORCH_BOX(&bitgnn::ops::bmm_ffb));
}

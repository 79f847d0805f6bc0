// ADD and CONCAT on the CPU: element-wise joins of packed or float rows, bound by memory.
#include <algorithm>
#include <vector>

#include "ops/tensor_utils.h"

namespace bitgnn::ops {
namespace {

constexpr int64_t kGrain = 1 << 18;  // features a thread

void check_same_rows(const Tensor& a, const Tensor& b, const char* op) {
  STD_TORCH_CHECK(a.size(0) == b.size(0), op, ": b must have as many rows as a, ", a.size(0),
                  ", got ", b.size(0));
}

// Calls f(row, buffer) for every row, split over the threads; the buffer holds a row of floats.
template <class F>
void for_rows(int64_t rows, int64_t features, const F& f) {
  torch::stable::parallel_for(0, rows, grain(features, kGrain), [&](int64_t begin, int64_t end) {
    std::vector<float> buffer(static_cast<size_t>(features));
    for (int64_t i = begin; i < end; ++i) f(i, buffer.data());
  });
}

// Packs a row of floats as bits value >= threshold.
void pack_row(const float* row, int64_t size, const FloatVector& threshold, int32_t* out) {
  cpu::PackArgs args{};
  args.x = row;
  args.type = FloatType::kFloat32;
  args.row_stride = args.cols = size;
  args.threshold = threshold.get();
  args.words = out;
  cpu::kernels().pack(args, 0, 1);
}

struct BitPair {
  Tensor a, b;
  FloatVector a_scale, b_scale;
  const int32_t *a_words, *b_words;

  BitPair(const Tensor& a_in, const Tensor& b_in, int64_t a_size, int64_t b_size,
          const OptionalTensor& a_scale_in, const OptionalTensor& b_scale_in, const char* op)
      : a(bit_rows(a_in, a_size, op, "a")),
        b(bit_rows(b_in, b_size, op, "b")),
        a_scale(a_scale_in, a.size(0), op, "a_scale"),
        b_scale(b_scale_in, b.size(0), op, "b_scale"),
        a_words(a.const_data_ptr<int32_t>()),
        b_words(b.const_data_ptr<int32_t>()) {
    check_same_rows(a, b, op);
  }
  float a_value(int64_t row) const { return a_scale.get() != nullptr ? a_scale.get()[row] : 1.0f; }
  float b_value(int64_t row) const { return b_scale.get() != nullptr ? b_scale.get()[row] : 1.0f; }
};

// out = the sum of both rows' values.
void add_values(const BitPair& p, int64_t row, int64_t size, float* out) {
  const int64_t words = words_for(size);
  expand_bits(p.a_words + row * words, size, p.a_value(row), out);
  for (int64_t w = 0; w < words; ++w) {
    const int64_t first = w * kWordBits, count = std::min(kWordBits, size - first);
    float other[kWordBits];
    expand_bits(p.b_words + row * words + w, count, p.b_value(row), other);
    for (int64_t l = 0; l < count; ++l) out[first + l] += other[l];
  }
}

Tensor add_bbb(const Tensor& a, const Tensor& b, int64_t size, const OptionalTensor& a_scale,
               const OptionalTensor& b_scale, const OptionalTensor& threshold_in) {
  const BitPair p(a, b, size, size, a_scale, b_scale, "add_bbb");
  const FloatVector threshold(threshold_in, size, "add_bbb", "threshold");
  const int64_t rows = p.a.size(0), words = words_for(size);
  Tensor out = new_cpu_tensor({rows, words}, ScalarType::Int);
  int32_t* to = out.mutable_data_ptr<int32_t>();
  const bool plain = !a_scale.has_value() && !b_scale.has_value() && !threshold_in.has_value();
  for_rows(rows, size, [&](int64_t i, float* buffer) {
    const int32_t *x = p.a_words + i * words, *y = p.b_words + i * words;
    if (plain) {  // x + y >= 0 unless both are -1
      for (int64_t w = 0; w < words; ++w) to[i * words + w] = x[w] | y[w];
      return;
    }
    add_values(p, i, size, buffer);
    pack_row(buffer, size, threshold, to + i * words);
  });
  return out;
}

Tensor add_bbf(const Tensor& a, const Tensor& b, int64_t size, const OptionalTensor& a_scale,
               const OptionalTensor& b_scale) {
  const BitPair p(a, b, size, size, a_scale, b_scale, "add_bbf");
  const int64_t rows = p.a.size(0);
  Tensor out = new_cpu_tensor({rows, size}, ScalarType::Float);
  float* to = out.mutable_data_ptr<float>();
  for_rows(rows, size, [&](int64_t i, float*) { add_values(p, i, size, to + i * size); });
  return out;
}

Tensor float32_rows(const Tensor& t, const char* op, const char* name) {
  check_cpu(t, op, name);
  check_dtype(t, ScalarType::Float, op, name);
  check_dim(t, 2, op, name);
  return as_contiguous(t);
}

Tensor add_ffb(const Tensor& a_in, const Tensor& b_in, const OptionalTensor& threshold_in) {
  const char* op = "add_ffb";
  const Tensor a = float32_rows(a_in, op, "a"), b = float32_rows(b_in, op, "b");
  check_same_rows(a, b, op);
  const int64_t rows = a.size(0), size = a.size(1), words = words_for(size);
  check_size(b.size(1), size, op, "features of b");
  const FloatVector threshold(threshold_in, size, op, "threshold");
  Tensor out = new_cpu_tensor({rows, words}, ScalarType::Int);
  int32_t* to = out.mutable_data_ptr<int32_t>();
  const float *x = a.const_data_ptr<float>(), *y = b.const_data_ptr<float>();
  for_rows(rows, size, [&](int64_t i, float* buffer) {
    for (int64_t k = 0; k < size; ++k) buffer[k] = x[i * size + k] + y[i * size + k];
    pack_row(buffer, size, threshold, to + i * words);
  });
  return out;
}

// Appends b's bits behind a's: each of b's words is shifted over two words of the result.
Tensor concat_bbb(const Tensor& a, const Tensor& b, int64_t a_size, int64_t b_size) {
  const BitPair p(a, b, a_size, b_size, {}, {}, "concat_bbb");
  const int64_t rows = p.a.size(0), words = words_for(a_size + b_size);
  const int64_t a_words = words_for(a_size), b_words = words_for(b_size);
  const int64_t first = a_size / kWordBits, shift = a_size % kWordBits;
  Tensor out = new_cpu_tensor({rows, words}, ScalarType::Int);
  int32_t* to = out.mutable_data_ptr<int32_t>();
  for_rows(rows, a_size + b_size, [&](int64_t i, float*) {
    int32_t* row = to + i * words;
    std::copy_n(p.a_words + i * a_words, a_words, row);
    std::fill(row + a_words, row + words, 0);
    for (int64_t w = 0; w < b_words; ++w) {
      const uint64_t bits = static_cast<uint64_t>(static_cast<uint32_t>(p.b_words[i * b_words + w]))
                            << shift;
      row[first + w] |= static_cast<int32_t>(static_cast<uint32_t>(bits));
      if (first + w + 1 < words)
        row[first + w + 1] |= static_cast<int32_t>(static_cast<uint32_t>(bits >> kWordBits));
    }
  });
  return out;
}

Tensor concat_bbf(const Tensor& a, const Tensor& b, int64_t a_size, int64_t b_size,
                  const OptionalTensor& a_scale, const OptionalTensor& b_scale) {
  const BitPair p(a, b, a_size, b_size, a_scale, b_scale, "concat_bbf");
  const int64_t rows = p.a.size(0), size = a_size + b_size;
  Tensor out = new_cpu_tensor({rows, size}, ScalarType::Float);
  float* to = out.mutable_data_ptr<float>();
  for_rows(rows, size, [&](int64_t i, float*) {
    float* row = to + i * size;
    expand_bits(p.a_words + i * words_for(a_size), a_size, p.a_value(i), row);
    expand_bits(p.b_words + i * words_for(b_size), b_size, p.b_value(i), row + a_size);
  });
  return out;
}

Tensor concat_ffb(const Tensor& a_in, const Tensor& b_in, const OptionalTensor& threshold_in) {
  const char* op = "concat_ffb";
  const Tensor a = float32_rows(a_in, op, "a"), b = float32_rows(b_in, op, "b");
  check_same_rows(a, b, op);
  const int64_t rows = a.size(0), a_size = a.size(1), b_size = b.size(1);
  const int64_t size = a_size + b_size, words = words_for(size);
  const FloatVector threshold(threshold_in, size, op, "threshold");
  Tensor out = new_cpu_tensor({rows, words}, ScalarType::Int);
  int32_t* to = out.mutable_data_ptr<int32_t>();
  const float *x = a.const_data_ptr<float>(), *y = b.const_data_ptr<float>();
  for_rows(rows, size, [&](int64_t i, float* buffer) {
    std::copy_n(x + i * a_size, a_size, buffer);
    std::copy_n(y + i * b_size, b_size, buffer + a_size);
    pack_row(buffer, size, threshold, to + i * words);
  });
  return out;
}

}  // namespace
}  // namespace bitgnn::ops

STABLE_TORCH_LIBRARY_IMPL(bitgnn, CPU, m) {
  m.impl("add_bbb", TORCH_BOX(&bitgnn::ops::add_bbb));
  m.impl("add_bbf", TORCH_BOX(&bitgnn::ops::add_bbf));
  m.impl("add_ffb", TORCH_BOX(&bitgnn::ops::add_ffb));
  m.impl("concat_bbb", TORCH_BOX(&bitgnn::ops::concat_bbb));
  m.impl("concat_bbf", TORCH_BOX(&bitgnn::ops::concat_bbf));
  m.impl("concat_ffb", TORCH_BOX(&bitgnn::ops::concat_ffb));
}

// Attention on bits for heads of any size, directly by its definition (TernaryAttentionArgs): one
// block per query, an exact histogram of its scores, float64 sums in the order of t.
#pragma once

#include "attention/arguments.h"
#include "attention/softmax_table.h"
#include "core/cuda/dependent_launch.cuh"
#include "ternary/cuda/outputs.cuh"

namespace bitgnn::cuda::attention {

constexpr int kPlainThreads = 256;
constexpr int kPlainKeys = 4096;  // keys whose bits are held at a time

struct PlainAttentionLayout {
  int64_t table;      // doubles: T
  int64_t histogram;  // of dot + size
  int64_t sums;       // of the features
  int64_t query;      // its words
  int64_t bits;
  int64_t total;

  explicit constexpr __host__ __device__ PlainAttentionLayout(int64_t size)
      : table(0),
        histogram(table + (2 * size + 1) * 8),
        sums(histogram + (2 * size + 1) * 4),
        query(sums + size * 4),
        bits(query + 2 * words_for(size) * 4),
        total(bits + kPlainKeys / 8) {}
};

template <class T>
__global__ void __launch_bounds__(kPlainThreads)
    plain_attention_kernel(const __grid_constant__ TernaryAttentionArgs a) {
  extern __shared__ double plain_shared[];
  const PlainAttentionLayout layout(a.size);
  auto* bytes = reinterpret_cast<unsigned char*>(plain_shared);
  auto* table = reinterpret_cast<double*>(bytes + layout.table);
  auto* histogram = reinterpret_cast<int32_t*>(bytes + layout.histogram);
  auto* sums = reinterpret_cast<int32_t*>(bytes + layout.sums);
  auto* query = reinterpret_cast<uint32_t*>(bytes + layout.query);
  auto* bits = reinterpret_cast<uint32_t*>(bytes + layout.bits);
  __shared__ int least_set;  // the smallest dot + size whose bit is set
  let_next_start();
  wait_for_previous();

  const int thread = static_cast<int>(threadIdx.x);
  const int64_t i = blockIdx.x % a.queries, head = blockIdx.x / a.queries;
  const int64_t b = head / a.heads, h = head % a.heads;
  const int64_t kv = h / (a.heads / a.kv_heads);
  const auto words = static_cast<int>(words_for(a.size));
  const auto entries = static_cast<int>(a.table_entries());
  const int32_t* q =
      a.q.words + b * a.q.batch_strides[0] + h * a.q.batch_strides[1] + i * a.q.row_stride;
  const int32_t* k = a.k.words + b * a.k.batch_strides[0] + kv * a.k.batch_strides[1];
  const int32_t* v = a.v.words + b * a.v.batch_strides[0] + kv * a.v.batch_strides[1];
  const int32_t* mask = a.mask != nullptr ? a.mask + b * words_for(a.keys) : nullptr;
  const int64_t keys = a.causal ? min(a.keys, i + 1 + a.keys - a.queries) : a.keys;

  for (int t = thread; t < entries; t += kPlainThreads) {
    table[t] = exact_exp(-(a.scale * static_cast<double>(t)));
    histogram[t] = 0;
  }
  for (int e = thread; e < a.size; e += kPlainThreads) sums[e] = 0;
  for (int w = thread; w < 2 * words; w += kPlainThreads) query[w] = static_cast<uint32_t>(q[w]);
  __syncthreads();

  // dot + size of a key, or -1 if it may not be attended to.
  const auto place = [&](int64_t j) {
    if (j >= keys || (mask != nullptr && (mask[j / 32] >> (j % 32) & 1) == 0)) return -1;
    const int32_t* row = k + j * a.k.row_stride;
    auto dot = static_cast<int>(a.size);
    for (int w = 0; w < words; ++w) {
      const auto pos = static_cast<uint32_t>(row[w]);
      const auto neg = static_cast<uint32_t>(row[words + w]);
      const uint32_t p = query[w], n = query[words + w];
      dot += __popc((p & pos) | (n & neg)) - __popc((p & neg) | (n & pos));
    }
    return dot;
  };
  for (int64_t j = thread; j < keys; j += kPlainThreads) {
    const int at = place(j);
    if (at >= 0) atomicAdd(histogram + at, 1);
  }
  __syncthreads();
  if (thread == 0) {
    int most = entries - 1;
    while (most >= 0 && histogram[most] == 0) --most;
    double sum = 0.0;
    for (int t = 0; t < entries; ++t) {
      if (t > 0 && table[t - 1] < table[t]) table[t] = table[t - 1];
      if (t <= most) sum = sum + table[t] * histogram[most - t];
    }
    const double threshold = (0.5 * a.bool_scale) * sum;
    int reached = 0;
    while (reached < entries && table[reached] >= threshold) ++reached;
    least_set = most < 0 ? entries : max(most - reached + 1, 0);
  }
  __syncthreads();

  const int64_t value_words = words_for(a.keys);
  for (int64_t first = 0; first < keys; first += kPlainKeys) {
    const auto count = static_cast<int>(min(int64_t{kPlainKeys}, keys - first));
    const int rounded = (count + kWarp - 1) / kWarp * kWarp;
    for (int j = thread; j < rounded; j += kPlainThreads) {
      const unsigned set = __ballot_sync(kFullWarp, place(first + j) >= least_set);
      if (thread % kWarp == 0) bits[j / kWarp] = set;
    }
    __syncthreads();
    for (int e = thread; e < a.size; e += kPlainThreads) {
      const int32_t* row = v + e * a.v.row_stride + first / 32;
      int sum = sums[e];
      for (int w = 0; w < rounded / 32; ++w)
        sum += __popc(bits[w] & static_cast<uint32_t>(row[w])) -
               __popc(bits[w] & static_cast<uint32_t>(row[value_words + w]));
      sums[e] = sum;
    }
    __syncthreads();
  }
  T* out =
      static_cast<T*>(a.out) + b * a.out_strides[0] + h * a.out_strides[1] + i * a.out_strides[2];
  for (int e = thread; e < a.size; e += kPlainThreads)
    out[e] = ternary::ternary_value<T>(a.out_scale, sums[e]);
}

}  // namespace bitgnn::cuda::attention

// Attention on bits, four queries at a time: integer products with all keys, kept in the core's
// cache; an exact histogram and one integer limit per query; then the product of the resulting bits
// with the values.
// Included once per instruction set; BITGNN_ISA names the namespace of its primitives.

#include "ternary/cpu/matmul_kernel.h"

namespace bitgnn::cpu::BITGNN_ISA {
namespace {

constexpr int32_t kHidden = -(1 << 30);  // replaces the product with a masked key

// Scratch memory of one thread.
struct AttentionBuffers {
  int64_t words, distances;
  std::vector<int32_t> products;   // [kTernaryRows, words * 32]
  std::vector<int32_t> allowed;    // [kTernaryRows, words]
  std::vector<int32_t> attended;   // likewise
  std::vector<int32_t> histogram;  // [kTernaryRows, kHistograms, distances + 1]

  // Adjacent keys often have the same distance; rotating histograms avoids dependent increments.
  static constexpr int64_t kHistograms = 4;

  explicit AttentionBuffers(const TernaryAttentionArgs& a)
      : words(words_for(a.keys)),
        distances(a.table_entries()),
        products(static_cast<size_t>(kTernaryRows * words * kWordBits)),
        allowed(static_cast<size_t>(kTernaryRows * words)),
        attended(static_cast<size_t>(kTernaryRows * words)),
        histogram(static_cast<size_t>(kTernaryRows * kHistograms * (distances + 1))) {}

  int32_t* products_of(int64_t r) { return products.data() + r * words * kWordBits; }
  int32_t* allowed_of(int64_t r) { return allowed.data() + r * words; }
  int32_t* attended_of(int64_t r) { return attended.data() + r * words; }
  int32_t* histogram_of(int64_t r) { return histogram.data() + r * kHistograms * (distances + 1); }
};

// Writes the mask of keys that a query may attend to; returns the number of words up to the last
// nonzero one.
inline int64_t allowed_keys(const TernaryAttentionArgs& a, int64_t batch, int64_t query,
                            int32_t* to) {
  const int64_t words = words_for(a.keys);
  int64_t end = a.causal ? query + 1 + a.keys - a.queries : a.keys;
  end = std::max<int64_t>(0, std::min(end, a.keys));
  int64_t last = 0;
  for (int64_t w = 0; w < words; ++w) {
    const int64_t count = end - w * kWordBits;
    uint32_t bits = count >= kWordBits ? 0xffffffffu : count > 0 ? (1u << count) - 1u : 0u;
    if (a.mask != nullptr) bits &= static_cast<uint32_t>(a.mask[batch * words + w]);
    to[w] = static_cast<int32_t>(bits);
    if (bits != 0) last = w + 1;
  }
  return last;
}

// Sets the products of keys that are not allowed to kHidden.
inline void hide_keys(const int32_t* allowed, int64_t words, int32_t* products) {
  for (int64_t w = 0; w < words; ++w) {
    const auto bits = static_cast<uint32_t>(allowed[w]);
    if (bits == 0xffffffffu) continue;
    for (int64_t l = 0; l < kWordBits; ++l)
      if ((bits >> l & 1u) == 0) products[w * kWordBits + l] = kHidden;
  }
}

// Turns products into distances from the highest one, at most `most`, which hidden ones get.
// Returns false if all are hidden.
inline bool to_distances(int32_t* products, int64_t count, int32_t most) {
  int32_t highest = kHidden;
  for (int64_t j = 0; j < count; ++j) highest = std::max(highest, products[j]);
  if (highest == kHidden) return false;
  for (int64_t j = 0; j < count; ++j) products[j] = std::min(highest - products[j], most);
  return true;
}

inline void count_distances(const int32_t* distances, int64_t count, int64_t entries,
                            int32_t* histogram) {
  constexpr int64_t kTurns = AttentionBuffers::kHistograms;
  std::memset(histogram, 0, static_cast<size_t>(kTurns * entries) * sizeof(int32_t));
  for (int64_t j = 0; j < count; j += kTurns)  // count is a multiple of 32
    for (int64_t h = 0; h < kTurns; ++h) ++histogram[h * entries + distances[j + h]];
  for (int64_t h = 1; h < kTurns; ++h)
    for (int64_t t = 0; t < entries; ++t) histogram[t] += histogram[h * entries + t];
}

// The largest distance whose power reaches the limit, or -1 if none does; table is non-increasing.
inline int64_t farthest(const double* table, int64_t entries, double limit) {
  int64_t t = 0;
  while (t < entries && table[t] >= limit) ++t;
  return t - 1;
}

// Sets the bits of distances up to `limit`.
inline void attend_within(const int32_t* distances, int64_t words, int64_t limit, int32_t* to) {
  const Lanes most = broadcast_lanes(static_cast<float>(limit));
  for (int64_t w = 0; w < words; ++w)
    to[w] = static_cast<int32_t>(ge_mask(most, to_lanes(load_ints(distances + w * kWordBits))));
}

// Attends R queries, starting at `query`, of head `head`, which is numbered across all batches.
template <int R>
void attend_tile(const TernaryAttentionArgs& a, const int32_t* panels, const double* table,
                 int64_t head, int64_t query, AttentionBuffers& buffers) {
  const int64_t b = head / a.heads, h = head % a.heads, shared = h / (a.heads / a.kv_heads);
  const int64_t words = words_for(a.size), entries = a.table_entries();
  const int32_t* q = row_words(a.q, b, h, query);
  const int32_t* keys = panels + (b * a.kv_heads + shared) * buffers.words * words * 2 * kWordBits;
  int64_t reach = 0;  // words of keys up to the last that any query may attend to
  for (int r = 0; r < R; ++r)
    reach = std::max(reach, allowed_keys(a, b, query + r, buffers.allowed_of(r)));
  for (int64_t w = 0; w < reach; ++w)
    pair_dots<R>(q, q + words, a.q.row_stride, keys + w * words * 2 * kWordBits, words,
                 [&](int r, const IntLanes& dot) {
                   store_ints(buffers.products_of(r) + w * kWordBits, dot);
                 });
  bool any[R];
  double sums[R] = {};
  for (int r = 0; r < R; ++r) {
    int32_t* products = buffers.products_of(r);
    hide_keys(buffers.allowed_of(r), reach, products);
    any[r] = to_distances(products, reach * kWordBits, static_cast<int32_t>(entries));
    if (any[r]) count_distances(products, reach * kWordBits, entries + 1, buffers.histogram_of(r));
  }
  for (int64_t t = 0; t < entries; ++t)  // R independent sums hide the latency of each addition
    for (int r = 0; r < R; ++r)
      if (any[r]) sums[r] += table[t] * static_cast<double>(buffers.histogram_of(r)[t]);
  for (int r = 0; r < R; ++r) {
    const double limit = (0.5 * a.bool_scale) * sums[r];
    const int64_t far = any[r] ? farthest(table, entries, limit) : -1;
    if (far < 0) {
      std::fill(buffers.attended_of(r), buffers.attended_of(r) + reach, 0);
    } else {
      attend_within(buffers.products_of(r), reach, far, buffers.attended_of(r));
    }
  }
  const Lanes scale = broadcast_lanes(a.out_scale);
  for (int64_t first = 0; first < a.size; first += kWordBits) {
    const int64_t count = std::min(kWordBits, a.size - first);
    alignas(64) int32_t dots[R][kWordBits] = {};
    boolean_dots<R>(buffers.attended_of(0), buffers.words, row_words(a.v, b, shared, first),
                    a.v.row_stride, buffers.words, count, reach, dots);
    for (int r = 0; r < R; ++r) {
      const int64_t at =
          b * a.out_strides[0] + h * a.out_strides[1] + (query + r) * a.out_strides[2] + first;
      store_values(a.out, a.type, at, mul(scale, to_lanes(load_ints(dots[r]))), count);
    }
  }
}

void attend_ternary(const TernaryAttentionArgs& a, const int32_t* panels, const double* table,
                    int64_t begin, int64_t end) {
  AttentionBuffers buffers(a);
  const int64_t tiles = (a.queries + kTernaryRows - 1) / kTernaryRows;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t head = i / tiles, query = i % tiles * kTernaryRows;
    if (query + kTernaryRows <= a.queries) {
      attend_tile<kTernaryRows>(a, panels, table, head, query, buffers);
    } else {
      for (int64_t n = query; n < a.queries; ++n)
        attend_tile<1>(a, panels, table, head, n, buffers);
    }
  }
}

}  // namespace
}  // namespace bitgnn::cpu::BITGNN_ISA

// Binary matrix product: dot = K - 2 popcount(a ^ b), 32 outputs in the lanes, fused epilogue.
// Bound by vector instructions: XOR, popcount and add, three per 512 bits of products.
//
// Long rows need five instructions per two words instead of six. Both operands are then running
// parities: word w holds v[0] ^ ... ^ v[w]. One XOR of them gives the parity p[w] of the
// differences a ^ b over words 0..w, which is the low bit of an implicit vertical counter: adding
// words w + 1 and w + 2 carries where p falls, (p[w] & ~p[w + 1]) | (p[w + 1] & ~p[w + 2]). Two
// words thus share one popcount and one add: popcount(a ^ b) = 2 sum popcount(carries) +
// popcount(p[last]).
// Included once per capability, with BITGNN_ISA naming the namespace of its primitives.

#include <algorithm>
#include <memory>

#include "bmm/cpu/listed_words_kernel.h"
#include "capabilities/cpu/kernel_table.h"
#include "pack/cpu/pack_kernel.h"
#include "pairs/cpu/narrow_rows_kernel.h"

namespace bitgnn::cpu::BITGNN_ISA {
namespace {

struct alignas(64) CacheLine {
  int32_t words[16];
};

constexpr int64_t kRowBlock = 32;  // rows whose words fit in L1 next to a weight panel
constexpr int64_t kMostPackRows = 512;
constexpr int64_t kPackBlockWords = 1 << 16;
constexpr int64_t kFarBytes = int64_t{12} << 20;  // more than a core's share of the caches
constexpr int64_t kFarOutputs = 128;

inline Lanes load_some(const float* p, int64_t count) {
  return count >= kWordBits ? load_lanes(p) : load_lanes(p, count);
}

inline void store_some(float* p, const Lanes& v, int64_t count) {
  count >= kWordBits ? store_lanes(p, v) : store_lanes(p, v, count);
}

// Epilogue of one panel of 32 outputs, loaded once for all rows of a tile.
struct Epilogue {
  const BmmArgs& a;
  int64_t panel, first, count;
  uint32_t valid, flip;
  Lanes out_scale, bias, threshold;

  Epilogue(const BmmArgs& args, int64_t panel_index)
      : a(args),
        panel(panel_index),
        first(panel * kWordBits),
        count(a.out_features - first < kWordBits ? a.out_features - first : kWordBits),
        valid(count < kWordBits ? (1u << count) - 1u : 0xffffffffu),
        flip(a.flip_bits != nullptr ? static_cast<uint32_t>(a.flip_bits[panel]) : 0u),
        out_scale(vector_or(a.out_scale, 1.0f)),
        bias(vector_or(a.bias, 0.0f)),
        threshold(vector_or(a.threshold, 0.0f)) {}

  Lanes vector_or(const float* p, float value) const {
    return p != nullptr ? load_some(p + first, count) : broadcast_lanes(value);
  }

  void operator()(int64_t row, const float* row_scale, const IntLanes& dot) const {
    if (a.out_narrow != nullptr) return put_narrow(*a.out_narrow, row, first, dot, count);
    if (a.out_int != nullptr) {
      alignas(64) int32_t buffer[kWordBits];
      store_ints(buffer, dot);
      std::memcpy(a.out_int + row * a.out_features + first, buffer,
                  static_cast<size_t>(count) * sizeof(int32_t));
      return;
    }
    Lanes v = to_lanes(dot);
    if (row_scale != nullptr) {
      v = mul(mul(broadcast_lanes(*row_scale), out_scale), v);
    } else if (a.out_scale != nullptr) {
      v = mul(out_scale, v);
    }
    if (a.bias != nullptr) v = add(v, bias);
    if (a.addend != nullptr) v = add(v, load_some(a.addend + row * a.out_features + first, count));
    if (a.out_float != nullptr) {
      store_some(a.out_float + row * a.out_features + first, v, count);
    } else {
      a.out_bits[row * words_for(a.out_features) + panel] =
          static_cast<int32_t>((ge_mask(v, threshold) ^ flip) & valid);
    }
  }
};

template <bool kParities, int R, int P>
void multiply_tile(const BmmArgs& a, const int32_t* x, int64_t words, int64_t row, int64_t panel,
                   const float* row_scale, const Epilogue* epilogues) {
  const int32_t* panels = a.panels + panel * words * kWordBits;
  const auto emit = [&](int r, int p, const IntLanes& dot) {
    epilogues[p](row + r, row_scale != nullptr ? row_scale + r : nullptr, dot);
  };
  if constexpr (kParities) {
    parity_dots<R, P>(x, words, panels, words, a.size, emit);
  } else {
    xor_dots<R, P>(x, words, panels, words, a.size, emit);
  }
}

// Prefetches a memory range during other work, a few cache lines per step.
class Ahead {
 public:
  Ahead() = default;
  Ahead(const void* begin, const void* end)
      : next_(static_cast<const char*>(begin)), end_(static_cast<const char*>(end)) {}

  // Spreads the remaining lines over `steps` steps.
  void spread(int64_t steps) {
    const int64_t lines = (end_ - next_ + kLineBytes - 1) / kLineBytes;
    lines_ = steps > 0 ? (lines + steps - 1) / steps : 0;
  }
  void step() {
    for (int64_t i = 0; i < lines_ && next_ < end_; ++i, next_ += kLineBytes) prefetch(next_);
  }

 private:
  static constexpr int64_t kLineBytes = sizeof(CacheLine);

  const char* next_ = nullptr;
  const char* end_ = nullptr;
  int64_t lines_ = 0;
};

template <bool kParities, int P>
void multiply_rows(const BmmArgs& a, const int32_t* x, int64_t words, int64_t row, int64_t rows,
                   int64_t panel, const float* row_scale, Ahead& ahead) {
  const Epilogue epilogues[2] = {Epilogue(a, panel), Epilogue(a, panel + P - 1)};
  const auto scale_at = [&](int64_t r) { return row_scale != nullptr ? row_scale + r : nullptr; };
  int64_t r = 0;
  for (; r + kTileRows <= rows; r += kTileRows) {
    ahead.step();
    multiply_tile<kParities, kTileRows, P>(a, x + r * words, words, row + r, panel, scale_at(r),
                                           epilogues);
  }
  for (; r < rows; ++r)
    multiply_tile<kParities, 1, P>(a, x + r * words, words, row + r, panel, scale_at(r), epilogues);
}

// Multiplies up to kRowBlock packed rows; `parities` has room for them.
template <bool kParities>
void multiply_block(const BmmArgs& a, const int32_t* x, int64_t words, int64_t row, int64_t rows,
                    const float* row_scale, int64_t panel_begin, int64_t panel_end,
                    ListedProducts& listed, int32_t* parities, Ahead& ahead) {
  if (a.few_panel != nullptr) return multiply_few(a, x, words, row, rows, row_scale);
  if (a.out_narrow != nullptr && panel_begin == 0) put_factors(a, row, rows, row_scale);
  if constexpr (kParities) {
    if (listed.pays(x, rows)) {
      return listed.multiply(x, rows, [&](int64_t r, int64_t panel, const IntLanes& dots) {
        Epilogue(a, panel)(row + r, row_scale != nullptr ? row_scale + r : nullptr, dots);
      });
    }
    for (int64_t r = 0; r < rows; ++r) running_parities(x + r * words, words, parities + r * words);
    x = parities;
  }
  ahead.spread(rows / kTileRows * ((panel_end - panel_begin) / kTilePanels));
  int64_t panel = panel_begin;
  for (; panel + kTilePanels <= panel_end; panel += kTilePanels)
    multiply_rows<kParities, kTilePanels>(a, x, words, row, rows, panel, row_scale, ahead);
  if (panel < panel_end)
    multiply_rows<kParities, 1>(a, x, words, row, rows, panel, row_scale, ahead);
}

// True if the rows are contiguous, exceed the core's caches, and the product is long enough to hide
// prefetching of the next block.
inline bool are_far(const BmmArgs& a, int64_t rows) {
  return a.pack != nullptr && a.few_panel == nullptr && a.out_features >= kFarOutputs &&
         a.pack->row_stride == a.pack->cols &&
         rows * a.pack->cols * element_bytes(a.pack->type) >= kFarBytes;
}

// Rows packed at a time without prefetching: many, since reading pauses while they are multiplied,
// but few enough to stay in the core's own cache.
inline int64_t pack_block_rows(int64_t words) {
  const int64_t fitting = kPackBlockWords / (words > 0 ? words : 1) / kRowBlock * kRowBlock;
  return fitting < kRowBlock ? kRowBlock : fitting < kMostPackRows ? fitting : kMostPackRows;
}

// For few rows: reads the weights once, output by output, which is cheaper than building panels.
void multiply_in_place(const BmmArgs& a, int64_t begin, int64_t end, int64_t panel_begin,
                       int64_t panel_end) {
  constexpr int kOutputs = 4;
  const int64_t words = words_for(a.size);
  for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
    const Epilogue epilogue(a, panel);
    for (int64_t row = begin; row < end; ++row) {
      alignas(64) int32_t dots[kWordBits] = {};
      const int32_t* const x = a.x + row * words;
      const int32_t* w = a.w + epilogue.first * words;
      int64_t o = 0;
      for (; o + kOutputs <= epilogue.count; o += kOutputs, w += kOutputs * words)
        distances<kOutputs>(x, w, words, dots + o);
      for (; o < epilogue.count; ++o, w += words) distances<1>(x, w, words, dots + o);
      for (int32_t& dot : dots) dot = static_cast<int32_t>(a.size) - 2 * dot;
      epilogue(row, a.row_scale != nullptr ? a.row_scale + row : nullptr, load_ints(dots));
    }
  }
}

template <bool kParities>
void multiply(const BmmArgs& a, int64_t begin, int64_t end, int64_t panel_begin,
              int64_t panel_end) {
  const int64_t words = words_for(a.size);
  bool far = are_far(a, end - begin);
  const int64_t most_rows = a.pack != nullptr ? pack_block_rows(words) : end - begin;
  const auto new_rows = [words](bool wanted, int64_t rows) {
    return wanted ? new CacheLine[static_cast<size_t>(rows * words) / 16 + 1] : nullptr;
  };
  const std::unique_ptr<CacheLine[]> packed_lines(new_rows(a.pack != nullptr, most_rows));
  const std::unique_ptr<CacheLine[]> parity_lines(new_rows(kParities, kRowBlock));
  int32_t* const packed = reinterpret_cast<int32_t*>(packed_lines.get());
  int32_t* const parities = reinterpret_cast<int32_t*>(parity_lines.get());
  float packed_scale[kMostPackRows];
  ListedProducts listed(a, words, panel_begin, panel_end);
  for (int64_t first = begin, last = begin; first < end; first = last) {
    last = std::min(end, first + (far ? kRowBlock : most_rows));
    if (a.pack != nullptr) {
      PackArgs pack_block = *a.pack;
      pack_block.words = packed;
      pack_block.scale = a.packed_scale ? packed_scale : nullptr;
      pack_block.x = advance(pack_block, first);
      pack(pack_block, 0, last - first);
    }
    for (int64_t row = first; row < last; row += kRowBlock) {
      const int64_t rows = last - row < kRowBlock ? last - row : kRowBlock;
      const int32_t* x = a.pack != nullptr ? packed + (row - first) * words : a.x + row * words;
      const float* row_scale = a.row_scale != nullptr ? a.row_scale + row : nullptr;
      if (a.pack != nullptr) row_scale = a.packed_scale ? packed_scale + (row - first) : nullptr;
      Ahead ahead;
      if (far) ahead = Ahead(advance(*a.pack, last), advance(*a.pack, std::min(last + rows, end)));
      multiply_block<kParities>(a, x, words, row, rows, row_scale, panel_begin, panel_end, listed,
                                parities, ahead);
    }
    far &= !listed.began();  // products of few words leave no time to prefetch
  }
}

void pack_panels(const int32_t* w, int64_t out_features, int64_t words, bool parities, int32_t* to,
                 int64_t begin, int64_t end) {
  for (int64_t p = begin; p < end; ++p) {
    int32_t* const panel = to + p * words * kWordBits;
    const int64_t lanes = std::min(kWordBits, out_features - p * kWordBits);
    transpose_lanes(w + p * kWordBits * words, lanes, words, panel);
    if (!parities) continue;
    for (int64_t k = kWordBits; k < words * kWordBits; ++k) panel[k] ^= panel[k - kWordBits];
  }
}

void bmm(const BmmArgs& a, int64_t begin, int64_t end, int64_t panel_begin, int64_t panel_end) {
  if (a.in_place) return multiply_in_place(a, begin, end, panel_begin, panel_end);
  a.parities ? multiply<true>(a, begin, end, panel_begin, panel_end)
             : multiply<false>(a, begin, end, panel_begin, panel_end);
}

}  // namespace
}  // namespace bitgnn::cpu::BITGNN_ISA

// 8-bit rows: codes of floats, bound by reading them, and products with 8-bit weights, 32 outputs
// in the lanes, bound by multiplications. Rows are quantised block by block inside a product, and a
// block stays in a core's own cache while the panels of weights pass by. Included once per
// capability after bmm/cpu/bmm_kernel.h, with BITGNN_ISA naming the namespace of its primitives.

#include <algorithm>
#include <memory>

#include "capabilities/cpu/kernel_table.h"

namespace bitgnn::cpu::BITGNN_ISA {
namespace {

constexpr int64_t kMostCodeRows = 16 * kCodeTileRows;  // of a block
constexpr int64_t kCodeBlockBytes = int64_t{1} << 17;
constexpr int64_t kMostFetchedFloats = int64_t{1} << 17;  // half of a core's own cache

// Codes of a row with those that pad it to whole steps, which weights of 0 multiply.
constexpr int64_t padded_codes(int64_t pitch) {
  return (pitch + kCodeStep - 1) / kCodeStep * kCodeStep;
}

int64_t code_panel_bytes(int64_t pitch) { return padded_codes(pitch) * kWordBits * kCodeBytes; }

// Codes of R rows side by side, `x_step` numbers and `to_step` codes from one another, with zeros
// up to the pitch.
template <int R, class T>
void quantise_side_by_side(const Int8PackArgs& a, const T* x, int64_t x_step, int8_t* to,
                           int64_t to_step) {
  int64_t k = 0;
  for (; k + kWordBits <= a.size; k += kWordBits) {
    const Lanes centre = load_lanes(a.centre + k), step = load_lanes(a.inverse_step + k);
    for (int r = 0; r < R; ++r)
      store_codes(to + r * to_step + k, mul(sub(load_values(x + r * x_step + k), centre), step));
  }
  if (k == a.size) return;
  const int64_t count = a.size - k;
  const Lanes centre = load_lanes(a.centre + k, count);
  const Lanes step = load_lanes(a.inverse_step + k, count);
  for (int r = 0; r < R; ++r) {
    alignas(64) int8_t last[kWordBits];
    store_codes(last, mul(sub(load_converted(x + r * x_step + k, count), centre), step));
    std::memcpy(to + r * to_step + k, last, static_cast<size_t>(int8_pitch(a.size) - k));
  }
}

// Writes the codes of rows [begin, end) from `to` on, each `pitch` bytes behind the last one. Each
// quarter of the rows is a separate stream, as in pack_rows.
void quantise_rows(const Int8PackArgs& a, int64_t begin, int64_t end, int64_t pitch, int8_t* to) {
  constexpr int kStreams = 4;
  const int64_t apart = (end - begin) / kStreams;
  with_type_of<float, Half, BFloat16>(a.type, [&](auto zero) {
    const auto* x = static_cast<const decltype(zero)*>(a.x) + begin * a.row_stride;
    for (int64_t i = 0; i < apart; ++i)
      quantise_side_by_side<kStreams>(a, x + i * a.row_stride, apart * a.row_stride, to + i * pitch,
                                      apart * pitch);
    for (int64_t i = kStreams * apart; i < end - begin; ++i)
      quantise_side_by_side<1>(a, x + i * a.row_stride, 0, to + i * pitch, 0);
  });
}

void pack_int8(const Int8PackArgs& a, int64_t begin, int64_t end) {
  const int64_t pitch = int8_pitch(a.size);
  quantise_rows(a, begin, end, pitch, a.codes + begin * pitch);
}

void code_panels(const int8_t* weight, int64_t out_features, int64_t pitch, char* to, int64_t begin,
                 int64_t end) {
  for (int64_t p = begin; p < end; ++p)
    make_code_panel(weight + p * kWordBits * pitch,
                    std::min(kWordBits, out_features - p * kWordBits), pitch,
                    to + p * code_panel_bytes(pitch));
}

// Epilogue of one panel of 32 outputs, loaded once for all rows of a block.
struct Int8Epilogue {
  const Int8BmmArgs& a;
  int64_t panel, first, count;
  uint32_t valid, flip;
  Lanes scale, shift, value_threshold;
  IntLanes threshold;

  Int8Epilogue(const Int8BmmArgs& args, int64_t panel_index)
      : a(args),
        panel(panel_index),
        first(panel * kWordBits),
        count(std::min(kWordBits, a.out_features - first)),
        valid(last_word_mask(count)),
        flip(a.flip_bits != nullptr ? static_cast<uint32_t>(a.flip_bits[panel]) : 0u),
        scale(vector_of(a.scale)),
        shift(vector_of(a.shift)),
        value_threshold(vector_of(a.value_threshold)) {
    alignas(64) int32_t thresholds[kWordBits] = {};
    if (a.threshold != nullptr)
      std::copy_n(a.threshold + first, count, static_cast<int32_t*>(thresholds));
    threshold = load_ints(thresholds);
  }

  Lanes vector_of(const float* p) const {
    return p != nullptr ? load_some(p + first, count) : zero_lanes();
  }

  void operator()(int64_t row, const IntLanes& dot) const {
    if (a.out_bits != nullptr && a.addend == nullptr)
      return put(row, ge_mask(dot, threshold) ^ flip);
    const int64_t at = row * a.out_features + first;
    Lanes v = to_lanes(dot);
    if (a.scale != nullptr) v = mul(scale, v);
    if (a.shift != nullptr) v = add(v, shift);
    if (a.addend != nullptr) v = add(v, load_some(a.addend + at, count));
    a.out_float != nullptr ? store_some(a.out_float + at, v, count)
                           : put(row, ge_mask(v, value_threshold));
  }

  void put(int64_t row, uint32_t bits) const {
    a.out_bits[row * words_for(a.out_features) + panel] = static_cast<int32_t>(bits & valid);
  }
};

// Multiplies rows of codes from row `first` of the results on with one panel.
void multiply_code_rows(const Int8BmmArgs& a, const CodeRows& codes, int64_t first, int64_t rows,
                        int64_t panel) {
  const Int8Epilogue epilogue(a, panel);
  const char* w = a.panels + panel * code_panel_bytes(int8_pitch(a.size));
  alignas(64) int32_t dots[kCodeTileRows * kWordBits];
  for (int64_t row = 0; row < rows; row += kCodeTileRows) {
    const int64_t count = std::min<int64_t>(kCodeTileRows, rows - row);
    codes.dots(row, count, w, dots);
    for (int64_t r = 0; r < count; ++r) epilogue(first + row + r, load_ints(dots + r * kWordBits));
  }
}

// For few rows: reads the weights once, which is cheaper than building panels.
void multiply_codes_in_place(const Int8BmmArgs& a, int64_t begin, int64_t end, int64_t panel_begin,
                             int64_t panel_end) {
  const int64_t pitch = int8_pitch(a.size);
  for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
    const Int8Epilogue epilogue(a, panel);
    for (int64_t row = begin; row < end; ++row) {
      alignas(64) int32_t dots[kWordBits] = {};
      code_dots_in_place(a.codes + row * pitch, a.weight + epilogue.first * pitch, epilogue.count,
                         pitch, dots);
      epilogue(row, load_ints(dots));
    }
  }
}

// Prefetches the addends of rows [first, last) in their order: panel by panel, they would come from
// memory in pieces of two lines.
inline void fetch_addends(const Int8BmmArgs& a, int64_t first, int64_t last) {
  constexpr int64_t kLineFloats = sizeof(CacheLine) / sizeof(float);
  const int64_t count = (last - first) * a.out_features;
  if (count > kMostFetchedFloats) return;
  const float* addend = a.addend + first * a.out_features;
  for (int64_t k = 0; k < count; k += kLineFloats) prefetch(addend + k);
}

inline std::unique_ptr<CacheLine[]> code_lines(int64_t bytes) {
  constexpr auto kBytes = static_cast<int64_t>(sizeof(CacheLine));
  return std::unique_ptr<CacheLine[]>(new CacheLine[static_cast<size_t>(bytes / kBytes + 1)]);
}

void multiply_int8(const Int8BmmArgs& a, int64_t begin, int64_t end, int64_t panel_begin,
                   int64_t panel_end) {
  if (a.panels == nullptr) return multiply_codes_in_place(a, begin, end, panel_begin, panel_end);
  const bool packs = a.pack != nullptr;
  const int64_t pitch = packs ? padded_codes(int8_pitch(a.size)) : int8_pitch(a.size);
  const int64_t fitting = kCodeBlockBytes / std::max<int64_t>(1, pitch * kCodeBytes);
  const int64_t block =
      std::clamp<int64_t>(fitting / kCodeTileRows * kCodeTileRows, kCodeTileRows, kMostCodeRows);
  const auto scratch = code_lines(CodeRows::scratch(block, pitch) * 4);
  const auto own = code_lines(packs ? block * pitch : 0);
  for (int64_t first = begin, last = begin; first < end; first = last) {
    last = std::min(end, first + block);
    auto* const packed = reinterpret_cast<int8_t*>(own.get());
    if (packs) quantise_rows(*a.pack, first, last, pitch, packed);
    const CodeRows codes(packs ? packed : a.codes + first * pitch, last - first, pitch,
                         reinterpret_cast<int32_t*>(scratch.get()));
    if (a.addend != nullptr && panel_end - panel_begin > 1) fetch_addends(a, first, last);
    for (int64_t panel = panel_begin; panel < panel_end; ++panel)
      multiply_code_rows(a, codes, first, last - first, panel);
  }
}

}  // namespace
}  // namespace bitgnn::cpu::BITGNN_ISA

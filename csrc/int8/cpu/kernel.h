// 8-bit rows: codes of floats, bound by reading them, and products with 8-bit weights, 32 outputs
// in the lanes, bound by multiplications. Rows are quantised block by block inside a product, and a
// block stays in a core's own cache while the panels of weights pass by. Included once per
// capability after bmm/cpu/bmm_kernel.h, with BITGNN_ISA naming the namespace of its primitives.

#include <algorithm>
#include <memory>

#include "core/cpu/kernel_table.h"

namespace bitgnn::cpu::BITGNN_ISA {
namespace {

constexpr int64_t kMostCodeRows = 16 * kCodeTileRows;  // of a block
constexpr int64_t kCodeBlockBytes = int64_t{1} << 17;

// Codes of a row with those that pad it to whole steps, which weights of 0 multiply.
constexpr int64_t padded_codes(int64_t pitch) {
  return (pitch + kCodeStep - 1) / kCodeStep * kCodeStep;
}

int64_t code_panel_bytes(int64_t pitch) { return padded_codes(pitch) * kWordBits * kCodeBytes; }

// Codes of one row, with zeros up to the pitch.
template <class T>
void quantise_row(const T* x, const Int8PackArgs& a, int8_t* to) {
  const auto put = [](int8_t* p, const Lanes& value, const Lanes& centre, const Lanes& step) {
    store_codes(p, mul(sub(value, centre), step));
  };
  int64_t k = 0;
  for (; k + kWordBits <= a.size; k += kWordBits)
    put(to + k, load_values(x + k), load_lanes(a.centre + k), load_lanes(a.inverse_step + k));
  if (k == a.size) return;
  const int64_t count = a.size - k;
  alignas(64) int8_t last[kWordBits];
  put(last, load_converted(x + k, count), load_lanes(a.centre + k, count),
      load_lanes(a.inverse_step + k, count));
  std::memcpy(to + k, last, static_cast<size_t>(int8_pitch(a.size) - k));
}

// Writes the codes of rows [begin, end) from `to` on, each `pitch` bytes behind the last one.
void quantise_rows(const Int8PackArgs& a, int64_t begin, int64_t end, int64_t pitch, int8_t* to) {
  with_type_of<float, Half, BFloat16>(a.type, [&](auto zero) {
    const auto* x = static_cast<const decltype(zero)*>(a.x);
    for (int64_t i = begin; i < end; ++i, to += pitch) quantise_row(x + i * a.row_stride, a, to);
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
                        int64_t panel, Ahead& ahead) {
  const Int8Epilogue epilogue(a, panel);
  const char* w = a.panels + panel * code_panel_bytes(int8_pitch(a.size));
  alignas(64) int32_t dots[kCodeTileRows * kWordBits];
  for (int64_t row = 0; row < rows; row += kCodeTileRows) {
    const int64_t count = std::min<int64_t>(kCodeTileRows, rows - row);
    ahead.step();
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

inline const void* floats_at(const Int8PackArgs& a, int64_t row) {
  return static_cast<const char*>(a.x) + row * a.row_stride * element_bytes(a.type);
}

// True if the floats are contiguous, exceed the core's caches, and products are long enough to hide
// prefetching the next block.
inline bool are_far_floats(const Int8BmmArgs& a, int64_t rows) {
  return a.pack != nullptr && a.out_features >= kFarOutputs && a.pack->row_stride == a.size &&
         rows * a.size * element_bytes(a.pack->type) >= kFarBytes;
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
  const bool far = are_far_floats(a, end - begin);
  for (int64_t first = begin, last = begin; first < end; first = last) {
    last = std::min(end, first + block);
    auto* const packed = reinterpret_cast<int8_t*>(own.get());
    if (packs) quantise_rows(*a.pack, first, last, pitch, packed);
    const CodeRows codes(packs ? packed : a.codes + first * pitch, last - first, pitch,
                         reinterpret_cast<int32_t*>(scratch.get()));
    Ahead ahead;
    if (far)
      ahead = Ahead(floats_at(*a.pack, last), floats_at(*a.pack, std::min(last + block, end)));
    const int64_t tiles = (last - first + kCodeTileRows - 1) / kCodeTileRows;
    ahead.spread(tiles * (panel_end - panel_begin));
    for (int64_t panel = panel_begin; panel < panel_end; ++panel)
      multiply_code_rows(a, codes, first, last - first, panel, ahead);
  }
}

}  // namespace
}  // namespace bitgnn::cpu::BITGNN_ISA

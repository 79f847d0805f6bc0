// What follows the integer products of a convolution: taps outside taken back, then scale and bias
// or another layer's sums, then a value or a bit. Included once a capability behind bmm_kernel.h,
// with BITGNN_ISA naming the namespace of its primitives.

#include <algorithm>

#include "bitgnn/cpu/kernel_table.h"

namespace bitgnn::cpu::BITGNN_ISA {
namespace {

// The taps of one output pixel that lie inside the image: a rectangle of the kernel.
struct InsideTaps {
  int64_t top, bottom, left, right;
  bool all;
};

// What one panel, up to 32 outputs of one group, adds to its products.
struct ConvEpilogue {
  const bitgnn::ConvArgs& c;
  int64_t first, count;
  uint32_t valid, flip;
  const int32_t* outside;
  Lanes step, out_scale, bias, threshold;
  const bitgnn::ConvAddArgs* add;

  ConvEpilogue(const ConvPanels& a, int64_t panel)
      : c(*a.conv),
        outside(a.outside != nullptr ? a.outside + panel * c.taps() * kWordBits : nullptr),
        add(a.add) {
    const int64_t of_group = c.out_channels / c.groups, panels = words_for(of_group);
    const int64_t begin = panel % panels * kWordBits;
    first = panel / panels * of_group + begin;
    count = std::min(kWordBits, of_group - begin);
    valid = last_word_mask(count);
    flip = a.flip != nullptr ? static_cast<uint32_t>(a.flip[panel]) : 0u;
    step = broadcast_lanes(a.step);
    out_scale = vector_or(c.out_scale, 1.0f);
    bias = vector_or(c.bias, 0.0f);
    threshold = vector_or(c.threshold, 0.0f);
  }

  Lanes vector_or(const float* p, float value) const {
    return p != nullptr ? load_some(p + first, count) : broadcast_lanes(value);
  }

  // Takes back what the taps outside have added.
  void correct(const InsideTaps& inside, int32_t* dots) const {
    for (int64_t i = 0; i < c.kernel_height; ++i) {
      const bool row_inside = i >= inside.top && i < inside.bottom;
      for (int64_t j = 0; j < c.kernel_width; ++j) {
        if (row_inside && j >= inside.left && j < inside.right) continue;
        const int32_t* tap = outside + (i * c.kernel_width + j) * kWordBits;
        for (int64_t l = 0; l < kWordBits; ++l) dots[l] += tap[l];
      }
    }
  }

  void operator()(int64_t pixel, const InsideTaps& inside, int32_t* dots) const {
    if (!inside.all) correct(inside, dots);
    if (add != nullptr) return add_and_keep(pixel, dots);
    if (c.out_int != nullptr) {
      std::memcpy(c.out_int + pixel * c.out_channels + first, dots,
                  static_cast<size_t>(count) * sizeof(int32_t));
      return;
    }
    Lanes v = mul(step, to_lanes(load_ints(dots)));
    if (c.out_scale != nullptr) v = mul(out_scale, v);
    if (c.bias != nullptr) v = BITGNN_ISA::add(v, bias);
    if (c.out_float != nullptr) {
      store_some(c.out_float + pixel * c.out_channels + first, v, count);
    } else {
      put_bits(c.out_bits + pixel * words_for(c.out_channels) + first / kWordBits,
               (ge_mask(v, threshold) ^ flip) & valid);
    }
  }

  // The same with another layer's sums added; the place of the pixel there is worked out anew.
  void add_and_keep(int64_t pixel, int32_t* dots) const {
    const int64_t added = std::min(count, add->addend_channels - first);
    if (add->addend != nullptr && added > 0) {
      const int64_t x = pixel % c.out_width, row = pixel / c.out_width;
      const int64_t y = row % c.out_height, image = row / c.out_height;
      const int64_t from =
          (image * add->addend_height + y * add->addend_stride_height) * add->addend_width +
          x * add->addend_stride_width;
      const int64_t at = from * add->addend_channels + first;
      if (add->addend_wide) {
        add_some(static_cast<const int32_t*>(add->addend) + at, added, dots);
      } else {
        add_some(static_cast<const int16_t*>(add->addend) + at, added, dots);
      }
    }
    const int64_t to = pixel * c.out_channels + first;
    if (add->sums != nullptr && add->sums_wide) {
      std::memcpy(static_cast<int32_t*>(add->sums) + to, dots,
                  static_cast<size_t>(count) * sizeof(int32_t));
    } else if (add->sums != nullptr) {
      auto* const sums = static_cast<int16_t*>(add->sums) + to;
      for (int64_t l = 0; l < count; ++l)
        sums[l] = static_cast<int16_t>(std::clamp(dots[l], -32768, 32767));
    }
    if (c.out_bits == nullptr) return;
    put_bits(c.out_bits + pixel * words_for(c.out_channels) + first / kWordBits,
             (ge_mask(to_lanes(load_ints(dots)), threshold) ^ flip) & valid);
  }

  // Sums wrap, as unsigned ones may.
  template <class T>
  static void add_some(const T* addend, int64_t count, int32_t* dots) {
    for (int64_t l = 0; l < count; ++l)
      dots[l] = static_cast<int32_t>(static_cast<uint32_t>(dots[l]) +
                                     static_cast<uint32_t>(static_cast<int32_t>(addend[l])));
  }

  // Outputs of a group need not begin a word; panels come in the order of their outputs, so the
  // first one to reach a word writes it and others add their bits.
  void put_bits(int32_t* word, uint32_t bits) const {
    const int64_t shift = first % kWordBits;
    if (shift == 0) {
      *word = static_cast<int32_t>(bits);
      return;
    }
    *word = static_cast<int32_t>(static_cast<uint32_t>(*word) | bits << shift);
    if (shift + count > kWordBits) word[1] = static_cast<int32_t>(bits >> (kWordBits - shift));
  }
};

}  // namespace
}  // namespace bitgnn::cpu::BITGNN_ISA

// Convolution epilogue: removes the contribution of taps outside the image, applies scale and bias
// or a residual addend, and writes a value or a bit. Included once per capability after
// bmm/cpu/bmm_kernel.h, with BITGNN_ISA naming the namespace of its primitives.

#include <algorithm>

#include "capabilities/cpu/kernel_table.h"

namespace bitgnn::cpu::BITGNN_ISA {
namespace {

// The taps of one output pixel that lie inside the image, a rectangle of the kernel.
struct InsideTaps {
  int64_t top, bottom, left, right;
  bool all;
};

// An output pixel: its index, its inside taps, and the matching addend pixel.
struct OutputPixel {
  int64_t place;
  InsideTaps inside;
  int64_t addend;
};

// The epilogue of one panel, which holds up to 32 outputs of one group.
struct ConvEpilogue {
  const bitgnn::ConvArgs& c;
  const bitgnn::ConvAddArgs* sums;
  int64_t first, count, added;
  uint32_t valid, flip;
  const int32_t* outside;
  bool has_step;
  Lanes step, out_scale, bias, threshold;

  ConvEpilogue(const ConvPanels& a, int64_t panel)
      : c(*a.conv),
        sums(a.add),
        outside(a.outside != nullptr ? a.outside + panel * c.taps() * kWordBits : nullptr),
        has_step(a.step != 1.0f) {
    const int64_t of_group = c.out_channels / c.groups, panels = words_for(of_group);
    const int64_t begin = panel % panels * kWordBits;
    first = panel / panels * of_group + begin;
    count = std::min(kWordBits, of_group - begin);
    added = sums != nullptr && sums->addend != nullptr
                ? std::min(count, sums->addend_channels - first)
                : 0;
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

  void operator()(const OutputPixel& pixel, const IntLanes& dot) const {
    const IntLanes inner = pixel.inside.all ? dot : corrected(pixel.inside, dot);
    sums != nullptr ? keep_sums(pixel, inner) : finish(pixel.place, inner);
  }

  // Removes the contribution of the taps outside the image.
  IntLanes corrected(const InsideTaps& inside, IntLanes dot) const {
    for (int64_t i = 0; i < c.kernel_height; ++i) {
      const bool row_inside = i >= inside.top && i < inside.bottom;
      for (int64_t j = 0; j < c.kernel_width; ++j) {
        if (row_inside && j >= inside.left && j < inside.right) continue;
        dot = add(dot, load_ints(outside + (i * c.kernel_width + j) * kWordBits));
      }
    }
    return dot;
  }

  // Applies scale and bias, then writes the requested output.
  void finish(int64_t place, const IntLanes& dot) const {
    if (c.out_int != nullptr)
      return store_some_ints(c.out_int + place * c.out_channels + first, dot, count);
    Lanes v = to_lanes(dot);
    if (has_step) v = mul(step, v);
    if (c.out_scale != nullptr) v = mul(out_scale, v);
    if (c.bias != nullptr) v = add(v, bias);
    if (c.out_float != nullptr) {
      store_some(c.out_float + place * c.out_channels + first, v, count);
    } else {
      put_bits(place, v);
    }
  }

  // Adds the addend, then writes sums and bits.
  void keep_sums(const OutputPixel& pixel, const IntLanes& dot) const {
    IntLanes total = dot;
    if (added > 0) {
      const int64_t at = pixel.addend * sums->addend_channels + first;
      total =
          add(total, sums->addend_wide
                         ? load_some_ints(static_cast<const int32_t*>(sums->addend) + at, added)
                         : load_some_ints(static_cast<const int16_t*>(sums->addend) + at, added));
    }
    const int64_t to = pixel.place * c.out_channels + first;
    if (sums->sums != nullptr) {
      if (sums->sums_wide) {
        store_some_ints(static_cast<int32_t*>(sums->sums) + to, total, count);
      } else {
        store_some_ints(static_cast<int16_t*>(sums->sums) + to, total, count);
      }
    }
    if (c.out_bits != nullptr) put_bits(pixel.place, to_lanes(total));
  }

  // The outputs of a group need not start on a word boundary. Panels are processed in output order,
  // so the first one to reach a word writes it and later ones OR in their bits.
  void put_bits(int64_t place, const Lanes& v) const {
    const uint32_t bits = (ge_mask(v, threshold) ^ flip) & valid;
    int32_t* const word = c.out_bits + place * words_for(c.out_channels) + first / kWordBits;
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

// Binary convolution: gathers the words under the kernel into a row, then multiplies as in
// bmm/cpu/bmm_kernel.h. Bound by the vector instructions of the products. Taps outside the image
// are gathered as zeros, which count as -1; their contribution is then subtracted from the integer
// product, so the result is exact. Included once per capability after bmm/cpu/bmm_kernel.h, with
// BITGNN_ISA naming the namespace of its primitives.

#include <algorithm>
#include <memory>
#include <vector>

#include "capabilities/cpu/kernel_table.h"
#include "conv/cpu/epilogue.h"

namespace bitgnn::cpu::BITGNN_ISA {
namespace {

// Taps [begin, end) along one axis whose positions origin + tap * dilation lie in [0, size).
inline void inside_range(int64_t origin, int64_t dilation, int64_t size, int64_t taps,
                         int64_t* begin, int64_t* end) {
  *begin = 0;
  *end = taps;
  if (origin >= 0 && origin + (taps - 1) * dilation < size) return;
  const auto first_from = [&](int64_t place) {
    return place <= 0 ? 0 : std::min(taps, (place + dilation - 1) / dilation);
  };
  *begin = first_from(-origin);
  *end = std::max(*begin, first_from(size - origin));
}

inline void copy_words(int32_t* to, const int32_t* from, int64_t count) {
  for (int64_t i = 0; i < count; i += Bits16::kWords) {
    const auto tail = Bits16::tail(count - i);
    Bits16::store(to + i, Bits16::load(from + i, tail), tail);
  }
}

// The words under a kernel as contiguous parts, split at the vector boundaries of the row.
std::vector<WindowPart> window_parts(const bitgnn::ConvArgs& c) {
  const int64_t words = words_for(c.channels / c.groups), pixel_words = words * c.groups;
  const bool joined = c.dilation_width * pixel_words == words;  // adjacent taps are contiguous
  const int64_t taps = joined ? c.kernel_width : 1;
  std::vector<WindowPart> parts;
  int64_t at = 0;
  for (int64_t i = 0; i < c.kernel_height; ++i) {
    for (int64_t j = 0; j < c.kernel_width; j += taps) {
      int64_t from = (i * c.dilation_height * c.width + j * c.dilation_width) * pixel_words;
      for (int64_t left = taps * words; left > 0;) {
        const int64_t some = std::min(left, kPartWords - at % kPartWords);
        parts.push_back({from, at, some});
        from += some;
        at += some;
        left -= some;
      }
    }
  }
  return parts;
}

// Iterates over output pixels and gathers the row of words under the kernel for each.
class Gather {
 public:
  Gather(const ConvPanels& a, int64_t pixel, int64_t group)
      : c_(*a.conv),
        words_(words_for(c_.channels / c_.groups)),
        pixel_words_(words_ * c_.groups),
        x_(pixel % c_.out_width),
        y_(pixel / c_.out_width % c_.out_height),
        number_(pixel / c_.out_width / c_.out_height),
        image_(c_.x + number_ * image_words() + group * words_),
        add_(a.add) {}

  InsideTaps inside() const {
    InsideTaps t;
    inside_range(origin_y(), c_.dilation_height, c_.height, c_.kernel_height, &t.top, &t.bottom);
    inside_range(origin_x(), c_.dilation_width, c_.width, c_.kernel_width, &t.left, &t.right);
    t.all = (t.bottom - t.top) * (t.right - t.left) == c_.taps();
    return t;
  }

  const int32_t* window() const {
    return image_ + (origin_y() * c_.width + origin_x()) * pixel_words_;
  }

  // Reads the row of a window that is partly outside the image, with zeros for the outside taps.
  void read(const InsideTaps& inside, int32_t* row) const {
    std::fill_n(row, c_.taps() * words_, 0);
    for (int64_t i = inside.top; i < inside.bottom; ++i) {
      const int64_t y = origin_y() + i * c_.dilation_height;
      for (int64_t j = inside.left; j < inside.right; ++j) {
        const int64_t x = origin_x() + j * c_.dilation_width;
        copy_words(row + (i * c_.kernel_width + j) * words_,
                   image_ + (y * c_.width + x) * pixel_words_, words_);
      }
    }
  }

  void next() {
    if (++x_ < c_.out_width) return;
    x_ = 0;
    if (++y_ < c_.out_height) return;
    y_ = 0;
    ++number_;
    image_ += image_words();
  }

  // Index of the addend's pixel.
  int64_t addend() const {
    return add_ == nullptr ? 0
                           : (number_ * add_->addend_height + y_ * add_->addend_stride_height) *
                                     add_->addend_width +
                                 x_ * add_->addend_stride_width;
  }

 private:
  int64_t image_words() const { return c_.height * c_.width * pixel_words_; }
  int64_t origin_y() const { return y_ * c_.stride_height - c_.padding_top; }
  int64_t origin_x() const { return x_ * c_.stride_width - c_.padding_left; }

  const bitgnn::ConvArgs& c_;
  int64_t words_, pixel_words_, x_, y_, number_;
  const int32_t* image_;
  const bitgnn::ConvAddArgs* add_;
};

// Computes the correction for each tap outside the image: minus the product of its zeros with the
// weights.
void finish_panels(const ConvPanels& a, int64_t begin, int64_t end) {
  const bitgnn::ConvArgs& c = *a.conv;
  const int64_t size = c.channels / c.groups, tap_words = words_for(size);
  const int64_t panel_words = c.taps() * tap_words * kWordBits;
  const std::unique_ptr<int32_t[]> zeros(new int32_t[static_cast<size_t>(tap_words)]());
  for (int64_t panel = begin; panel < end; ++panel) {
    int32_t* const words = a.panels + panel * panel_words;
    for (int64_t t = 0; t < c.taps() && a.outside != nullptr; ++t) {
      int32_t* const to = a.outside + (panel * c.taps() + t) * kWordBits;
      xor_dots<1, 1>(zeros.get(), tap_words, words + t * tap_words * kWordBits, tap_words, size,
                     [&](int, int, const IntLanes& dot) { store_ints(to, dot); });
      for (int64_t l = 0; l < kWordBits; ++l) to[l] = -to[l];
    }
    if (!a.parities) continue;
    for (int64_t k = kWordBits; k < panel_words; ++k) words[k] ^= words[k - kWordBits];
  }
}

// Multiplies R rows by P panels and runs the epilogue on the sums.
template <bool kParities, int R, int P>
void convolve_tile(const ConvPanels& a, const int32_t* rows, int64_t words, int64_t panel,
                   const OutputPixel* pixels, const ConvEpilogue* epilogues) {
  const int32_t* panels = a.panels + panel * words * kWordBits;
  const auto emit = [&](int r, int p, const IntLanes& dot) { epilogues[p](pixels[r], dot); };
  if constexpr (kParities) {
    parity_dots<R, P>(rows, words, panels, words, a.size, emit);
  } else {
    xor_dots<R, P>(rows, words, panels, words, a.size, emit);
  }
}

template <bool kParities, int P>
void convolve_panels(const ConvPanels& a, const int32_t* rows, int64_t words, int64_t count,
                     int64_t panel, const OutputPixel* pixels) {
  const ConvEpilogue epilogues[2] = {ConvEpilogue(a, panel), ConvEpilogue(a, panel + P - 1)};
  int64_t r = 0;
  for (; r + kTileRows <= count; r += kTileRows)
    convolve_tile<kParities, kTileRows, P>(a, rows + r * words, words, panel, pixels + r,
                                           epilogues);
  for (; r < count; ++r)
    convolve_tile<kParities, 1, P>(a, rows + r * words, words, panel, pixels + r, epilogues);
}

template <bool kParities>
void convolve(const ConvPanels& a, int64_t begin, int64_t end, int64_t panel_begin,
              int64_t panel_end) {
  const bitgnn::ConvArgs& c = *a.conv;
  const int64_t words = c.taps() * words_for(c.channels / c.groups);
  const int64_t group_panels = words_for(c.out_channels / c.groups);
  const std::unique_ptr<CacheLine[]> lines(
      new CacheLine[static_cast<size_t>(kRowBlock * words) / 16 + 2]);
  int32_t* const rows = reinterpret_cast<int32_t*>(lines.get());
  const std::vector<WindowPart> parts = window_parts(c);
  const auto num_parts = static_cast<int64_t>(parts.size());
  OutputPixel pixels[kRowBlock];
  for (int64_t pixel = begin; pixel < end; pixel += kRowBlock) {
    const int64_t count = std::min(kRowBlock, end - pixel);
    for (int64_t group = panel_begin / group_panels; group * group_panels < panel_end; ++group) {
      Gather gather(a, pixel, group);
      for (int64_t r = 0; r < count; ++r, gather.next()) {
        pixels[r] = {pixel + r, gather.inside(), gather.addend()};
        int32_t* const row = rows + r * words;
        if (pixels[r].inside.all) {
          read_window<kParities>(gather.window(), parts.data(), num_parts, words, row);
        } else {
          gather.read(pixels[r].inside, row);
          if constexpr (kParities) running_parities(row, words, row);
        }
      }
      int64_t panel = std::max(panel_begin, group * group_panels);
      const int64_t last = std::min(panel_end, (group + 1) * group_panels);
      for (; panel + kTilePanels <= last; panel += kTilePanels)
        convolve_panels<kParities, kTilePanels>(a, rows, words, count, panel, pixels);
      for (; panel < last; ++panel)
        convolve_panels<kParities, 1>(a, rows, words, count, panel, pixels);
    }
  }
}

void conv(const ConvPanels& a, int64_t begin, int64_t end, int64_t panel_begin, int64_t panel_end) {
  a.parities ? convolve<true>(a, begin, end, panel_begin, panel_end)
             : convolve<false>(a, begin, end, panel_begin, panel_end);
}

}  // namespace
}  // namespace bitgnn::cpu::BITGNN_ISA

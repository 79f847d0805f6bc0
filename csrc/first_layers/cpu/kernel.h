// The first layer of a network on fixed-point images. An image is rounded to int16 once, with its
// padding and with interleaved channels, so that the taps of a kernel row are one run of numbers
// read in place. Weights are +-1 in int16, two inputs of 32 outputs per step; a run of odd length
// ends with a zero weight. Included once per capability after conv/cpu/epilogue.h, with BITGNN_ISA
// naming the namespace of its primitives.

#include <algorithm>
#include <cmath>
#include <memory>

#include "capabilities/cpu/kernel_table.h"
#include "core/cpu/float_types.h"

namespace bitgnn::cpu::BITGNN_ISA {
namespace {

// Rounds half to even, as the default rounding mode does; NaN becomes 0.
inline int16_t to_fixed(float x, float inverse_step) {
  const float v = x * inverse_step;
  const float clamped = v > 32767.0f ? 32767.0f : v < -32768.0f ? -32768.0f : v == v ? v : 0.0f;
  return static_cast<int16_t>(std::nearbyint(clamped));
}

// Rounds one row of one channel, or of all channels interleaved, with zeros around it.
template <class T>
void round_row(const T* x, int64_t count, float inverse_step, int64_t before, int64_t size,
               int16_t* to) {
  std::fill_n(to, before, int16_t{0});
  for (int64_t i = 0; i < count; ++i) to[before + i] = to_fixed(to_float(x[i]), inverse_step);
  std::fill(to + before + count, to + size, int16_t{0});
}

// Rounds rows [row, row + rows) of a padded image; rows outside are zeros.
template <class T>
void round_rows(const FixedConvArgs& a, const FixedPanels& p, int64_t image, int64_t row,
                int64_t rows, int16_t* to) {
  const bitgnn::ConvArgs& c = a.conv;
  const float inverse = 1.0f / a.step;
  const int64_t left = c.padding_left, channels = c.channels;
  for (int64_t r = 0; r < rows; ++r, to += p.pitch) {
    const int64_t y = row + r - c.padding_top;
    if (y < 0 || y >= c.height) {
      std::fill_n(to, p.pitch, int16_t{0});
      continue;
    }
    const T* x = static_cast<const T*>(a.x) + image * a.image_stride + y * c.width * a.pixel_stride;
    if (p.planar) {
      const int64_t size = p.pitch / channels;
      for (int64_t k = 0; k < channels; ++k)
        round_row(x + k * a.channel_stride, c.width, inverse, left, size, to + k * size);
    } else if (a.channel_stride == 1) {
      round_row(x, c.width * channels, inverse, left * channels, p.pitch, to);
    } else {
      std::fill_n(to, p.pitch, int16_t{0});
      for (int64_t k = 0; k < channels; ++k)
        for (int64_t i = 0; i < c.width; ++i)
          to[(left + i) * channels + k] = to_fixed(to_float(x[k * a.channel_stride + i]), inverse);
    }
  }
}

void expand_signs(const int32_t* panels, int64_t panel_words, const SignPair* pairs, int64_t count,
                  int16_t* to, int64_t begin, int64_t end) {
  for (int64_t panel = begin; panel < end; ++panel) {
    const int32_t* words = panels + panel * panel_words * kWordBits;
    int16_t* out = to + panel * count * 2 * kWordBits;
    for (int64_t k = 0; k < count; ++k, out += 2 * kWordBits) {
      const SignPair& pair = pairs[k];
      const int32_t* first = words + pair.first * kWordBits;
      const int32_t* second = words + pair.second * kWordBits;
      const uint32_t keep = pair.has_second ? 0xffffffffu : 0x0000ffffu;
      uint32_t both[kWordBits];
      for (int64_t l = 0; l < kWordBits; ++l) {
        const uint32_t a = (static_cast<uint32_t>(first[l]) >> pair.first_bit & 1u) * 2u - 1u;
        const uint32_t b = (static_cast<uint32_t>(second[l]) >> pair.second_bit & 1u) * 2u - 1u;
        both[l] = ((a & 0xffffu) | b << 16) & keep;  // the first number in the lower half
      }
      std::memcpy(out, both, sizeof(both));
    }
  }
}

// Computes R adjacent pixels of an output row.
template <int R>
void convolve_windows(const FixedPanels& p, const int16_t* x, const int16_t* w, int64_t place,
                      const ConvEpilogue& epilogue) {
  fixed_dots<R>(x, p.step, p.run_at, p.runs, p.pairs, w,
                [&](int r, const IntLanes& dot) { epilogue.finish(place + r, dot); });
}

// Computes bands of p.band_rows output rows of one image each.
void fixed_conv(const FixedConvArgs& a, const FixedPanels& p, int64_t begin, int64_t end,
                int64_t panel_begin, int64_t panel_end) {
  const bitgnn::ConvArgs& c = a.conv;
  const int64_t bands = (c.out_height + p.band_rows - 1) / p.band_rows;
  const int64_t reach = (c.kernel_height - 1) * c.dilation_height + 1;
  const int64_t most_rows = (p.band_rows - 1) * c.stride_height + reach;
  // A run of odd length reads one extra number.
  const std::unique_ptr<int16_t[]> image(new int16_t[static_cast<size_t>(most_rows * p.pitch + 2)]);
  for (int64_t band = begin; band < end; ++band) {
    const int64_t first = band % bands * p.band_rows;
    const int64_t rows = std::min(p.band_rows, c.out_height - first);
    const int64_t used = (rows - 1) * c.stride_height + reach;
    with_type_of<float, Half, BFloat16, uint8_t>(a.type, [&](auto zero) {
      round_rows<decltype(zero)>(a, p, band / bands, first * c.stride_height, used, image.get());
    });
    const int64_t pixel = (band / bands * c.out_height + first) * c.out_width;
    for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
      const ConvEpilogue epilogue(p.outputs, panel);
      const int16_t* w = p.weights + panel * p.runs * p.pairs * 2 * kWordBits;
      for (int64_t y = 0; y < rows; ++y) {
        const int16_t* row = image.get() + y * c.stride_height * p.pitch;
        const int64_t to = pixel + y * c.out_width;
        int64_t x = 0;
        for (; x + kFixedRows <= c.out_width; x += kFixedRows)
          convolve_windows<kFixedRows>(p, row + x * p.step, w, to + x, epilogue);
        for (; x < c.out_width; ++x) convolve_windows<1>(p, row + x * p.step, w, to + x, epilogue);
      }
    }
  }
}

}  // namespace
}  // namespace bitgnn::cpu::BITGNN_ISA

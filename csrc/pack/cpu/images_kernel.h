// Packs float images with planar channels: the bits of one channel after another are put into the
// words of a block of pixels, which compilers vectorise over pixels. Bound by reading the input.
// Included once per CPU capability; BITGNN_ISA names the namespace of its primitives.

#include "conv/arguments.h"
#include "core/cpu/float_types.h"

namespace bitgnn::cpu::BITGNN_ISA {
namespace {

// Packs one word of each pixel of a block.
template <class T>
void pack_image_words(const T* x, int64_t channel_stride, int64_t channels, const float* threshold,
                      int64_t pixels, uint32_t* words) {
  for (int64_t p = 0; p < pixels; ++p) words[p] = 0;
  for (int64_t k = 0; k < channels; ++k) {
    const T* channel = x + k * channel_stride;
    const float bound = threshold != nullptr ? threshold[k] : 0.0f;
    const uint32_t bit = 1u << k;
    for (int64_t p = 0; p < pixels; ++p) {
      if constexpr (std::is_same_v<T, double>) {
        // Rounding to float could move a value across the threshold.
        words[p] |= channel[p] >= static_cast<double>(bound) ? bit : 0u;
      } else {
        words[p] |= to_float(channel[p]) >= bound ? bit : 0u;
      }
    }
  }
}

template <class T>
void pack_images_typed(const ImagePackArgs& a, int64_t begin, int64_t end) {
  const int64_t row_words = words_for(a.channels);
  const int64_t blocks = (a.pixels + kImageBlock - 1) / kImageBlock;
  uint32_t block_words[kImageBlock];
  for (int64_t block = begin; block < end; ++block) {
    const int64_t image = block / blocks, pixel = block % blocks * kImageBlock;
    const int64_t pixels = a.pixels - pixel < kImageBlock ? a.pixels - pixel : kImageBlock;
    const T* x = static_cast<const T*>(a.x) + image * a.channels * a.pixels + pixel;
    int32_t* out = a.words + (image * a.pixels + pixel) * row_words;
    for (int64_t w = 0; w < row_words; ++w) {
      const int64_t channel = w * kWordBits, left = a.channels - channel;
      pack_image_words(x + channel * a.pixels, a.pixels, left < kWordBits ? left : kWordBits,
                       a.threshold != nullptr ? a.threshold + channel : nullptr, pixels,
                       block_words);
      for (int64_t p = 0; p < pixels; ++p)
        out[p * row_words + w] = static_cast<int32_t>(block_words[p]);
    }
  }
}

void pack_images(const ImagePackArgs& a, int64_t begin, int64_t end) {
  with_float_type(a.type, [&](auto zero) { pack_images_typed<decltype(zero)>(a, begin, end); });
}

}  // namespace
}  // namespace bitgnn::cpu::BITGNN_ISA

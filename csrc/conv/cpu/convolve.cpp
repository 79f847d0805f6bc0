// Binary convolution and pooling on the CPU.
#include <algorithm>
#include <vector>

#include "bmm/cpu/panels.h"
#include "capabilities/cpu/kernel_table.h"
#include "conv/arguments.h"
#include "core/cpu/backend.h"

namespace bitgnn::cpu {
namespace {

constexpr int64_t kConvGrain = 1 << 18;  // word products per thread, about 6 us
constexpr int64_t kGatherWork = 64;      // per row of 32 outputs, in word products per tap
constexpr int64_t kPoolGrain = 1 << 15;  // words read per thread
constexpr int64_t kFewPixels = 16;       // per thread: below this, split by outputs

// Moves the channels of each group to words of their own, for groups that do not start on a word
// boundary.
std::vector<int32_t> align_groups(const bitgnn::ConvArgs& c) {
  const int64_t size = c.channels / c.groups, words = words_for(size);
  const int64_t from_words = words_for(c.channels), to_words = words * c.groups;
  const int64_t pixels = c.images * c.height * c.width;
  std::vector<int32_t> aligned(static_cast<size_t>(pixels * to_words));
  for (int64_t p = 0; p < pixels; ++p) {
    const int32_t* from = c.x + p * from_words;
    const auto word_at = [&](int64_t w) {
      return w < from_words ? static_cast<uint64_t>(static_cast<uint32_t>(from[w])) : 0u;
    };
    for (int64_t g = 0; g < c.groups; ++g) {
      for (int64_t w = 0; w < words; ++w) {
        const int64_t bit = g * size + w * kWordBits;
        const uint64_t pair = word_at(bit / kWordBits) | word_at(bit / kWordBits + 1) << kWordBits;
        const uint32_t mask = w + 1 < words ? ~0u : last_word_mask(size);
        aligned[static_cast<size_t>(p * to_words + g * words + w)] =
            static_cast<int32_t>(static_cast<uint32_t>(pair >> (bit % kWordBits)) & mask);
      }
    }
  }
  return aligned;
}

bool reads_outside(const bitgnn::ConvArgs& c) {
  const int64_t bottom = (c.out_height - 1) * c.stride_height - c.padding_top +
                         (c.kernel_height - 1) * c.dilation_height;
  const int64_t right =
      (c.out_width - 1) * c.stride_width - c.padding_left + (c.kernel_width - 1) * c.dilation_width;
  return c.padding_top > 0 || c.padding_left > 0 || bottom >= c.height || right >= c.width;
}

void run(const ConvPanels& a, int64_t panels, int64_t words) {
  const int64_t pixels = a.conv->pixels(), threads = torch::stable::get_num_threads();
  const int64_t work = words * kWordBits, pixel_work = (work + kGatherWork) * panels;
  split_either(pixels >= kFewPixels * threads || pixels >= panels || a.conv->groups > 1, pixels,
               grain(pixel_work, kConvGrain), panels, grain(work * pixels, kConvGrain),
               kernels().conv, a);
}

// Convolves; the epilogue is that of `add`, or of the convolution itself if `add` is null.
void convolve_with(const bitgnn::ConvArgs& given, const bitgnn::ConvAddArgs* add) {
  bitgnn::ConvArgs c = given;
  if (c.pixels() == 0) return;
  std::vector<int32_t> aligned, flip, outside;
  if (c.channels / c.groups % kWordBits != 0 && c.groups > 1) {
    aligned = align_groups(c);
    c.x = aligned.data();
  }
  const int64_t of_group = c.out_channels / c.groups, group_panels = words_for(of_group);
  const int64_t panels = c.groups * group_panels;
  const int64_t words = c.taps() * words_for(c.channels / c.groups);
  const Tensor weights = Backend::empty({panels, words, kWordBits}, ScalarType::Int);
  auto* to = static_cast<int32_t*>(weights.data_ptr());
  for (int64_t g = 0; g < c.groups; ++g)
    pack_panels(c.w + g * of_group * words, of_group, words, false,
                to + g * group_panels * words * kWordBits);
  if (reads_outside(c)) outside.resize(static_cast<size_t>(panels * c.taps() * kWordBits));
  if (c.flip != nullptr) {
    for (int64_t g = 0; g < c.groups; ++g) {
      const auto words_of_group = pack_flags(c.flip + g * of_group, of_group);
      flip.insert(flip.end(), words_of_group.begin(), words_of_group.end());
    }
  }
  ConvPanels a{};
  a.conv = &c;
  a.panels = to;
  a.size = c.channels / c.groups * c.taps();
  a.parities = words >= kernels().parity_words;
  a.outside = outside.empty() ? nullptr : outside.data();
  a.flip = flip.empty() ? nullptr : flip.data();
  a.add = add;
  a.step = 1.0f;
  split(panels, grain(words * kWordBits, kConvGrain), kernels().finish_panels, a);
  run(a, panels, words);
}

}  // namespace

void convolve(const bitgnn::ConvArgs& a) { convolve_with(a, nullptr); }

// Bits are pooled after the convolution.
void convolve_pooled(const bitgnn::ConvArgs&, const BitPoolArgs&, bool* pools) { *pools = false; }

void convolve_add(const bitgnn::ConvAddArgs& a) { convolve_with(a.conv, &a); }

void pool_bits(const BitPoolArgs& a) {
  split(a.images * a.out_height,
        grain(a.out_width * a.kernel_height * a.kernel_width * a.words, kPoolGrain),
        kernels().pool_bits, a);
}

}  // namespace bitgnn::cpu

// The first layer of a network on the CPU: weights expanded to int16, bands of output rows split
// among the threads.
#include <algorithm>
#include <vector>

#include "bmm/cpu/panels.h"
#include "capabilities/cpu/kernel_table.h"
#include "core/cpu/backend.h"
#include "first_layers/arguments.h"

namespace bitgnn::cpu {
namespace {

constexpr int64_t kFixedGrain = 1 << 20;          // products per thread
constexpr int64_t kExpandGrain = 1 << 18;         // weights per thread
constexpr int64_t kBandNumbers = 1 << 17;         // int16 numbers: 256 KiB
constexpr int64_t kPanelNumbers = 2 * kWordBits;  // weights of 32 outputs for a pair of inputs

// Treats one-pixel images under one-tap kernels as the rows of a single image.
FixedConvArgs as_rows(const FixedConvArgs& a) {
  const bitgnn::ConvArgs& c = a.conv;
  const bool padded = c.padding_top + c.padding_left > 0 || c.out_height * c.out_width != 1;
  if (c.height != 1 || c.width != 1 || c.taps() != 1 || padded) return a;
  FixedConvArgs rows = a;
  rows.conv.images = 1;
  rows.conv.height = rows.conv.out_height = c.images;
  rows.conv.stride_height = 1;
  rows.image_stride = 0;
  rows.channel_stride = 1;
  rows.pixel_stride = c.channels;
  return rows;
}

// The numbers under a kernel as contiguous runs: each starts at a tap and a channel and covers
// `taps` taps of `channels` channels.
struct Run {
  int64_t row, column, channel;
};
struct Runs {
  std::vector<Run> all;
  int64_t taps, channels;

  int64_t pairs() const { return (taps * channels + 1) / 2; }
};

Runs runs_of(const bitgnn::ConvArgs& c, bool planar) {
  const bool joined = c.dilation_width == 1;  // taps of a kernel row are contiguous
  Runs runs{{}, joined ? c.kernel_width : 1, planar ? 1 : c.channels};
  for (int64_t k = 0; k < c.channels; k += runs.channels)
    for (int64_t i = 0; i < c.kernel_height; ++i)
      for (int64_t j = 0; j < c.kernel_width; j += runs.taps) runs.all.push_back({i, j, k});
  return runs;
}

// The weights of the runs in pairs; a run of odd length ends with a pair that has only one weight.
std::vector<SignPair> sign_pairs(const bitgnn::ConvArgs& c, const Runs& runs) {
  const int64_t words = words_for(c.channels), length = runs.taps * runs.channels;
  std::vector<SignPair> pairs;
  for (const Run& run : runs.all) {
    const auto word = [&](int64_t i) {
      const int64_t tap = run.row * c.kernel_width + run.column + i / runs.channels;
      return tap * words + (run.channel + i % runs.channels) / kWordBits;
    };
    const auto bit = [&](int64_t i) {
      return static_cast<int>((run.channel + i % runs.channels) % kWordBits);
    };
    for (int64_t i = 0; i < length; i += 2) {
      const int64_t next = std::min(i + 1, length - 1);
      pairs.push_back({word(i), word(next), bit(i), bit(next), next > i});
    }
  }
  return pairs;
}

// Whether images stay planar: interleaving their few channels would not pay off.
bool stays_planar(const FixedConvArgs& a) {
  return a.channel_stride != 1 && a.conv.kernel_width > 1 && a.conv.dilation_width == 1;
}

}  // namespace

void convolve_fixed(const FixedConvArgs& given) {
  if (given.conv.pixels() == 0) return;
  const FixedConvArgs a = as_rows(given);
  const bitgnn::ConvArgs& c = a.conv;
  const int64_t panels = words_for(c.out_channels);
  FixedPanels p{};
  p.planar = stays_planar(a);
  const Runs runs = runs_of(c, p.planar);
  p.runs = static_cast<int64_t>(runs.all.size());
  p.pairs = runs.pairs();
  const int64_t reach = (c.kernel_width - 1) * c.dilation_width + 1;
  const int64_t columns =
      std::max(c.padding_left + c.width, (c.out_width - 1) * c.stride_width + reach);
  p.pitch = columns * c.channels;
  p.step = c.stride_width * runs.channels;
  std::vector<int64_t> run_at;
  for (const Run& run : runs.all)
    run_at.push_back(run.row * c.dilation_height * p.pitch + run.channel * columns +
                     run.column * c.dilation_width * runs.channels);
  p.run_at = run_at.data();
  const int64_t panel_size = p.runs * p.pairs * kPanelNumbers;
  const int64_t words = c.taps() * words_for(c.channels);
  const Tensor panel_words = Backend::empty({panels, words, kWordBits}, ScalarType::Int);
  auto* bits = static_cast<int32_t*>(panel_words.data_ptr());
  pack_panels(c.w, c.out_channels, words, false, bits);
  const Tensor weights = Backend::empty({panels, panel_size}, ScalarType::Short);
  auto* to = static_cast<int16_t*>(weights.data_ptr());
  const std::vector<SignPair> pairs = sign_pairs(c, runs);
  split(panels, grain(panel_size, kExpandGrain), kernels().expand_signs, bits, words, pairs.data(),
        static_cast<int64_t>(pairs.size()), to);
  p.weights = to;
  std::vector<int32_t> flip;
  if (c.flip != nullptr) flip = pack_flags(c.flip, c.out_channels);
  p.outputs.conv = &c;
  p.outputs.flip = flip.empty() ? nullptr : flip.data();
  p.outputs.step = a.step;
  const int64_t threads = torch::stable::get_num_threads();
  const int64_t fitting = kBandNumbers / (p.pitch * c.stride_height) - c.kernel_height;
  const int64_t shares = (c.images * c.out_height + threads - 1) / threads;
  p.band_rows = std::max<int64_t>(1, std::min({fitting, shares, c.out_height}));
  const int64_t bands = c.images * ((c.out_height + p.band_rows - 1) / p.band_rows);
  const int64_t row_work = panel_size / 2 * c.out_width * p.band_rows;
  split_either(bands >= threads || bands >= panels, bands, grain(row_work * panels, kFixedGrain),
               panels, grain(row_work * bands, kFixedGrain), kernels().fixed_conv, a, p);
}

}  // namespace bitgnn::cpu

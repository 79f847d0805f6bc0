// Tiles a convolution into warpgroup products on the host; see wgmma_plan.h.
#include "conv/cuda/hopper/wgmma_plan.h"

#include <algorithm>

namespace bitgnn::cuda::conv {
namespace {

struct Axis {
  int64_t size, out, kernel, stride, padding, dilation;

  bool has_pixel(int64_t phase, int64_t u) const {
    const int64_t at = stride * u + phase - padding;
    return at >= 0 && at < size;
  }
  int64_t offset(int64_t tap) const { return dilation * tap / stride; }
  int64_t phase(int64_t tap) const { return dilation * tap % stride; }

  // Whether taps that run past the end of a frame of `length` positions read no pixel, neither
  // there nor at the beginning of the next frame.
  bool wraps_into_zeros(int64_t length) const {
    for (int64_t tap = 0; tap < kernel; ++tap)
      for (int64_t u = out - 1 + offset(tap); u >= length; --u)
        if (u >= 2 * length || has_pixel(phase(tap), u) || has_pixel(phase(tap), u - length))
          return false;
    return true;
  }
  int64_t shortest_frame() const {
    int64_t length = out;
    while (!wraps_into_zeros(length)) ++length;
    return length;
  }
};

// A 128-bit piece of the reduction: its source, and its offset from the tile's first position.
struct Piece {
  ConvSlab slab;
  int64_t offset;
};

bool same_source(const ConvSlab& a, const ConvSlab& b) {
  return a.phase == b.phase && a.piece == b.piece;
}

// Slabs in storage order.
struct Slabs {
  ConvSlab slab[kConvMostSlabs];
  int count = 0;

  // The first index from `from` on that holds `wanted`; a copy of it is appended if there is none.
  int find(const ConvSlab& wanted, int from) {
    for (int i = from; i < count; ++i)
      if (same_source(slab[i], wanted)) return i;
    if (count == kConvMostSlabs) return -1;
    slab[count] = wanted;
    slab[count].place = static_cast<uint8_t>(count);
    return count++;
  }
};

// Keeps the weights of a column tile in shared memory if that does not unbalance the blocks,
// otherwise streams them; allocates as many slab slots as help.
bool place_shared(ConvPlan& plan, int columns, const Device& device) {
  const int stage_bytes = columns * kConvStageRowBytes;
  plan.slot_bytes = (plan.slabs * plan.rows * kConvPieceBytes + 127) / 128 * 128;
  // Terms of the classes, then a scale and a bias, or a limit, per output.
  const int table_bytes = 2 * (plan.classes + 2) * conv_table_pitch(columns) * 4;
  // make_terms() reads up to two words past the last mask and multiplies them by zero.
  const int mask_bytes = (plan.classes * (plan.masks + 1) + 2) * 4;
  const int count_bytes = 2 * plan.phases * plan.rows * 4;
  const int fixed = 1024 + static_cast<int>(sizeof(ConvShared)) +
                    (table_bytes + mask_bytes + count_bytes + 127) / 128 * 128;
  const int room = device.shared_bytes - fixed;
  const int64_t tiles = plan.tiles, units = tiles * plan.column_tiles;
  const int groups = device.sm_count / plan.column_tiles;
  const auto ceil = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  // Resident weights save their copies and their tables, but every column tile reloads the pixels:
  // measured faster for up to two column tiles, or when building the tables is slow.
  constexpr int kMostColumnTiles = 2, kQuickMasks = 3;
  const bool stays = plan.column_tiles <= kMostColumnTiles || plan.masks > kQuickMasks;
  if (stays && plan.blocks <= kConvMostStages && groups > 0 &&
      plan.blocks * stage_bytes + 2 * plan.slot_bytes <= room &&
      ceil(tiles, groups) <= ceil(units, device.sm_count)) {
    plan.groups = groups;
    plan.stages = plan.blocks;
  } else {
    const int slots = 2 * plan.slot_bytes + 3 * stage_bytes <= room ? 2 : 1;
    plan.stages = std::min((room - slots * plan.slot_bytes) / stage_bytes, kConvMostStages);
    if (plan.stages < 2) return false;
    plan.stages = std::min(plan.stages, 8);
  }
  plan.slots = std::clamp((room - plan.stages * stage_bytes) / plan.slot_bytes, 1, kConvMostSlots);
  plan.slots_at = plan.stages * stage_bytes;
  plan.fixed_at = plan.slots_at + plan.slots * plan.slot_bytes;
  plan.tables_at = plan.fixed_at + static_cast<int>(sizeof(ConvShared));
  plan.masks_at = plan.tables_at + table_bytes;
  plan.counts_at = plan.masks_at + mask_bytes;
  plan.shared_bytes = 1024 + plan.counts_at + count_bytes;
  return plan.shared_bytes <= device.shared_bytes;
}

ConvAxis conv_axis(int64_t size, int64_t out, int64_t kernel, int64_t stride, int64_t padding) {
  const int64_t leading = std::min(out, (padding + stride - 1) / stride);
  // The first output whose last tap lies past the image.
  const int64_t room = size + padding - kernel;
  const int64_t trailing = std::min(out, room < 0 ? 0 : room / stride + 1);
  if (leading > trailing)
    return {static_cast<int>(out), static_cast<int>(out), static_cast<int>(out)};
  return {static_cast<int>(leading), static_cast<int>(trailing),
          static_cast<int>(leading + 1 + out - trailing)};
}

}  // namespace

FrameDivider frame_divider(int64_t divisor) {
  uint32_t shift = 0;
  while ((int64_t{1} << shift) < divisor) ++shift;
  const uint64_t over = (uint64_t{1} << 32) * ((uint64_t{1} << shift) - divisor) / divisor;
  return {static_cast<uint32_t>(divisor), static_cast<uint32_t>(over + 1), shift};
}

ConvGeometry conv_geometry(const ConvArgs& a) {
  ConvGeometry to{
      static_cast<int>(a.images),
      static_cast<int>(a.height),
      static_cast<int>(a.width),
      static_cast<int>(a.out_height),
      static_cast<int>(a.out_width),
      static_cast<int>(a.stride_height),
      static_cast<int>(a.stride_width),
      static_cast<int>(a.padding_top),
      static_cast<int>(a.padding_left),
      conv_axis(a.height, a.out_height, a.kernel_height, a.stride_height, a.padding_top),
      conv_axis(a.width, a.out_width, a.kernel_width, a.stride_width, a.padding_left),
      0};
  to.classes = to.row_axis.classes * to.column_axis.classes;
  return to;
}

bool plan_conv(ConvPlan& plan, const ConvArgs& a, int columns, const Device& device) {
  const Axis row_axis{a.height,        a.out_height,  a.kernel_height,
                      a.stride_height, a.padding_top, a.dilation_height};
  const Axis column_axis{a.width,        a.out_width,    a.kernel_width,
                         a.stride_width, a.padding_left, a.dilation_width};
  const int64_t taps = a.taps();
  if (a.kernel_height > kConvLongestSide || a.kernel_width > kConvLongestSide ||
      a.dilation_height > 1 || a.dilation_width > 1 || a.stride_height > 2 || a.stride_width > 2 ||
      a.pixels() == 0)
    return false;
  const int64_t pitch = column_axis.shortest_frame(), frame_rows = row_axis.shortest_frame();
  const int64_t frame = pitch * frame_rows;
  const int64_t positions =
      (a.images - 1) * frame + (a.out_height - 1) * pitch + a.out_width;  // up to the last output
  if (positions > INT32_MAX / 2) return false;
  if (a.images * a.height * a.width > INT32_MAX / 2) return false;
  plan = {};
  static_cast<ConvGeometry&>(plan) = conv_geometry(a);
  plan.pitch = frame_divider(pitch);
  plan.frame = frame_divider(frame);
  plan.tiles = static_cast<int>((positions + kConvTileRows - 1) / kConvTileRows);
  plan.column_tiles = static_cast<int>((a.out_channels + columns - 1) / columns);

  plan.pieces = static_cast<int>(a.channels / 128);
  const int64_t count = taps * plan.pieces;
  plan.steps = static_cast<int>((count + 1) / 2);
  plan.blocks = (plan.steps + 3) / 4;
  plan.masks = static_cast<int>((taps + 3) / 4);
  if (plan.steps > kConvMostSteps) return false;

  const auto tap_offset = [&](int64_t tap) {
    return row_axis.offset(tap / a.kernel_width) * pitch + column_axis.offset(tap % a.kernel_width);
  };
  const auto tap_phase = [&](int64_t tap) {
    return static_cast<uint8_t>(row_axis.phase(tap / a.kernel_width) * a.stride_width +
                                column_axis.phase(tap % a.kernel_width));
  };
  int64_t farthest = 0;
  for (int64_t tap = 0; tap < taps; ++tap) farthest = std::max(farthest, tap_offset(tap));
  if (farthest > INT16_MAX) return false;
  plan.rows = static_cast<int>(kConvTileRows + farthest);
  const auto piece = [&](int64_t q) {
    Piece p{};
    p.offset = tap_offset(q / plan.pieces);
    p.slab.phase = tap_phase(q / plan.pieces);
    p.slab.piece = static_cast<uint8_t>(q % plan.pieces);
    return p;
  };

  Slabs slabs;
  for (int64_t q = 0; q < count; ++q)
    if (slabs.find(piece(q).slab, 0) < 0) return false;
  const int originals = slabs.count;
  for (int step = 0; step < plan.steps; ++step) {
    const Piece first = piece(2 * step);
    const int64_t start = slabs.find(first.slab, 0) * int64_t{plan.rows} + first.offset;
    int64_t distance = 0;
    if (2 * step + 1 < count) {
      // The distance between the two halves of a product must be positive.
      const Piece second = piece(2 * step + 1);
      for (int from = 0; distance <= 0;) {
        const int found = slabs.find(second.slab, from);
        if (found < 0) return false;
        distance = found * int64_t{plan.rows} + second.offset - start;
        from = found + 1;
      }
    }
    plan.step[step] = static_cast<uint32_t>(start | distance << 16);
    if (start >= 1 << 14 || distance >= 1 << 14) return false;
  }
  plan.slabs = slabs.count;
  for (int i = originals; i < slabs.count; ++i) plan.slab[plan.copies++] = slabs.slab[i];
  // Slab index of each phase that taps read, in the order of the first tap that does.
  for (int i = 0; i < originals; i += plan.pieces) {
    plan.phase_index[plan.phases] = slabs.slab[i].phase;
    plan.phase_place[plan.phases++] = i;
  }
  const auto phase_order = [&](int phase) {
    int i = 0;
    while (plan.phase_index[i] != phase) ++i;
    return i;
  };

  // A window's popcount is the sum over its taps of the counts of their phases.
  plan.taps = static_cast<int>(taps);
  for (int64_t tap = 0; tap < taps; ++tap)
    plan.window[tap] =
        static_cast<int32_t>(phase_order(tap_phase(tap)) * plan.rows + tap_offset(tap));
  return place_shared(plan, columns, device);
}

}  // namespace bitgnn::cuda::conv

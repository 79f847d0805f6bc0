// Tiles a convolution into boxes of pixels on the host; see boxes_plan.h.
#include "conv/cuda/hopper/boxes_plan.h"

#include <algorithm>

namespace bitgnn::cuda::conv {
namespace {

constexpr int kMostSide = 256;  // limit of a tensor copy's box
constexpr int kPieceBytes = 16;
constexpr int kCopyAlignment = 128;

int divide_up(int a, int b) { return (a + b - 1) / b; }
int align(int at, int to) { return divide_up(at, to) * to; }

// Lays out weights, terms, barriers and addend buffers; returns the offset of the first box.
int place_before_boxes(ConvBoxPlan& plan, const ConvAddArgs& args, ConvOutput output, int groups) {
  const bool bits = output == ConvOutput::kBits;
  plan.terms_at = plan.stages * kBoxStageBytes;
  const int words = bits ? plan.classes * kBoxBitPitch : (plan.classes + 1) * kBoxSumPitch;
  plan.shared_at = align(plan.terms_at + words * 4, kCopyAlignment);
  int at = align(plan.shared_at + static_cast<int>(sizeof(BoxShared)),
                 bits ? kCopyAlignment : kBoxAlignment);
  if (!bits) {
    // Three buffers keep the addends of two units in flight; long weights leave room for two.
    constexpr int kLongStages = 4;
    plan.buffers = plan.stages > kLongStages ? 2 : kBoxMostBuffers;
    plan.part_bytes =
        plan.unit_rows * std::min(plan.out_width, kBoxUnitRows) * kBoxPartChannels * 2;
    plan.part_pitch = align(plan.part_bytes, kBoxAlignment);
    if (args.addend != nullptr)
      plan.addend_parts = static_cast<int>(args.addend_channels) / kBoxPartChannels;
    plan.buffers_at = at;
    at += groups * plan.buffers * kBoxParts * plan.part_pitch;
  }
  return at;
}

// Chooses the tile that minimises the work of the busiest block.
bool choose_tile(ConvBoxPlan& plan, bool may_run, int most_slots, int room) {
  const int lines = divide_up(plan.out_height, plan.unit_rows);  // of units per image
  const int most_groups = plan.groups;
  int64_t best = INT64_MAX;
  const auto consider = [&](int tile_lines, int images, int tile_rows, bool runs) {
    const int box_rows = tile_rows + plan.rows_behind;
    const int last = (images - 1) * box_rows * plan.pitch + (tile_rows - 1) * plan.pitch +
                     plan.out_width;  // one past the last position
    const int units = runs ? divide_up(last, kBoxUnitRows) : tile_lines * images * plan.row_units;
    const int positions = images * box_rows * plan.pitch;
    const int reach = plan.rows_behind * plan.pitch + kBoxLongestSide;
    const int phase = align(plan.pieces * positions * kPieceBytes, kCopyAlignment);
    const int loaded = plan.phases * phase;
    const int slot = align(loaded + (kBoxUnitRows + reach) * kPieceBytes, kCopyAlignment);
    if (units > kBoxMostUnits || images > kMostSide || box_rows * plan.stride_height > kMostSide)
      return;
    const int image_tiles = divide_up(plan.out_height, tile_rows);
    const int tiles = images > 1 ? divide_up(plan.images, images) : plan.images * image_tiles;
    const int rounds = divide_up(tiles, most_groups);
    const int slots = std::min({most_slots, room / slot, rounds});
    if (slots < std::min(2, rounds)) return;
    // Approximate clock cycles: of a product, of a unit that spans row ends, of a tile, and of
    // loading the first boxes.
    constexpr int kStepCycles = 75, kRunCycles = 20, kTileCycles = 100, kBytesPerCycle = 16;
    const int64_t cost =
        int64_t{rounds} *
            (units * (plan.steps * kStepCycles + (runs ? kRunCycles : 0)) + kTileCycles) +
        loaded / kBytesPerCycle;
    if (cost >= best) return;
    best = cost;
    plan.runs = runs;
    plan.tile_units = units;
    plan.image_units = tile_lines * plan.row_units;
    plan.tile_images = images;
    plan.tile_rows = tile_rows;
    plan.image_tiles = image_tiles;
    plan.image_positions = box_rows * plan.pitch;
    plan.tiles = tiles;
    plan.groups = std::min(most_groups, tiles);
    plan.slots = slots;
    plan.box_bytes = plan.pieces * positions * kPieceBytes;
    plan.phase_bytes = phase;
    plan.slot_bytes = slot;
  };
  for (int i = 1; i <= std::min(lines, kBoxMostUnits); ++i)
    consider(i, 1, i * plan.unit_rows, false);
  const int most_images = std::min(plan.images, kBoxMostUnits);
  for (int i = 2; i <= most_images; ++i) consider(lines, i, lines * plan.unit_rows, false);
  if (may_run) {
    for (int i = 1; i <= plan.out_height; ++i) consider(0, 1, i, true);
    for (int i = 2; i <= most_images; ++i) consider(0, i, plan.out_height, true);
  }
  if (best == INT64_MAX) return false;
  plan.by_image = frame_divider(plan.image_positions);
  return true;
}

// Orders the phases in a slot and computes the steps: a product of two taps reads the second at a
// positive distance from the first.
bool order_phases(ConvBoxPlan& plan, const ConvArgs& a) {
  constexpr int kMostDistance = 1 << 14;
  const int width = static_cast<int>(a.kernel_width);
  const int positions = plan.tile_images * plan.image_positions;
  int place[kConvMostPhases] = {};
  const auto offset = [&](int chunk) {
    const int tap = chunk / plan.pieces, y = tap / width, x = tap % width;
    const int phase = y % plan.stride_height * plan.stride_width + x % plan.stride_width;
    return place[phase] * (plan.phase_bytes / kPieceBytes) + chunk % plan.pieces * positions +
           y / plan.stride_height * plan.pitch + x / plan.stride_width;
  };
  do {
    for (int i = 0; i < plan.phases; ++i) place[plan.phase[i]] = i;
    bool forward = true;
    for (int step = 0; step < plan.steps; ++step) {
      const int first = offset(2 * step);
      // After the last tap the weights are zero, so any address works.
      const int distance = 2 * step + 1 < plan.chunks ? offset(2 * step + 1) - first : 0;
      forward = forward && first < kMostDistance && distance >= 0 && distance < kMostDistance;
      plan.step[step] = static_cast<uint32_t>(first) | static_cast<uint32_t>(distance) << 16;
    }
    if (forward) return true;
  } while (std::next_permutation(plan.phase, plan.phase + plan.phases));
  return false;
}

bool suits(const ConvAddArgs& args) {
  const ConvArgs& a = args.conv;
  constexpr int64_t kMostPixels = INT32_MAX / 2;
  return a.groups == 1 && a.dilation_height == 1 && a.dilation_width == 1 && a.stride_height <= 2 &&
         a.stride_width <= 2 && a.channels % 128 == 0 &&
         (a.channels == 128 || a.channels % 256 == 0) && a.out_channels % kBoxColumns == 0 &&
         a.kernel_height <= kBoxLongestSide && a.kernel_width <= kBoxLongestSide &&
         a.padding_top < kBoxLongestSide && a.padding_left < kBoxLongestSide && a.pixels() > 0 &&
         a.pixels() <= kMostPixels && a.images * a.height * a.width <= kMostPixels &&
         a.out_width <= kMostSide && a.taps() * (a.channels / 128) <= 2 * kBoxMostSteps;
}

}  // namespace

bool plan_conv_box(ConvBoxPlan& plan, const ConvAddArgs& args, ConvOutput output, int groups,
                   const Device& device) {
  const ConvArgs& a = args.conv;
  if (!suits(args)) return false;
  plan = {};
  static_cast<ConvGeometry&>(plan) = conv_geometry(a);
  const int height = static_cast<int>(a.kernel_height), width = static_cast<int>(a.kernel_width);
  plan.pitch = plan.out_width + (width - 1) / plan.stride_width;
  plan.by_pitch = frame_divider(plan.pitch);
  plan.rows_behind = (height - 1) / plan.stride_height;
  if (plan.classes > kBoxMostClasses || plan.pitch * plan.stride_width > kMostSide) return false;
  plan.unit_rows =
      plan.out_width <= kBoxUnitRows ? 1 + (kBoxUnitRows - plan.out_width) / plan.pitch : 1;
  plan.unit_rows = std::min(plan.unit_rows, plan.out_height);
  plan.row_units = divide_up(plan.out_width, kBoxUnitRows);
  plan.pieces = static_cast<int>(a.channels / 128);
  plan.chunks = height * width * plan.pieces;
  plan.steps = divide_up(plan.chunks, 2);
  plan.stages = divide_up(plan.steps, 4);
  for (int y = 0; y < std::min(height, plan.stride_height); ++y)
    for (int x = 0; x < std::min(width, plan.stride_width); ++x)
      plan.phase[plan.phases++] = y * plan.stride_width + x;
  plan.long_rows = plan.pieces == 1 && plan.stride_width == 1 && 2 * plan.pitch <= kMostSide;
  plan.column_tiles = static_cast<int>(a.out_channels / kBoxColumns);
  plan.groups = device.sm_count / plan.column_tiles;
  if (plan.groups == 0) return false;
  plan.slots_at = place_before_boxes(plan, args, output, groups);
  const int room = device.shared_bytes - kBoxAlignment - plan.slots_at;
  // Sums are moved in whole rows; short launches would suffer from the longer tiles.
  const bool may_run = output == ConvOutput::kBits && groups == kBoxLongGroups;
  if (!choose_tile(plan, may_run, kBoxMostSlots, room)) return false;
  // With half of the shared memory, the next kernel's blocks fit beside these.
  constexpr int kReserved = 1024, kLeastSlots = 2;
  const int half = (device.shared_bytes + kReserved) / 2 - kReserved - kBoxAlignment;
  const int fitting = (half - plan.slots_at) / plan.slot_bytes;
  if (output == ConvOutput::kBits && groups == kBoxBitGroups && fitting >= kLeastSlots)
    plan.slots = std::min(plan.slots, fitting);
  plan.shared_bytes = kBoxAlignment + plan.slots_at + plan.slots * plan.slot_bytes;
  return order_phases(plan, a);
}

int plan_conv_box_bits(ConvBoxPlan& plan, const ConvAddArgs& args, const Device& device) {
  constexpr int64_t kManyUnits = 16;
  if (plan_conv_box(plan, args, ConvOutput::kBits, kBoxLongGroups, device) &&
      plan.units() > kManyUnits * device.sm_count)
    return kBoxLongGroups;
  return plan_conv_box(plan, args, ConvOutput::kBits, kBoxBitGroups, device) ? kBoxBitGroups : 0;
}

}  // namespace bitgnn::cuda::conv

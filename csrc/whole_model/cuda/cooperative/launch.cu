// Plans and launches a whole model as one cooperative kernel.
#include "whole_model/cuda/cooperative/kernel.cuh"

#include <algorithm>

#include "core/cuda/shared_memory.h"
#include "whole_model/cuda/cooperative/launch.h"

namespace bitgnn::cuda::whole_model {
namespace {

constexpr int kMostSlots = 8;  // parts of features in flight per warp
constexpr int kTurnWords = 8;  // fixed cost of a part, in words
constexpr int kSlotUnit = 128;
constexpr int kLongRowWords = 64;                                   // rows of more words are long
constexpr int kStaticBytes = sizeof(StagePlan) * kMaxStages + 512;  // with some slack
constexpr int kFewColumns = 16, kFewWords = 4;  // of a product without tensor cores
static_assert(kFewWords * 32 <= kMostByteFeatures, "its halves fit bytes");
constexpr int kSlackWords = 8;  // read past the last gathered row

constexpr int round_up(int value, int unit) { return (value + unit - 1) / unit * unit; }

void plan_stages(CooperativePlan* plan) {
  const CooperativeArgs& a = plan->args;
  auto* table = reinterpret_cast<int4*>(a.state + kStateHead);
  for (int i = 0; i < a.num_stages; ++i) {
    StagePlan& p = plan->stages[i];
    p.stage = a.stages[i];
    p.words = stage_words(p.stage.size);
    p.steps = stage_steps(p.stage.size);
    p.pitch = stage_pitch(p.stage.size);
    p.groups = stage_columns(p.stage.out) / kGroupColumns;
    p.byte_integers = integer_bytes(p.stage.size) == 1;
    p.row_words = row_words(p.stage);
    p.pieces = row_pieces(p.stage);
    p.few_columns = p.stage.out <= kFewColumns && p.words <= kFewWords;
    p.by_groups = Divider::by(std::max(p.groups, 1));
    p.by_out = Divider::by(std::max(p.stage.out, 1));
    p.by_words = Divider::by(p.words);
    p.table = table;
    table += int64_t{a.rows} * p.pieces;
    if (i == 0) continue;
    const StagePlan& before = plan->stages[i - 1];
    p.gathered_words = before.row_words;
    p.gathered_pieces = before.pieces;
    p.gathered_bytes = before.byte_integers;
    p.gathered_odd = before.stage.size % 2;
    p.gathered_wide = before.stage.wide;
    p.by_gathered_pieces = Divider::by(before.pieces);
  }
}

// Splits rows into parts so that the warps have equal shares. If scales are measured, one warp
// takes a whole row.
void divide_features(const CooperativeArgs& a, int64_t most_bytes, CooperativePlan* plan) {
  const int rows = plan->share + (plan->more > 0 ? 1 : 0), warps = plan->threads / kWarp;
  const int words = round_up(plan->stages[0].words, kPackedWords);
  plan->element_bytes = static_cast<int>(element_bytes(a.type));
  plan->row_bytes = static_cast<uint32_t>(a.row_stride * plan->element_bytes);
  int64_t least = INT64_MAX;
  for (int part_words = words; part_words > 0; part_words -= kPackedWords) {
    const int parts = (words + part_words - 1) / part_words;
    const int slot_bytes =
        round_up(part_words * kWarp * plan->element_bytes + 2 * kCopyUnit, kSlotUnit);
    const int64_t slots = most_bytes / (int64_t{slot_bytes} * warps);
    if (slots == 0) continue;
    const int64_t turns = a.stages[0].scaled ? int64_t{(rows + warps - 1) / warps} * parts
                                             : (int64_t{rows} * parts + warps - 1) / warps;
    // With a single slot nothing is in flight while it is packed.
    const int64_t stalls = slots == 1 && turns > 1 ? turns * part_words : 0;
    const int64_t cost = turns * (part_words + kTurnWords) + stalls;
    if (cost >= least) continue;
    least = cost;
    plan->parts = parts;
    plan->part_words = part_words;
    plan->slot_bytes = slot_bytes;
    plan->slots = static_cast<int>(std::min({turns, slots, int64_t{kMostSlots}}));
  }
  plan->by_parts = Divider::by(plan->parts);
  const char* x = static_cast<const char*>(a.x);
  const char* end = x + static_cast<int64_t>(a.rows - 1) * plan->row_bytes +
                    static_cast<int64_t>(plan->features) * plan->element_bytes;
  plan->copied_end = end - reinterpret_cast<uintptr_t>(end) % kPieceBytes;
}

// Plans a launch; returns false if a block's share does not fit in its shared memory.
bool make_plan(const CooperativeArgs& a, int shared_bytes, CooperativePlan* plan) {
  plan->args = a;
  const bool few =
      a.stages[0].source == StageSource::kWords || stage_words(a.stages[0].size) > kLongRowWords;
  plan->threads = few ? kFewStageThreads : kMostStageThreads;
  plan->share = a.rows / a.blocks;
  plan->more = a.rows % a.blocks;
  plan->slice_words = slice_words(a.row_capacity, a.edge_capacity);
  plan->features = a.stages[0].size;
  plan->feature_words = stage_words(plan->features);
  plan->by_words = Divider::by(plan->feature_words);
  plan_stages(plan);
  int64_t bits = 0, handed = 0;
  int floats = 0, pieces = 1;
  for (int i = 0; i + 1 < a.num_stages; ++i) {
    const StagePlan& p = plan->stages[i];
    bits = std::max(bits, int64_t{a.row_capacity} * p.pitch);
    if (p.stage.source == StageSource::kIntegers) floats = std::max(floats, p.stage.size);
    handed = std::max(handed, int64_t{a.row_capacity} * p.pieces * kPieceWords);
    pieces = std::max(pieces, p.pieces);
    // Limit of Divider.
    if (int64_t{a.row_capacity} * p.stage.out * p.stage.out > UINT32_MAX) return false;
  }
  int64_t at = 0;
  const auto take = [&](int64_t words) {
    const int64_t place = at;
    at += (words + 3) / 4 * 4;
    return static_cast<int>(place);
  };
  plan->float_pitch = floats;
  plan->image = take(a.image_words);
  plan->slice = take(plan->slice_words);
  plan->bits = take(bits);
  plan->floats = take(int64_t{a.row_capacity} * floats);
  plan->scales = take(a.row_capacity);
  plan->rows = take(handed);
  plan->barriers = take(2 + 2 * kMostSlots * plan->threads / kWarp);
  plan->staged = take(0);
  const int64_t left = shared_bytes - kStaticBytes - (at + kSlackWords) * 4;
  const int64_t wanted = int64_t{a.edge_capacity} * pieces * kPieceBytes;
  int64_t used = std::min(wanted, left / kPieceBytes * kPieceBytes);
  if (used < int64_t{a.most_degree} * pieces * kPieceBytes) return false;
  for (int i = 1; i < a.num_stages; ++i)
    plan->stages[i].gathered_at_once =
        static_cast<int>(used / (plan->stages[i].gathered_pieces * kPieceBytes));
  if (a.stages[0].source == StageSource::kFloats) {
    // Offsets within a block's features are 32 bits.
    if (int64_t{a.row_capacity} * a.row_stride * element_bytes(a.type) > UINT32_MAX) return false;
    divide_features(a, left, plan);
    if (plan->slots == 0) return false;
    used = std::max(used, int64_t{plan->slots} * plan->slot_bytes * plan->threads / kWarp);
  }
  plan->words = static_cast<int>(at + used / 4) + kSlackWords;
  return left >= 0;
}

}  // namespace

bool cooperative_fits(const CooperativeArgs& args, const Context& context) {
  CooperativePlan plan{};
  return make_plan(args, context.device.shared_bytes, &plan);
}

namespace {

using Kernel = void (*)(CooperativePlan);

template <class T>
Kernel kernel_of(bool scaled) {
  return scaled ? cooperative_kernel<T, true> : cooperative_kernel<T, false>;
}

Kernel choose_kernel(const CooperativeArgs& args) {
  const Stage& first = args.stages[0];
  if (first.source == StageSource::kWords) return cooperative_kernel<void, false>;
  switch (args.type) {
    case FloatType::kFloat32:
      return kernel_of<float>(first.scaled);
    case FloatType::kFloat16:
      return kernel_of<__half>(first.scaled);
    case FloatType::kBFloat16:
      return kernel_of<__nv_bfloat16>(first.scaled);
    default:
      return nullptr;
  }
}

}  // namespace

cudaError_t run_stages(const CooperativeArgs& args, const Context& context) {
  CooperativePlan plan{};
  const Kernel kernel = choose_kernel(args);
  if (kernel == nullptr || !make_plan(args, context.device.shared_bytes, &plan))
    return cudaErrorInvalidConfiguration;
  const size_t bytes = static_cast<size_t>(plan.words) * 4;
  const cudaError_t error = grant_shared_memory(kernel, static_cast<int64_t>(bytes));
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeCooperative;
  attribute.val.cooperative = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(args.blocks));
  config.blockDim = dim3(static_cast<unsigned>(plan.threads));
  config.dynamicSmemBytes = bytes;
  config.stream = context.stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, plan);
}

}  // namespace bitgnn::cuda::whole_model

// Hopper product of contiguous float rows, binarised on the fly, with packed weights in shared
// memory; writes bits. The TMA keeps loading rows into the slots of a warp, or of a team of warps
// for long rows, of which few are in flight at a time, while the warps pack and multiply the
// previous ones. Bound by reading the float rows.
#pragma once

#include <algorithm>

#include "bmm/arguments.h"
#include "bmm/cuda/hopper/packing_tma_rows.cuh"
#include "core/cuda/dependent_launch.cuh"
#include "core/cuda/shared_memory.h"

namespace bitgnn::cuda::bmm {

constexpr int kBulkSlots = 2;                   // per warp
constexpr int kBulkBytes = 8 * 1024;            // approximate size of a warp's slot
constexpr int kTeamSlotBytes = 20 * 1024;       // of a team's slot
constexpr int64_t kTeamRingBytes = 160 * 1024;  // of all slots of teams
constexpr int kTeamWeights = 2;                 // weight steps that a thread loads at once

// Shared-memory layout of a block: slots, weights, column table, thresholds, packed rows,
// mbarriers. Each team has its own slots, packed rows and mbarriers; it may be a single warp.
struct BulkPlan : BulkShape {
  int teams;
  int team_warps;
  int slots;  // per team

  // Packed rows of a team. Several warps have two tiles of them: they pack one while some of them
  // still multiply the other.
  __host__ __device__ int packed_words() const {
    return (team_warps > 1 ? 2 : 1) * kMmaRows * pitch;
  }
  __host__ __device__ int team_bytes() const {
    return slots * (slot_bytes() + 8) + packed_words() * 4;
  }
  int64_t ring_bytes() const { return int64_t{teams} * slots * slot_bytes(); }
  int64_t bytes() const { return int64_t{teams} * team_bytes() + shared_bytes(); }
};

// kTeams: teams have several warps. kSame: all columns are compared with zero. kShift: the rows are
// compared with thresholds.
template <bool kTeams, bool kSame, bool kShift, int kVector>
__global__ void __launch_bounds__(kBulkMostWarps* kWarp, 1)
    bmm_packing_tma_kernel(const PackArgs pack, const BmmArgs a, const BulkPlan plan) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) unsigned char memory[];
  const int team_warps = kTeams ? plan.team_warps : 1;
  const int slot_count = kTeams ? plan.slots : kBulkSlots;
  const int packed_words = (kTeams ? 2 : 1) * kMmaRows * plan.pitch;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarp;
  const int team = thread / kWarp / team_warps;
  const int member = thread / kWarp % team_warps;
  const int columns = plan.columns();
  const int slot_floats = plan.slot_floats();
  float* slots = reinterpret_cast<float*>(memory) + team * slot_count * slot_floats;
  auto* weights = reinterpret_cast<uint32_t*>(memory + plan.teams * slot_count * plan.slot_bytes());
  const AgreementTable table = agreement_table(weights + columns * plan.pitch, columns);
  auto* thresholds =
      reinterpret_cast<float*>(weights + columns * plan.pitch + AgreementTable::words(columns));
  auto* all_packed =
      reinterpret_cast<uint32_t*>(thresholds) + (kShift ? plan.steps * kBulkStep : 0);
  uint32_t* const base = all_packed + team * packed_words;
  uint32_t* packed = base;
  auto* barriers = reinterpret_cast<uint64_t*>(all_packed + plan.teams * packed_words);
  const uint32_t full = shared_address(barriers + team * slot_count);
  const bool brings = member == 0 && lane == 0;

  let_next_start();
  // Tiles are dealt to blocks in turn, so that the last ones are spread evenly.
  const int64_t stride = static_cast<int64_t>(gridDim.x) * plan.teams;
  int64_t tile = static_cast<int64_t>(team) * gridDim.x + blockIdx.x;
  int64_t next_row = tile * kMmaRows;  // to load next
  if (brings) {
    for (int i = 0; i < slot_count; ++i) barrier_init(full + i * 8, 1);
    barrier_init_fence();
  }
  wait_for_previous();
  // Teams issue small loads ahead of the rows, behind which they would queue.
  constexpr int kAhead = kTeams ? kTeamWeights : 0;
  const int threads = static_cast<int>(blockDim.x);
  const int items = columns * plan.steps, width = plan.steps * kBulkStep;
  BulkWeights own[kTeamWeights];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) own[i].fetch(a, plan, thread + i * threads);
  bool flips = false;
  ColumnTerms terms{};
  if constexpr (kTeams) {
    flips = flips_column(a, thread);
    terms = column_terms(a, thread, 0);
  }
  const auto bring = [&](int slot) {
    if (brings)
      start_bulk(pack, plan, a.rows, next_row, slots + slot * slot_floats, full + slot * 8);
    next_row += plan.slot_rows;
    if (next_row % kMmaRows == 0) next_row += (stride - 1) * kMmaRows;
  };
  for (int i = 0; i < slot_count; ++i) bring(i);

#pragma unroll
  for (int i = 0; i < kAhead; ++i)
    if (thread + i * threads < items)
      own[i].template store<kVector>(plan, thread + i * threads, weights);
#pragma unroll(kTeams ? 1 : 2)
  for (int i = thread + kAhead * threads; i < items; i += threads) {
    own[0].fetch(a, plan, i);
    own[0].template store<kVector>(plan, i, weights);
  }
  if (kTeams && thread < columns) set_agreement(table, a, thread, terms, flips, width, lane);
  set_agreements(table, a, columns, width, threads, lane, kTeams ? threads : 0);
  if constexpr (kShift) {
    for (int c = thread; c < width; c += threads)
      thresholds[c] = c < plan.cols ? __ldg(pack.threshold + c) : 0.0f;
  }
  __syncthreads();

  const uint32_t last_mask = last_bulk_mask<kVector>(plan, lane);
  const BulkProduct product{table, column_fragments_address(weights, plan.pitch, lane),
                            static_cast<uint32_t>(plan.pitch) * 2 * kMmaColumns * 4,
                            agreement_start(a, 0, width)};
  const int groups = plan.slot_rows / kBulkRows;
  int slot = 0, phase = 0, first_pass = member;
  for (; tile < plan.tiles; tile += stride) {
    const int64_t first_row = tile * kMmaRows;
    for (int part = 0; part < kMmaRows && first_row + part < a.rows; part += plan.slot_rows) {
      barrier_wait(full + slot * 8, phase);
      const float* from = slots + slot * slot_floats + lane * kVector;
      float limit[kBulkBits];
      const auto pack_step = [&](int step, int row) {
        const uint32_t mask = step + 1 < plan.steps ? (1u << kBulkBits) - 1u : last_mask;
        pack_bulk<kShift, kVector>(
            from + row * plan.cols + step * kBulkStep, plan.cols, limit, mask,
            reinterpret_cast<uint8_t*>(packed + (part + row) * plan.pitch + step * kMmaWords) +
                lane,
            plan.pitch * 4);
      };
      if constexpr (kTeams) {
        for (int i = member; i < groups * plan.steps; i += team_warps) {
          if constexpr (kShift) load_limits<kVector>(limit, thresholds, i / groups, lane);
          pack_step(i / groups, i % groups * kBulkRows);
        }
        group_sync(1 + team, team_warps * kWarp);
      } else {
        for (int step = 0; step < plan.steps; ++step) {
          if constexpr (kShift) load_limits<kVector>(limit, thresholds, step, lane);
          for (int row = 0; row < plan.slot_rows; row += kBulkRows) pack_step(step, row);
        }
        __syncwarp();
      }
      bring(slot);
      if (++slot == slot_count) {
        slot = 0;
        phase ^= 1;
      }
    }
    const uint32_t fragment = row_fragment_address(packed, plan.pitch, lane);
#pragma unroll 1
    for (int pass = kTeams ? first_pass : 0; pass < plan.passes; pass += team_warps)
      multiply_bulk<kSame>(a, plan, product, fragment, first_row, pass, lane);
    if constexpr (kTeams) {
      // Other warps of the team may still be multiplying these rows; passes rotate to balance
      // their work.
      packed = packed == base ? base + kMmaRows * plan.pitch : base;
      if (++first_pass == team_warps) first_pass = 0;
    } else {
      __syncwarp();
    }
  }
#endif
}

// As many warps as fit, each with slots of its own.
inline BulkPlan bulk_plan(const BmmArgs& args, const Context& context) {
  BulkPlan plan{bulk_shape(args, context), 0, 1, kBulkSlots};
  plan.slot_rows = kBulkRows;
  while (plan.slot_rows < kMmaRows && 2 * plan.slot_bytes() <= kBulkBytes) plan.slot_rows *= 2;
  const int64_t fitting = (context.device.shared_bytes - plan.shared_bytes()) / plan.team_bytes();
  plan.teams = static_cast<int>(std::clamp<int64_t>(fitting, 0, kBulkMostWarps));
  return plan;
}

// A few teams of several warps, each with two slots. Tens of KB in flight saturate memory; larger
// blocks would keep blocks of the next kernel from starting alongside.
inline BulkPlan team_plan(const BmmArgs& args, const Context& context) {
  BulkPlan plan{bulk_shape(args, context), 3, 4, 2};
  plan.slot_rows = kMmaRows;
  if (plan.slot_bytes() > kTeamSlotBytes) plan.slot_rows /= 2;
  if (plan.ring_bytes() <= kTeamRingBytes) return plan;
  plan.teams = 2;
  plan.team_warps = 8;
  if (plan.ring_bytes() <= kTeamRingBytes) return plan;
  plan.slot_rows = kBulkRows;
  while (plan.ring_bytes() + plan.teams * plan.slot_bytes() <= kTeamRingBytes) ++plan.slots;
  return plan;
}

template <bool kTeams, bool kSame, bool kShift, int kVector>
cudaError_t launch_bmm_packing_tma(const BmmArgs& args, const Context& context) {
  const BulkPlan plan = kTeams ? team_plan(args, context) : bulk_plan(args, context);
  const auto kernel = bmm_packing_tma_kernel<kTeams, kSame, kShift, kVector>;
  // Teams take more than half of the shared memory: two blocks on one multiprocessor would leave
  // other multiprocessors idle.
  const int64_t least = kTeams ? context.device.shared_bytes / 2 : 0;
  const int64_t bytes = std::max<int64_t>(plan.bytes(), least);
  const cudaError_t status = grant_shared_memory(kernel, bytes);
  if (status != cudaSuccess) return status;
  const int64_t blocks = std::min<int64_t>(plan.tiles, context.device.sm_count);
  return launch_dependent(kernel, grid_size(blocks), plan.teams * plan.team_warps * kWarp,
                          static_cast<size_t>(bytes), context, *args.pack, args, plan);
}

}  // namespace bitgnn::cuda::bmm

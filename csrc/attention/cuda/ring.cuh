// Attention on bits without a score matrix: tensor cores compute the scores twice, first for the
// sum of their powers, then for the bits, which are packed in the accumulator registers and
// multiplied with the values from there.
// With queries (p, n, p, n) and keys (p, n, ~n, ~p), score = popc of the AND = dot + (set bits of
// the query). It is in 0 .. 2 * features, so four (two) tiles share a register with 8 (16) bits
// each; adding 128 - limit makes bit 7 of a byte the decision.
// Bound by instructions, about 3.4 per score in the first pass and 1.3 in the second.
#pragma once

#include "attention/cuda/bits.cuh"
#include "attention/cuda/ring_stages.cuh"
#include "core/cuda/dependent_launch.cuh"

namespace bitgnn::cuda::attention {

// Purpose of a pass over the keys.
enum class Walk { kMaxima, kPowers, kBits };

// State of a thread's two query rows.
template <int kDim>
struct AttentionRows {
  using S = AttentionShape<kDim>;
  int whole;  // stages that all rows of the block see in full
  int last_key[2];
  uint32_t query[S::kSteps][4];
  uint32_t table[2];  // shared-memory address of the power of score 0 for each row
  int most[2] = {};
  RowSums sums;
  RowDecision decision[2];
  int set[2] = {};  // number of set bits
};

template <int kDim, bool kShifted, Walk kWalk>
__device__ __forceinline__ void take_scores(
    AttentionRows<kDim>& rows, const int32_t (&score)[AttentionShape<kDim>::kPartScores],
    const AttentionPlan& plan, int tile, int part, const int (&last)[2], bool edge) {
  if constexpr (kWalk == Walk::kMaxima) {
    if (edge)
      take_maxima<kDim, true>(rows.most, score, last, tile, part);
    else
      take_maxima<kDim, false>(rows.most, score, last, tile, part);
  } else {
    if (edge)
      add_powers<kDim, kShifted, true>(rows.sums, score, plan, rows.table, last, tile, part);
    else
      add_powers<kDim, kShifted, false>(rows.sums, score, plan, rows.table, last, tile, part);
  }
}

// Passes over the keys for their scores alone, starting at ring step `step`.
template <int kDim, bool kShifted, Walk kWalk>
__device__ __forceinline__ void walk_scores(AttentionRing<kDim>& ring, AttentionRows<kDim>& rows,
                                            const AttentionPlan& plan, int step) {
  using S = AttentionShape<kDim>;
  const int quad = fragment_quad(static_cast<int>(threadIdx.x) % kWarp);
  for (int stage = 0; stage < ring.count; ++stage, ++step) {
    ring.await(step);
    const AttentionStage<kDim>& here = ring[step];
    int32_t score[S::kParts][S::kPartScores];
    const auto multiply = [&](int tile, int part) {
      multiply_keys<kDim>(score[part], rows.query,
                          here.keys + tile * S::kTileBytes + part * S::kPartBytes, false);
    };
    multiply(0, 0);
    int last[2];
#pragma unroll
    for (int r = 0; r < 2; ++r)
      last[r] = rows.last_key[r] - (stage * S::kStageKeys + quad * (32 * S::kPack));
    const bool edge = stage >= rows.whole;
#pragma unroll
    for (int tile = 0; tile < S::kPack; ++tile) {
      if constexpr (S::kParts == 2) {
        multiply(tile, 1);
        products_wait<1>(score[0]);
        take_scores<kDim, kShifted, kWalk>(rows, score[0], plan, tile, 0, last, edge);
        if (tile + 1 < S::kPack) {
          multiply(tile + 1, 0);
          products_wait<1>(score[1]);
        } else {
          products_wait<0>(score[1]);
        }
      } else {
        if (tile > 0) multiply(tile, 0);
        products_wait<0>(score[0]);
      }
      if (kWalk == Walk::kPowers && tile + 1 == S::kPack) {
        const uint32_t* valid = here.valid + quad * S::kPack;
#pragma unroll
        for (int w = 0; w < S::kPack; ++w)
#pragma unroll
          for (int r = 0; r < 2; ++r)
            rows.sums.masked[r] +=
                __popc(~valid[w] & (edge ? bits_through(last[r], w) : 0xffffffffu));
      }
      if (tile + 1 == S::kPack) ring.release(step);
      take_scores<kDim, kShifted, kWalk>(rows, score[S::kParts - 1], plan, tile, S::kParts - 1,
                                         last, edge);
    }
  }
}

// Passes over the keys for the bits and their product with the values.
template <int kDim>
__device__ __forceinline__ void walk_bits(AttentionRing<kDim>& ring, AttentionRows<kDim>& rows,
                                          int32_t (&out)[kDim / 2], int step) {
  using S = AttentionShape<kDim>;
  const int quad = fragment_quad(static_cast<int>(threadIdx.x) % kWarp);
  for (int stage = 0; stage < ring.count; ++stage, ++step) {
    ring.await(step);
    const AttentionStage<kDim>& here = ring[step];
    int32_t score[S::kParts][S::kPartScores];
    const auto multiply = [&](int tile, int part) {
      multiply_keys<kDim>(score[part], rows.query,
                          here.keys + tile * S::kTileBytes + part * S::kPartBytes, tile > 0);
    };
    multiply(0, 0);
    if (S::kParts == 2) multiply(0, S::kParts - 1);
    int last[2];
#pragma unroll
    for (int r = 0; r < 2; ++r)
      last[r] = rows.last_key[r] - (stage * S::kStageKeys + quad * (32 * S::kPack));
    const uint32_t* valid = here.valid + quad * S::kPack;
#pragma unroll
    for (int tile = 1; tile < S::kPack; ++tile)
#pragma unroll
      for (int part = 0; part < S::kParts; ++part) {
        products_wait<S::kParts - 1>(score[part]);
#pragma unroll
        for (int i = 0; i < S::kPartScores; ++i)
          score[part][i] =
              static_cast<int32_t>(static_cast<uint32_t>(score[part][i]) * (1u << S::kBits) +
                                   (tile == S::kPack - 1 ? rows.decision[i / 2 % 2].addend : 0u));
        multiply(tile, part);
      }
    uint32_t bits[S::kFragments][4];
    products_wait<S::kParts - 1>(score[0]);
    pack_scores<kDim>(bits, score[0], 0, rows.decision, valid, last, stage >= rows.whole, rows.set);
    if constexpr (S::kParts == 2) {
      products_wait<0>(score[1]);
      pack_scores<kDim>(bits, score[1], 1, rows.decision, valid, last, stage >= rows.whole,
                        rows.set);
    }
    products_fence();
#pragma unroll
    for (int f = 0; f < S::kFragments; ++f)
      multiply_values<kDim>(out, bits[f], here.values + f * (2 * S::kPlaneBytes));
    products_commit();
    products_wait<0>(out);
    ring.release(step);
  }
}

// Decides the bits of the thread's rows; the whole warp resolves those that float32 leaves open.
template <int kDim, bool kShifted>
__device__ __forceinline__ void decide_rows(AttentionShared<kDim>& shared,
                                            AttentionRows<kDim>& rows,
                                            const TernaryAttentionArgs& a,
                                            const AttentionPlan& plan, const int32_t* q,
                                            const int32_t* k, const int32_t* mask,
                                            int64_t warp_row) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const RowSums& sums = rows.sums;
    const float sum = quad_sum(sums.sum[r][0] + sums.sum[r][1]);
    const float masked = static_cast<float>(quad_sum(sums.masked[r])) * load_power(rows.table[r]);
    RowLimit limit = find_limit<kDim>(
        sum, masked, kShifted ? static_cast<double>(rows.most[r]) * plan.step : plan.base, plan);
    unsigned open = __ballot_sync(kFullWarp, limit.open && fragment_quad(lane) == 0);
    while (open != 0) {
      const int at = __ffs(static_cast<int>(open)) - 1;
      open &= open - 1;
      const int64_t row = min(warp_row + at / 4 + 8 * r, a.queries - 1);
      const int found = exact_limit<kDim>(a, q + row * a.q.row_stride, k, mask,
                                          a.causal ? row + a.keys - a.queries : a.keys - 1,
                                          shared.exact, shared.histogram[threadIdx.x / kWarp]);
      if (lane / 4 == at / 4) limit.at = found;
    }
    rows.decision[r] = decide<kDim>(limit.at);
  }
}

template <class T, int kDim>
__device__ __forceinline__ void store_rows(const TernaryAttentionArgs& a,
                                           const AttentionRows<kDim>& rows,
                                           const int32_t (&out)[kDim / 2], int64_t first,
                                           int64_t warp_row, bool vector) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int set = quad_sum(rows.set[r]);
    const int64_t row = warp_row + fragment_group(lane) + 8 * r;
    if (row < a.queries)
      store_features<T, kDim>(static_cast<T*>(a.out) + first + row * a.out_strides[2], out, r, set,
                              a.out_scale, fragment_quad(lane) * (kDim / 4), a.size, vector);
  }
}

// Block (t, h, b): kRows queries of head h of sequence b, starting at t * kRows. kShifted, for
// large scales: powers are taken relative to the largest score of a row, found by an extra pass.
template <int kDim, bool kShifted>
__global__ void __launch_bounds__(AttentionShape<kDim>::kThreads, AttentionShape<kDim>::kResident)
    ternary_attention_kernel(const __grid_constant__ TernaryAttentionArgs a,
                             const __grid_constant__ AttentionPlan plan,
                             const AttentionStage<kDim>* stages, const float* table) {
  using S = AttentionShape<kDim>;
  extern __shared__ unsigned char raw[];
  auto& shared = *reinterpret_cast<AttentionShared<kDim>*>(
      (reinterpret_cast<uintptr_t>(raw) + 127) & ~uintptr_t{127});
  let_next_start();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int quad = fragment_quad(lane);
  const int64_t b = blockIdx.z, h = blockIdx.y;
  const int64_t kv = blockIdx.y / static_cast<unsigned>(a.heads / a.kv_heads);
  // With a causal mask, the longest rows run first.
  const int64_t first_row =
      static_cast<int64_t>(a.causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x) * S::kRows;
  const int64_t warp_row = first_row + threadIdx.x / kWarp * 16;
  const int64_t ahead = a.keys - a.queries;  // query i sees keys up to i + ahead if causal
  const int64_t block_last =
      a.causal ? min(first_row + S::kRows, a.queries) - 1 + ahead : a.keys - 1;
  const auto all_stages = static_cast<unsigned>((a.keys + S::kStageKeys - 1) / S::kStageKeys);
  AttentionRing<kDim> ring{shared, stages + (b * a.kv_heads + kv) * all_stages,
                           block_last < 0 ? 0 : static_cast<int>(block_last / S::kStageKeys + 1),
                           kShifted ? 3 : 2};
  AttentionRows<kDim> rows;
  const int64_t seen = first_row + ahead + 1;  // keys that every row of a causal block sees
  rows.whole = !a.causal ? ring.count : seen < 0 ? 0 : static_cast<int>(seen / S::kStageKeys);
  ring.init();
  __syncthreads();
  wait_for_previous();
  ring.start();

  for (int i = static_cast<int>(threadIdx.x); i < S::kScores; i += S::kThreads)
    shared.table[i] = *(table + i);
  make_exact_powers<S::kScores>(shared.exact, a.scale, static_cast<int>(threadIdx.x), S::kThreads);
  const int32_t* q = a.q.words + b * a.q.batch_strides[0] + h * a.q.batch_strides[1];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int64_t row = min(warp_row + fragment_group(lane) + 8 * r, a.queries - 1);
    rows.last_key[r] = static_cast<int>(a.causal ? row + ahead : a.keys - 1);
    rows.table[r] = shared_address(shared.table);
    const int32_t* from = q + row * a.q.row_stride;
#pragma unroll
    for (int step = 0; step < S::kSteps; ++step)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int word = step * 8 + half * 4 + quad;
        rows.query[step][half * 2 + r] =
            word < 4 * S::kWords ? static_cast<uint32_t>(*(from + word % (2 * S::kWords))) : 0u;
      }
  }
  __syncthreads();

  if constexpr (kShifted) {
    walk_scores<kDim, true, Walk::kMaxima>(ring, rows, plan, 0);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      rows.most[r] = quad_max(rows.most[r]);
      rows.table[r] += static_cast<uint32_t>(2 * kDim - rows.most[r]) * 4u;
    }
  }
  walk_scores<kDim, kShifted, Walk::kPowers>(ring, rows, plan, kShifted ? ring.count : 0);
  decide_rows<kDim, kShifted>(
      shared, rows, a, plan, q, a.k.words + b * a.k.batch_strides[0] + kv * a.k.batch_strides[1],
      a.mask != nullptr ? a.mask + b * words_for(a.keys) : nullptr, warp_row);
  int32_t out[kDim / 2];
#pragma unroll
  for (int32_t& x : out) x = 0;
  walk_bits<kDim>(ring, rows, out, (ring.walks - 1) * ring.count);

  const int64_t at = b * a.out_strides[0] + h * a.out_strides[1];
  if (a.type == ValueType::kFloat32)
    store_rows<float, kDim>(a, rows, out, at, warp_row, plan.vector_out);
  else if (a.type == ValueType::kFloat16)
    store_rows<__half, kDim>(a, rows, out, at, warp_row, plan.vector_out);
  else
    store_rows<__nv_bfloat16, kDim>(a, rows, out, at, warp_row, plan.vector_out);
}

}  // namespace bitgnn::cuda::attention

// Attention on bits with the keys and values of a head resident in shared memory: a block packs or
// copies them itself, then its warpgroups process 64 queries at a time independently.
#pragma once

#include "attention/cuda/hopper/resident_floats.cuh"
#include "attention/cuda/hopper/resident_walks.cuh"
#include "attention/cuda/limits.cuh"
#include "core/cuda/dependent_launch.cuh"
#include "core/cuda/hopper/async_copy.cuh"

namespace bitgnn::cuda::attention {

struct ResidentArgs {
  TernaryAttentionArgs attention;
  TernaryFloatOperand q, k, v;  // float operands, used instead of packed ones
  AttentionPlan plan;
  bool vector_keys;  // packed keys can be loaded 8 bytes at a time
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Calls use(score) for the keys up to `last` that a row may attend to, every 32nd key per lane.
// Called by all lanes of a warp together. If there are many keys, they are visited in storage
// order, which avoids bank conflicts.
template <class Use>
__device__ __forceinline__ void for_each_score(const ResidentMemory& memory, uint4 query,
                                               uint4 turned, int last, const Use& use) {
  constexpr int kBatch = 4;
  static_assert(kBatch * kWarp == kTileKeys);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const bool few = last < kResidentChunk / 2;
  const int end = few ? last + 1 : (last / kResidentChunk + 1) * kResidentChunk;
  const bool all = !few && *memory.ragged() == 0 && last == end - 1;
#pragma unroll 1
  for (int first = 0; first < end; first += kTileKeys) {
    uint4 low[kBatch], high[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int at = i * kWarp + lane;
      const unsigned char* key =
          memory.keys() + (few ? place_of_key(first + at)
                               : first / kTileKeys * ResidentShape::kTileBytes + at * 16);
      low[i] = *reinterpret_cast<const uint4*>(key);
      high[i] = *reinterpret_cast<const uint4*>(key + kCoreBytes);
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (!all) {
        const int at = i * kWarp + lane;
        const int key = few ? first + at
                            : first / kResidentChunk * kResidentChunk +
                                  key_of_column<64>(first / kTileKeys % 4, at);
        if (key > last || !may_attend(memory.valid(), key)) continue;
      }
      use(__popc(query.x & low[i].x) + __popc(query.y & low[i].y) + __popc(query.z & low[i].z) +
          __popc(query.w & low[i].w) + __popc(turned.x & high[i].x) + __popc(turned.y & high[i].y) +
          __popc(turned.z & high[i].z) + __popc(turned.w & high[i].w));
    }
  }
}

// The limit of one row by the definition; `last` is the last key it may attend to. Called by all
// lanes of a warp together.
__device__ __noinline__ inline int exact_resident_limit(const TernaryAttentionArgs& a, uint4 query,
                                                        uint4 turned, int last) {
  extern __shared__ __align__(128) unsigned char resident_raw[];
  const ResidentMemory memory{ResidentLayout(a.keys), resident_raw};
  int32_t* histogram = memory.scratch(static_cast<int>(threadIdx.x) / kWarp);
  for (int i = static_cast<int>(threadIdx.x) % kWarp; i < kResidentScores; i += kWarp)
    histogram[i] = 0;
  __syncwarp();
  int most = 0;  // largest score plus one
  for_each_score(memory, query, turned, last, [&](int score) {
    atomicAdd(histogram + score, 1);
    most = max(most, score + 1);
  });
  most = __reduce_max_sync(kFullWarp, most);
  __syncwarp();
  const int limit = limit_of_histogram<kResidentScores>(a, memory.exact(), histogram, most);
  __syncwarp();
  return limit;
}

// The same by a float64 sum of e^(scale (score - 128)), in any order and without a histogram, since
// a block waits for it. This decides all scores except those whose power is within 1e-12 of the
// threshold (relative), a margin wider than the effects of summation order and rounding; for those
// it falls back to the exact definition.
__device__ __noinline__ inline int resident_limit(const TernaryAttentionArgs& a, uint4 query,
                                                  uint4 turned, int last) {
  constexpr double kBound = 1e-12;
  extern __shared__ __align__(128) unsigned char resident_raw[];
  const ResidentMemory memory{ResidentLayout(a.keys), resident_raw};
  const double* power = memory.exact();
  double sum = 0.0;
  for_each_score(memory, query, turned, last,
                 [&](int score) { sum += power[kResidentScores - 1 - score]; });
#pragma unroll
  for (int step = 1; step < kWarp; step *= 2) sum += __shfl_xor_sync(kFullWarp, sum, step);
  if (sum == 0.0) return kResidentScores;  // no key
  const double threshold = 0.5 * a.bool_scale * sum;
  int surely = 0, perhaps = 0;
  for (int t = static_cast<int>(threadIdx.x) % kWarp; t < kResidentScores; t += kWarp) {
    surely += power[t] >= threshold * (1.0 + kBound) ? 1 : 0;
    perhaps += power[t] >= threshold * (1.0 - kBound) ? 1 : 0;
  }
  surely = __reduce_add_sync(kFullWarp, surely);
  perhaps = __reduce_add_sync(kFullWarp, perhaps);
  return surely == perhaps ? kResidentScores - surely
                           : exact_resident_limit(a, query, turned, last);
}

// Decides the rows' bits by an addend to packed scores. Rows with all bits or none set get all-zero
// queries, whose scores are 0.
__device__ __forceinline__ void decide_rows(uint32_t (&addend)[2], ResidentRows& rows,
                                            const TernaryAttentionArgs& a,
                                            const AttentionPlan& plan, const ResidentMemory& memory,
                                            bool ragged) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const bool second = lane % 2 != 0;  // which of the two rows this lane decides
  const float sums[2] = {quad_sum(rows.sum[0]), quad_sum(rows.sum[1])};
  float masked = 0.0f;
  if (ragged) {
    const int counts[2] = {quad_sum(rows.masked[0]), quad_sum(rows.masked[1])};
    masked = static_cast<float>(second ? counts[1] : counts[0]) * memory.table()[0];
  }
  RowLimit limit = find_limit<64>(second ? sums[1] : sums[0], masked, plan.base, plan);
  unsigned open = __ballot_sync(kFullWarp, limit.open && fragment_quad(lane) < 2);
  while (open != 0) {
    const int at = __ffs(static_cast<int>(open)) - 1;
    open &= open - 1;
    const bool odd = at % 2 != 0;
    const int quad = at & ~3;
    const auto words = [&](uint32_t word) {
      return make_uint4(__shfl_sync(kFullWarp, word, quad), __shfl_sync(kFullWarp, word, quad + 1),
                        __shfl_sync(kFullWarp, word, quad + 2),
                        __shfl_sync(kFullWarp, word, quad + 3));
    };
    const uint4 query = words(odd ? rows.query[1] : rows.query[0]);
    const uint4 turned = words(odd ? rows.query[3] : rows.query[2]);
    const int last = __shfl_sync(kFullWarp, odd ? rows.last_key[1] : rows.last_key[0], at);
    const int found = resident_limit(a, query, turned, last);
    if ((lane & ~3) == quad && second == odd) limit.at = found;
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int at = __shfl_sync(kFullWarp, limit.at, (lane & ~3) + r);
    if (at <= 0 || at > 128) rows.query[r] = rows.query[2 + r] = 0;
    addend[r] = at <= 0    ? 0x80808080u
                : at > 128 ? 0u
                           : static_cast<uint32_t>(128 - at) * 0x01010101u;
  }
}

template <class T>
__device__ __forceinline__ void store_queries(const TernaryAttentionArgs& a, ResidentRows& rows,
                                              const int32_t (&out)[32], int64_t first, int warp_row,
                                              bool vector) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int set = quad_sum(rows.set[r]);
    const int row = warp_row + fragment_group(lane) + 8 * r;
    if (row < a.queries)
      store_features<T, 64>(static_cast<T*>(a.out) + first + row * a.out_strides[2], out, r, set,
                            a.out_scale, fragment_quad(lane) * 16, a.size, vector);
  }
}

#endif

// Block (s, h, b): every gridDim.x-th tile of queries of head h of sequence b. T: the float type of
// the operands, with 16-byte aligned rows if kAligned; int32_t means packed operands.
template <class T, bool kAligned>
__global__ void __launch_bounds__(kResidentThreads, 1)
    ternary_attention_resident_kernel(const __grid_constant__ ResidentArgs args) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr bool kPacked = std::is_same_v<T, int32_t>;
  extern __shared__ __align__(128) unsigned char resident_raw[];
  const TernaryAttentionArgs& a = args.attention;
  const ResidentMemory memory{ResidentLayout(a.keys), resident_raw};
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % 32;
  const int quad = fragment_quad(lane);
  const int64_t b = blockIdx.z, h = blockIdx.y;
  const int64_t kv = blockIdx.y / static_cast<unsigned>(a.heads / a.kv_heads);
  const auto queries = static_cast<int>(a.queries), keys = static_cast<int>(a.keys);
  const auto q = [&] {
    if constexpr (kPacked)
      return head_rows(a.q, b, h);
    else
      return head_rows<T>(args.q, b, h);
  }();
  let_next_start();
  prepare_powers(memory, a, args.plan);
  wait_for_previous();
  const int tiles = (queries + 63) / 64, ahead = keys - queries;
  // With a causal mask, the longest rows run first.
  const auto row_of_tile = [&](int i) { return (a.causal ? tiles - 1 - i : i) * 64; };
  const auto fetch_queries = [&](int i) {
    if constexpr (!kPacked) {
      const int row = row_of_tile(i) + warp % 4 * 16 + lane;
      if (i < tiles && lane < 16 && row < queries) q.prefetch(row, a.size);
    }
  };
  if constexpr (!kPacked) {
    head_rows<T>(args.k, b, kv).template prefetch_all<kAligned>(keys, a.size);
    fetch_queries(warp / 4 * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x));
  }
  prepare_keys(memory, a, b);
  if constexpr (kPacked) {
    place_resident(memory, a, b, kv, args.vector_keys);
  } else {
    pack_resident_keys<T, kAligned>(memory, args.k, head_rows<T>(args.k, b, kv), keys, a.size);
    head_rows<T>(args.v, b, kv).template prefetch_all<kAligned>(keys, a.size);
  }
  wgmma_write_fence();
  __syncthreads();
  // Float values are packed after the first sums, by which time they have arrived from memory. All
  // warpgroups synchronise there, each once.
  bool have_values = kPacked;
  const auto bring_values = [&] {
    if constexpr (!kPacked) {
      if (have_values) return;
      have_values = true;
      pack_resident_values<T, kAligned>(memory, args.v, head_rows<T>(args.v, b, kv), keys, a.size);
      wgmma_write_fence();
      group_sync(1 + kResidentGroups, kResidentThreads);
    }
  };

  ResidentKeys k{};
  k.keys = plain_descriptor(shared_address(memory.keys()), kCoreBytes);
  k.values = plain_descriptor(shared_address(memory.values()), 64 * 16);
  k.valid = memory.valid();
  k.ragged = *memory.ragged();
  const int group = warp / 4;
  // Each warpgroup takes the next of the block's tiles, which are every gridDim.x-th tile.
  int tile = group;
  for (int turn = 0;; turn ^= 1) {
    const int i = tile * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x);
    if (i >= tiles) break;
    const int first_row = row_of_tile(i), warp_row = first_row + warp % 4 * 16;
    const int last_key = a.causal ? min(first_row + 64, queries) - 1 + ahead : keys - 1;
    k.chunks = last_key < 0 ? 0 : last_key / kResidentChunk + 1;
    k.whole = a.causal ? max(first_row + ahead + 1, 0) / kResidentChunk : k.chunks;
    int32_t* scratch = memory.scratch(warp);
    if constexpr (!kPacked) {
      const ternary::TernaryLimits<T> limits(ternary::load_in_place(args.q.scale));
      if (kAligned && a.size == 64 && warp_row + 16 <= queries)
        pack_queries<T, kAligned, kAligned>(scratch, q, limits, warp_row, queries - 1, a.size);
      else
        pack_queries<T, false, kAligned>(scratch, q, limits, warp_row, queries - 1, a.size);
      fetch_queries(i + kResidentGroups * static_cast<int>(gridDim.x));
    }
    ResidentRows rows;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int local = fragment_group(lane) + 8 * r, row = min(warp_row + local, queries - 1);
      rows.last_key[r] = a.causal ? row + ahead : keys - 1;
      const int32_t* words =
          kPacked ? reinterpret_cast<const int32_t*>(q.row(row)) : scratch + local * 4;
      rows.query[r] = static_cast<uint32_t>(*(words + quad));
      rows.query[2 + r] = turned_query<!kPacked>(words, quad);
    }
    __syncwarp();
    walk_powers(rows, k, args.plan, shared_address(memory.table()));
    uint32_t addend[2];
    decide_rows(addend, rows, a, args.plan, memory, k.ragged != 0);
    bring_values();
    int32_t out[32];
    walk_bits(out, rows, k, addend);
    const int64_t at = b * a.out_strides[0] + h * a.out_strides[1];
    if (a.type == ValueType::kFloat32)
      store_queries<float>(a, rows, out, at, warp_row, args.plan.vector_out);
    else if (a.type == ValueType::kFloat16)
      store_queries<__half>(a, rows, out, at, warp_row, args.plan.vector_out);
    else
      store_queries<__nv_bfloat16>(a, rows, out, at, warp_row, args.plan.vector_out);
    if (warp % 4 == 0 && lane == 0) *memory.tile_of(group, turn) = atomicAdd(memory.next_tile(), 1);
    group_sync(1 + group, 128);
    tile = *memory.tile_of(group, turn);
  }
  bring_values();
#endif
}

}  // namespace bitgnn::cuda::attention

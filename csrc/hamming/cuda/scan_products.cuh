// Adds near codes by 1-bit tensor-core products: bound by comparing the products.
//
// A warp holds up to 128 queries as fragments and reads codes 8 by 8. The distance of a query with
// p set bits and a code with c of them is p + c - 2 popc(query & code). Products start at
// -floor(c / 2), so that one comparison with a number of the query's rules nearly all codes out;
// the others are counted once more, exactly. A fragment holds words 2 q and 2 q + 1 where the
// instruction has q and q + 4, on both sides alike, so that a lane reads them at once.
#pragma once

#include <climits>

#include "core/cuda/mma_b1.cuh"
#include "hamming/cuda/nearest.cuh"

namespace bitgnn::cuda::hamming {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kMostTiles = 8;  // of 16 queries and 256 bits in a warp's registers
constexpr int kMostSteps = 4;  // of 256 bits in a row

// Words 2 quad and 2 quad + 1 of a step of a row, zeros behind its end.
__device__ __forceinline__ uint2 load_pair(const int32_t* row, int64_t word, int64_t words,
                                           bool in_pairs) {
  if (in_pairs && word < words) return *reinterpret_cast<const uint2*>(row + word);
  uint2 pair{0, 0};
  if (word < words) pair.x = static_cast<uint32_t>(row[word]);
  if (word + 1 < words) pair.y = static_cast<uint32_t>(row[word + 1]);
  return pair;
}

// Clears the padding bits of such a pair.
__device__ __forceinline__ uint2 masked_pair(uint2 pair, int64_t word, int64_t words,
                                             uint32_t mask) {
  if (word + 1 >= words) pair.x &= word + 1 == words ? mask : 0;
  if (word + 2 >= words) pair.y &= word + 2 == words ? mask : 0;
  return pair;
}

// Adds codes by the bits of `near`: bit 4 i + e stands for element e of a lane's product i.
__device__ __forceinline__ void add_near(const Round& r, uint32_t near, int64_t first_query,
                                         int64_t first_code) {
#pragma unroll 1
  for (; near != 0; near &= near - 1) {
    const int bit = __ffs(static_cast<int>(near)) - 1;
    const int64_t code = first_code + (bit & 1);
    const int64_t query = first_query + bit / 4 * kMmaRows + (bit & 2) * 4;
    if (code < r.end) r.add(query, r.distance(query, code), code);
  }
}

// Blocks along y take `query_warps` groups of queries each; the others of their warps, and blocks
// along x, share the codes.
template <int kSteps, int kTiles>
__global__ void __launch_bounds__(kThreads, 2)
    scan_products(const Round r, const int query_warps, const bool in_pairs) {
  constexpr int kColumns = kMostSteps / kSteps;  // groups of 8 codes that a warp loads at a time
  constexpr int kCodes = kColumns * kMmaColumns;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int group = fragment_group(lane), quad = fragment_quad(lane);
  const int64_t first_query =
      (static_cast<int64_t>(blockIdx.y) * query_warps + warp % query_warps) * kTiles * kMmaRows;
  if (first_query >= r.num_queries) return;

  uint32_t a[kTiles][kSteps][4], ones[kSteps][4];
  int least[kTiles][2];
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int64_t query = first_query + i * kMmaRows + h * 8 + group;
      const bool is_query = query < r.num_queries;
      least[i][h] = is_query ? ((r.counts[query] - r.limits[query]) >> 1) + 1 : INT_MAX;
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        const int64_t word = s * kMmaWords + 2 * quad;
        uint2 pair{0, 0};
        if (is_query) pair = load_pair(r.queries + query * r.words, word, r.words, in_pairs);
        pair = masked_pair(pair, word, r.words, r.mask);
        a[i][s][h] = pair.x;
        a[i][s][2 + h] = pair.y;
      }
    }
  }
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    const uint2 all =
        masked_pair(uint2{0xffffffffu, 0xffffffffu}, s * kMmaWords + 2 * quad, r.words, r.mask);
    ones[s][0] = ones[s][1] = all.x;
    ones[s][2] = ones[s][3] = all.y;
  }

  const int code_warps = kWarps / query_warps;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * code_warps * kCodes;
  for (int64_t first =
           r.begin + (static_cast<int64_t>(blockIdx.x) * code_warps + warp / query_warps) * kCodes;
       first < r.end; first += stride) {
    uint32_t b[kColumns][kSteps][2];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int64_t code = first + c * kMmaColumns + group;
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        uint2 pair{0, 0};
        if (code < r.end)
          pair = load_pair(r.codes + code * r.words, s * kMmaWords + 2 * quad, r.words, in_pairs);
        b[c][s][0] = pair.x;
        b[c][s][1] = pair.y;
      }
    }
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      int32_t set[4] = {};  // bits of the lane's two codes, twice
#pragma unroll
      for (int s = 0; s < kSteps; ++s) mma_and_popc(set, ones[s], b[c][s]);
      const int4 start{-(set[0] >> 1), -(set[1] >> 1), -(set[0] >> 1), -(set[1] >> 1)};
      int32_t d[kTiles][4];
      bool is_near = false;
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        mma_and_popc(d[i], a[i][0], b[c][0], start);
#pragma unroll
        for (int s = 1; s < kSteps; ++s) mma_and_popc(d[i], a[i][s], b[c][s]);
      }
#pragma unroll
      for (int i = 0; i < kTiles; ++i)
#pragma unroll
        for (int h = 0; h < 2; ++h)  // maxima first: half as long a chain of predicates
          is_near |= max(d[i][2 * h], d[i][2 * h + 1]) >= least[i][h];
      if (!is_near) continue;
      uint32_t near = 0;
#pragma unroll
      for (int i = 0; i < kTiles; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          near |= static_cast<uint32_t>(d[i][e] >= least[i][e >> 1]) << (4 * i + e);
      add_near(r, near, first_query + group, first + c * kMmaColumns + 2 * quad);
    }
  }
}

}  // namespace bitgnn::cuda::hamming

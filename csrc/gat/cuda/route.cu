// Graph attention over bits: a warp a row, a block for each long one.
//
// A first pass over the edges of a row finds the largest score of each head, a second one the
// weights: its lanes score 32 edges at a time and leave weights and words of bits in shared memory,
// then each lane adds the weights of its features up edge by edge. Bound by these additions, about
// six instructions for 32 features of an edge; scores and words come from the second-level cache.
#include "core/cuda/shared_memory.h"
#include "gat/cuda/scores.cuh"

namespace bitgnn::cuda::gat {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kFewHeads = 8;
constexpr int64_t kLongRow = 2 * kGatPiece;  // edges from which on a block shares a row
constexpr int64_t kRowBlocks = 16;           // blocks a multiprocessor that share rows among them
constexpr int64_t kTableBytes = int64_t{64} << 10;

__device__ __forceinline__ int64_t row_pointer(const GatArgs& a, int64_t i) {
  return a.rowptr64 ? static_cast<const int64_t*>(a.rowptr)[i]
                    : static_cast<const int32_t*>(a.rowptr)[i];
}

// Sums of one row over some edges: of signs times weights, and of weights, for a lane's features.
template <int kWords>
struct Sums {
  float values[kWords];
  float weights[kWords];

  __device__ void clear() {
#pragma unroll
    for (int t = 0; t < kWords; ++t) values[t] = weights[t] = 0.0f;
  }
  __device__ void add(const Sums& other) {
#pragma unroll
    for (int t = 0; t < kWords; ++t) {
      values[t] = __fadd_rn(values[t], other.values[t]);
      weights[t] = __fadd_rn(weights[t], other.weights[t]);
    }
  }
};

template <class Scores, int kWords, int kHeads>
class Rows {
 public:
  // Many heads of few channels are rare: not worth their code.
  static constexpr int kUnrolled = kHeads <= kFewHeads ? kHeads : 1;
  // Odd pitches let the lanes write to different banks.
  static constexpr int kWeightPitch = kHeads | 1, kWordPitch = kWords | 1;
  struct Shared {
    float weights[kWarps][kWarp][kWeightPitch];
    int32_t words[kWarps][kWarp][kWordPitch];
    float most[kWarps][kHeads];
    Sums<kWords> pieces[kWarps][kWarp];
  };

  __device__ Rows(const GatArgs& args, Shared& memory, const uint32_t* score_tables, bool shared,
                  int64_t tiles)
      : a(args), shm(memory), tables(score_tables) {
    warp = static_cast<int>(threadIdx.x) / kWarp;
    lane = static_cast<int>(threadIdx.x) % kWarp;
    tile = tile_of(args, shared, tiles);
    const int64_t channels = shared ? a.size : a.size / a.heads;
#pragma unroll
    for (int t = 0; t < kWords; ++t) {
      const int64_t k = (tile.first_word + t) * kWarp + lane;
      const int64_t head = shared ? 0 : (k < a.size ? k / channels : a.heads - 1) - tile.first_head;
      own_head[t] = head < kHeads ? static_cast<int>(head) : kHeads - 1;
    }
  }

  __device__ static Tile tile_of(const GatArgs& a, bool shared, int64_t tiles) {
    if (shared) {
      const int64_t number = blockIdx.y;
      return {number / tiles, 1, number % tiles * kWords};
    }
    const int64_t channels = a.size / a.heads, word = static_cast<int64_t>(blockIdx.y) * kWords;
    const int64_t first = word * kWarp / channels;
    const int64_t last = min(((word + kWords) * kWarp - 1) / channels, a.heads - 1);
    return {first, static_cast<int>(last - first + 1), word};
  }

  // Pieces number `first`, `first + step`, ... of a row are this warp's: all of them where step is
  // 1, else the warps of the block exchange their sums, which are added up in the pieces' order.
  __device__ void sum_row(int64_t row, int64_t begin, int64_t end, int first, int step) {
    float most[kHeads];
    find_most(row, begin, end, first, step, most);
    if (step > 1) exchange(most);
    Sums<kWords> total;
    total.clear();
    for (int64_t at = begin; at < end; at += step * kGatPiece) {
      Sums<kWords> sums;
      sums.clear();
      const int64_t own = at + first * kGatPiece;
      if (own < end) add_piece(row, own, min(own + kGatPiece, end), most, sums);
      if (step == 1) {
        total.add(sums);
        continue;
      }
      shm.pieces[warp][lane] = sums;
      __syncthreads();
      if (warp == 0)
        for (int w = 0; w < kWarps && at + w * kGatPiece < end; ++w) total.add(shm.pieces[w][lane]);
      __syncthreads();
    }
    if (first == 0) finish(row, end > begin, total);
  }

 private:
  // The largest of all warps' scores.
  __device__ void exchange(float (&most)[kHeads]) {
    __syncthreads();
    if (lane == 0)
      for (int h = 0; h < kHeads; ++h) shm.most[warp][h] = most[h];
    __syncthreads();
    for (int w = 0; w < kWarps; ++w) {
#pragma unroll kUnrolled
      for (int h = 0; h < kHeads; ++h)
        most[h] = shm.most[w][h] > most[h] ? shm.most[w][h] : most[h];
    }
  }

  // Largest scores of every `step`-th group of 32 edges, the same in all lanes.
  __device__ void find_most(int64_t row, int64_t begin, int64_t end, int first, int step,
                            float (&most)[kHeads]) {
#pragma unroll kUnrolled
    for (int h = 0; h < kHeads; ++h) most[h] = -INFINITY;
    for (int64_t e = begin + first * kWarp + lane; e < end; e += step * kWarp) {
      float s[kHeads];
      Scores::template compute<kHeads>(a, tile, tables, row, e, __ldg(a.indices + e), s);
#pragma unroll kUnrolled
      for (int h = 0; h < kHeads; ++h)
        if (h < tile.heads) most[h] = s[h] > most[h] ? s[h] : most[h];
    }
#pragma unroll kUnrolled
    for (int h = 0; h < kHeads; ++h) {
      if (h >= tile.heads) break;
#pragma unroll
      for (int offset = kWarp / 2; offset > 0; offset /= 2) {
        const float other = __shfl_xor_sync(kFullWarp, most[h], offset);
        most[h] = other > most[h] ? other : most[h];
      }
    }
  }

  __device__ void add_piece(int64_t row, int64_t begin, int64_t end, const float (&most)[kHeads],
                            Sums<kWords>& sums) {
    const int64_t words = words_for(a.size);
    for (int64_t at = begin; at < end; at += kWarp) {
      const int count = static_cast<int>(min(end - at, int64_t{kWarp}));
      if (lane < count) {
        const int64_t source = __ldg(a.indices + at + lane);
        float s[kHeads];
        Scores::template compute<kHeads>(a, tile, tables, row, at + lane, source, s);
#pragma unroll kUnrolled
        for (int h = 0; h < kHeads; ++h)
          if (h < tile.heads) shm.weights[warp][lane][h] = exponential(__fsub_rn(s[h], most[h]));
#pragma unroll
        for (int t = 0; t < kWords; ++t)
          if (tile.first_word + t < words)
            shm.words[warp][lane][t] = __ldg(a.x + source * words + tile.first_word + t);
      }
      __syncwarp();
      for (int e = 0; e < count; ++e) {
#pragma unroll
        for (int t = 0; t < kWords; ++t) {
          const float weight = shm.weights[warp][e][own_head[t]];
          const unsigned bits = static_cast<unsigned>(shm.words[warp][e][t]);
          const unsigned sign = (~bits >> lane) << 31;
          sums.values[t] =
              __fadd_rn(sums.values[t], __uint_as_float(__float_as_uint(weight) ^ sign));
          sums.weights[t] = __fadd_rn(sums.weights[t], weight);
        }
      }
      __syncwarp();
    }
  }

  __device__ void finish(int64_t row, bool has_edges, const Sums<kWords>& total) {
    const int64_t words = words_for(a.size);
#pragma unroll
    for (int t = 0; t < kWords; ++t) {
      const int64_t word = tile.first_word + t, k = word * kWarp + lane;
      if (word >= words) break;
      const int64_t column = (a.shared ? tile.first_head * a.size : 0) + k;
      float v = has_edges ? __fdiv_rn(total.values[t], total.weights[t]) : 0.0f;
      if (k < a.size && a.bias != nullptr) v = __fadd_rn(v, a.bias[column]);
      if (a.out_float != nullptr) {
        if (k < a.size) a.out_float[row * a.columns() + column] = v;
        continue;
      }
      const float least = k < a.size && a.threshold != nullptr ? a.threshold[column] : 0.0f;
      const unsigned bits = __ballot_sync(kFullWarp, k < a.size && v >= least);
      if (lane == 0) a.out_bits[row * words + word] = static_cast<int32_t>(bits);
    }
  }

  const GatArgs& a;
  Shared& shm;
  const uint32_t* tables;
  Tile tile;
  int warp, lane;
  int own_head[kWords];
};

template <class Scores, int kWords, int kHeads>
__global__ void __launch_bounds__(kThreads)
    attend(const __grid_constant__ GatArgs a, int64_t tiles, bool has_tables) {
  using Kernel = Rows<Scores, kWords, kHeads>;
  __shared__ typename Kernel::Shared memory;
  extern __shared__ uint32_t tables[];
  if constexpr (Scores::kHasTables) {
    if (has_tables) Scores::fill(a, Kernel::tile_of(a, a.shared, tiles), tables);
  }
  Kernel rows(a, memory, has_tables ? tables : nullptr, a.shared, tiles);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * kWarps; first < a.rows;
       first += static_cast<int64_t>(gridDim.x) * kWarps) {
    // Each warp its own short row, then all warps the long ones.
    for (int i = -1; i < kWarps; ++i) {
      const int64_t row = first + (i < 0 ? warp : i);
      if (row >= a.rows) continue;
      const int64_t begin = row_pointer(a, row), end = row_pointer(a, row + 1);
      if ((end - begin > kLongRow) == (i < 0)) continue;
      rows.sum_row(row, begin, end, i < 0 ? 0 : warp, i < 0 ? 1 : kWarps);
    }
  }
}

template <class Scores, int kWords, int kHeads>
cudaError_t launch(const GatArgs& a, const Context& context) {
  const int64_t tiles = ceil_div(words_for(a.size), kWords);
  int64_t bytes = 0;
  if (Scores::kHasTables) {
    const int64_t heads = a.shared ? 1 : kHeads;
    bytes = heads * most_parts(a.width / a.heads) * 2 * kPartEntries * int64_t{sizeof(uint32_t)};
    if (bytes > kTableBytes) bytes = 0;  // scores are added up from global memory
  }
  const auto kernel = attend<Scores, kWords, kHeads>;
  if (bytes > 0) {
    const cudaError_t status = grant_shared_memory(kernel, bytes);
    if (status != cudaSuccess) return status;
  }
  // Tables serve several rows.
  const int64_t blocks = ceil_div(a.rows, kWarps),
                most = bytes > 0 ? kRowBlocks * context.device.sm_count : 0x7fffffff;
  const dim3 grid(static_cast<unsigned>(blocks < most ? blocks : most),
                  static_cast<unsigned>(a.shared ? a.heads * tiles : tiles));
  kernel<<<grid, kThreads, static_cast<size_t>(bytes), context.stream>>>(a, tiles, bytes > 0);
  return cudaGetLastError();
}

// Heads that the features of so many words touch at most.
int64_t heads_of(const GatArgs& a, int64_t words) {
  const int64_t channels = a.size / a.heads;
  const int64_t touched = (words * kWarp + channels - 2) / channels + 1;
  return touched < a.heads ? touched : a.heads;
}

template <class Scores, int kHeads>
cudaError_t launch_words(const GatArgs& a, int64_t most, const Context& context) {
  const int64_t words = words_for(a.size) < most ? words_for(a.size) : most;
  return words > 2 ? launch<Scores, 8, kHeads>(a, context) : launch<Scores, 2, kHeads>(a, context);
}

template <class Scores>
cudaError_t launch_heads(const GatArgs& a, const Context& context) {
  if (a.shared || a.heads == 1) return launch_words<Scores, 1>(a, 8, context);
  for (const int64_t words : {8, 2})
    if (heads_of(a, words) <= kFewHeads) return launch_words<Scores, kFewHeads>(a, words, context);
  return launch<Scores, 1, kWarp + 1>(a, context);
}

}  // namespace

cudaError_t gat(const GatArgs& a, const Context& context) {
  if (a.rows == 0 || a.size == 0) return cudaSuccess;
  if (a.scores == GatScores::kPairs) return launch_heads<PairScores>(a, context);
  return a.scores == GatScores::kDots ? launch_heads<DotScores>(a, context)
                                      : launch_heads<NodeScores>(a, context);
}

}  // namespace bitgnn::cuda::gat

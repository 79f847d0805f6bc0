// Decides the bits of attention by one integer limit per query, from float32 sums of powers of e;
// queries whose limit these leave undecided are resolved by the exact definition.
#pragma once

#include "attention/cuda/tiles.cuh"
#include "attention/softmax_table.h"

namespace bitgnn::cuda::attention {

// Precomputed constants of the attention kernels; see plan_attention().
struct AttentionPlan {
  float slope;           // log2(e) * scale
  float addend;          // exponent = slope * (score + kScoreOffset) + addend
  double base;           // ... = slope * score - base
  double step;           // slope in float64
  double highest;        // power of the highest possible score, 2 kDim
  double inverse;        // 1 / slope
  double log_threshold;  // log2(0.5 * bool_scale)
  double error;          // bound on the relative error of the float32 sums
  int four;              // 4, hidden from the compiler
  bool exact;            // decide every row by its histogram
  bool vector_out;       // rows can be stored 16 bytes at a time
};

// Index of score v of the warp's row g + 8 r in a lane's accumulators.
constexpr int score_index(int v, int r) { return 4 * (v / 2) + v % 2 + 2 * r; }

// Key of score v of tile `tile`, relative to the lane's first key of the stage.
template <int kDim>
constexpr int score_key(int v, int tile) {
  using S = AttentionShape<kDim>;
  return v / S::kBits * 32 + (S::kPack - 1 - tile) * S::kBits + v % S::kBits;
}

// Mask of this lane's keys in word k of the stage with index <= `last`, relative to its first key.
__device__ __forceinline__ uint32_t bits_through(int last, int k) {
  const int bit = last - 32 * k;
  return bit >= 31 ? 0xffffffffu : bit < 0 ? 0u : (2u << bit) - 1u;
}

// Sums of powers for two rows, with two chains of additions each.
struct RowSums {
  float sum[2][2] = {};
  int masked[2] = {};  // masked keys, which were added as score 0
};

__device__ __forceinline__ float exp2_approximate(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}

__device__ __forceinline__ float load_power(uint32_t address) {
  float power;
  asm("ld.shared.f32 %0, [%1];" : "=f"(power) : "r"(address));
  return power;
}

// Offset that makes kScoreOffset + score a float whose mantissa contains the score, so that no
// conversion is needed.
template <int kDim>
constexpr float kScoreOffset = kDim <= 64 ? 128.0f : 256.0f;

// `exponent`: 0x4300, in its own register.
template <int kDim>
__device__ __forceinline__ float offset_score(int32_t score, uint32_t exponent) {
  const auto bits = static_cast<uint32_t>(score);
  if constexpr (kDim <= 64) return __uint_as_float(__byte_perm(bits, exponent, 0x5044));
  return __uint_as_float(bits * 32768u + 0x43800000u);
}

// Of eight scores, kLookups get their power from the table in shared memory, which balances loads
// against the special function units. kMultiplied of the addresses are computed by multiplication,
// the others by shifts, on two pipes of half rate each.
constexpr int kLookups = 6;
constexpr int kMultiplied = 4;

// Adds the powers of a tile's scores. table[r]: shared-memory address of row r's power of score 0.
template <int kDim, bool kShifted, bool kEdge>
__device__ __forceinline__ void add_powers(
    RowSums& sums, const int32_t (&score)[AttentionShape<kDim>::kPartScores],
    const AttentionPlan& plan, const uint32_t (&table)[2], const int (&last)[2], int tile,
    int part) {
  uint32_t exponent;
  asm volatile("mov.u32 %0, 0x4300;" : "=r"(exponent));
  const auto four = static_cast<uint32_t>(plan.four);
#pragma unroll
  for (int v = 0; v < AttentionShape<kDim>::kPartScores / 2; ++v) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int32_t s = score[score_index(v, r)];
      const int place = (2 * v + r) * 3 % 8;
      float power;
      if (kShifted || place < kLookups)
        power = load_power(static_cast<uint32_t>(s) * (place < kMultiplied ? four : 4u) + table[r]);
      else
        power =
            exp2_approximate(__fmaf_rn(offset_score<kDim>(s, exponent), plan.slope, plan.addend));
      if (kEdge &&
          score_key<kDim>(v + part * (AttentionShape<kDim>::kPartScores / 2), tile) > last[r])
        power = 0.0f;
      sums.sum[r][v % 2] = __fadd_rn(sums.sum[r][v % 2], power);
    }
  }
}

template <int kDim, bool kEdge>
__device__ __forceinline__ void take_maxima(
    int (&most)[2], const int32_t (&score)[AttentionShape<kDim>::kPartScores], const int (&last)[2],
    int tile, int part) {
#pragma unroll
  for (int v = 0; v < AttentionShape<kDim>::kPartScores / 2; ++v)
#pragma unroll
    for (int r = 0; r < 2; ++r)
      if (!kEdge ||
          score_key<kDim>(v + part * (AttentionShape<kDim>::kPartScores / 2), tile) <= last[r])
        most[r] = max(most[r], score[score_index(v, r)]);
}

template <class T>
__device__ __forceinline__ T quad_sum(T x) {
  x += __shfl_xor_sync(kFullWarp, x, 1);
  return x + __shfl_xor_sync(kFullWarp, x, 2);
}

__device__ __forceinline__ int quad_max(int x) {
  x = max(x, __shfl_xor_sync(kFullWarp, x, 1));
  return max(x, __shfl_xor_sync(kFullWarp, x, 2));
}

// Decision of a row: the bits of scores >= at are set.
struct RowLimit {
  int at;
  bool open;  // float32 could not decide
};

// With sum = sum_j 2^(slope score_j - base), the bit of a key is set where
//   slope * score >= log_threshold + log2(sum) + base.
// Error bound: a relative error e of the sum moves the limit by log2(1 + e) / slope; log2f of the
// mantissa, at most 1, is accurate to one ulp.
template <int kDim>
__device__ __forceinline__ RowLimit find_limit(float sum, float masked, double base,
                                               const AttentionPlan& plan) {
  const float rest = sum - masked;
  const float error = static_cast<float>(plan.error) * 1.01f * __fdividef(sum, rest);
  const int bits = __float_as_int(rest);
  const float mantissa = log2f(__int_as_float((bits & 0x007fffff) | 0x3f800000));
  const double log_sum = static_cast<double>((bits >> 23) - 127) + static_cast<double>(mantissa);
  const double x = (log_sum + plan.log_threshold + base) * plan.inverse;
  const double bound = static_cast<double>(error * 1.5f + 5e-7f) * plan.inverse + 1e-9;
  if (!(rest > 0.0f) || !(error < 0.01f) || plan.exact) return {0, true};
  if (x - bound > 2.0 * kDim) return {2 * kDim + 1, false};
  if (x + bound < 0.0) return {0, false};
  if (!(fabs(x - rint(x)) > bound)) return {0, true};
  return {static_cast<int>(ceil(x)), false};
}

// The limit by the definition (TernaryAttentionArgs), from a histogram of scores with the maximum
// most - 1: a float64 sum in the order of t. exact[t]: e^(-scale t).
template <int kScores>
__device__ __forceinline__ int limit_of_histogram(const TernaryAttentionArgs& a,
                                                  const double* exact, const int32_t* histogram,
                                                  int most) {
  if (most == 0) return kScores;
  double sum = 0.0, least = 1.0;  // least is T[t], which is non-increasing
  for (int t = 0; t < most; ++t) {
    least = exact[t] < least ? exact[t] : least;
    sum = sum + least * histogram[most - 1 - t];
  }
  const double threshold = 0.5 * a.bool_scale * sum;
  int reached = 0;
  for (least = 1.0; reached < kScores; ++reached) {
    least = exact[reached] < least ? exact[reached] : least;
    if (!(least >= threshold)) break;
  }
  return most - reached;  // the largest score minus (reached - 1)
}

// Computes the powers that limit_of_histogram() reads.
template <int kScores>
__device__ __forceinline__ void make_exact_powers(double* exact, double scale, int thread,
                                                  int threads) {
  for (int t = thread; t < kScores; t += threads)
    exact[t] = exact_exp(-(scale * static_cast<double>(t)));
}

// The limit of one row by the definition; `last` is the last key it may attend to. Called by all
// lanes of a warp together.
template <int kDim>
__device__ __noinline__ int exact_limit(const TernaryAttentionArgs& a, const int32_t* q,
                                        const int32_t* k, const int32_t* mask, int64_t last,
                                        const double* exact, int32_t* histogram) {
  // Without these, atomicAdd compiles to a compare-and-swap loop on generic addresses.
  __builtin_assume(__isShared(histogram));
  __builtin_assume(__isShared(exact));
  constexpr int kWords = kDim / 32;
  constexpr int kScores = 2 * kDim + 1;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int i = lane; i < kScores; i += kWarp) histogram[i] = 0;
  uint32_t p[kWords], n[kWords];
  int set = 0;
#pragma unroll
  for (int w = 0; w < kWords; ++w) {
    p[w] = static_cast<uint32_t>(*(q + w));
    n[w] = static_cast<uint32_t>(*(q + kWords + w));
    set += __popc(p[w]) + __popc(n[w]);
  }
  __syncwarp();
  const int64_t keys = min(a.keys, last + 1);
  int most = 0;  // one more than the largest score
  for (int64_t j = lane; j < keys; j += kWarp) {
    if (mask != nullptr && (*(mask + j / 32) >> (j % 32) & 1) == 0) continue;
    const int32_t* row = k + j * a.k.row_stride;
    int score = set;
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      const auto pos = static_cast<uint32_t>(*(row + w));
      const auto neg = static_cast<uint32_t>(*(row + kWords + w));
      score += __popc((p[w] & pos) | (n[w] & neg)) - __popc((p[w] & neg) | (n[w] & pos));
    }
    atomicAdd(histogram + score, 1);
    most = max(most, score + 1);
  }
  __syncwarp();
  for (int step = 16; step > 0; step /= 2) most = max(most, __shfl_xor_sync(kFullWarp, most, step));
  const int limit = limit_of_histogram<kScores>(a, exact, histogram, most);
  __syncwarp();
  return limit;
}

}  // namespace bitgnn::cuda::attention

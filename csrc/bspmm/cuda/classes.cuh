// The class of a row: the feature of its largest sum, found where the sums are counted.
#pragma once

#include "bspmm/cuda/staged.cuh"

namespace bitgnn::cuda::bspmm {

// The largest value so far and its feature, with the order of torch.argmax: the first of equal
// ones; NaN is above all. No value is below the initial one, whose feature is the first.
struct Largest {
  float value = -INFINITY;
  int feature = 0;

  // Takes a value of a later feature.
  __device__ __forceinline__ void take(float other, int other_feature) {
    if (other <= value || value != value) return;
    value = other;
    feature = other_feature;
  }
  // Takes one of any other features.
  __device__ __forceinline__ void merge(const Largest& other) {
    const bool is_nan = value != value, other_is_nan = other.value != other.value;
    const bool above = !is_nan && (other_is_nan || other.value > value);
    const bool equal = is_nan ? other_is_nan : other.value == value;
    if (above || (equal && other.feature < feature)) *this = other;
  }
  // Merges those of groups of lanes.
  template <int kGroup>
  __device__ __forceinline__ void merge_lanes() {
#pragma unroll
    for (int step = kGroup / 2; step > 0; step /= 2)
      merge({__shfl_xor_sync(kFullWarp, value, step), __shfl_xor_sync(kFullWarp, feature, step)});
  }
};

// The lane of a warp's only row that keeps a word after folding to one word a lane.
template <class Lanes>
__device__ constexpr int keeper_of(int word) {
  static_assert(Lanes::kRows == 1 && Lanes::kWords == 4 && Lanes::kKept == 1);
  const int kept = word % Lanes::kWords;
  return (kept >> 1 | (kept & 1) << 1) * Lanes::kColumns + word / Lanes::kWords;
}

struct StagedClasses {
  using State = Largest;
  CsrRows source;
  int access;
  int64_t* classes;

  __device__ __forceinline__ float value_of(float scale, float sum, float bias) const {
    return __fadd_rn(__fmul_rn(scale, sum), bias);
  }
  __device__ __forceinline__ float bias_of(int64_t feature) const {
    return source.a.bias != nullptr ? __ldg(source.a.bias + feature) : -0.0f;
  }

  // Each lane turns the counts of its words to bytes and goes through their features.
  template <class Lanes, int kPlanes>
  __device__ __forceinline__ void rows(State& state, const Lanes& lanes,
                                       const CountPlanes<Lanes::kKept, kPlanes>& counts, int64_t,
                                       float scale, int degree, bool wanted, int64_t chunk) const {
    static_assert(Lanes::kKept == Lanes::kWords && kPlanes < kMostShortPlanes);
    if (!wanted) return;
    const AggregateArgs& a = source.a;
    // A byte b in the lowest place makes the float 2^23 + b.
    constexpr uint32_t kTwoTo23 = 0x4b000000u;
    const float offset = 8388608.0f + static_cast<float>(degree);
#pragma unroll 1
    for (int w = 0; w < Lanes::kWords; ++w) {
      const int64_t word = chunk + lanes.word() + w;
      if (word >= words_for(a.features)) break;
      uint32_t doubled[kPlanes + 1], bytes[8];  // planes of 2 count
      doubled[0] = 0;
#pragma unroll
      for (int p = 0; p < kPlanes; ++p) {
        doubled[p + 1] = counts.plane[p][0];
#pragma unroll
        for (int other = 1; other < Lanes::kWords; ++other)
          if (w == other) doubled[p + 1] = counts.plane[p][other];
      }
      make_bytes(bytes, doubled);
#pragma unroll 1
      for (int run = 0; run < 4; ++run) {  // of eight features
        const int64_t first = word * kWordBits + 8 * run;
        const unsigned selector = 0x7440u + static_cast<unsigned>(run);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int64_t feature = first + 4 * half;
          const int left = features_left(a, feature, true);
          const float4 bias = load_quad(a.bias, feature, left, -0.0f);
          const float biases[4] = {bias.x, bias.y, bias.z, bias.w};
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const float sum = __fadd_rn(
                __uint_as_float(__byte_perm(bytes[4 * half + i], kTwoTo23, selector)), -offset);
            if (i < left)
              state.take(value_of(scale, sum, biases[i]), static_cast<int>(feature) + i);
          }
        }
      }
    }
  }

  // A warp goes through the words of a row, a feature per lane.
  template <class Lanes, int kPlanes>
  __device__ __forceinline__ void long_row(State& state, const Lanes& lanes,
                                           const CountPlanes<Lanes::kKept, kPlanes>& counts,
                                           int owner, int64_t, float scale, int degree,
                                           int64_t chunk) const {
    const auto float_degree = static_cast<float>(degree);
    Largest own;
#pragma unroll 1
    for (int w = 0; w < Lanes::kRowWords; ++w) {
      const int64_t first = (chunk + w) * kWordBits;
      if (first >= source.a.features) break;
      const int holder = keeper_of<Lanes>(w);
      int count = 0;
#pragma unroll
      for (int p = 0; p < kPlanes; ++p) {
        const uint32_t plane = __shfl_sync(kFullWarp, counts.plane[p][0], holder);
        count |= static_cast<int>(plane >> lanes.lane & 1u) << p;
      }
      const int64_t feature = first + lanes.lane;
      if (feature < source.a.features)
        own.take(value_of(scale, signed_float<false>(count, float_degree), bias_of(feature)),
                 static_cast<int>(feature));
    }
    own.merge_lanes<kWarp>();
    if (lanes.lane == owner) state.merge(own);
  }

  // A block goes through the features of a hub.
  template <int kRowWords>
  __device__ __forceinline__ void hub(State& state, const LongRow& row, float scale,
                                      const int* counts, int64_t chunk) const {
    for (int k = threadIdx.x; k < kRowWords * kWarp; k += kStagedThreads) {
      const int64_t feature = chunk * kWordBits + k;
      if (feature >= source.a.features) return;
      const float sum = __int2float_rn(signed_sum<false>(counts[k], row.extent.degree));
      state.take(value_of(scale, sum, bias_of(feature)), static_cast<int>(feature));
    }
  }

  template <class Lanes>
  __device__ __forceinline__ void close(State state, const Lanes& lanes, int64_t row,
                                        bool wanted) const {
    state.template merge_lanes<Lanes::kColumns>();
    if (wanted && lanes.is_first_of_row()) classes[row] = state.feature;
  }
  __device__ __forceinline__ void close_hub(State state, int64_t row) const {
    __shared__ Largest found[kStagedWarps];
    state.merge_lanes<kWarp>();
    if (threadIdx.x % kWarp == 0) found[threadIdx.x / kWarp] = state;
    __syncthreads();
    if (threadIdx.x == 0) {
#pragma unroll
      for (int warp = 1; warp < kStagedWarps; ++warp) state.merge(found[warp]);
      classes[row] = state.feature;
    }
    __syncthreads();
  }
};

}  // namespace bitgnn::cuda::bspmm

// Bit-sliced neighbour counts on the device: each plane is a word with bit p of every feature's
// count. Carry-save addition (Harley-Seal): a full adder of three words is two LOP3 instructions,
// so eight neighbours cost seven full adders and one carry ripple, for 32 features per word at
// once.
#pragma once

#include "core/cuda/common.cuh"

namespace bitgnn::cuda::bspmm {

__device__ __forceinline__ uint32_t majority(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xE8;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
  return result;
}

// sum += x + y; returns the carry, of twice the weight.
__device__ __forceinline__ uint32_t full_add(uint32_t& sum, uint32_t x, uint32_t y) {
  const uint32_t carry = majority(sum, x, y);
  sum = sum ^ x ^ y;
  return carry;
}

// x + y, and its carry, of twice the weight.
__device__ __forceinline__ uint32_t half_add(uint32_t x, uint32_t y, uint32_t& carry) {
  carry = x & y;
  return x ^ y;
}

// Consecutive words of a packed row, read in one access.
template <int kWords>
struct WordVector {
  uint32_t word[kWords];
};

template <int kWords>
__device__ __forceinline__ WordVector<kWords> load_words(const uint32_t* source) {
  WordVector<kWords> x;
  if constexpr (kWords == 4) {
    const uint4 v = *reinterpret_cast<const uint4*>(source);
    x.word[0] = v.x, x.word[1] = v.y, x.word[2] = v.z, x.word[3] = v.w;
  } else if constexpr (kWords == 2) {
    const uint2 v = *reinterpret_cast<const uint2*>(source);
    x.word[0] = v.x, x.word[1] = v.y;
  } else {
    x.word[0] = *source;
  }
  return x;
}

template <int kWords>
__device__ __forceinline__ void store_words(uint32_t* target, const uint32_t (&x)[kWords]) {
  if constexpr (kWords == 4) {
    *reinterpret_cast<uint4*>(target) = make_uint4(x[0], x[1], x[2], x[3]);
  } else if constexpr (kWords == 2) {
    *reinterpret_cast<uint2*>(target) = make_uint2(x[0], x[1]);
  } else {
    *target = x[0];
  }
}

// Counts below 2^kPlanes for the features of kWords words.
template <int kWords, int kPlanes>
struct CountPlanes {
  uint32_t plane[kPlanes][kWords];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int p = 0; p < kPlanes; ++p)
#pragma unroll
      for (int w = 0; w < kWords; ++w) plane[p][w] = 0;
  }

  // Sets the counts to those of a batch of four or eight rows.
  template <int kBatch>
  __device__ __forceinline__ void set(const WordVector<kWords> (&x)[kBatch]) {
    static_assert(kBatch == 4 || kBatch == 8, "a batch is four or eight rows");
    static_assert(kPlanes >= (kBatch == 8 ? 4 : 3), "the planes hold a batch");
    clear();
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      uint32_t ones = x[0].word[w];
      const uint32_t first = full_add(ones, x[1].word[w], x[2].word[w]);
      if constexpr (kBatch == 4) {
        plane[0][w] = half_add(ones, x[3].word[w], plane[1][w]);
        plane[1][w] = half_add(first, plane[1][w], plane[2][w]);
      } else {
        const uint32_t second = full_add(ones, x[3].word[w], x[4].word[w]);
        const uint32_t third = full_add(ones, x[5].word[w], x[6].word[w]);
        uint32_t last, twos = first;
        plane[0][w] = half_add(ones, x[7].word[w], last);
        const uint32_t fours = full_add(twos, second, third);
        plane[1][w] = half_add(twos, last, plane[2][w]);
        plane[2][w] = half_add(fours, plane[2][w], plane[3][w]);
      }
    }
  }

  // Adds a batch of four or eight rows.
  template <int kBatch>
  __device__ __forceinline__ void add(const WordVector<kWords> (&x)[kBatch]) {
    static_assert(kBatch == 4 || kBatch == 8, "a batch is four or eight rows");
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      uint32_t carry = add_four(w, x[0].word[w], x[1].word[w], x[2].word[w], x[3].word[w]);
      int level = 2;
      if constexpr (kBatch == 8) {
        const uint32_t second = add_four(w, x[4].word[w], x[5].word[w], x[6].word[w], x[7].word[w]);
        carry = full_add(plane[2][w], carry, second);
        level = 3;
      }
      ripple(w, level, carry);
    }
  }

  // Adds counts with fewer planes.
  template <int kOther>
  __device__ __forceinline__ void add(const CountPlanes<kWords, kOther>& other) {
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      uint32_t carry = 0;
#pragma unroll
      for (int p = 0; p < kOther; ++p) carry = full_add(plane[p][w], other.plane[p][w], carry);
      ripple(w, kOther, carry);
    }
  }

  // Bits of count >= bound for one word, by a bit-sliced comparison from the lowest plane up: the
  // majority of (plane, result so far, not bound).
  __device__ __forceinline__ uint32_t at_least(int w, uint32_t bound) const {
    uint32_t result = ~0u;
#pragma unroll
    for (int p = 0; p < kPlanes; ++p)
      result = majority(plane[p][w], result, ((bound >> p) & 1) - 1);
    return result;
  }

 private:
  __device__ __forceinline__ uint32_t add_four(int w, uint32_t a, uint32_t b, uint32_t c,
                                               uint32_t d) {
    const uint32_t first = full_add(plane[0][w], a, b);
    const uint32_t second = full_add(plane[0][w], c, d);
    return full_add(plane[1][w], first, second);
  }

  __device__ __forceinline__ void ripple(int w, int level, uint32_t carry) {
#pragma unroll
    for (int p = 0; p < kPlanes; ++p) {
      if (p < level) continue;
      const uint32_t next = plane[p][w] & carry;
      plane[p][w] ^= carry;
      carry = next;
    }
  }
};

// Adds the counts of lanes `distance` apart. With two or more words each lane keeps half, `upper`
// lanes the second half; with a single word both keep the sum.
template <int kWords, int kPlanes>
__device__ __forceinline__ auto fold(const CountPlanes<kWords, kPlanes>& own, int distance,
                                     bool upper) {
  constexpr int kKept = kWords > 1 ? kWords / 2 : 1;
  CountPlanes<kKept, kPlanes + 1> sum;
#pragma unroll
  for (int w = 0; w < kKept; ++w) {
    uint32_t carry = 0;
#pragma unroll
    for (int p = 0; p < kPlanes; ++p) {
      const uint32_t low = own.plane[p][w], high = own.plane[p][kWords > 1 ? w + kKept : w];
      const uint32_t kept = upper ? high : low;
      const uint32_t other = __shfl_xor_sync(kFullWarp, upper ? low : high, distance);
      sum.plane[p][w] = kept;
      carry = full_add(sum.plane[p][w], other, carry);
    }
    sum.plane[kPlanes][w] = carry;
  }
  return sum;
}

// Adds the counts of kLanes lanes that are `stride` lanes apart; `lane` is the place among them.
template <int kLanes, int kWords, int kPlanes>
__device__ __forceinline__ auto fold_lanes(const CountPlanes<kWords, kPlanes>& own, int stride,
                                           int lane) {
  if constexpr (kLanes == 1) {
    return own;
  } else {
    return fold_lanes<kLanes / 2>(fold(own, stride, (lane & 1) != 0), 2 * stride, lane >> 1);
  }
}

// The first word of kWords that `lane` of kLanes keeps after fold_lanes.
template <int kLanes, int kWords>
__device__ __forceinline__ int kept_word(int lane) {
  if constexpr (kLanes == 1 || kWords == 1) {
    return 0;
  } else {
    return (lane & 1) * (kWords / 2) + kept_word<kLanes / 2, kWords / 2>(lane >> 1);
  }
}

}  // namespace bitgnn::cuda::bspmm

// Writes the keys and values of attention on bits to memory once in tile order, so that every block
// of queries can copy them verbatim.
#pragma once

#include "attention/cuda/tiles.cuh"
#include "core/cuda/dependent_launch.cuh"

namespace bitgnn::cuda::attention {

constexpr int kImageThreads = 256;

// Mask of the 32 keys from `word` * 32 that exist and may be attended to.
__device__ __forceinline__ uint32_t valid_keys(const int32_t* mask, int64_t keys, int64_t word) {
  if (word * 32 >= keys) return 0;
  const uint32_t all = mask != nullptr ? static_cast<uint32_t>(*(mask + word)) : 0xffffffffu;
  return (word + 1) * 32 <= keys ? all : all & ((1u << (keys % 32)) - 1u);
}

template <int kCount>
__device__ __forceinline__ void load_words(uint32_t (&to)[kCount], const int32_t* from,
                                           bool vector) {
  if (vector) {
#pragma unroll
    for (int i = 0; i < kCount; i += 2) {
      const uint2 part = *(reinterpret_cast<const uint2*>(from + i));
      to[i] = part.x, to[i + 1] = part.y;
    }
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) to[i] = static_cast<uint32_t>(*(from + i));
  }
}

// Stores a key (p, n) as (p, n, ~n, ~p): with queries (p, n, p, n), one product counts all terms. A
// masked key is all zeros, so its score is 0.
template <int kDim>
__device__ __forceinline__ void place_key(AttentionStage<kDim>& stage, int item, const int32_t* k,
                                          int64_t row_stride, const uint32_t* valid, bool vector) {
  using S = AttentionShape<kDim>;
  const int column = item % kTileKeys, tile = item / kTileKeys;
  const int local = key_of_column<kDim>(tile, column);
  uint32_t word[4 * S::kWords] = {};
  if ((valid[local / 32] >> (local % 32) & 1) != 0) {
    uint32_t key[2 * S::kWords];
    load_words(key, k + local * row_stride, vector);
#pragma unroll
    for (int w = 0; w < S::kWords; ++w) {
      word[w] = key[w];
      word[S::kWords + w] = key[S::kWords + w];
      word[2 * S::kWords + w] = ~key[S::kWords + w];
      word[3 * S::kWords + w] = ~key[w];
    }
  }
#pragma unroll
  for (int core = 0; core < S::kWords; ++core)
    *reinterpret_cast<uint4*>(stage.keys + tile * S::kTileBytes + key_place(column, core)) =
        make_uint4(word[4 * core], word[4 * core + 1], word[4 * core + 2], word[4 * core + 3]);
}

// Stores one item of the values: the kPack words of keys of one lane of a quad, for one plane of a
// feature. Plane n is stored as ~n. Results of features out of range are not stored, and keys out
// of range are multiplied by zeros.
template <int kDim>
__device__ __forceinline__ void place_values(AttentionStage<kDim>& stage, int item,
                                             const TernaryAttentionArgs& a, const int32_t* v,
                                             int64_t first_word, bool vector) {
  using S = AttentionShape<kDim>;
  const int column = item / 4 % kDim, plane = item / (4 * kDim);
  const int feature = feature_of_column<kDim>(column);
  const int64_t words = words_for(a.keys), word = first_word + item % 4 * S::kPack;
  const int32_t* from = v + feature * a.v.row_stride + plane * words + word;
  uint32_t value[S::kPack] = {};
  if (feature < a.size) {
    if (vector && word + S::kPack <= words) {
      load_words(value, from, true);
    } else {
#pragma unroll
      for (int k = 0; k < S::kPack; ++k)
        if (word + k < words) value[k] = static_cast<uint32_t>(*(from + k));
    }
  }
#pragma unroll
  for (int k = 0; k < S::kPack; ++k)
    *reinterpret_cast<uint32_t*>(stage.values + (k / 2 * 2 + plane) * S::kPlaneBytes +
                                 value_place<kDim>(column, k % 2) + item % 4 * 4) =
        plane == 0 ? value[k] : ~value[k];
}

// Table of the powers of two of consecutive scores, for the lookups of the sums.
struct AttentionTable {
  float* table;
  int entries;
  double slope;  // table[i] = 2^(slope * i + first)
  double first;
};

// Block (s, h, b): stage s of key and value head h of sequence b.
template <int kDim>
__global__ void __launch_bounds__(kImageThreads)
    attention_image_kernel(const __grid_constant__ TernaryAttentionArgs a,
                           const __grid_constant__ AttentionTable table,
                           AttentionStage<kDim>* stages, bool vector_keys, bool vector_values) {
  using S = AttentionShape<kDim>;
  __shared__ uint32_t valid[S::kStageWords];
  let_next_start();
  wait_for_previous();
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t b = blockIdx.z, h = blockIdx.y, s = blockIdx.x;
  AttentionStage<kDim>& stage = stages[(b * gridDim.y + h) * gridDim.x + s];
  if (thread < S::kStageWords) {
    const int32_t* mask = a.mask != nullptr ? a.mask + b * words_for(a.keys) : nullptr;
    valid[thread] = valid_keys(mask, a.keys, s * S::kStageWords + thread);
    stage.valid[thread] = valid[thread];
  }
  __syncthreads();
  const int32_t* k = a.k.words + b * a.k.batch_strides[0] + h * a.k.batch_strides[1] +
                     s * S::kStageKeys * a.k.row_stride;
  for (int item = thread; item < S::kStageKeys; item += kImageThreads)
    place_key(stage, item, k, a.k.row_stride, valid, vector_keys);
  const int32_t* v = a.v.words + b * a.v.batch_strides[0] + h * a.v.batch_strides[1];
  for (int item = thread; item < 8 * kDim; item += kImageThreads)
    place_values(stage, item, a, v, s * S::kStageWords, vector_values);
  if (b == 0 && h == 0 && s == 0)
    for (int i = thread; i < table.entries; i += kImageThreads)
      table.table[i] = static_cast<float>(exp2(table.slope * i + table.first));
}

}  // namespace bitgnn::cuda::attention

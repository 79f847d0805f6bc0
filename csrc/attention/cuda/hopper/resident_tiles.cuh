// Shared-memory layout of a head's resident keys and values for attention on bits.
#pragma once

#include "attention/cuda/tiles.cuh"

namespace bitgnn::cuda::attention {

// A chunk is a stage of AttentionShape<64>: 512 keys in four tiles of 128, and their values in two
// fragments of 256. A lane's keys of a chunk are kLaneWords words; tile t holds eight bits of each,
// starting at first_bit_of_tile(t).
using ResidentShape = AttentionShape<64>;
constexpr int kResidentGroups = 4;  // warpgroups per block
constexpr int kResidentThreads = 128 * kResidentGroups;
constexpr int kResidentWarps = kResidentThreads / 32;
constexpr int kResidentChunk = ResidentShape::kStageKeys;
constexpr int kLaneWords = ResidentShape::kPack;
constexpr int kResidentScores = ResidentShape::kScores;
constexpr int kFragmentBytes = 2 * ResidentShape::kPlaneBytes;
constexpr int kMostResidentKeys = 4096;  // ragged() also has only one bit per chunk

__device__ __forceinline__ int first_key_of_lane(int chunk, int quad) {
  return chunk * kResidentChunk + quad * (32 * kLaneWords);
}
constexpr __device__ int first_bit_of_tile(int tile) { return (3 - tile) * 8; }

// Descriptor offsets, in units of 16 bytes; a column is one unit.
constexpr __device__ int chunk_of_keys(int chunk) {
  return chunk * (4 * ResidentShape::kTileBytes / 16);
}
constexpr __device__ int half_of_tile(int tile, int half) {
  return tile * (ResidentShape::kTileBytes / 16) + half * 64;
}
constexpr __device__ int plane_of_values(int chunk, int fragment, int plane) {
  return ((chunk * 2 + fragment) * 2 + plane) * (ResidentShape::kPlaneBytes / 16);
}

// Byte offset of a key's first 128 bits; the other 128 follow at +kCoreBytes.
__device__ __forceinline__ int place_of_key(int key) {
  const int chunk = key / kResidentChunk, local = key % kResidentChunk, bit = key % 32;
  const int v = local / 32 % kLaneWords * 8 + bit % 8;
  const int column = v / 2 * 8 + local / (32 * kLaneWords) * 2 + v % 2;
  return (chunk * 4 + 3 - bit / 8) * ResidentShape::kTileBytes + column * 16;
}

// Byte offset of the values of keys `key` to key + 7 in plane 0 of column 0; plane 1 is at
// +kPlaneBytes, columns are 16 bytes apart.
__device__ __forceinline__ int place_of_values(int key) {
  const int chunk = key / kResidentChunk, local = key % kResidentChunk;
  const int word = local / 32 % kLaneWords;
  return (chunk * 2 + word / 2) * kFragmentBytes + value_place<64>(0, word % 2) +
         local / (32 * kLaneWords) * 4 + key % 32 / 8;
}

__device__ __forceinline__ int column_of_feature(int feature) {
  return feature % 16 / 2 * 8 + feature / 16 * 2 + feature % 2;
}

// Byte offsets in shared memory.
struct ResidentLayout {
  int padded;  // keys
  int values, exact, table, valid, scratch, total;

  explicit constexpr __host__ __device__ ResidentLayout(int64_t keys)
      : padded(static_cast<int>((keys + kResidentChunk - 1) / kResidentChunk) * kResidentChunk),
        values(padded * 32),
        exact(values + padded * 16),
        table(exact + (kResidentScores + 1) * 8),
        valid(table + (kResidentScores + 3) * 4),
        scratch(valid + padded / 8 + 48),
        total(scratch + kResidentWarps * (kResidentScores + 3) * 4) {}
};

// Typed views of a block's shared memory, `raw`.
struct ResidentMemory {
  ResidentLayout layout;
  unsigned char* raw;

  __device__ __forceinline__ unsigned char* keys() const { return raw; }
  __device__ __forceinline__ unsigned char* values() const { return raw + layout.values; }
  // Powers of e of the definition; see exact_exp().
  __device__ __forceinline__ double* exact() const {
    return reinterpret_cast<double*>(raw + layout.exact);
  }
  // Powers of two for the float32 sums.
  __device__ __forceinline__ float* table() const {
    return reinterpret_cast<float*>(raw + layout.table);
  }
  // Mask of keys that may be attended to. It is followed by the mask of chunks in which some may
  // not, the next tile of queries, and each warpgroup's current tile, double-buffered.
  __device__ __forceinline__ uint32_t* valid() const {
    return reinterpret_cast<uint32_t*>(raw + layout.valid);
  }
  __device__ __forceinline__ uint32_t* ragged() const { return valid() + layout.padded / 32; }
  __device__ __forceinline__ int* next_tile() const { return reinterpret_cast<int*>(ragged() + 1); }
  __device__ __forceinline__ int* tile_of(int group, int turn) const {
    return next_tile() + 1 + turn * kResidentGroups + group;
  }
  // Scratch of a warp: its queries while being packed, or a histogram.
  __device__ __forceinline__ int32_t* scratch(int warp) const {
    return reinterpret_cast<int32_t*>(raw + layout.scratch) + warp * (kResidentScores + 3);
  }
};

}  // namespace bitgnn::cuda::attention

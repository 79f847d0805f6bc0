// Measures 1-bit tensor cores by a tile of 8x8x128: cycles of loads and stores by stride, from
// memory and from shared memory, and of chains of products, of one warp alone. Prints them as JSON.
// A program of its own: nvcc -std=c++17 -O3 -gencode arch=compute_90,code=sm_90
// Source of the measurements: Li and Su, TPDS 2020, figures 2 to 13.
#include <cuda_runtime.h>
#include <mma.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

using namespace nvcuda::wmma;
using Bits = experimental::precision::b1;
using RowTile = fragment<matrix_a, 8, 8, 128, Bits, row_major>;
using ColumnTile = fragment<matrix_b, 8, 8, 128, Bits, col_major>;
using Sums = fragment<accumulator, 8, 8, 128, int>;

constexpr int kRounds = 101;
constexpr int kMostStride = 1024;  // bits of a row of loads, integers of a row of stores
constexpr int kRows = 8;
constexpr int kWords = kRows * kMostStride;

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
  std::exit(1);
}

__device__ long long now() {
  long long cycles;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(cycles)::"memory");
  return cycles;
}

// The clock once a register is there: the trap, which is never taken, waits for it.
__device__ long long now_with(int first, int second) {
  long long cycles;
  asm volatile(
      "{\n .reg .pred p, q;\n setp.eq.s32 p, %1, 0x7fffffff;\n setp.eq.and.s32 q, %2, 0x7ffffffe, "
      "p;\n"
      " @q trap;\n mov.u64 %0, %%clock64;\n}"
      : "=l"(cycles)
      : "r"(first), "r"(second)
      : "memory");
  return cycles;
}

__device__ int* place(int* global, bool is_shared) {
  extern __shared__ int shared[];
  for (int i = threadIdx.x; i < kWords; i += 32) shared[i] = global[i];
  __syncwarp();
  return is_shared ? shared : global;
}

// Cycles until a tile whose rows lie ldm bits apart is in registers.
__global__ void loads(int* words, int ldm, bool is_shared, long long* cycles) {
  const int* from = place(words, is_shared);
  for (int round = 0; round < kRounds; ++round) {
    RowTile tile;
    const long long begin = now();
    load_matrix_sync(tile, from, ldm);
    const long long end = now_with(tile.x[0], tile.x[0]);
    if (threadIdx.x == 0) cycles[round] = end - begin;
  }
}

// Cycles of a store of sums whose rows lie ldm integers apart, and of a fence behind it.
__global__ void stores(int* words, int ldm, bool is_shared, long long* cycles) {
  int* to = place(words, is_shared);
  Sums sums;
  fill_fragment(sums, 1);
  for (int round = 0; round < kRounds; ++round) {
    const long long begin = now();
    store_matrix_sync(to, sums, ldm, mem_row_major);
    __threadfence_block();
    const long long end = now();
    if (threadIdx.x == 0) cycles[round] = end - begin;
  }
}

// Cycles of so many products after each other, into one tile of sums or into two in turn.
__global__ void products(int* words, int count, bool is_apart, long long* cycles) {
  RowTile a;
  ColumnTile b;
  Sums sums[2];
  load_matrix_sync(a, words, 128);
  load_matrix_sync(b, words, 128);
  for (auto& one : sums) fill_fragment(one, 0);
  for (int round = 0; round < kRounds; ++round) {
    __syncwarp();
    const long long begin = now();
    for (int i = 0; i < count; i += 2) {
      bmma_sync(sums[0], a, b, sums[0], experimental::bmmaBitOpAND);
      if (is_apart) {
        bmma_sync(sums[1], a, b, sums[1], experimental::bmmaBitOpAND);
      } else {
        bmma_sync(sums[0], a, b, sums[0], experimental::bmmaBitOpAND);
      }
    }
    const long long end = now_with(sums[0].x[0], sums[1].x[0]);
    if (threadIdx.x == 0) cycles[round] = end - begin;
  }
  words[threadIdx.x] = sums[0].x[0] + sums[1].x[0];
}

// Median cycles of the rounds of a kernel, the first ones left out.
template <class Launch>
double median_cycles(long long* cycles, const Launch& launch) {
  launch();
  check(cudaGetLastError(), "launch");
  std::vector<long long> found(kRounds);
  check(cudaMemcpy(found.data(), cycles, kRounds * sizeof(long long), cudaMemcpyDeviceToHost),
        "run");
  std::sort(found.begin() + 1, found.end());
  return static_cast<double>(found[1 + kRounds / 2]);
}

}  // namespace

int main() {
  int* words;
  long long* cycles;
  check(cudaMalloc(&words, kWords * sizeof(int)), "memory");
  check(cudaMemset(words, 0x55, kWords * sizeof(int)), "memory");
  check(cudaMalloc(&cycles, kRounds * sizeof(long long)), "memory");
  constexpr int kBytes = kWords * sizeof(int);
  const char* comma = "{";
  for (const bool is_shared : {false, true}) {
    const char* where = is_shared ? "shared memory" : "memory";
    for (int ldm = 128; ldm <= kMostStride; ldm += 128) {
      const double taken =
          median_cycles(cycles, [&] { loads<<<1, 32, kBytes>>>(words, ldm, is_shared, cycles); });
      std::printf("%s\"load from %s, %d bits a row\": %.0f", comma, where, ldm, taken);
      comma = ", ";
    }
    for (int ldm = 8; ldm <= kMostStride; ldm *= 2) {
      const double taken =
          median_cycles(cycles, [&] { stores<<<1, 32, kBytes>>>(words, ldm, is_shared, cycles); });
      std::printf(", \"store to %s, %d integers a row\": %.0f", where, ldm, taken);
    }
  }
  for (const bool is_apart : {false, true}) {
    for (int count = 2; count <= 64; count *= 2) {
      const double taken =
          median_cycles(cycles, [&] { products<<<1, 32>>>(words, count, is_apart, cycles); });
      std::printf(", \"%d products into %s\": %.0f", count,
                  is_apart ? "two tiles in turn" : "one tile", taken);
    }
  }
  std::printf("}\n");
}

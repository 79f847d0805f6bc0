// Measures the ceilings of a GPU that kernels are compared with, and prints them as JSON.
// A program of its own: nvcc -std=c++17 -O3 -gencode arch=compute_90a,code=sm_90a -Icsrc
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "core/cuda/hopper/wgmma_b1.cuh"
#include "core/cuda/mma_b1.cuh"

namespace bitgnn::cuda {
namespace {

constexpr int kRepeats = 9;
constexpr int kThreads = 256;
constexpr int kLaunchesInGraph = 100;

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
  std::exit(1);
}

// Seconds of kRepeats runs of launch(), after two that warm up.
template <class Launch>
std::vector<double> time_runs(const Launch& launch) {
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  std::vector<double> seconds;
  for (int i = -2; i < kRepeats; ++i) {
    check(cudaEventRecord(begin), "event");
    launch();
    check(cudaEventRecord(end), "event");
    check(cudaEventSynchronize(end), "kernel");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin, end), "event");
    if (i >= 0) seconds.push_back(milliseconds * 1e-3);
  }
  return seconds;
}

bool first_entry = true;

// One entry of the report: work a second, from `work` units done in each of `seconds`.
void report(const char* name, const char* unit, double work, std::vector<double> seconds) {
  std::vector<double> sorted = seconds;
  std::sort(sorted.begin(), sorted.end());
  std::printf("%s\n {\"name\": \"%s\", \"unit\": \"%s\", \"work\": %.17g, \"rate\": %.17g, ",
              first_entry ? "" : ",", name, unit, work, work / sorted[sorted.size() / 2]);
  std::printf("\"seconds\": [");
  for (size_t i = 0; i < seconds.size(); ++i) std::printf("%s%.9g", i > 0 ? ", " : "", seconds[i]);
  std::printf("]}");
  first_entry = false;
}

__global__ void read_kernel(const uint4* x, int64_t count, uint32_t* sink) {
  constexpr int kBatch = 8;  // loads in flight before the first is used
  uint32_t all = 0;
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (; i + (kBatch - 1) * stride < count; i += kBatch * stride) {
    uint4 v[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) v[k] = __ldcs(x + i + k * stride);
#pragma unroll
    for (int k = 0; k < kBatch; ++k) all ^= v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
  }
  for (; i < count; i += stride) all ^= x[i].x;
  if (all == 0x12345678u) *sink = all;
}

__global__ void write_kernel(uint4* x, int64_t count) {
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride)
    __stcs(x + i, make_uint4(1, 2, 3, 4));
}

// A number that looks random, other for each step and lane: correlated lanes would share banks.
__device__ __forceinline__ uint32_t scramble(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

// Rows of 16 * kPieces bytes at pseudo-random places of a table of `rows`, a power of two.
template <int kPieces>
__global__ void gather_kernel(const uint4* table, uint32_t rows, int steps, uint32_t* sink) {
  constexpr int kBatch = 8;
  const int piece = threadIdx.x % kPieces;
  uint32_t state = (blockIdx.x * blockDim.x + threadIdx.x) / kPieces * 2654435761u + 12345u;
  uint32_t all = 0;
  for (int s = 0; s < steps; s += kBatch) {
    uint4 v[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      state += 0x9e3779b9u;
      v[k] = table[static_cast<int64_t>(scramble(state) & (rows - 1)) * kPieces + piece];
    }
#pragma unroll
    for (int k = 0; k < kBatch; ++k) all ^= v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
  }
  if (all == 0x12345678u) *sink = all;
}

// The same from a slice of the table in shared memory.
__global__ void gather_shared_kernel(uint32_t rows, int steps, uint32_t* sink) {
  extern __shared__ uint4 slice[];
  for (uint32_t i = threadIdx.x; i < rows; i += blockDim.x) slice[i] = make_uint4(i, i, i, i);
  __syncthreads();
  uint32_t state = (blockIdx.x * blockDim.x + threadIdx.x) * 2654435761u + 12345u, all = 0;
#pragma unroll 8
  for (int s = 0; s < steps; ++s) {
    state += 0x9e3779b9u;
    const uint4 v = slice[scramble(state) & (rows - 1)];
    all ^= v.x ^ v.y ^ v.z ^ v.w;
  }
  if (all == 0x12345678u) *sink = all;
}

__global__ void mma_kernel(int steps, uint32_t* sink) {
  int32_t d[8][4] = {};
  const uint32_t seed = threadIdx.x * 2654435761u + blockIdx.x;
  const uint32_t a[4] = {seed, seed * 3, seed * 5, seed * 7}, b[2] = {seed * 11, seed * 13};
  for (int s = 0; s < steps; ++s)
#pragma unroll
    for (int i = 0; i < 8; ++i) mma_and_popc(d[i], a, b);
  int32_t all = 0;
  for (int i = 0; i < 8; ++i) all += d[i][0] + d[i][1] + d[i][2] + d[i][3];
  if (all == 0x12345678) *sink = static_cast<uint32_t>(all);
}

__global__ void __launch_bounds__(128) wgmma_kernel(int steps, uint32_t* sink) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) uint32_t tiles[];
  for (int i = threadIdx.x; i < (kWgmmaRows + kWgmmaColumns) * kSwizzleWords; i += blockDim.x)
    tiles[i] = i * 2654435761u;
  asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
  __syncthreads();
  int32_t d[128] = {};
  const uint64_t a = wgmma_descriptor(shared_address(tiles));
  const uint64_t b = wgmma_descriptor(shared_address(tiles + kWgmmaRows * kSwizzleWords));
  for (int s = 0; s < steps; ++s) {
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kWgmmaSteps; ++i)
      wgmma_and_popc(d, a + i * kWgmmaAdvance, b + i * kWgmmaAdvance, true);
    wgmma_commit();
    wgmma_wait<0>();
  }
  int32_t all = 0;
  for (int i = 0; i < 128; ++i) all += d[i];
  if (all == 0x12345678) *sink = static_cast<uint32_t>(all);
#endif
}

__global__ void empty_kernel() {}

void measure_memory(uint4* x, int64_t bytes, int blocks, uint32_t* sink) {
  const int64_t count = bytes / 16;
  report("read", "byte", static_cast<double>(bytes),
         time_runs([&] { read_kernel<<<blocks * 8, kThreads>>>(x, count, sink); }));
  report("write", "byte", static_cast<double>(bytes),
         time_runs([&] { write_kernel<<<blocks * 8, kThreads>>>(x, count); }));
}

template <int kPieces>
void measure_gather(const uint4* x, int64_t table_bytes, int blocks, uint32_t* sink) {
  constexpr int kSteps = 512;
  const uint32_t rows = static_cast<uint32_t>(table_bytes / (16 * kPieces));
  const double work = static_cast<double>(blocks) * 8 * kThreads / kPieces * kSteps;
  char name[64];
  std::snprintf(name, sizeof(name), "gather %d bytes from %lld KiB", 16 * kPieces,
                static_cast<long long>(table_bytes >> 10));
  report(name, "row", work, time_runs([&] {
           gather_kernel<kPieces><<<blocks * 8, kThreads>>>(x, rows, kSteps, sink);
         }));
}

void measure_shared_gather(int blocks, uint32_t* sink) {
  constexpr int kSteps = 4096, kBlockThreads = 1024;
  constexpr uint32_t kRows = 8192;  // 128 KiB
  check(cudaFuncSetAttribute(gather_shared_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             kRows * 16),
        "shared memory");
  report("gather 16 bytes from shared memory", "row",
         static_cast<double>(blocks) * kBlockThreads * kSteps, time_runs([&] {
           gather_shared_kernel<<<blocks, kBlockThreads, kRows * 16>>>(kRows, kSteps, sink);
         }));
}

void measure_products(int blocks, bool hopper, uint32_t* sink) {
  constexpr int kSteps = 2000;
  report("mma.sync b1 and", "operation",
         2.0 * 16 * 8 * 256 * 8 * kSteps * (kThreads / 32) * blocks * 4,
         time_runs([&] { mma_kernel<<<blocks * 4, kThreads>>>(kSteps, sink); }));
  if (!hopper) return;
  constexpr int kBytes = (kWgmmaRows + kWgmmaColumns) * kSwizzleBytes + 1024;
  check(cudaFuncSetAttribute(wgmma_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
        "shared memory");
  report("wgmma b1 and", "operation", 2.0 * 64 * 256 * 1024 * kSteps * blocks * 3,
         time_runs([&] { wgmma_kernel<<<blocks * 3, 128, kBytes>>>(kSteps, sink); }));
}

void measure_launches() {
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t instance;
  check(cudaStreamCreate(&stream), "stream");
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  for (int i = 0; i < kLaunchesInGraph; ++i) empty_kernel<<<1, 32, 0, stream>>>();
  check(cudaStreamEndCapture(stream, &graph), "capture");
  check(cudaGraphInstantiate(&instance, graph, 0), "graph");
  report("empty kernel in a graph", "launch", kLaunchesInGraph,
         time_runs([&] { check(cudaGraphLaunch(instance, nullptr), "graph"); }));
}

void run() {
  cudaDeviceProp device;
  check(cudaGetDeviceProperties(&device, 0), "device");
  const int blocks = device.multiProcessorCount;
  constexpr int64_t kBytes = int64_t{1} << 31;
  uint4* x = nullptr;
  uint32_t* sink = nullptr;
  check(cudaMalloc(&x, kBytes), "memory");
  check(cudaMalloc(&sink, 4), "memory");
  check(cudaMemset(x, 1, kBytes), "memory");
  std::printf("[");
  measure_memory(x, kBytes, blocks, sink);
  for (const int64_t kib : {2048, 4096, 8192, 32768, 131072, 2097152}) {
    measure_gather<1>(x, kib << 10, blocks, sink);
    measure_gather<2>(x, kib << 10, blocks, sink);
    measure_gather<4>(x, kib << 10, blocks, sink);
    measure_gather<8>(x, kib << 10, blocks, sink);
    measure_gather<32>(x, kib << 10, blocks, sink);
  }
  measure_shared_gather(blocks, sink);
  measure_products(blocks, device.major == 9 && device.minor == 0, sink);
  measure_launches();
  check(cudaGetLastError(), "launch");
  check(cudaDeviceSynchronize(), "kernels");
  std::printf("\n]\n");
}

}  // namespace
}  // namespace bitgnn::cuda

int main() {
  bitgnn::cuda::run();
  return 0;
}

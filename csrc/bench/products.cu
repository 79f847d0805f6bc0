// Measures ways to multiply packed rows on plain instructions and on tensor cores: the soft tensor
// cores of BSTC (32 and 64 bits), the library's own kernels, and fragments read straight from
// memory out of rows and out of FSB tiles (8 rows of 128 bits next to each other). Prints JSON.
// A program of its own: nvcc -std=c++17 -O3 -gencode arch=compute_90a,code=sm_90a -Icsrc
// Sources: Li et al., "BSTC", SC 2019; Li and Su, "Accelerating Binarized Neural Networks via
// Bit-Tensor-Cores in Turing GPUs", TPDS 2020.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <vector>

#include "bmm/cuda/mma.cuh"
#include "bmm/cuda/output.cuh"

namespace bitgnn::cuda {
namespace {

constexpr int kRepeats = 9;
constexpr int kThreads = 256;

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
  std::exit(1);
}

// Square operands [size, words] and the dot products [size, size].
struct Product {
  const uint32_t* x;
  const uint32_t* w;
  const uint32_t* x_tiles;  // the same in FSB tiles
  const uint32_t* w_tiles;
  int32_t* out;
  int size;
  int words;
};

// BSTC's soft tensor core: a warp holds a tile of as many rows and columns as a word has bits, a
// lane as many rows of it as it takes; the columns' words go round by shuffles.
template <class Word>
__global__ void __launch_bounds__(kThreads) soft_kernel(const Product p) {
  constexpr int kTile = 8 * sizeof(Word);
  constexpr int kOwn = kTile / kWarp;  // rows and columns whose words a lane loads
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int row = blockIdx.x * kTile;
  const int column = (blockIdx.y * (kThreads / kWarp) + warp) * kTile;
  const int words = p.words / (sizeof(Word) / 4);
  const Word* x = reinterpret_cast<const Word*>(p.x) + static_cast<int64_t>(row) * words;
  const Word* w = reinterpret_cast<const Word*>(p.w) + static_cast<int64_t>(column) * words;
  int32_t sum[kOwn][kTile] = {};
  for (int k = 0; k < words; ++k) {
    Word a[kOwn], b[kOwn];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      a[i] = x[static_cast<int64_t>(i * kWarp + lane) * words + k];
      b[i] = w[static_cast<int64_t>(i * kWarp + lane) * words + k];
    }
#pragma unroll
    for (int j = 0; j < kTile; ++j) {
      const Word other = __shfl_sync(kFullWarp, b[j / kWarp], j % kWarp);
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        if constexpr (sizeof(Word) == 8) {
          sum[i][j] += __popcll(a[i] ^ other);
        } else {
          sum[i][j] += __popc(a[i] ^ other);
        }
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kOwn; ++i)
#pragma unroll
    for (int j = 0; j < kTile; ++j)
      p.out[static_cast<int64_t>(row + i * kWarp + lane) * p.size + column + j] =
          p.size - 2 * sum[i][j];
}

template <class Word>
void launch_soft(const Product& p, cudaStream_t stream) {
  constexpr int kTile = 8 * sizeof(Word);
  const dim3 grid(p.size / kTile, p.size / kTile / (kThreads / kWarp));
  soft_kernel<Word><<<grid, kThreads, 0, stream>>>(p);
}

// Where word k of a row lies.
struct RowMajor {
  static __device__ __forceinline__ int64_t at(int row, int k, int words) {
    return static_cast<int64_t>(row) * words + k;
  }
};
struct FsbTiles {
  static __device__ __forceinline__ int64_t at(int row, int k, int words) {
    return (static_cast<int64_t>(row / 8) * (words / 4) + k / 4) * 32 + row % 8 * 4 + k % 4;
  }
};

// Fragments straight from memory: 32 rows x 64 columns a warp, 64 x 256 a block.
template <class Layout>
__global__ void __launch_bounds__(kThreads) fragment_kernel(const Product p) {
  constexpr int kRowTiles = 2, kColumnTiles = 8;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int group = fragment_group(lane), quad = fragment_quad(lane);
  const int row = blockIdx.x * 64 + warp / 4 * 32, column = blockIdx.y * 256 + warp % 4 * 64;
  const uint32_t* x = std::is_same_v<Layout, RowMajor> ? p.x : p.x_tiles;
  const uint32_t* w = std::is_same_v<Layout, RowMajor> ? p.w : p.w_tiles;
  int32_t sum[kRowTiles][kColumnTiles][4] = {};
  int32_t row_count[kRowTiles][4] = {}, column_count[kColumnTiles][4] = {};
  constexpr uint32_t kOnes = 0xffffffffu;
  const uint32_t row_ones[4] = {kOnes, kOnes, kOnes, kOnes}, column_ones[2] = {kOnes, kOnes};
  for (int k = 0; k < p.words; k += kMmaWords) {
    uint32_t a[kRowTiles][4], b[kColumnTiles][2];
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i)
#pragma unroll
      for (int part = 0; part < 4; ++part)
        a[i][part] = __ldg(
            x + Layout::at(row + i * 16 + part % 2 * 8 + group, k + part / 2 * 4 + quad, p.words));
#pragma unroll
    for (int j = 0; j < kColumnTiles; ++j)
#pragma unroll
      for (int part = 0; part < 2; ++part)
        b[j][part] = __ldg(w + Layout::at(column + j * 8 + group, k + part * 4 + quad, p.words));
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int j = 0; j < kColumnTiles; ++j) mma_and_popc(sum[i][j], a[i], b[j]);
      mma_and_popc(row_count[i], a[i], column_ones);
    }
#pragma unroll
    for (int j = 0; j < kColumnTiles; ++j) mma_and_popc(column_count[j], row_ones, b[j]);
  }
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i)
#pragma unroll
    for (int j = 0; j < kColumnTiles; ++j)
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        const int64_t at = static_cast<int64_t>(row + i * 16 + part / 2 * 8 + group) * p.size +
                           column + j * 8 + quad * 2 + part % 2;
        p.out[at] =
            p.size - 2 * row_count[i][part] - 2 * column_count[j][part] + 4 * sum[i][j][part];
      }
}

template <class Layout>
void launch_fragments(const Product& p, cudaStream_t stream) {
  fragment_kernel<Layout><<<dim3(p.size / 64, p.size / 256), kThreads, 0, stream>>>(p);
}

class NoWorkspace final : public Workspace {
 public:
  void* take(size_t) override { return nullptr; }
};

// The library's kernels, which bmm/cuda/route.cu chooses among.
template <bmm::BmmUnit kUnit, int kVector>
void launch_library(const Product& p, const Device& device, cudaStream_t stream) {
  BmmArgs args{};
  args.x = reinterpret_cast<const int32_t*>(p.x);
  args.w = reinterpret_cast<const int32_t*>(p.w);
  args.rows = args.out_features = args.size = p.size;
  args.out_int = p.out;
  NoWorkspace workspace;
  const Context context{device, stream, workspace};
  using Tile = std::conditional_t<kUnit == bmm::BmmUnit::kLogic, bmm::MmaTile<64, 64, 32, 32, 3>,
                                  bmm::MmaTile<128, 128, 32, 64, 3>>;
  check(bmm::launch_bmm_mma<Tile, kUnit, bmm::BmmOutput::kInt, kVector>(args, context), "library");
}

__global__ void compare_kernel(const int32_t* a, const int32_t* b, int64_t count, int* wrong) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step)
    if (a[i] != b[i]) atomicAdd(wrong, 1);
}

// Seconds a launch of kRepeats replays of a graph of `launches`.
std::vector<double> time_graph(cudaStream_t stream, int launches,
                               const std::function<void()>& launch) {
  cudaGraph_t graph;
  cudaGraphExec_t replay;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
  for (int i = 0; i < launches; ++i) launch();
  check(cudaStreamEndCapture(stream, &graph), "capture");
  check(cudaGraphInstantiate(&replay, graph, 0), "graph");
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  std::vector<double> seconds;
  for (int i = -2; i < kRepeats; ++i) {
    check(cudaEventRecord(begin, stream), "event");
    check(cudaGraphLaunch(replay, stream), "graph");
    check(cudaEventRecord(end, stream), "event");
    check(cudaEventSynchronize(end), "kernel");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin, end), "event");
    if (i >= 0) seconds.push_back(milliseconds * 1e-3 / launches);
  }
  check(cudaGraphExecDestroy(replay), "graph");
  check(cudaGraphDestroy(graph), "graph");
  return seconds;
}

std::vector<uint32_t> tiled(const std::vector<uint32_t>& rows, int size, int words) {
  std::vector<uint32_t> tiles(rows.size());
  for (int row = 0; row < size; ++row)
    for (int k = 0; k < words; ++k)
      tiles[(static_cast<size_t>(row / 8) * (words / 4) + k / 4) * 32 + row % 8 * 4 + k % 4] =
          rows[static_cast<size_t>(row) * words + k];
  return tiles;
}

template <class T>
T* on_device(const std::vector<T>& values) {
  T* to;
  check(cudaMalloc(&to, values.size() * sizeof(T)), "memory");
  check(cudaMemcpy(to, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice), "copy");
  return to;
}

int run() {
  cudaDeviceProp found;
  check(cudaGetDeviceProperties(&found, 0), "device");
  const Device device{10 * found.major + found.minor, found.multiProcessorCount,
                      static_cast<int>(found.sharedMemPerBlockOptin), found.l2CacheSize};
  cudaStream_t stream;
  check(cudaStreamCreate(&stream), "stream");
  int* wrong;
  check(cudaMalloc(&wrong, sizeof(int)), "memory");
  std::mt19937 random(1);
  std::printf("[");
  const char* comma = "";
  bool failed = false;
  for (const int size : {512, 1024, 2048, 4096, 8192}) {
    const int words = size / 32;
    std::vector<uint32_t> x(static_cast<size_t>(size) * words), w(x.size());
    for (auto& v : x) v = random();
    for (auto& v : w) v = random();
    std::vector<int32_t> zeros(static_cast<size_t>(size) * size);
    int32_t* expected = on_device(zeros);
    Product p{on_device(x),
              on_device(w),
              on_device(tiled(x, size, words)),
              on_device(tiled(w, size, words)),
              on_device(zeros),
              size,
              words};
    Product oracle = p;
    oracle.out = expected;
    launch_library<bmm::BmmUnit::kTensor, 4>(oracle, device, stream);
    const std::pair<const char*, std::function<void()>> ways[] = {
        {"soft tensor core, 32 bits", [&] { launch_soft<uint32_t>(p, stream); }},
        {"soft tensor core, 64 bits", [&] { launch_soft<unsigned long long>(p, stream); }},
        {"library, plain instructions",
         [&] { launch_library<bmm::BmmUnit::kLogic, 1>(p, device, stream); }},
        {"fragments from rows", [&] { launch_fragments<RowMajor>(p, stream); }},
        {"fragments from FSB tiles", [&] { launch_fragments<FsbTiles>(p, stream); }},
        {"library, mma.sync from rows",
         [&] { launch_library<bmm::BmmUnit::kTensor, 4>(p, device, stream); }},
    };
    for (const auto& [name, launch] : ways) {
      check(cudaMemsetAsync(p.out, 0, zeros.size() * sizeof(int32_t), stream), "memset");
      launch();
      check(cudaGetLastError(), name);
      check(cudaStreamSynchronize(stream), name);
      check(cudaMemsetAsync(wrong, 0, sizeof(int), stream), "memset");
      compare_kernel<<<1024, kThreads, 0, stream>>>(p.out, expected, zeros.size(), wrong);
      int differing = -1;
      check(cudaMemcpy(&differing, wrong, sizeof(int), cudaMemcpyDeviceToHost), name);
      failed = failed || differing != 0;
      const auto seconds = time_graph(stream, size <= 2048 ? 20 : 4, launch);
      std::printf("%s\n {\"name\": \"%s\", \"size\": %d, \"wrong\": %d, \"seconds\": [", comma,
                  name, size, differing);
      for (size_t i = 0; i < seconds.size(); ++i)
        std::printf("%s%.9g", i > 0 ? ", " : "", seconds[i]);
      std::printf("]}");
      comma = ",";
    }
    for (void* memory : {(void*)p.x, (void*)p.w, (void*)p.x_tiles, (void*)p.w_tiles, (void*)p.out,
                         (void*)expected})
      check(cudaFree(memory), "memory");
  }
  std::printf("\n]\n");
  return failed ? 1 : 0;
}

}  // namespace
}  // namespace bitgnn::cuda

int main() { return bitgnn::cuda::run(); }

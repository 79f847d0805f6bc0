// Measures what separates the layers of a network: a wait of all blocks of a cooperative kernel,
// the boundary of two kernels in a CUDA graph, and one whose launches overlap. Prints seconds as
// JSON. A program of its own: nvcc -std=c++17 -O3 -gencode arch=compute_90,code=sm_90
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr int kRepeats = 15;
constexpr int kThreads = 256;
constexpr int kSteps = 1000;

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
  std::exit(1);
}

__global__ void waits(int steps) {
  auto grid = cooperative_groups::this_grid();
  for (int i = 0; i < steps; ++i) grid.sync();
}

__global__ void empty() {}

// Lets the next kernel begin at once, and waits for the one before it as a layer would.
__global__ void overlapped() {
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
  cudaGridDependencySynchronize();
#endif
}

// Median seconds of run() in a stream.
template <class Run>
double median_seconds(cudaStream_t stream, const Run& run) {
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  std::vector<float> times;
  for (int i = -2; i < kRepeats; ++i) {
    check(cudaEventRecord(begin, stream), "event");
    run();
    check(cudaEventRecord(end, stream), "event");
    check(cudaEventSynchronize(end), "run");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin, end), "event");
    if (i >= 0) times.push_back(milliseconds);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2] * 1e-3;
}

// Seconds of a kernel among kSteps in a graph.
template <class Launch>
double graph_step_seconds(cudaStream_t stream, const Launch& launch) {
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
  for (int i = 0; i < kSteps; ++i) launch();
  check(cudaStreamEndCapture(stream, &graph), "capture");
  check(cudaGraphInstantiate(&executable, graph, 0), "graph");
  return median_seconds(stream, [&] { check(cudaGraphLaunch(executable, stream), "graph"); }) /
         kSteps;
}

}  // namespace

int main() {
  cudaDeviceProp device;
  check(cudaGetDeviceProperties(&device, 0), "device");
  cudaStream_t stream;
  check(cudaStreamCreate(&stream), "stream");
  int most = 0;
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&most, waits, kThreads, 0), "occupancy");
  std::printf("{\"processors\": %d, \"threads\": %d", device.multiProcessorCount, kThreads);
  // One block a processor, and as many as fit.
  for (const int per_processor : {1, most}) {
    const dim3 blocks(device.multiProcessorCount * per_processor), threads(kThreads);
    const auto run = [&](int steps) {
      return median_seconds(stream, [&] {
        void* arguments[] = {&steps};
        check(cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(waits), blocks, threads,
                                          arguments, 0, stream),
              "cooperative kernel");
      });
    };
    std::printf(", \"grid, %d blocks a processor\": %.4g", per_processor,
                (run(kSteps) - run(0)) / kSteps);
  }
  const dim3 blocks(device.multiProcessorCount);
  std::printf(", \"graph\": %.4g", graph_step_seconds(stream, [&] {
                empty<<<blocks, kThreads, 0, stream>>>();
                check(cudaGetLastError(), "kernel");
              }));
  std::printf(", \"overlapped\": %.4g}\n", graph_step_seconds(stream, [&] {
                cudaLaunchConfig_t config = {};
                config.gridDim = blocks;
                config.blockDim = dim3(kThreads);
                config.stream = stream;
                cudaLaunchAttribute attribute = {};
                attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
                attribute.val.programmaticStreamSerializationAllowed = 1;
                config.attrs = &attribute;
                config.numAttrs = 1;
                check(cudaLaunchKernelEx(&config, overlapped), "kernel");
              }));
}

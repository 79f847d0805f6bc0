// Stands between the library and the CUDA runtime: the linker leads the functions below here
// (--wrap in flags.py). Outside of dry runs they pass everything on.
#include "core/cuda/dry_run.h"

#include <cxxabi.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>

#include "core/check.h"

namespace bitgnn::cuda {
namespace {

constexpr int kThreadsOfMultiprocessor = 2048;
constexpr int kBlocksOfMultiprocessor = 32;
constexpr size_t kReservedShared = 1024;  // of every block

struct CallConfiguration {
  dim3 blocks, threads;
  size_t shared_bytes;
  void* stream;
};

struct DryState {
  bool runs = false;
  DryNotes notes;
  int64_t used = 0, most_used = 0;  // bytes; another thread may let go of a result
  Device device{};
  CallConfiguration call{};
};

thread_local DryState state;

// Mangled names of kernels by their functions on the host and, once resolved, by their handles.
class KernelNames {
 public:
  void add(const void* host, const char* name) {
    const std::lock_guard<std::mutex> lock(mutex_);
    names_[host] = name;
  }

  void add_handle(const void* handle, const void* host) {
    const std::lock_guard<std::mutex> lock(mutex_);
    names_[handle] = names_[host];
  }

  std::string of(const void* kernel) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = names_.find(kernel);
    if (found == names_.end()) return "unknown";
    int status = 0;
    const std::unique_ptr<char, void (*)(void*)> readable(
        abi::__cxa_demangle(found->second.c_str(), nullptr, nullptr, &status), std::free);
    return status == 0 ? readable.get() : found->second;
  }

 private:
  std::mutex mutex_;
  std::map<const void*, std::string> names_;
};

// Kernels register while the library is loaded, in any order.
KernelNames& kernel_names() {
  static KernelNames names;
  return names;
}

void note(const void* kernel, dim3 blocks, dim3 threads, size_t shared_bytes) {
  state.notes.launches.push_back({kernel_names().of(kernel), blocks, threads, shared_bytes});
}

}  // namespace

DryRun::DryRun() { state.runs = true; }
DryRun::~DryRun() { state.runs = false; }
bool is_dry_run() { return state.runs; }

void* imagined_memory() {
  constexpr size_t kReserved = size_t{1} << 42;
  static void* const memory = mmap(nullptr, kReserved, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  BITGNN_CHECK(memory != MAP_FAILED, "bitgnn: no address space for a dry run");
  return memory;
}

void count_taken(size_t bytes) {
  state.used += static_cast<int64_t>(bytes);
  state.most_used = std::max(state.most_used, state.used);
}

void count_returned(size_t bytes) { state.used -= static_cast<int64_t>(bytes); }

void* CountingWorkspace::take(size_t bytes) {
  taken_ += bytes;
  count_taken(bytes);
  return imagined_memory();
}

void set_dry_device(const Device& device) { state.device = device; }
const Device& dry_device() { return state.device; }

DryNotes take_dry_notes() {
  DryNotes taken;
  std::swap(taken, state.notes);
  taken.scratch_bytes = static_cast<size_t>(state.most_used - state.used);
  state.most_used = state.used;
  return taken;
}

}  // namespace bitgnn::cuda

using bitgnn::cuda::kernel_names;
using bitgnn::cuda::note;
using bitgnn::cuda::state;

extern "C" {

// NOLINTBEGIN: names of the runtime
void __real___cudaRegisterFunction(void**, const char*, char*, const char*, int, uint3*, uint3*,
                                   dim3*, dim3*, int*);
unsigned __real___cudaPushCallConfiguration(dim3, dim3, size_t, void*);
cudaError_t __real___cudaPopCallConfiguration(dim3*, dim3*, size_t*, void*);
cudaError_t __real___cudaGetKernel(cudaKernel_t*, const void*);
cudaError_t __real___cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t);
cudaError_t __real_cudaLaunchKernelExC(const cudaLaunchConfig_t*, const void*, void**);
cudaError_t __real_cudaFuncGetAttributes(cudaFuncAttributes*, const void*);
cudaError_t __real_cudaFuncSetAttribute(const void*, cudaFuncAttribute, int);
cudaError_t __real_cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int*, const void*, int,
                                                                          size_t, unsigned);
cudaError_t __real_cudaMemsetAsync(void*, int, size_t, cudaStream_t);
cudaError_t __real_cudaGetLastError();
cudaError_t __real_cudaPeekAtLastError();

void __wrap___cudaRegisterFunction(void** handle, const char* host, char* device, const char* name,
                                   int limit, uint3* thread, uint3* block, dim3* block_dim,
                                   dim3* grid_dim, int* warp) {
  kernel_names().add(host, name);
  __real___cudaRegisterFunction(handle, host, device, name, limit, thread, block, block_dim,
                                grid_dim, warp);
}

unsigned __wrap___cudaPushCallConfiguration(dim3 blocks, dim3 threads, size_t shared_bytes,
                                            void* stream) {
  if (!state.runs) return __real___cudaPushCallConfiguration(blocks, threads, shared_bytes, stream);
  state.call = {blocks, threads, shared_bytes, stream};
  return 0;
}

cudaError_t __wrap___cudaPopCallConfiguration(dim3* blocks, dim3* threads, size_t* shared_bytes,
                                              void* stream) {
  if (!state.runs) return __real___cudaPopCallConfiguration(blocks, threads, shared_bytes, stream);
  *blocks = state.call.blocks;
  *threads = state.call.threads;
  *shared_bytes = state.call.shared_bytes;
  *static_cast<void**>(stream) = state.call.stream;
  return cudaSuccess;
}

// Called once for a kernel: the handle is kept where it is launched, also for real launches.
cudaError_t __wrap___cudaGetKernel(cudaKernel_t* handle, const void* host) {
  const cudaError_t status = __real___cudaGetKernel(handle, host);
  if (status == cudaSuccess) {
    kernel_names().add_handle(*handle, host);
  } else if (state.runs) {  // no driver: nothing will ever be launched
    *handle = static_cast<cudaKernel_t>(const_cast<void*>(host));
    return cudaSuccess;
  }
  return status;
}

cudaError_t __wrap___cudaLaunchKernel(cudaKernel_t kernel, dim3 blocks, dim3 threads,
                                      void** arguments, size_t shared_bytes, cudaStream_t stream) {
  if (!state.runs)
    return __real___cudaLaunchKernel(kernel, blocks, threads, arguments, shared_bytes, stream);
  note(kernel, blocks, threads, shared_bytes);
  return cudaSuccess;
}

cudaError_t __wrap_cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel,
                                       void** arguments) {
  if (!state.runs) return __real_cudaLaunchKernelExC(config, kernel, arguments);
  note(kernel, config->gridDim, config->blockDim, config->dynamicSmemBytes);
  return cudaSuccess;
}

cudaError_t __wrap_cudaFuncGetAttributes(cudaFuncAttributes* found, const void* kernel) {
  if (!state.runs) return __real_cudaFuncGetAttributes(found, kernel);
  *found = cudaFuncAttributes{};
  return cudaSuccess;
}

cudaError_t __wrap_cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute which, int value) {
  if (!state.runs) return __real_cudaFuncSetAttribute(kernel, which, value);
  const bool fits =
      which != cudaFuncAttributeMaxDynamicSharedMemorySize || value <= state.device.shared_bytes;
  return fits ? cudaSuccess : cudaErrorInvalidValue;
}

// Knows nothing of registers; grids of a dry run may be larger than those of a real one.
cudaError_t __wrap_cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* blocks, const void* kernel, int threads, size_t shared_bytes, unsigned flags) {
  if (!state.runs)
    return __real_cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, kernel, threads,
                                                                         shared_bytes, flags);
  using namespace bitgnn::cuda;
  const size_t shared = static_cast<size_t>(state.device.shared_bytes) + kReservedShared;
  const auto fitting = static_cast<int>(shared / (shared_bytes + kReservedShared));
  *blocks = std::min({kThreadsOfMultiprocessor / threads, kBlocksOfMultiprocessor, fitting});
  return cudaSuccess;
}

cudaError_t __wrap_cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  return state.runs ? cudaSuccess : __real_cudaMemsetAsync(memory, value, bytes, stream);
}

cudaError_t __wrap_cudaGetLastError() {
  return state.runs ? cudaSuccess : __real_cudaGetLastError();
}

cudaError_t __wrap_cudaPeekAtLastError() {
  return state.runs ? cudaSuccess : __real_cudaPeekAtLastError();
}

// NOLINTEND

}  // extern "C"

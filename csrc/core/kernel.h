// Declares kernels: a line beside their arguments for the CPU and the CUDA library.
#pragma once

// BITGNN_KERNEL(room, name, parameters...) in namespace bitgnn declares kernel::name, which
// operators pass to Backend::launch: cpu::name, defined in room/cpu, or in the CUDA library
// cuda::room::name, defined in room/cuda, which takes the context of its launch, too.
#if defined(USE_CUDA)
#include "core/cuda/launch.h"

#define BITGNN_KERNEL(room, name, ...)                   \
  namespace cuda::room {                                 \
  cudaError_t name(__VA_ARGS__, const Context& context); \
  }                                                      \
  namespace kernel {                                     \
  using cuda::room::name;                                \
  }                                                      \
  static_assert(true)
#else
#define BITGNN_KERNEL(room, name, ...) \
  namespace cpu {                      \
  void name(__VA_ARGS__);              \
  }                                    \
  namespace kernel {                   \
  using cpu::name;                     \
  }                                    \
  static_assert(true)
#endif

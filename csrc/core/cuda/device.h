// Device properties that launches need, and every test of device capabilities: a new architecture
// is described here.
#pragma once

#include <cstdint>

namespace bitgnn::cuda {

// The architecture whose own instructions (wgmma, bulk copies, clusters) the library is compiled
// for, and on which kernels wait for their predecessors themselves.
constexpr int kHopper = 90;

struct Device {
  int capability;       // 10 * major + minor; 89 for Hopper if its instructions are not compiled
  int sm_count;         // multiprocessors
  int shared_bytes;     // shared memory a block may ask for
  int64_t cache_bytes;  // size of L2

  constexpr bool is_hopper() const { return capability == kHopper; }

  // Byte and 16-bit float products, from Ampere on.
  constexpr bool has_tensor_cores() const { return capability >= 80; }

  // 1-bit products; from Blackwell on they are emulated, slower than plain instructions.
  constexpr bool has_bit_products() const { return capability >= 80 && capability < 100; }
};

}  // namespace bitgnn::cuda

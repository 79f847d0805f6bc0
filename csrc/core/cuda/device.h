// What a launch needs to know of the device it runs on, and every test of what a device can do: a
// new architecture is described here.
#pragma once

#include <cstdint>

namespace bitgnn::cuda {

// The architecture whose own instructions (wgmma, bulk copies, clusters) the library is compiled
// for, and where its kernels wait for the ones before by themselves.
constexpr int kHopper = 90;

struct Device {
  int capability;       // 10 * major + minor; Hopper as 89 where its instructions are not compiled
  int sm_count;         // multiprocessors
  int shared_bytes;     // shared memory a block may ask for
  int64_t cache_bytes;  // second-level cache

  constexpr bool is_hopper() const { return capability == kHopper; }

  // Products of bytes and of 16-bit floats, from Ampere on.
  constexpr bool has_tensor_cores() const { return capability >= 80; }

  // Products of bits: from Blackwell on they are emulated, slower than plain instructions.
  constexpr bool has_bit_products() const { return capability >= 80 && capability < 100; }
};

}  // namespace bitgnn::cuda

// The exponential of graph attention, the same to the last bit on every device.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define BITGNN_BOTH __host__ __device__ __forceinline__
#else
#define BITGNN_BOTH BITGNN_INLINE
#endif

namespace bitgnn {

constexpr float kLeastExponent = -86.0f;  // exponentials below are 0

// exp(x) for x <= 0 in float32, each operation rounded: x = k ln 2 + r and a polynomial of r
// (Cephes, expf; within 2 units in the last place).
BITGNN_BOTH float exponential(float x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  constexpr int kOne = 127;              // exponent of 1.0
  const float shifted = x * 1.44269504f + kRound;
  const float k = shifted - kRound;
  const float r = (x - k * 0.693359375f) - k * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  const float y = (p * (r * r) + r) + 1.0f;
  uint32_t bits;
  std::memcpy(&bits, &shifted, sizeof(bits));
  bits = (bits + kOne) << 23;
  float power;
  std::memcpy(&power, &bits, sizeof(power));
  return x < kLeastExponent ? 0.0f : y * power;
}

BITGNN_BOTH float leaky(float x, float slope) { return x > 0.0f ? x : x * slope; }

}  // namespace bitgnn

// Table of the powers of e summed by attention on bits, bit-identical on every device.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define BITGNN_HOST_DEVICE __host__ __device__
#else
#define BITGNN_HOST_DEVICE
#endif

namespace bitgnn {

// Powers of smaller exponents are taken as 0, so that no result depends on how a device handles
// subnormal numbers.
constexpr double kLeastExponent = -700.0;

// e^x for x <= 0, accurate to about one ulp. Libraries differ in the last bit of exp; this is a
// fixed sequence of IEEE additions and multiplications (compile without FMA contraction):
// x = k ln 2 + r with |r| <= ln 2 / 2, then the degree-13 Taylor polynomial by Horner's rule.
BITGNN_HOST_DEVICE inline double exact_exp(double x) {
  if (!(x >= kLeastExponent)) return 0.0;
  constexpr double kLog2E = 0x1.71547652b82fep+0;
  constexpr double kLn2High = 0x1.62e42feep-1;  // 33 bits: its products with k are exact
  constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
  const double k = floor(x * kLog2E + 0.5);
  const double r = (x - k * kLn2High) - k * kLn2Low;
  double p = 1.0 / 6227020800.0;
  p = p * r + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  const int64_t bits = (static_cast<int64_t>(k) + 1023) << 52;
  double power;
  memcpy(&power, &bits, sizeof(power));
  return p * power;
}

// T[t] = e^(-scale t), forced to be non-increasing: T[t] = min(T[t - 1], exact_exp(-(scale * t))).
inline void softmax_table(double scale, int64_t entries, double* table) {
  for (int64_t t = 0; t < entries; ++t) {
    const double power = exact_exp(-(scale * static_cast<double>(t)));
    table[t] = t > 0 && table[t - 1] < power ? table[t - 1] : power;
  }
}

}  // namespace bitgnn

// Packs and unpacks rows on the CPU.
#include "capabilities/cpu/kernel_table.h"
#include "core/cpu/backend.h"
#include "pack/arguments.h"
#include "pack/cpu/expand_bits.h"

namespace bitgnn::cpu {
namespace {

constexpr int64_t kPackGrain = 1 << 18;  // features per thread, about 25 us

}  // namespace

void pack(const PackArgs& a, int64_t rows) {
  split(rows, grain(a.cols, kPackGrain), kernels().pack, a);
}

void pack_standardized(const StandardizedPackArgs& a, int64_t rows) {
  split(rows, grain(a.cols, kPackGrain), kernels().pack_standardized, a);
}

void unpack(const int32_t* words, int64_t rows, int64_t size, const float* scale, float* out) {
  split(rows, grain(size, kPackGrain), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      expand_bits(words + i * words_for(size), size, scale != nullptr ? scale[i] : 1.0f,
                  out + i * size);
  });
}

}  // namespace bitgnn::cpu

// The ternary CPU kernels compiled for AVX-512 with VPOPCNTDQ.
#if defined(__x86_64__)

#include <immintrin.h>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/cpu/float_types.h"
#include "ternary/cpu/kernel_table.h"

#include "core/cpu/simd/target_avx512.h"

#define BITGNN_ISA avx512
#include "ternary/cpu/vectors_avx512.h"
//
#include "ternary/cpu/all_kernels.h"

namespace bitgnn::cpu {

const TernaryTable kAvx512Ternary = BITGNN_TERNARY_TABLE();

}  // namespace bitgnn::cpu

#include "core/cpu/simd/target_end.h"

#endif  // __x86_64__

// The CPU kernels compiled for AVX2.
#if defined(__x86_64__)

#include <immintrin.h>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <type_traits>
#include <vector>

#include "capabilities/cpu/kernel_table.h"
#include "core/cpu/float_types.h"

#include "core/cpu/simd/target_avx2.h"

#define BITGNN_ISA avx2
#include "core/cpu/simd/dots_avx2.h"
#include "core/cpu/simd/narrow_avx2.h"
#include "int8/cpu/codes_avx2.h"
#include "int8/cpu/dots_wide.h"
#include "ternary/cpu/vectors_avx2.h"
//
#include "capabilities/cpu/all_kernels.h"

namespace bitgnn::cpu {

const KernelTable kAvx2Kernels = avx2::kernel_table("avx2");

}  // namespace bitgnn::cpu

#include "core/cpu/simd/target_end.h"

#endif  // __x86_64__

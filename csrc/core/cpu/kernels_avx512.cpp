// The CPU kernels compiled for AVX-512 with VPOPCNTDQ and VNNI.
#if defined(__x86_64__)

#include <immintrin.h>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

#include "core/cpu/float_types.h"
#include "core/cpu/kernel_table.h"

#include "core/cpu/simd/target_avx512.h"

#define BITGNN_ISA avx512
#include "core/cpu/simd/dots_avx512.h"
#include "core/cpu/simd/narrow_avx512.h"
#include "core/cpu/simd/rows_avx512.h"
#include "int8/cpu/dots_avx512.h"
#include "ternary/cpu/vectors_avx512.h"
//
#include "core/cpu/all_kernels.h"

namespace bitgnn::cpu {

const KernelTable kAvx512Kernels = avx512::kernel_table("avx512");

}  // namespace bitgnn::cpu

#include "core/cpu/simd/target_end.h"

#endif  // __x86_64__

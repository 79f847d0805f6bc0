// The ternary CPU kernels compiled for AVX-512 with VPOPCNTDQ.
#if defined(__x86_64__)

// The target is set by pragma, after the standard headers: compiled with flags instead, their
// inline functions could be merged into code that older CPUs run.
#include <immintrin.h>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "bitgnn/cpu/float_types.h"
#include "bitgnn/cpu/ternary_table.h"

#if defined(__clang__)
#pragma clang attribute push(                                                                     \
    __attribute__((                                                                               \
        target("avx512f,avx512bw,avx512dq,avx512vl,avx512vpopcntdq,avx2,popcnt,bmi,bmi2,f16c"))), \
    apply_to = function)
#else
#pragma GCC push_options
// GCC 12 warns of its own intrinsics, which leave a masked-off operand undefined on purpose.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vpopcntdq,avx2,popcnt,bmi,bmi2,f16c")
#endif

#define BITGNN_ISA avx512
#include "bitgnn/cpu/ternary_avx512.h"
//
#include "bitgnn/cpu/ternary_attention_kernel.h"
#include "bitgnn/cpu/ternary_bmm_kernel.h"
#include "bitgnn/cpu/ternary_pack_kernel.h"

namespace bitgnn::cpu {

const TernaryTable kAvx512Ternary = {
    BITGNN_ISA::pack_ternary, BITGNN_ISA::pack_ternary_columns, BITGNN_ISA::multiply_ternary,
    BITGNN_ISA::pair_panels,  BITGNN_ISA::matmul_ternary,       BITGNN_ISA::attend_ternary,
};

}  // namespace bitgnn::cpu

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif  // __x86_64__

// The ternary CPU kernels compiled for AVX2.
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
#pragma clang attribute push(__attribute__((target("avx2,fma,popcnt,bmi,bmi2,f16c"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,popcnt,bmi,bmi2,f16c")
#endif

#define BITGNN_ISA avx2
#include "bitgnn/cpu/ternary_avx2.h"
//
#include "bitgnn/cpu/ternary_attention_kernel.h"
#include "bitgnn/cpu/ternary_bmm_kernel.h"
#include "bitgnn/cpu/ternary_pack_kernel.h"

namespace bitgnn::cpu {

const TernaryTable kAvx2Ternary = {
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

// The CPU kernels compiled for AVX2.
#if defined(__x86_64__)

// The target is set by pragma, after the standard headers: compiled with flags instead, their
// inline functions could be merged into code that older CPUs run.
#include <immintrin.h>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>

#include "bitgnn/cpu/float_types.h"
#include "bitgnn/cpu/kernel_table.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,popcnt,bmi,bmi2,f16c"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,popcnt,bmi,bmi2,f16c")
#endif

#define BITGNN_ISA avx2
#include "bitgnn/cpu/dots_avx2.h"
#include "bitgnn/cpu/int_sums_avx2.h"
#include "bitgnn/cpu/narrow_avx2.h"
#include "bitgnn/cpu/rows_avx2.h"
//
#include "bitgnn/cpu/bit_pool_kernel.h"
#include "bitgnn/cpu/bits_linear_kernel.h"
#include "bitgnn/cpu/frdc_kernel.h"
#include "bitgnn/cpu/narrow_kernel.h"
#include "bitgnn/cpu/pack_images_kernel.h"
#include "bitgnn/cpu/pack_standardized_kernel.h"
#include "bitgnn/cpu/patch_kernel.h"
#include "bitgnn/cpu/slots_kernel.h"
#include "bitgnn/cpu/ternary_aggregate_kernel.h"
//
#include "bitgnn/cpu/conv_kernel.h"
//
#include "bitgnn/cpu/fixed_conv_kernel.h"

namespace bitgnn::cpu {

const KernelTable kAvx2Kernels = {
    "avx2",
    BITGNN_ISA::kParityWords,
    BITGNN_ISA::pack,
    BITGNN_ISA::pack_panels,
    BITGNN_ISA::bmm,
    BITGNN_ISA::aggregate_bits,
    BITGNN_ISA::aggregate_ternary,
    BITGNN_ISA::aggregate_float,
    BITGNN_ISA::aggregate_frdc,
    BITGNN_ISA::aggregate_blocked,
    BITGNN_ISA::pack_standardized,
    BITGNN_ISA::aggregate_narrow,
    BITGNN_ISA::bits_linear,
    BITGNN_ISA::aggregate_slots,
    BITGNN_ISA::finish_panels,
    BITGNN_ISA::conv,
    BITGNN_ISA::expand_signs,
    BITGNN_ISA::fixed_conv,
    BITGNN_ISA::pack_images,
    BITGNN_ISA::pool_bits,
    BITGNN_ISA::pack_patches,
};

}  // namespace bitgnn::cpu

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif  // __x86_64__

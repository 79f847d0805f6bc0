// The CPU kernels compiled for AVX-512 with VPOPCNTDQ.
#if defined(__x86_64__)

#include <immintrin.h>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>

#include "bitgnn/cpu/float_types.h"
#include "bitgnn/cpu/kernel_table.h"

#include "bitgnn/cpu/target_avx512.h"

#define BITGNN_ISA avx512
#include "bitgnn/cpu/dots_avx512.h"
#include "bitgnn/cpu/int_sums_avx512.h"
#include "bitgnn/cpu/narrow_avx512.h"
#include "bitgnn/cpu/rows_avx512.h"
//
#include "bitgnn/cpu/all_kernels.h"

namespace bitgnn::cpu {

const KernelTable kAvx512Kernels = BITGNN_KERNEL_TABLE("avx512");

}  // namespace bitgnn::cpu

#include "bitgnn/cpu/target_end.h"

#endif  // __x86_64__

// The CPU kernels compiled for AVX2.
#if defined(__x86_64__)

#include <immintrin.h>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>

#include "bitgnn/cpu/float_types.h"
#include "bitgnn/cpu/kernel_table.h"

#include "bitgnn/cpu/target_avx2.h"

#define BITGNN_ISA avx2
#include "bitgnn/cpu/dots_avx2.h"
#include "bitgnn/cpu/int_sums_avx2.h"
#include "bitgnn/cpu/narrow_avx2.h"
#include "bitgnn/cpu/rows_avx2.h"
//
#include "bitgnn/cpu/all_kernels.h"

namespace bitgnn::cpu {

const KernelTable kAvx2Kernels = BITGNN_KERNEL_TABLE("avx2");

}  // namespace bitgnn::cpu

#include "bitgnn/cpu/target_end.h"

#endif  // __x86_64__

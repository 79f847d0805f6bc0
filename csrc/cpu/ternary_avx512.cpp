// The ternary CPU kernels compiled for AVX-512 with VPOPCNTDQ.
#if defined(__x86_64__)

#include <immintrin.h>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "bitgnn/cpu/float_types.h"
#include "bitgnn/cpu/ternary_table.h"

#include "bitgnn/cpu/target_avx512.h"

#define BITGNN_ISA avx512
#include "bitgnn/cpu/ternary_avx512.h"
//
#include "bitgnn/cpu/ternary_kernels.h"

namespace bitgnn::cpu {

const TernaryTable kAvx512Ternary = BITGNN_TERNARY_TABLE();

}  // namespace bitgnn::cpu

#include "bitgnn/cpu/target_end.h"

#endif  // __x86_64__

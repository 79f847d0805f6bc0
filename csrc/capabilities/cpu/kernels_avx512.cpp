// The CPU kernels compiled for AVX-512 with VPOPCNTDQ and VNNI, and those of 8-bit rows for AMX.
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

#include "core/cpu/simd/target_avx512.h"

#define BITGNN_ISA avx512
#include "core/cpu/simd/dots_avx512.h"
#include "core/cpu/simd/narrow_avx512.h"
#include "core/cpu/simd/rows_avx512.h"
#include "int8/cpu/dots_avx512.h"
#include "ternary/cpu/vectors_avx512.h"
//
#include "capabilities/cpu/all_kernels.h"

#include "core/cpu/simd/target_end.h"
//
#include "core/cpu/simd/target_amx.h"

#undef BITGNN_ISA
#define BITGNN_ISA amx
#include "int8/cpu/dots_amx.h"
//
#include "int8/cpu/kernel.h"

namespace bitgnn::cpu {
namespace {

constexpr KernelTable amx_table() {
  KernelTable table = avx512::kernel_table("amx");
  table.code_panel_bytes = amx::code_panel_bytes;
  table.pack_int8 = amx::pack_int8;
  table.code_panels = amx::code_panels;
  table.multiply_int8 = amx::multiply_int8;
  return table;
}

}  // namespace

const KernelTable kAvx512Kernels = avx512::kernel_table("avx512");
const KernelTable kAmxKernels = amx_table();

}  // namespace bitgnn::cpu

#include "core/cpu/simd/target_end.h"

#endif  // __x86_64__

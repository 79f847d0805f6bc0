// The CPU kernels compiled as plain C++, which runs on any CPU.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <type_traits>
#include <vector>

#define BITGNN_ISA portable
#include "core/cpu/simd/dots_portable.h"
#include "core/cpu/simd/narrow_portable.h"
#include "int8/cpu/codes_portable.h"
#include "int8/cpu/dots_wide.h"
#include "ternary/cpu/vectors_portable.h"
//
#include "capabilities/cpu/all_kernels.h"

namespace bitgnn::cpu {

const KernelTable kPortableKernels = portable::kernel_table("portable");

}  // namespace bitgnn::cpu

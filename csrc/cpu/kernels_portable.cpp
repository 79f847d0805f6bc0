// The CPU kernels compiled for plain C++, which any CPU runs.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>

#define BITGNN_ISA portable
#include "bitgnn/cpu/dots_portable.h"
#include "bitgnn/cpu/int_sums_portable.h"
#include "bitgnn/cpu/narrow_portable.h"
#include "bitgnn/cpu/rows_portable.h"
//
#include "bitgnn/cpu/all_kernels.h"

namespace bitgnn::cpu {

const KernelTable kPortableKernels = BITGNN_KERNEL_TABLE("portable");

}  // namespace bitgnn::cpu

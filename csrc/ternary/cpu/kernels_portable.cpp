// The ternary CPU kernels compiled as plain C++, for any CPU.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#define BITGNN_ISA portable
#include "ternary/cpu/vectors_portable.h"
//
#include "ternary/cpu/all_kernels.h"

namespace bitgnn::cpu {

const TernaryTable kPortableTernary = BITGNN_TERNARY_TABLE();

}  // namespace bitgnn::cpu

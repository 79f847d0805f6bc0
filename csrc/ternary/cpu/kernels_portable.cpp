// The ternary CPU kernels compiled for plain C++, which any CPU runs.
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

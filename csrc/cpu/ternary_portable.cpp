// The ternary CPU kernels compiled for plain C++, which any CPU runs.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#define BITGNN_ISA portable
#include "bitgnn/cpu/ternary_portable.h"
//
#include "bitgnn/cpu/ternary_kernels.h"

namespace bitgnn::cpu {

const TernaryTable kPortableTernary = BITGNN_TERNARY_TABLE();

}  // namespace bitgnn::cpu

// The ternary CPU kernels compiled for plain C++, which any CPU runs.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#define BITGNN_ISA portable
#include "bitgnn/cpu/ternary_portable.h"
//
#include "bitgnn/cpu/ternary_attention_kernel.h"
#include "bitgnn/cpu/ternary_bmm_kernel.h"
#include "bitgnn/cpu/ternary_pack_kernel.h"

namespace bitgnn::cpu {

const TernaryTable kPortableTernary = {
    BITGNN_ISA::pack_ternary, BITGNN_ISA::pack_ternary_columns, BITGNN_ISA::multiply_ternary,
    BITGNN_ISA::pair_panels,  BITGNN_ISA::matmul_ternary,       BITGNN_ISA::attend_ternary,
};

}  // namespace bitgnn::cpu

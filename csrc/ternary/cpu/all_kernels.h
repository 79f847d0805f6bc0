// Every ternary CPU kernel, for the capability whose primitives and whose name, BITGNN_ISA, stand
// in front of this header; their table.
#pragma once

#include "attention/cpu/kernel.h"
#include "ternary/cpu/bmm_kernel.h"
#include "ternary/cpu/pack_kernel.h"

#define BITGNN_TERNARY_TABLE()                                                                  \
  {                                                                                             \
      BITGNN_ISA::pack_ternary, BITGNN_ISA::pack_ternary_columns, BITGNN_ISA::multiply_ternary, \
      BITGNN_ISA::pair_panels,  BITGNN_ISA::matmul_ternary,       BITGNN_ISA::attend_ternary,   \
  }

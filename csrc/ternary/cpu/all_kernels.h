// All ternary CPU kernels and their table, for the instruction set BITGNN_ISA, whose primitives
// must be included before this header.
#pragma once

#include "attention/cpu/kernel.h"
#include "ternary/cpu/bmm_kernel.h"
#include "ternary/cpu/pack_kernel.h"

#define BITGNN_TERNARY_TABLE()                                                                  \
  {                                                                                             \
      BITGNN_ISA::pack_ternary, BITGNN_ISA::pack_ternary_columns, BITGNN_ISA::multiply_ternary, \
      BITGNN_ISA::pair_panels,  BITGNN_ISA::matmul_ternary,       BITGNN_ISA::attend_ternary,   \
  }

// All CPU kernels except those of ternary/, and their table, for one capability. Its primitives and
// BITGNN_ISA, its name, must precede this header.
#pragma once

#include "bmm/cpu/digits_kernel.h"
#include "bspmm/cpu/frdc_kernel.h"
#include "bspmm/cpu/slots_kernel.h"
#include "bspmm/cpu/ternary_kernel.h"
#include "conv/cpu/pool_kernel.h"
#include "pack/cpu/images_kernel.h"
#include "pack/cpu/patch_kernel.h"
#include "pack/cpu/standardized_kernel.h"
#include "pairs/cpu/narrow_kernel.h"
//
#include "conv/cpu/conv_kernel.h"
#include "pack/cpu/level_kernel.h"
//
#include "first_layers/cpu/kernel.h"

#define BITGNN_KERNEL_TABLE(capability) \
  {                                     \
      capability,                       \
      BITGNN_ISA::kParityWords,         \
      BITGNN_ISA::pack,                 \
      BITGNN_ISA::pack_panels,          \
      BITGNN_ISA::bmm,                  \
      BITGNN_ISA::aggregate_bits,       \
      BITGNN_ISA::aggregate_ternary,    \
      BITGNN_ISA::aggregate_float,      \
      BITGNN_ISA::aggregate_frdc,       \
      BITGNN_ISA::pack_standardized,    \
      BITGNN_ISA::pack_levels,          \
      BITGNN_ISA::aggregate_narrow,     \
      BITGNN_ISA::bits_linear,          \
      BITGNN_ISA::aggregate_slots,      \
      BITGNN_ISA::finish_panels,        \
      BITGNN_ISA::conv,                 \
      BITGNN_ISA::expand_signs,         \
      BITGNN_ISA::fixed_conv,           \
      BITGNN_ISA::pack_images,          \
      BITGNN_ISA::pool_bits,            \
      BITGNN_ISA::pack_patches,         \
  }

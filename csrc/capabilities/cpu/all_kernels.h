// All CPU kernels and their table, for one capability. Its primitives and BITGNN_ISA, its name,
// must precede this header.
#pragma once

#include "attention/cpu/kernel.h"
#include "bmm/cpu/digits_kernel.h"
#include "bspmm/cpu/entries_kernel.h"
#include "bspmm/cpu/frdc_kernel.h"
#include "bspmm/cpu/slots_kernel.h"
#include "bspmm/cpu/ternary_kernel.h"
#include "conv/cpu/pool_kernel.h"
#include "pack/cpu/images_kernel.h"
#include "pack/cpu/patch_kernel.h"
#include "pack/cpu/standardized_kernel.h"
#include "pairs/cpu/narrow_kernel.h"
#include "ternary/cpu/bmm_kernel.h"
#include "ternary/cpu/pack_kernel.h"
//
#include "conv/cpu/conv_kernel.h"
//
#include "first_layers/cpu/kernel.h"
#include "gat/cpu/kernel.h"
#include "hamming/cpu/kernel.h"
#include "int8/cpu/kernel.h"

namespace bitgnn::cpu::BITGNN_ISA {

constexpr KernelTable kernel_table(const char* capability) {
  return {
      capability,
      kParityWords,
      pack,
      pack_panels,
      bmm,
      code_panel_bytes,
      pack_int8,
      code_panels,
      multiply_int8,
      aggregate_bits,
      aggregate_ternary,
      aggregate_float,
      aggregate_frdc,
      pack_standardized,
      aggregate_narrow,
      bits_linear,
      aggregate_slots,
      finish_panels,
      conv,
      expand_signs,
      fixed_conv,
      pack_images,
      pool_bits,
      pack_patches,
      pack_ternary,
      pack_ternary_columns,
      multiply_ternary,
      pair_panels,
      matmul_ternary,
      attend_ternary,
      scan_codes,
      gat,
      aggregate_entries,
  };
}

}  // namespace bitgnn::cpu::BITGNN_ISA

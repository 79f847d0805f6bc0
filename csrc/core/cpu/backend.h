// CPU backend of the operators; core/operands.h describes the backend interface.
#pragma once

#include <cstdint>
#include <tuple>
#include <vector>

#include "attention/arguments.h"
#include "core/cpu/buffer_cache.h"
#include "core/cpu/kernel_table.h"
#include "core/operands.h"
#include "pairs/arguments.h"
#include "ternary/arguments.h"
#include "training/looked_up_arguments.h"
#include "whole_model/linear_chain.h"

namespace bitgnn::cpu {

using ops::ScalarType;
using ops::Tensor;

class Backend {
 public:
  Backend(const Tensor& first, const char* op, const char* name) { check(first, op, name); }

  void check(const Tensor& t, const char* op, const char* name) const {
    BITGNN_CHECK(t.is_cpu(), op, ": ", name,
                 " must be on the CPU like the other arguments, got another device");
  }

  template <size_t N>
  Tensor empty(const int64_t (&sizes)[N], ScalarType dtype) const {
    int64_t strides[N];
    return new_tensor(sizes, strides, N, dtype);
  }

  Tensor empty_of(const std::vector<int64_t>& sizes, ScalarType dtype) const {
    std::vector<int64_t> strides(sizes.size());
    return new_tensor(sizes.data(), strides.data(), sizes.size(), dtype);
  }

  static const Tensor& on_host(const Tensor& t, const char*) { return t; }

  // Checks the ends of a row pointer, which bound every edge read.
  void check_row_pointer(const AggregateArgs& a, const char* op) const;

  void pack(const PackArgs& a, int64_t rows) const;
  void pack_standardized(const StandardizedPackArgs& a, int64_t rows) const;
  void pack_csr(const CsrPackArgs& a) const;
  void unpack(const int32_t* words, int64_t rows, int64_t size, const float* scale,
              float* out) const;
  void transpose_bits(const int32_t* words, int64_t rows, int64_t size, int32_t* out) const;
  // With `out`, writes products to narrow rows, whose factors are the row scale times `factor`
  // ([rows] or null).
  void multiply(const bitgnn::BmmArgs& a, const NarrowRows* out = nullptr,
                const float* factor = nullptr) const;
  void pack_int8(const Int8PackArgs& a) const;
  void multiply_int8(const bitgnn::Int8BmmArgs& a) const;
  void aggregate_bits(const AggregateArgs& a) const;
  // x holds the two planes of ternary rows.
  void aggregate_ternary(const AggregateArgs& a) const;
  void aggregate_dense(const AggregateArgs& a) const;
  void aggregate_frdc(const bitgnn::FrdcArgs& a) const;
  void aggregate_sliced(const SlicedArgs& a) const;
  // Only argmax is fused: torch's softmax is as fast after the kernels, but its argmax takes many
  // times as long.
  bool suits_head(const NarrowCall&, Head head) const { return head == Head::kClasses; }
  void aggregate_narrow(const NarrowCall& a) const;
  void aggregate_product(const AggregateArgs& sums, const bitgnn::BmmArgs& product) const;
  void aggregate_product(const AggregateArgs& sums, const bitgnn::Int8BmmArgs& product) const;
  void aggregate_product(const SlicedArgs& sums, const bitgnn::BmmArgs& product) const;
  void bits_linear(const BitsLinearArgs& a) const;
  void aggregate_slots(const SlotSumsArgs& a) const;
  void convolve(const bitgnn::ConvArgs& a) const;
  // Bits are pooled after the convolution.
  bool convolve_pooled(const bitgnn::ConvArgs&, const BitPoolArgs&) const { return false; }
  void convolve_add(const ConvAddArgs& a) const;
  void convolve_fixed(const FixedConvArgs& a) const;
  void pack_images(const ImagePackArgs& a) const;
  void pool_bits(const BitPoolArgs& a) const;
  void pack_patches(const PatchArgs& a) const;
  void linear_chain(const LinearChainArgs& a) const;
  void pack_ternary(const TernaryPackArgs& a) const;
  void pack_ternary_columns(const TernaryColumnPackArgs& a) const;
  void multiply_ternary(const TernaryBmmArgs& a) const;
  void linear_ternary(const TernaryLinearArgs& a) const;
  void matmul_ternary(const TernaryMatmulArgs& a) const;
  void attention_ternary(const TernaryAttentionArgs& a) const;
  // Operands are packed first: they are small compared with the key products that all threads
  // share.
  static constexpr bool suits_floats(const TernaryFloatAttentionArgs&) { return false; }
  static void attention_ternary_floats(const TernaryFloatAttentionArgs&) {}
  void round_levels(const RoundLevelsArgs& a) const;
  void clip_gradients(const ClipGradientsArgs& a) const;
  void shift_signs(const ShiftSignsArgs& a) const;
  void centre_gradients(const CentreGradientsArgs& a) const;
  void scale_sums(const ScaleSumsArgs& a) const;
  void fold_weight(const FoldWeightArgs& a) const;
  void activation_bits(const ActivationBitsArgs& a) const;
  void unpack_pair(const UnpackPairArgs& a) const;
  void row_signs(const RowSignsArgs& a) const;
  void straight_through(const StraightThroughArgs& a) const;
  void add(const JoinArgs& a) const;
  void concat(const JoinArgs& a) const;

 private:
  // Allocates a contiguous tensor and fills the strides. The shim call costs a tenth of a
  // dispatcher call; large tensors come from the buffer cache.
  static Tensor new_tensor(const int64_t* sizes, int64_t* strides, size_t count, ScalarType dtype) {
    const auto bytes = static_cast<size_t>(ops::contiguous_strides(sizes, count, dtype, strides));
    if (is_cached(bytes)) {
      void* data = take_buffer(bytes);
      BITGNN_CHECK(data != nullptr, "bitgnn: no memory for a result of ", bytes, " bytes");
      return torch::stable::from_blob(data, {sizes, count}, {strides, count},
                                      torch::stable::Device(torch::headeronly::DeviceType::CPU),
                                      dtype, return_buffer);
    }
    AtenTensorHandle handle = nullptr;
    const AOTITorchError status =
        aoti_torch_empty_strided(static_cast<int64_t>(count), sizes, strides,
                                 ops::dtype_code(dtype), aoti_torch_device_type_cpu(), 0, &handle);
    BITGNN_CHECK(status == 0, "bitgnn: no memory for a result of ", bytes, " bytes");
    return Tensor(handle);
  }

  // See PairPanels.
  Tensor pair_panels_of(const TernaryOperand& y, const int64_t (&batches)[2], int64_t rows,
                        int64_t size) const;
};

// Row pointer int32 [num_rows + 1] and columns int32 [E] of the pattern given by edges, int32 or
// int64 [E]. With self_loops, one loop per node replaces the existing ones, and there is room for
// [E + num_rows] columns, of which rowptr[num_rows] are filled.
std::tuple<Tensor, Tensor> csr_from_edges_operator(const Tensor& sources,
                                                   const Tensor& destinations, int64_t num_rows,
                                                   int64_t num_cols, bool self_loops);

// Minimum number of rows per thread for which starting a thread pays off.
inline int64_t grain(int64_t work_per_row, int64_t least_work) {
  return work_per_row >= least_work ? 1 : least_work / (work_per_row + 1) + 1;
}

// Calls kernel(args..., begin, end) for ranges of [0, count), split over threads.
template <class Kernel, class... Args>
void split(int64_t count, int64_t grain_size, const Kernel& kernel, const Args&... args) {
  torch::stable::parallel_for(0, count, grain_size,
                              [&](int64_t begin, int64_t end) { kernel(args..., begin, end); });
}

// The same for kernels that take ranges of rows and of panels: splits the rows or the panels.
template <class Kernel, class... Args>
void split_either(bool by_rows, int64_t rows, int64_t row_grain, int64_t panels,
                  int64_t panel_grain, const Kernel& kernel, const Args&... args) {
  if (by_rows) {
    split(rows, row_grain,
          [&](int64_t begin, int64_t end) { kernel(args..., begin, end, 0, panels); });
  } else {
    split(panels, panel_grain,
          [&](int64_t begin, int64_t end) { kernel(args..., 0, rows, begin, end); });
  }
}

// Repacks rows [out_features, words] as [ceil(out_features / 32), words, 32]: the lanes of a vector
// are 32 outputs, so products need no horizontal sum. Missing outputs are zero. With `parities`,
// each word is the XOR of its output's words up to and including it.
void pack_panels(const int32_t* w, int64_t out_features, int64_t words, bool parities, int32_t* to);

// Packs one bit per flag, 32 per word.
std::vector<int32_t> pack_flags(const bool* flags, int64_t count);

// out[k] = value if bit k is set, else -value. Uses one mask per lane, since not every instruction
// set has variable vector shifts.
inline void expand_bits(const int32_t* words, int64_t size, float value, float* out) {
  static const struct Masks {
    uint32_t bit[kWordBits];
    Masks() {
      for (int l = 0; l < kWordBits; ++l) bit[l] = 1u << l;
    }
  } masks;
  const float negative = -value;
  for (int64_t w = 0; w < words_for(size); ++w) {
    const uint32_t bits = static_cast<uint32_t>(words[w]);
    const int64_t count = size - w * kWordBits < kWordBits ? size - w * kWordBits : kWordBits;
    float* lanes = out + w * kWordBits;
    for (int64_t l = 0; l < count; ++l) lanes[l] = (bits & masks.bit[l]) != 0 ? value : negative;
  }
}

}  // namespace bitgnn::cpu

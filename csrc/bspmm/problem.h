// Common parts of the BSpMM variants: an aggregation's checked arguments and its output. Patterns
// are checked value by value unless the caller vouches for them, as BitAdjacency does, which checks
// itself when it is constructed.
#pragma once

#include <vector>

#include "bspmm/arguments.h"
#include "bspmm/pattern_check.h"
#include "core/operands.h"

namespace bitgnn::ops {

template <class Backend>
struct BspmmProblems {
  // Keeps the contiguous forms of a product's arguments alive along with the kernel's pointers.
  struct Problem {
    const char* op;
    Backend backend;
    AggregateArgs csr{};
    Tensor rowptr, indices, x;
    OptionalTensor values, extra;
    std::vector<Tensor> held;
    FloatVector row, col, bias, threshold;

    Problem(const Tensor& first, const char* op_name, const char* name = "x")
        : op(op_name), backend(first, op_name, name) {}
  };

  static Tensor index_vector(const Problem& p, const Tensor& t, ScalarType dtype,
                             const char* name) {
    check_operand(p.backend, t, dtype, 1, p.op, name);
    return as_contiguous(t);
  }

  static void set_rowptr(Problem& p, const Tensor& rowptr, int64_t edges, const char* name) {
    p.backend.check(rowptr, p.op, name);
    check_dim(rowptr, 1, p.op, name);
    const auto dtype = rowptr.scalar_type();
    BITGNN_CHECK(dtype == ScalarType::Int || dtype == ScalarType::Long, p.op, ": ", name,
                 " must be int32 or int64, got ", torch::headeronly::toString(dtype));
    BITGNN_CHECK(rowptr.size(0) >= 1, p.op, ": ", name, " must have at least one entry, got none");
    p.rowptr = as_contiguous(rowptr);
    p.csr.rowptr = p.rowptr.data_ptr();
    p.csr.rowptr64 = dtype == ScalarType::Long;
    p.csr.rows = rowptr.size(0) - 1;
    p.csr.edges = edges;
    // Both ends bound every edge read. On a device, reading them would mean waiting for it.
    if constexpr (!Backend::kIsHost) return;
    const RowPointers entries{p.csr.rowptr, p.csr.rowptr64};
    check_size(entries[0], 0, p.op, "the first row pointer");
    if (edges >= 0) check_size(entries[p.csr.rows], edges, p.op, "the last row pointer");
  }

  static void set_csr(Problem& p, const Tensor& rowptr, const Tensor& indices) {
    p.indices = index_vector(p, indices, ScalarType::Int, "indices");
    p.csr.indices = p.indices.template const_data_ptr<int32_t>();
    set_rowptr(p, rowptr, indices.size(0), "rowptr");
  }

  // Contents of a vector in memory that the host can read.
  template <class Entry>
  class HostVector {
   public:
    HostVector(const Problem& p, const Tensor& t) : tensor_(p.backend.on_host(t, p.op)) {}
    const Entry* data() const { return static_cast<const Entry*>(tensor_.data_ptr()); }

   private:
    Tensor tensor_;
  };

  // The same for row pointers.
  class HostPointers {
   public:
    explicit HostPointers(const Problem& p)
        : entries_(p, p.rowptr), view_{entries_.data(), p.csr.rowptr64} {}
    const RowPointers& get() const { return view_; }

   private:
    HostVector<char> entries_;
    RowPointers view_;
  };

  // Requires the CSR to stay inside `cols` rows of x.
  static void check_csr(const Problem& p, int64_t cols, bool trusted) {
    if (trusted) return;
    const HostPointers rowptr(p);
    check_row_pointers(rowptr.get(), p.csr.rows + 1, p.csr.edges, p.op, "rowptr");
    const HostVector<int32_t> indices(p, p.indices);
    check_indices(indices.data(), p.csr.edges, cols, p.op, "indices");
  }

  static void set_bits(Problem& p, const Tensor& x, int64_t size, const char* name = "x") {
    p.x = bit_rows(p.backend, x, size, p.op, name);
    p.csr.x = p.x.data_ptr();
    p.csr.x_type = RowType::kBits;
    p.csr.x_stride = words_for(size);
    p.csr.features = size;
    p.csr.cols = p.x.size(0);
  }

  static RowType row_type(const Tensor& t, bool integers, const char* op) {
    switch (t.scalar_type()) {
      case ScalarType::Float:
        return RowType::kFloat32;
      case ScalarType::Half:
        return RowType::kFloat16;
      case ScalarType::BFloat16:
        return RowType::kBFloat16;
      case ScalarType::Char:
        if (integers) return RowType::kInt8;
        break;
      case ScalarType::Short:
        if (integers) return RowType::kInt16;
        break;
      default:
        break;
    }
    BITGNN_CHECK(false, op, ": x must be float32, float16",
                 integers ? ", bfloat16, int8 or int16, got " : " or bfloat16, got ",
                 torch::headeronly::toString(t.scalar_type()));
  }

  static void set_dense(Problem& p, const Tensor& x, bool integers) {
    p.backend.check(x, p.op, "x");
    p.csr.x_type = row_type(x, integers, p.op);
    check_dim(x, 2, p.op, "x");
    p.x = with_unit_column_stride(x);
    p.csr.x = p.x.data_ptr();
    p.csr.x_stride = p.x.stride(0);
    p.csr.features = p.x.size(1);
    p.csr.cols = p.x.size(0);
  }

  static void set_values(Problem& p, const Tensor& values) {
    p.values = index_vector(p, values, ScalarType::Float, "values");
    check_size(values.size(0), p.csr.edges, p.op, "entries of values");
    p.csr.values = p.values->template const_data_ptr<float>();
  }

  static bool holds_integers(const Problem& p) {
    return p.csr.x_type == RowType::kInt8 || p.csr.x_type == RowType::kInt16;
  }

  static Output value_output(bool integer, const OptionalTensor& row, const OptionalTensor& bias,
                             const char* op) {
    BITGNN_CHECK(!integer || (!row.has_value() && !bias.has_value()), op,
                 ": integer=True gives the bare sums: row and bias must be left out");
    return integer ? Output::kInt : Output::kFloat;
  }

  // Sets the vectors of the epilogue; all other arguments must be set before.
  static void set_epilogue(Problem& p, const OptionalTensor& row, const OptionalTensor& bias,
                           const OptionalTensor& threshold) {
    p.row = FloatVector(p.backend, row, p.csr.rows, p.op, "row");
    p.bias = FloatVector(p.backend, bias, p.csr.features, p.op, "bias");
    p.threshold = FloatVector(p.backend, threshold, p.csr.features, p.op, "threshold");
    p.csr.row_scale = p.row.get();
    p.csr.bias = p.bias.get();
    p.csr.threshold = p.threshold.get();
  }

  // The same, and allocates the output.
  static Tensor finish(Problem& p, Output output, const OptionalTensor& row,
                       const OptionalTensor& bias, const OptionalTensor& threshold) {
    set_epilogue(p, row, bias, threshold);
    return new_output(p.backend, p.csr, p.csr.rows, p.csr.features, output);
  }
};

}  // namespace bitgnn::ops

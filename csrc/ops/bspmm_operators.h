// The eight BSpMM variants over CSR, and BBB and BBF over FRDC tiles and column blocks.
// Column indices are trusted to be in range: BitAdjacency checks them when it is made.
#pragma once

#include <algorithm>
#include <vector>

#include "ops/operands.h"

namespace bitgnn::ops {

// In place of a number of edges that only the row pointer tells.
constexpr int64_t kUnknownEdges = -1;

template <class Backend>
struct BspmmOperators {
  // Keeps the contiguous forms of a product's arguments alive beside the kernel's pointers.
  struct Problem {
    const char* op;
    Backend backend;
    AggregateArgs csr{};
    Tensor rowptr, indices, x;
    OptionalTensor values, extra;
    std::vector<Tensor> held;
    FloatVector row, col, bias, threshold;

    Problem(const Tensor& first, const char* op_name) : op(op_name), backend(first, op_name, "x") {}
  };

  static Tensor index_vector(const Problem& p, const Tensor& t, ScalarType dtype,
                             const char* name) {
    p.backend.check(t, p.op, name);
    check_dtype(t, dtype, p.op, name);
    check_dim(t, 1, p.op, name);
    return as_contiguous(t);
  }

  static void set_rowptr(Problem& p, const Tensor& rowptr, int64_t edges, const char* name) {
    p.backend.check(rowptr, p.op, name);
    check_dim(rowptr, 1, p.op, name);
    const auto dtype = rowptr.scalar_type();
    STD_TORCH_CHECK(dtype == ScalarType::Int || dtype == ScalarType::Long, p.op, ": ", name,
                    " must be int32 or int64, got ", torch::headeronly::toString(dtype));
    STD_TORCH_CHECK(rowptr.size(0) >= 1, p.op, ": ", name,
                    " must have at least one entry, got none");
    p.rowptr = as_contiguous(rowptr);
    p.csr.rowptr = p.rowptr.data_ptr();
    p.csr.rowptr64 = dtype == ScalarType::Long;
    p.csr.rows = rowptr.size(0) - 1;
    p.csr.edges = edges;
    p.backend.check_row_pointer(p.csr, p.op);
  }

  static void set_csr(Problem& p, const Tensor& rowptr, const Tensor& indices) {
    p.indices = index_vector(p, indices, ScalarType::Int, "indices");
    p.csr.indices = p.indices.template const_data_ptr<int32_t>();
    set_rowptr(p, rowptr, indices.size(0), "rowptr");
  }

  static void set_bits(Problem& p, const Tensor& x, int64_t size) {
    p.x = bit_rows(p.backend, x, size, p.op, "x");
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
    STD_TORCH_CHECK(false, op, ": x must be float32, float16",
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
    STD_TORCH_CHECK(!integer || (!row.has_value() && !bias.has_value()), op,
                    ": integer=True gives the bare sums: row and bias must be left out");
    return integer ? Output::kInt : Output::kFloat;
  }

  // Vectors of the epilogue and the output; every other argument is set before.
  static Tensor finish(Problem& p, Output output, const OptionalTensor& row,
                       const OptionalTensor& bias, const OptionalTensor& threshold) {
    p.row = FloatVector(p.backend, row, p.csr.rows, p.op, "row");
    p.bias = FloatVector(p.backend, bias, p.csr.features, p.op, "bias");
    p.threshold = FloatVector(p.backend, threshold, p.csr.features, p.op, "threshold");
    p.csr.row_scale = p.row.get();
    p.csr.bias = p.bias.get();
    p.csr.threshold = p.threshold.get();
    return new_output(p.backend, p.csr, p.csr.rows, p.csr.features, output);
  }

  static Tensor bits_times_pattern(const char* op, const Tensor& x, int64_t size,
                                   const Tensor& rowptr, const Tensor& indices, Output output,
                                   const OptionalTensor& row, const OptionalTensor& bias,
                                   const OptionalTensor& threshold) {
    Problem p(x, op);
    set_csr(p, rowptr, indices);
    set_bits(p, x, size);
    Tensor out = finish(p, output, row, bias, threshold);
    p.backend.aggregate_bits(p.csr);
    return out;
  }

  static Tensor bbb(const Tensor& x, int64_t size, const Tensor& rowptr, const Tensor& indices,
                    const OptionalTensor& row, const OptionalTensor& threshold) {
    return bits_times_pattern("bspmm_bbb", x, size, rowptr, indices, Output::kBits, row, {},
                              threshold);
  }

  static Tensor bbf(const Tensor& x, int64_t size, const Tensor& rowptr, const Tensor& indices,
                    const OptionalTensor& row, const OptionalTensor& bias, bool integer) {
    const char* op = "bspmm_bbf";
    return bits_times_pattern(op, x, size, rowptr, indices, value_output(integer, row, bias, op),
                              row, bias, {});
  }

  static Tensor dense_times_pattern(const char* op, const Tensor& x, const Tensor& rowptr,
                                    const Tensor& indices, Output output, const OptionalTensor& row,
                                    const OptionalTensor& col, const OptionalTensor& bias,
                                    const OptionalTensor& threshold) {
    Problem p(x, op);
    set_csr(p, rowptr, indices);
    set_dense(p, x, true);
    STD_TORCH_CHECK(!holds_integers(p) || !col.has_value(), op,
                    ": col must be left out with integer x, whose sums are exact");
    STD_TORCH_CHECK(holds_integers(p) || output != Output::kInt, op,
                    ": integer=True needs x to be int8 or int16, got ",
                    torch::headeronly::toString(x.scalar_type()));
    p.col = FloatVector(p.backend, col, p.csr.cols, op, "col");
    p.csr.col_scale = p.col.get();
    Tensor out = finish(p, output, row, bias, threshold);
    p.backend.aggregate_dense(p.csr);
    return out;
  }

  static Tensor fbb(const Tensor& x, const Tensor& rowptr, const Tensor& indices,
                    const OptionalTensor& row, const OptionalTensor& col,
                    const OptionalTensor& threshold) {
    return dense_times_pattern("bspmm_fbb", x, rowptr, indices, Output::kBits, row, col, {},
                               threshold);
  }

  static Tensor fbf(const Tensor& x, const Tensor& rowptr, const Tensor& indices,
                    const OptionalTensor& row, const OptionalTensor& col,
                    const OptionalTensor& bias, bool integer) {
    const char* op = "bspmm_fbf";
    return dense_times_pattern(op, x, rowptr, indices, value_output(integer, row, bias, op), row,
                               col, bias, {});
  }

  static Tensor bits_times_matrix(const char* op, const Tensor& x, int64_t size,
                                  const Tensor& rowptr, const Tensor& indices, const Tensor& values,
                                  Output output, const OptionalTensor& x_scale,
                                  const OptionalTensor& bias, const OptionalTensor& threshold) {
    Problem p(x, op);
    set_csr(p, rowptr, indices);
    set_bits(p, x, size);
    set_values(p, values);
    p.col = FloatVector(p.backend, x_scale, p.csr.cols, op, "x_scale");
    p.csr.col_scale = p.col.get();
    Tensor out = finish(p, output, {}, bias, threshold);
    p.backend.aggregate_dense(p.csr);
    return out;
  }

  static Tensor bfb(const Tensor& x, int64_t size, const Tensor& rowptr, const Tensor& indices,
                    const Tensor& values, const OptionalTensor& x_scale,
                    const OptionalTensor& threshold) {
    return bits_times_matrix("bspmm_bfb", x, size, rowptr, indices, values, Output::kBits, x_scale,
                             {}, threshold);
  }

  static Tensor bff(const Tensor& x, int64_t size, const Tensor& rowptr, const Tensor& indices,
                    const Tensor& values, const OptionalTensor& x_scale,
                    const OptionalTensor& bias) {
    return bits_times_matrix("bspmm_bff", x, size, rowptr, indices, values, Output::kFloat, x_scale,
                             bias, {});
  }

  static Tensor dense_times_matrix(const char* op, const Tensor& x, const Tensor& rowptr,
                                   const Tensor& indices, const Tensor& values, Output output,
                                   const OptionalTensor& bias, const OptionalTensor& threshold) {
    Problem p(x, op);
    set_csr(p, rowptr, indices);
    set_dense(p, x, false);
    set_values(p, values);
    Tensor out = finish(p, output, {}, bias, threshold);
    p.backend.aggregate_dense(p.csr);
    return out;
  }

  static Tensor ffb(const Tensor& x, const Tensor& rowptr, const Tensor& indices,
                    const Tensor& values, const OptionalTensor& threshold) {
    return dense_times_matrix("bspmm_ffb", x, rowptr, indices, values, Output::kBits, {},
                              threshold);
  }

  static Tensor fff(const Tensor& x, const Tensor& rowptr, const Tensor& indices,
                    const Tensor& values, const OptionalTensor& bias) {
    return dense_times_matrix("bspmm_fff", x, rowptr, indices, values, Output::kFloat, bias, {});
  }

  static Tensor frdc(const char* op, const Tensor& x, int64_t size, const Tensor& tile_rowptr,
                     const Tensor& tile_cols, const Tensor& tiles, int64_t num_rows, int64_t method,
                     Output output, const OptionalTensor& row, const OptionalTensor& bias,
                     const OptionalTensor& threshold) {
    STD_TORCH_CHECK(method >= 0 && method <= 2, op, ": method must be 0, 1 or 2, got ", method);
    Problem p(x, op);
    p.indices = index_vector(p, tile_cols, ScalarType::Int, "tile_cols");
    p.csr.indices = p.indices.template const_data_ptr<int32_t>();
    set_rowptr(p, tile_rowptr, tile_cols.size(0), "tile_rowptr");
    set_bits(p, x, size);
    p.extra = index_vector(p, tiles, ScalarType::Short, "tiles");
    check_size(tiles.size(0), tile_cols.size(0), op, "entries of tiles");
    STD_TORCH_CHECK(num_rows >= 0, op, ": num_rows must not be negative, got ", num_rows);
    check_size(p.csr.rows, (num_rows + kTileDim - 1) / kTileDim, op, "the number of tile rows");
    p.csr.rows = num_rows;
    Tensor out = finish(p, output, row, bias, threshold);
    const FrdcArgs args{p.csr, p.extra->template const_data_ptr<int16_t>(),
                        static_cast<Reconcile>(method)};
    p.backend.aggregate_frdc(args);
    return out;
  }

  static Tensor bbb_frdc(const Tensor& x, int64_t size, const Tensor& tile_rowptr,
                         const Tensor& tile_cols, const Tensor& tiles, int64_t num_rows,
                         int64_t method, const OptionalTensor& row,
                         const OptionalTensor& threshold) {
    return frdc("bspmm_bbb_frdc", x, size, tile_rowptr, tile_cols, tiles, num_rows, method,
                Output::kBits, row, {}, threshold);
  }

  static Tensor bbf_frdc(const Tensor& x, int64_t size, const Tensor& tile_rowptr,
                         const Tensor& tile_cols, const Tensor& tiles, int64_t num_rows,
                         int64_t method, const OptionalTensor& row, const OptionalTensor& bias,
                         bool integer) {
    const char* op = "bspmm_bbf_frdc";
    return frdc(op, x, size, tile_rowptr, tile_cols, tiles, num_rows, method,
                value_output(integer, row, bias, op), row, bias, {});
  }

  static Tensor blocked(const char* op, const Tensor& x, int64_t size, const Tensor& block_rowptr,
                        const Tensor& local_indices, int64_t block_size, Output output,
                        const OptionalTensor& row, const OptionalTensor& bias,
                        const OptionalTensor& threshold) {
    STD_TORCH_CHECK(block_size >= 1 && block_size <= 65536, op,
                    ": block_size must be from 1 to 65536, got ", block_size);
    Problem p(x, op);
    p.indices = index_vector(p, local_indices, ScalarType::Short, "local_indices");
    set_rowptr(p, block_rowptr, local_indices.size(0), "block_rowptr");
    set_bits(p, x, size);
    const int64_t blocks = std::max<int64_t>(1, (p.csr.cols + block_size - 1) / block_size);
    STD_TORCH_CHECK(p.csr.rows % blocks == 0, op, ": block_rowptr must have a multiple of ", blocks,
                    " entries and one, got ", p.csr.rows + 1);
    p.csr.rows /= blocks;
    Tensor out = finish(p, output, row, bias, threshold);
    const BlockedArgs args{
        p.csr, reinterpret_cast<const uint16_t*>(p.indices.template const_data_ptr<int16_t>()),
        blocks, block_size};
    p.backend.aggregate_blocked(args);
    return out;
  }

  static Tensor bbb_blocked(const Tensor& x, int64_t size, const Tensor& block_rowptr,
                            const Tensor& local_indices, int64_t block_size,
                            const OptionalTensor& row, const OptionalTensor& threshold) {
    return blocked("bspmm_bbb_blocked", x, size, block_rowptr, local_indices, block_size,
                   Output::kBits, row, {}, threshold);
  }

  static Tensor bbf_blocked(const Tensor& x, int64_t size, const Tensor& block_rowptr,
                            const Tensor& local_indices, int64_t block_size,
                            const OptionalTensor& row, const OptionalTensor& bias, bool integer) {
    const char* op = "bspmm_bbf_blocked";
    return blocked(op, x, size, block_rowptr, local_indices, block_size,
                   value_output(integer, row, bias, op), row, bias, {});
  }

  // An int32 vector of the layout, at least `least` long; kept with the problem.
  static const int32_t* layout_vector(Problem& p, const Tensor& t, int64_t least,
                                      const char* name) {
    p.held.push_back(index_vector(p, t, ScalarType::Int, name));
    STD_TORCH_CHECK(t.size(0) >= least, p.op, ": ", name, " must have at least ", least,
                    " entries, got ", t.size(0));
    return p.held.back().template const_data_ptr<int32_t>();
  }

  static Tensor sliced(const char* op, const Tensor& x, int64_t size, const Tensor& rowptr,
                       const Tensor& local_indices, const Tensor& group_steps,
                       const Tensor& group_places, const Tensor& slice_groups,
                       const Tensor& row_slots, const Tensor& row_items, int64_t slice_size,
                       int64_t places, Output output, const OptionalTensor& row,
                       const OptionalTensor& bias, const OptionalTensor& threshold) {
    STD_TORCH_CHECK(slice_size >= 1 && slice_size <= 65535, op,
                    ": slice_size must be from 1 to 65535, got ", slice_size);
    STD_TORCH_CHECK(places >= 0, op, ": places must not be negative, got ", places);
    Problem p(x, op);
    // The edges that a row pointer ends at are not known here: local_indices has padding.
    set_rowptr(p, rowptr, kUnknownEdges, "rowptr");
    set_bits(p, x, size);
    p.indices = index_vector(p, local_indices, ScalarType::Short, "local_indices");
    check_size(local_indices.size(0) % (kSliceLanes * kSliceStepEdges), 0, op,
               "the remainder of local_indices' size by a step's entries");
    SlicedArgs args{};
    args.groups = group_places.size(0);
    args.group_places = layout_vector(p, group_places, 0, "group_places");
    args.group_steps = layout_vector(p, group_steps, args.groups + 1, "group_steps");
    args.num_slices = std::max<int64_t>(1, (p.csr.cols + slice_size - 1) / slice_size);
    args.slice_groups = layout_vector(p, slice_groups, args.num_slices + 1, "slice_groups");
    args.row_slots = layout_vector(p, row_slots, p.csr.rows + 1, "row_slots");
    args.row_items = layout_vector(p, row_items, 0, "row_items");
    args.slice_size = slice_size;
    args.places = places;
    Tensor out = finish(p, output, row, bias, threshold);
    args.csr = p.csr;
    args.local_indices =
        reinterpret_cast<const uint16_t*>(p.indices.template const_data_ptr<int16_t>());
    p.backend.aggregate_sliced(args);
    return out;
  }

  static Tensor bbb_sliced(const Tensor& x, int64_t size, const Tensor& rowptr,
                           const Tensor& local_indices, const Tensor& group_steps,
                           const Tensor& group_places, const Tensor& slice_groups,
                           const Tensor& row_slots, const Tensor& row_items, int64_t slice_size,
                           int64_t places, const OptionalTensor& row,
                           const OptionalTensor& threshold) {
    return sliced("bspmm_bbb_sliced", x, size, rowptr, local_indices, group_steps, group_places,
                  slice_groups, row_slots, row_items, slice_size, places, Output::kBits, row, {},
                  threshold);
  }

  static Tensor bbf_sliced(const Tensor& x, int64_t size, const Tensor& rowptr,
                           const Tensor& local_indices, const Tensor& group_steps,
                           const Tensor& group_places, const Tensor& slice_groups,
                           const Tensor& row_slots, const Tensor& row_items, int64_t slice_size,
                           int64_t places, const OptionalTensor& row, const OptionalTensor& bias,
                           bool integer) {
    const char* op = "bspmm_bbf_sliced";
    return sliced(op, x, size, rowptr, local_indices, group_steps, group_places, slice_groups,
                  row_slots, row_items, slice_size, places, value_output(integer, row, bias, op),
                  row, bias, {});
  }
};

template <class Backend, class Library>
void register_bspmm(Library& m) {
  using Operators = BspmmOperators<Backend>;
  m.impl("bspmm_bbb", TORCH_BOX(&Operators::bbb));
  m.impl("bspmm_bbf", TORCH_BOX(&Operators::bbf));
  m.impl("bspmm_fbb", TORCH_BOX(&Operators::fbb));
  m.impl("bspmm_fbf", TORCH_BOX(&Operators::fbf));
  m.impl("bspmm_bfb", TORCH_BOX(&Operators::bfb));
  m.impl("bspmm_bff", TORCH_BOX(&Operators::bff));
  m.impl("bspmm_ffb", TORCH_BOX(&Operators::ffb));
  m.impl("bspmm_fff", TORCH_BOX(&Operators::fff));
  m.impl("bspmm_bbb_frdc", TORCH_BOX(&Operators::bbb_frdc));
  m.impl("bspmm_bbf_frdc", TORCH_BOX(&Operators::bbf_frdc));
  m.impl("bspmm_bbb_blocked", TORCH_BOX(&Operators::bbb_blocked));
  m.impl("bspmm_bbf_blocked", TORCH_BOX(&Operators::bbf_blocked));
  m.impl("bspmm_bbb_sliced", TORCH_BOX(&Operators::bbb_sliced));
  m.impl("bspmm_bbf_sliced", TORCH_BOX(&Operators::bbf_sliced));
}

}  // namespace bitgnn::ops

// The eight BSpMM variants on the CPU over CSR, and BBB and BBF over FRDC tiles and column blocks.
// Row pointers and indices are trusted to be in range: BitAdjacency checks them when it is made.
#include <algorithm>

#include "ops/tensor_utils.h"

namespace bitgnn::ops {
namespace {

// Neighbours a thread, some 50 us: below that, moving the operands between cores costs more than
// a second core brings.
constexpr int64_t kEdgeGrain = 1 << 15;
constexpr int64_t kStreamBytes = int64_t{24} << 20;     // float results written past the caches
constexpr int64_t kPrefetchBytes = int64_t{512} << 10;  // tables from here on are fetched ahead
constexpr int64_t kRowCost = 6;                         // a row's fixed cost, in neighbours

// Keeps the contiguous forms of a product's arguments alive beside the kernel's pointers.
struct Problem {
  cpu::CsrArgs csr{};
  Tensor rowptr, indices, x;
  OptionalTensor values;
};

void check_index(const Tensor& t, ScalarType dtype, const char* op, const char* name) {
  check_cpu(t, op, name);
  check_dtype(t, dtype, op, name);
  check_dim(t, 1, op, name);
}

void set_rowptr(Problem& p, const Tensor& rowptr, int64_t edges, const char* op, const char* name) {
  check_cpu(rowptr, op, name);
  check_dim(rowptr, 1, op, name);
  const auto dtype = rowptr.scalar_type();
  STD_TORCH_CHECK(dtype == ScalarType::Int || dtype == ScalarType::Long, op, ": ", name,
                  " must be int32 or int64, got ", torch::headeronly::toString(dtype));
  STD_TORCH_CHECK(rowptr.size(0) >= 1, op, ": ", name, " must have at least one entry, got none");
  p.rowptr = as_contiguous(rowptr);
  p.csr.rowptr = p.rowptr.data_ptr();
  p.csr.rowptr64 = dtype == ScalarType::Long;
  check_size(p.csr.row_begin(0), 0, op, "the first row pointer");
  check_size(p.csr.row_begin(rowptr.size(0) - 1), edges, op, "the last row pointer");
}

void set_bits(Problem& p, const Tensor& x, int64_t size, const char* op) {
  p.x = bit_rows(x, size, op, "x");
  p.csr.x_bits = p.x.const_data_ptr<int32_t>();
  p.csr.x_stride = words_for(size);
  p.csr.features = size;
}

Problem csr_problem(const Tensor& rowptr, const Tensor& indices, const char* op) {
  Problem p;
  check_index(indices, ScalarType::Int, op, "indices");
  p.indices = as_contiguous(indices);
  p.csr.indices = p.indices.const_data_ptr<int32_t>();
  set_rowptr(p, rowptr, indices.size(0), op, "rowptr");
  return p;
}

void set_float_x(Problem& p, const Tensor& x, const char* op) {
  check_cpu(x, op, "x");
  check_dtype(x, ScalarType::Float, op, "x");
  check_dim(x, 2, op, "x");
  p.x = x.size(1) > 1 && x.stride(1) != 1 ? as_contiguous(x) : x;
  p.csr.x_float = p.x.const_data_ptr<float>();
  p.csr.x_stride = p.x.stride(0);
  p.csr.features = p.x.size(1);
}

void set_values(Problem& p, const Tensor& values, const char* op) {
  check_index(values, ScalarType::Float, op, "values");
  check_size(values.size(0), p.indices.size(0), op, "entries of values");
  p.values = as_contiguous(values);
  p.csr.values = p.values->const_data_ptr<float>();
}

enum class Output { kBits, kFloat, kInt };

Tensor new_output(Problem& p, int64_t rows, Output kind) {
  cpu::CsrArgs& a = p.csr;
  a.x_bytes = p.x.size(0) * a.x_stride * static_cast<int64_t>(sizeof(float));
  a.prefetch = a.x_bytes >= kPrefetchBytes;
  if (kind == Output::kBits) {
    Tensor out = new_cpu_tensor({rows, words_for(a.features)}, ScalarType::Int);
    a.out_bits = out.mutable_data_ptr<int32_t>();
    return out;
  }
  Tensor out = new_cpu_tensor({rows, a.features},
                              kind == Output::kInt ? ScalarType::Int : ScalarType::Float);
  if (kind == Output::kInt) {
    a.out_int = out.mutable_data_ptr<int32_t>();
  } else {
    a.out_float = out.mutable_data_ptr<float>();
    a.stream = a.features % kWordBits == 0 &&
               rows * a.features * static_cast<int64_t>(sizeof(float)) >= kStreamBytes;
  }
  return out;
}

Output value_kind(bool integer, const OptionalTensor& row, const OptionalTensor& bias,
                  const char* op) {
  STD_TORCH_CHECK(!integer || (!row.has_value() && !bias.has_value()), op,
                  ": integer=True gives the bare sums: row and bias must be left out");
  return integer ? Output::kInt : Output::kFloat;
}

// Splits [0, rows) so that each thread gets its share of neighbours, not of rows: a graph's
// longest row can hold hundreds of times the mean.
template <class F>
void for_balanced_rows(const cpu::CsrArgs& a, int64_t rows, const F& f) {
  const int64_t total = a.row_begin(rows) + rows * kRowCost;
  const int64_t parts = std::min<int64_t>(torch::stable::get_num_threads(), total / kEdgeGrain + 1);
  if (rows == 0) return;
  if (parts <= 1) return f(0, rows);
  const auto boundary = [&](int64_t part) {
    const int64_t target = total / parts * part;
    int64_t low = 0, high = rows;
    if (part == parts) return rows;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (a.row_begin(middle) + middle * kRowCost < target) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  };
  torch::stable::parallel_for(0, parts, 1, [&](int64_t begin, int64_t end) {
    const int64_t first = boundary(begin), last = boundary(end);
    if (first < last) f(first, last);
  });
}

using CsrKernel = void (*)(const cpu::CsrArgs&, int64_t, int64_t);

Tensor run(Problem& p, Output kind, CsrKernel kernel, const OptionalTensor& row_in,
           const OptionalTensor& bias_in, const OptionalTensor& threshold_in, const char* op) {
  const int64_t rows = p.rowptr.size(0) - 1;
  const FloatVector row(row_in, rows, op, "row");
  const FloatVector bias(bias_in, p.csr.features, op, "bias");
  const FloatVector threshold(threshold_in, p.csr.features, op, "threshold");
  p.csr.row_scale = row.get();
  p.csr.bias = bias.get();
  p.csr.threshold = threshold.get();
  Tensor out = new_output(p, rows, kind);
  for_balanced_rows(p.csr, rows, [&](int64_t begin, int64_t end) { kernel(p.csr, begin, end); });
  return out;
}

Tensor run_bits(Problem& p, Output kind, const OptionalTensor& row, const OptionalTensor& bias,
                const OptionalTensor& threshold, const char* op) {
  return run(p, kind, cpu::kernels().aggregate_bits, row, bias, threshold, op);
}

Tensor run_float(Problem& p, Output kind, const OptionalTensor& row, const OptionalTensor& bias,
                 const OptionalTensor& threshold, const char* op) {
  return run(p, kind, cpu::kernels().aggregate_float, row, bias, threshold, op);
}

Tensor bspmm_bbb(const Tensor& x, int64_t size, const Tensor& rowptr, const Tensor& indices,
                 const OptionalTensor& row, const OptionalTensor& threshold) {
  Problem p = csr_problem(rowptr, indices, "bspmm_bbb");
  set_bits(p, x, size, "bspmm_bbb");
  return run_bits(p, Output::kBits, row, {}, threshold, "bspmm_bbb");
}

Tensor bspmm_bbf(const Tensor& x, int64_t size, const Tensor& rowptr, const Tensor& indices,
                 const OptionalTensor& row, const OptionalTensor& bias, bool integer) {
  Problem p = csr_problem(rowptr, indices, "bspmm_bbf");
  set_bits(p, x, size, "bspmm_bbf");
  return run_bits(p, value_kind(integer, row, bias, "bspmm_bbf"), row, bias, {}, "bspmm_bbf");
}

Tensor bspmm_fby(const Tensor& x, const Tensor& rowptr, const Tensor& indices,
                 const OptionalTensor& row, const OptionalTensor& col_in,
                 const OptionalTensor& bias, const OptionalTensor& threshold, Output kind,
                 const char* op) {
  Problem p = csr_problem(rowptr, indices, op);
  set_float_x(p, x, op);
  const FloatVector col(col_in, x.size(0), op, "col");
  p.csr.col_scale = col.get();
  return run_float(p, kind, row, bias, threshold, op);
}

Tensor bspmm_fbb(const Tensor& x, const Tensor& rowptr, const Tensor& indices,
                 const OptionalTensor& row, const OptionalTensor& col,
                 const OptionalTensor& threshold) {
  return bspmm_fby(x, rowptr, indices, row, col, {}, threshold, Output::kBits, "bspmm_fbb");
}

Tensor bspmm_fbf(const Tensor& x, const Tensor& rowptr, const Tensor& indices,
                 const OptionalTensor& row, const OptionalTensor& col, const OptionalTensor& bias) {
  return bspmm_fby(x, rowptr, indices, row, col, bias, {}, Output::kFloat, "bspmm_fbf");
}

Tensor bspmm_bfy(const Tensor& x, int64_t size, const Tensor& rowptr, const Tensor& indices,
                 const Tensor& values, const OptionalTensor& x_scale_in, const OptionalTensor& bias,
                 const OptionalTensor& threshold, Output kind, const char* op) {
  Problem p = csr_problem(rowptr, indices, op);
  set_bits(p, x, size, op);
  set_values(p, values, op);
  const FloatVector x_scale(x_scale_in, x.size(0), op, "x_scale");
  p.csr.col_scale = x_scale.get();
  return run_float(p, kind, {}, bias, threshold, op);
}

Tensor bspmm_bfb(const Tensor& x, int64_t size, const Tensor& rowptr, const Tensor& indices,
                 const Tensor& values, const OptionalTensor& x_scale,
                 const OptionalTensor& threshold) {
  return bspmm_bfy(x, size, rowptr, indices, values, x_scale, {}, threshold, Output::kBits,
                   "bspmm_bfb");
}

Tensor bspmm_bff(const Tensor& x, int64_t size, const Tensor& rowptr, const Tensor& indices,
                 const Tensor& values, const OptionalTensor& x_scale, const OptionalTensor& bias) {
  return bspmm_bfy(x, size, rowptr, indices, values, x_scale, bias, {}, Output::kFloat,
                   "bspmm_bff");
}

Tensor bspmm_ffy(const Tensor& x, const Tensor& rowptr, const Tensor& indices, const Tensor& values,
                 const OptionalTensor& bias, const OptionalTensor& threshold, Output kind,
                 const char* op) {
  Problem p = csr_problem(rowptr, indices, op);
  set_float_x(p, x, op);
  set_values(p, values, op);
  return run_float(p, kind, {}, bias, threshold, op);
}

Tensor bspmm_ffb(const Tensor& x, const Tensor& rowptr, const Tensor& indices, const Tensor& values,
                 const OptionalTensor& threshold) {
  return bspmm_ffy(x, rowptr, indices, values, {}, threshold, Output::kBits, "bspmm_ffb");
}

Tensor bspmm_fff(const Tensor& x, const Tensor& rowptr, const Tensor& indices, const Tensor& values,
                 const OptionalTensor& bias) {
  return bspmm_ffy(x, rowptr, indices, values, bias, {}, Output::kFloat, "bspmm_fff");
}

Tensor bspmm_frdc(const Tensor& x, int64_t size, const Tensor& tile_rowptr, const Tensor& tile_cols,
                  const Tensor& tiles_in, int64_t num_rows, int64_t method,
                  const OptionalTensor& row_in, const OptionalTensor& bias_in,
                  const OptionalTensor& threshold_in, Output kind, const char* op) {
  STD_TORCH_CHECK(method >= 0 && method <= 2, op, ": method must be 0, 1 or 2, got ", method);
  Problem p = csr_problem(tile_rowptr, tile_cols, op);
  set_bits(p, x, size, op);
  check_index(tiles_in, ScalarType::Short, op, "tiles");
  check_size(tiles_in.size(0), tile_cols.size(0), op, "entries of tiles");
  const int64_t tile_rows = tile_rowptr.size(0) - 1;
  check_size(tile_rows, (num_rows + kTileDim - 1) / kTileDim, op, "the number of tile rows");
  const Tensor tiles = as_contiguous(tiles_in);
  const FloatVector row(row_in, num_rows, op, "row");
  const FloatVector bias(bias_in, size, op, "bias");
  const FloatVector threshold(threshold_in, size, op, "threshold");
  p.csr.row_scale = row.get();
  p.csr.bias = bias.get();
  p.csr.threshold = threshold.get();
  Tensor out = new_output(p, num_rows, kind);
  const cpu::FrdcArgs args{p.csr, tiles.const_data_ptr<int16_t>(), num_rows, x.size(0),
                           static_cast<Reconcile>(method)};
  const auto& table = cpu::kernels();
  for_balanced_rows(p.csr, tile_rows,
                    [&](int64_t begin, int64_t end) { table.aggregate_frdc(args, begin, end); });
  return out;
}

Tensor bspmm_bbb_frdc(const Tensor& x, int64_t size, const Tensor& tile_rowptr,
                      const Tensor& tile_cols, const Tensor& tiles, int64_t num_rows,
                      int64_t method, const OptionalTensor& row, const OptionalTensor& threshold) {
  return bspmm_frdc(x, size, tile_rowptr, tile_cols, tiles, num_rows, method, row, {}, threshold,
                    Output::kBits, "bspmm_bbb_frdc");
}

Tensor bspmm_bbf_frdc(const Tensor& x, int64_t size, const Tensor& tile_rowptr,
                      const Tensor& tile_cols, const Tensor& tiles, int64_t num_rows,
                      int64_t method, const OptionalTensor& row, const OptionalTensor& bias,
                      bool integer) {
  return bspmm_frdc(x, size, tile_rowptr, tile_cols, tiles, num_rows, method, row, bias, {},
                    value_kind(integer, row, bias, "bspmm_bbf_frdc"), "bspmm_bbf_frdc");
}

Tensor bspmm_blocked(const Tensor& x, int64_t size, const Tensor& block_rowptr,
                     const Tensor& local_indices_in, int64_t block_size,
                     const OptionalTensor& row_in, const OptionalTensor& bias_in,
                     const OptionalTensor& threshold_in, Output kind, const char* op) {
  STD_TORCH_CHECK(block_size >= 1 && block_size <= 65536, op,
                  ": block_size must be from 1 to 65536, got ", block_size);
  Problem p;
  check_index(local_indices_in, ScalarType::Short, op, "local_indices");
  set_rowptr(p, block_rowptr, local_indices_in.size(0), op, "block_rowptr");
  set_bits(p, x, size, op);
  const Tensor local_indices = as_contiguous(local_indices_in);
  const int64_t blocks = std::max<int64_t>(1, (x.size(0) + block_size - 1) / block_size);
  const int64_t entries = block_rowptr.size(0) - 1;
  STD_TORCH_CHECK(entries % blocks == 0, op, ": block_rowptr must have a multiple of ", blocks,
                  " entries and one, got ", entries + 1);
  const int64_t rows = entries / blocks;
  const FloatVector row(row_in, rows, op, "row");
  const FloatVector bias(bias_in, size, op, "bias");
  const FloatVector threshold(threshold_in, size, op, "threshold");
  p.csr.row_scale = row.get();
  p.csr.bias = bias.get();
  p.csr.threshold = threshold.get();
  Tensor out = new_output(p, rows, kind);
  const cpu::BlockedArgs args{
      p.csr, reinterpret_cast<const uint16_t*>(local_indices.const_data_ptr<int16_t>()), rows,
      blocks, block_size};
  const auto& table = cpu::kernels();
  torch::stable::parallel_for(
      0, rows, grain(local_indices.size(0) / std::max<int64_t>(rows, 1) + kRowCost, kEdgeGrain),
      [&](int64_t begin, int64_t end) { table.aggregate_blocked(args, begin, end); });
  return out;
}

Tensor bspmm_bbb_blocked(const Tensor& x, int64_t size, const Tensor& block_rowptr,
                         const Tensor& local_indices, int64_t block_size, const OptionalTensor& row,
                         const OptionalTensor& threshold) {
  return bspmm_blocked(x, size, block_rowptr, local_indices, block_size, row, {}, threshold,
                       Output::kBits, "bspmm_bbb_blocked");
}

Tensor bspmm_bbf_blocked(const Tensor& x, int64_t size, const Tensor& block_rowptr,
                         const Tensor& local_indices, int64_t block_size, const OptionalTensor& row,
                         const OptionalTensor& bias, bool integer) {
  return bspmm_blocked(x, size, block_rowptr, local_indices, block_size, row, bias, {},
                       value_kind(integer, row, bias, "bspmm_bbf_blocked"), "bspmm_bbf_blocked");
}

}  // namespace
}  // namespace bitgnn::ops

STABLE_TORCH_LIBRARY_IMPL(bitgnn, CPU, m) {
  m.impl("bspmm_bbb", TORCH_BOX(&bitgnn::ops::bspmm_bbb));
  m.impl("bspmm_bbf", TORCH_BOX(&bitgnn::ops::bspmm_bbf));
  m.impl("bspmm_fbb", TORCH_BOX(&bitgnn::ops::bspmm_fbb));
  m.impl("bspmm_fbf", TORCH_BOX(&bitgnn::ops::bspmm_fbf));
  m.impl("bspmm_bfb", TORCH_BOX(&bitgnn::ops::bspmm_bfb));
  m.impl("bspmm_bff", TORCH_BOX(&bitgnn::ops::bspmm_bff));
  m.impl("bspmm_ffb", TORCH_BOX(&bitgnn::ops::bspmm_ffb));
  m.impl("bspmm_fff", TORCH_BOX(&bitgnn::ops::bspmm_fff));
  m.impl("bspmm_bbb_frdc", TORCH_BOX(&bitgnn::ops::bspmm_bbb_frdc));
  m.impl("bspmm_bbf_frdc", TORCH_BOX(&bitgnn::ops::bspmm_bbf_frdc));
  m.impl("bspmm_bbb_blocked", TORCH_BOX(&bitgnn::ops::bspmm_bbb_blocked));
  m.impl("bspmm_bbf_blocked", TORCH_BOX(&bitgnn::ops::bspmm_bbf_blocked));
}

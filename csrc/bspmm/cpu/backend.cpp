// Aggregation on the CPU.
#include <algorithm>
#include <memory>
#include <vector>

#include "core/cpu/backend.h"
#include "core/cpu/balanced_rows.h"
#include "core/cpu/float_types.h"

namespace bitgnn::cpu {
namespace {

constexpr int64_t kStreamBytes = int64_t{24} << 20;  // larger float results bypass the caches
constexpr int64_t kConvertGrain = 1 << 17;           // elements per thread

// Stands in for the rows of an empty tensor: kernels tell row types apart by their pointers.
constexpr int64_t kNoRows = 0;

CsrArgs csr_args(const AggregateArgs& given) {
  const void* const x = given.x != nullptr ? given.x : &kNoRows;
  CsrArgs a{};
  a.rowptr = given.rowptr;
  a.rowptr64 = given.rowptr64;
  a.indices = given.indices;
  a.values = given.values;
  a.row_scale = given.row_scale;
  a.col_scale = given.col_scale;
  a.bias = given.bias;
  a.threshold = given.threshold;
  a.features = given.features;
  a.x_stride = given.x_stride;
  switch (given.x_type) {
    case RowType::kBits:
      a.x_bits = static_cast<const int32_t*>(x);
      break;
    case RowType::kInt8:
      a.x_int8 = static_cast<const int8_t*>(x);
      break;
    case RowType::kInt16:
      a.x_int16 = static_cast<const int16_t*>(x);
      break;
    default:
      a.x_float = static_cast<const float*>(x);
  }
  a.x_bytes = given.cols * a.x_stride * static_cast<int64_t>(sizeof(float));
  a.prefetch = a.x_bytes >= kPrefetchBytes;
  a.out_float = given.out_float;
  a.out_int = given.out_int;
  a.out_bits = given.out_bits;
  a.stream = a.out_float != nullptr && a.features % kWordBits == 0 &&
             given.rows * a.features * static_cast<int64_t>(sizeof(float)) >= kStreamBytes;
  return a;
}

template <class T>
void to_float32(const AggregateArgs& a, float* out) {
  const T* x = static_cast<const T*>(a.x);
  torch::stable::parallel_for(0, a.cols, grain(a.features, kConvertGrain),
                              [&](int64_t begin, int64_t end) {
                                for (int64_t i = begin; i < end; ++i)
                                  for (int64_t k = 0; k < a.features; ++k)
                                    out[i * a.features + k] = to_float(x[i * a.x_stride + k]);
                              });
}

// Column indices of a sliced pattern in row order. The layout is made for a GPU's shared memory;
// undoing it here keeps results independent of the device.
std::vector<int32_t> unslice(const SlicedArgs& a) {
  const auto check = [](bool holds) {
    BITGNN_CHECK(holds,
                 "bitgnn: row_items and local_indices of a sliced pattern must hold as many "
                 "neighbours of each row as rowptr");
  };
  std::vector<int64_t> row_of_place(static_cast<size_t>(a.places), -1);
  for (int64_t row = 0; row < a.csr.rows; ++row)
    for (int32_t i = a.row_slots[row]; i < a.row_slots[row + 1]; ++i)
      row_of_place[static_cast<size_t>(a.row_items[i] >> 1)] = row;
  const CsrArgs csr = csr_args(a.csr);
  std::vector<int32_t> indices(static_cast<size_t>(csr.row_begin(a.csr.rows)));
  std::vector<int64_t> next(static_cast<size_t>(a.csr.rows));
  for (int64_t row = 0; row < a.csr.rows; ++row)
    next[static_cast<size_t>(row)] = csr.row_begin(row);
  for (int64_t slice = 0; slice < a.num_slices; ++slice) {
    for (int64_t g = a.slice_groups[slice]; g < a.slice_groups[slice + 1]; ++g) {
      const int64_t units = 2 + (a.group_places[g] & 1), first = a.group_places[g] >> 1;
      for (int64_t t = a.group_steps[g]; t < a.group_steps[g + 1]; ++t) {
        for (int64_t k = 0; k < kSliceLanes * kSliceStepEdges; ++k) {
          const int64_t local = a.local_indices[t * kSliceLanes * kSliceStepEdges + k];
          if (local == a.slice_size) continue;
          const int64_t place = first + k / kSliceStepEdges * units;
          const int64_t row = row_of_place[static_cast<size_t>(place)];
          check(row >= 0 && next[static_cast<size_t>(row)] < csr.row_begin(row + 1));
          indices[static_cast<size_t>(next[static_cast<size_t>(row)]++)] =
              static_cast<int32_t>(slice * a.slice_size + local);
        }
      }
    }
  }
  for (int64_t row = 0; row < a.csr.rows; ++row)
    check(next[static_cast<size_t>(row)] == csr.row_begin(row + 1));
  return indices;
}

}  // namespace

void Backend::check_row_pointer(const AggregateArgs& a, const char* op) const {
  const CsrArgs csr = csr_args(a);
  ops::check_size(csr.row_begin(0), 0, op, "the first row pointer");
  if (a.edges >= 0) ops::check_size(csr.row_begin(a.rows), a.edges, op, "the last row pointer");
}

void Backend::aggregate_bits(const AggregateArgs& given) const {
  const CsrArgs a = csr_args(given);
  const auto kernel = kernels().aggregate_bits;
  for_balanced_rows(a, given.rows, [&](int64_t begin, int64_t end) { kernel(a, begin, end); });
}

void Backend::aggregate_ternary(const AggregateArgs& given) const {
  const CsrArgs a = csr_args(given);
  const auto kernel = kernels().aggregate_ternary;
  for_balanced_rows(a, given.rows, [&](int64_t begin, int64_t end) { kernel(a, begin, end); });
}

void Backend::aggregate_dense(const AggregateArgs& given) const {
  AggregateArgs converted = given;
  Tensor floats;
  // 16-bit float rows are gathered many times over, so they are converted once beforehand.
  if (given.x_type == RowType::kFloat16 || given.x_type == RowType::kBFloat16) {
    floats = empty({given.cols, given.features}, ScalarType::Float);
    float* out = floats.mutable_data_ptr<float>();
    given.x_type == RowType::kFloat16 ? to_float32<Half>(given, out)
                                      : to_float32<BFloat16>(given, out);
    converted.x = out;
    converted.x_type = RowType::kFloat32;
    converted.x_stride = given.features;
  }
  const CsrArgs a = csr_args(converted);
  const auto kernel = kernels().aggregate_float;
  for_balanced_rows(a, given.rows, [&](int64_t begin, int64_t end) { kernel(a, begin, end); });
}

void Backend::aggregate_frdc(const bitgnn::FrdcArgs& given) const {
  const FrdcArgs a{csr_args(given.csr), given.tiles, given.csr.rows, given.csr.cols, given.method};
  const auto kernel = kernels().aggregate_frdc;
  for_balanced_rows(a.csr, (a.num_rows + kTileDim - 1) / kTileDim,
                    [&](int64_t begin, int64_t end) { kernel(a, begin, end); });
}

void Backend::aggregate_slots(const SlotSumsArgs& given) const {
  const SlotCsrArgs a{csr_args(given.sums), given.addend, given.addend_stride};
  const auto kernel = kernels().aggregate_slots;
  for_balanced_rows(a.csr, given.sums.rows,
                    [&](int64_t begin, int64_t end) { kernel(a, begin, end); });
}

void Backend::aggregate_sliced(const SlicedArgs& given) const {
  const std::vector<int32_t> indices = unslice(given);
  AggregateArgs a = given.csr;
  a.indices = indices.data();
  a.edges = static_cast<int64_t>(indices.size());
  aggregate_bits(a);
}

}  // namespace bitgnn::cpu

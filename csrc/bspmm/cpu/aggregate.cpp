// Aggregation on the CPU.
#include <vector>

#include "bspmm/arguments.h"
#include "bspmm/cpu/balanced_rows.h"
#include "capabilities/cpu/kernel_table.h"
#include "core/cpu/backend.h"
#include "core/cpu/float_types.h"

namespace bitgnn::cpu {
namespace {

constexpr int64_t kStreamBytes = int64_t{24} << 20;  // larger float results bypass the caches
constexpr int64_t kConvertGrain = 1 << 17;           // elements per thread

CsrArgs csr_args(const AggregateArgs& given) {
  CsrArgs a{};
  static_cast<AggregateArgs&>(a) = given;
  a.x_bytes = a.cols * a.x_stride * static_cast<int64_t>(sizeof(float));
  a.prefetch = a.x_bytes >= kPrefetchBytes;
  a.stream = a.out_float != nullptr && a.features % kWordBits == 0 &&
             a.rows * a.features * static_cast<int64_t>(sizeof(float)) >= kStreamBytes;
  return a;
}

template <class T>
void to_float32(const AggregateArgs& a, float* out) {
  const T* x = static_cast<const T*>(a.x);
  split(a.cols, grain(a.features, kConvertGrain), [&](int64_t begin, int64_t end) {
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

void aggregate_bits(const AggregateArgs& given) {
  const CsrArgs a = csr_args(given);
  split_balanced(a, a.rows, kernels().aggregate_bits, a);
}

void aggregate_ternary(const AggregateArgs& given) {
  const CsrArgs a = csr_args(given);
  split_balanced(a, a.rows, kernels().aggregate_ternary, a);
}

void aggregate_dense(const AggregateArgs& given) {
  AggregateArgs converted = given;
  Tensor floats;
  // 16-bit float rows are gathered many times over, so they are converted once beforehand.
  if (given.x_type == RowType::kFloat16 || given.x_type == RowType::kBFloat16) {
    floats = Backend::empty({given.cols, given.features}, ScalarType::Float);
    float* out = floats.mutable_data_ptr<float>();
    given.x_type == RowType::kFloat16 ? to_float32<Half>(given, out)
                                      : to_float32<BFloat16>(given, out);
    converted.x = out;
    converted.x_type = RowType::kFloat32;
    converted.x_stride = given.features;
  }
  const CsrArgs a = csr_args(converted);
  split_balanced(a, a.rows, kernels().aggregate_float, a);
}

void aggregate_frdc(const bitgnn::FrdcArgs& given) {
  const FrdcArgs a{csr_args(given.csr), given.tiles};
  split_balanced(a.csr, (a.csr.rows + kTileDim - 1) / kTileDim, kernels().aggregate_frdc, a);
}

void aggregate_slots(const SlotSumsArgs& given) {
  const SlotCsrArgs a{csr_args(given.sums), given.addend, given.addend_stride};
  split_balanced(a.csr, a.csr.rows, kernels().aggregate_slots, a);
}

void aggregate_sliced(const SlicedArgs& given) {
  const std::vector<int32_t> indices = unslice(given);
  AggregateArgs a = given.csr;
  a.indices = indices.data();
  a.edges = static_cast<int64_t>(indices.size());
  aggregate_bits(a);
}

}  // namespace bitgnn::cpu

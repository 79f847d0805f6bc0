// The operator that sums bit rows over the entries of a sparse matrix; see entries_kernel.h.
#include <algorithm>
#include <atomic>
#include <limits>

#include "bspmm/cpu/balanced_rows.h"
#include "bspmm/pattern_check.h"
#include "capabilities/cpu/kernel_table.h"
#include "core/cpu/backend.h"

namespace bitgnn::cpu {
namespace {

// Says which column lies outside of the matrix.
template <class Index>
void refuse(const EntriesArgs& a) {
  const auto* indices = static_cast<const Index*>(a.indices);
  int64_t wrong = 0;
  while (indices[wrong] >= 0 && static_cast<int64_t>(indices[wrong]) < a.sums.cols) ++wrong;
  fail("bspmm_entries: indices must lie in [0, ", a.sums.cols, "), got ",
       static_cast<int64_t>(indices[wrong]), " at ", wrong);
}

void sum_entries(const EntriesArgs& a) {
  std::atomic<bool> inside{true};
  split_balanced(a.sums, a.sums.rows, [&](int64_t begin, int64_t end) {
    if (!kernels().aggregate_entries(a, begin, end)) inside = false;
  });
  if (!inside) a.indices64 ? refuse<int64_t>(a) : refuse<int32_t>(a);
}

// A vector of int32 or int64, made contiguous.
Tensor integers(const Backend& backend, const Tensor& t, bool* wide, const char* op,
                const char* name) {
  backend.check(t, op, name);
  const ScalarType type = t.scalar_type();
  BITGNN_CHECK(type == ScalarType::Int || type == ScalarType::Long, op, ": ", name,
               " must be int32 or int64, got ", torch::headeronly::toString(type));
  ops::check_dim(t, 1, op, name);
  *wide = type == ScalarType::Long;
  return ops::as_contiguous(t);
}

// Words [P - 1, words_for(size)]: bit o of row i is the sum of the +-1 values of bit o of rows k of
// x [K, words_for(size)], over the columns k whose entries in row i add up to entry_threshold[k] or
// more, compared with threshold[o].
Tensor bspmm_entries(const Tensor& x_in, int64_t size, const Tensor& rowptr_in,
                     const Tensor& indices_in, const Tensor& values_in,
                     const ops::OptionalTensor& entry_threshold_in,
                     const ops::OptionalTensor& threshold_in) {
  const char* op = "bspmm_entries";
  const Backend backend(x_in, op, "x");
  const Tensor x = ops::bit_rows(backend, x_in, size, op, "x");
  EntriesArgs a{};
  bool rowptr64 = false;
  const Tensor rowptr = integers(backend, rowptr_in, &rowptr64, op, "rowptr");
  const Tensor indices = integers(backend, indices_in, &a.indices64, op, "indices");
  BITGNN_CHECK(rowptr.size(0) >= 1, op, ": rowptr must have at least one entry, got none");
  BITGNN_CHECK(x.size(0) <= std::numeric_limits<int32_t>::max(), op,
               ": x must have fewer than 2^31 rows, got ", x.size(0));
  backend.check(values_in, op, "values");
  a.type = ops::packable_type(values_in, op, "values");
  ops::check_dim(values_in, 1, op, "values");
  ops::check_size(values_in.size(0), indices.size(0), op, "entries of values");
  const Tensor values = ops::as_contiguous(values_in);
  const ops::FloatVector entry_threshold(backend, entry_threshold_in, x.size(0), op,
                                         "entry_threshold");
  const ops::FloatVector threshold(backend, threshold_in, size, op, "threshold");

  const int64_t rows = rowptr.size(0) - 1;
  check_row_pointers({rowptr.data_ptr(), rowptr64}, rows + 1, indices.size(0), op, "rowptr");
  Tensor out = backend.empty({rows, words_for(size)}, ScalarType::Int);
  a.indices = indices.data_ptr();
  a.values = values.data_ptr();
  a.entry_threshold = entry_threshold.get();
  a.is_uniform =
      x.size(0) > 0 && (a.entry_threshold == nullptr ||
                        std::all_of(a.entry_threshold, a.entry_threshold + x.size(0),
                                    [&](float entry) { return entry == a.entry_threshold[0]; }));
  a.sums.rowptr = rowptr.data_ptr();
  a.sums.rowptr64 = rowptr64;
  a.sums.rows = rows;
  a.sums.cols = x.size(0);
  a.sums.threshold = threshold.get();
  a.sums.x = x.data_ptr();
  a.sums.x_type = RowType::kBits;
  a.sums.x_stride = words_for(size);
  a.sums.features = size;
  a.sums.out_bits = out.mutable_data_ptr<int32_t>();
  a.sums.prefetch =
      x.size(0) * a.sums.x_stride * static_cast<int64_t>(sizeof(int32_t)) >= kPrefetchBytes;
  if (out.numel() > 0) sum_entries(a);
  return out;
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(bitgnn, m) {
  m.def(
      "bspmm_entries(Tensor x, int size, Tensor rowptr, Tensor indices, Tensor values, "
      "Tensor? entry_threshold=None, Tensor? threshold=None) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(bitgnn, CPU, m) { m.impl("bspmm_entries", TORCH_BOX(&bspmm_entries)); }

}  // namespace bitgnn::cpu

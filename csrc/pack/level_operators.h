// Thermometer bits, for backends whose memory the host can read.
#pragma once

#include "core/operands.h"
#include "pack/arguments.h"

namespace bitgnn::ops {

template <class Backend>
struct LevelOperators {
  static Tensor pack_levels(const Tensor& x_in, const Tensor& columns_in,
                            const Tensor& thresholds_in) {
    const char* op = "pack_levels";
    const Backend backend(x_in, op, "x");
    const Tensor x = packable_rows(backend, x_in, op, "x");
    backend.check(columns_in, op, "columns");
    check_dtype(columns_in, ScalarType::Long, op, "columns");
    check_dim(columns_in, 1, op, "columns");
    const Tensor columns = as_contiguous(columns_in);
    const int64_t size = columns.size(0);
    const FloatVector thresholds(backend, thresholds_in, size, op, "thresholds");
    Tensor words = backend.empty({x.size(0), words_for(size)}, ScalarType::Int);
    LevelPackArgs args{};
    args.x = x.data_ptr();
    args.type = packable_type(x, op, "x");
    args.row_stride = x.stride(0);
    args.features = x.size(1);
    args.columns = columns.const_data_ptr<int64_t>();
    args.thresholds = thresholds.get();
    args.size = size;
    args.words = words.template mutable_data_ptr<int32_t>();
    for (int64_t i = 0; i < size; ++i)
      BITGNN_CHECK(args.columns[i] >= 0 && args.columns[i] < x.size(1), op,
                   ": columns must lie in [0, ", x.size(1), "), got ", args.columns[i]);
    if (words.numel() > 0) backend.pack_levels(args, x.size(0));
    return words;
  }
};

template <class Backend, class Library>
void register_levels(Library& m) {
  m.impl("pack_levels", TORCH_BOX(&LevelOperators<Backend>::pack_levels));
}

}  // namespace bitgnn::ops

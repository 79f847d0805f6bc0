// Operator of thermometer bits.
#pragma once

#include <limits>

#include "core/operands.h"
#include "pack/arguments.h"

namespace bitgnn::ops {

template <class Backend>
struct LevelOperators {
  static Tensor pack_levels(const Tensor& x_in, const OptionalTensor& columns_in,
                            const Tensor& thresholds_in, bool trusted) {
    const char* op = "pack_levels";
    const Backend backend(x_in, op, "x");
    const Tensor x = packable_rows(backend, x_in, op, "x");
    BITGNN_CHECK(x.size(1) <= std::numeric_limits<int32_t>::max(), op,
                 ": x must have fewer than 2**31 features, got ", x.size(1));
    check_dim(thresholds_in, 1, op, "thresholds");
    int64_t size = thresholds_in.size(0);
    OptionalTensor columns;
    if (columns_in.has_value()) {
      check_operand(backend, *columns_in, ScalarType::Long, 1, op, "columns");
      columns = as_contiguous(*columns_in);
      size = columns->size(0);
    } else {
      const int64_t slots = size / kLevelSlot + (size % kLevelSlot != 0 ? 1 : 0);
      BITGNN_CHECK(slots <= x.size(1), op, ": thresholds must be at most ", kLevelSlot,
                   " a feature without columns, got ", size, " for ", x.size(1), " features");
    }
    const FloatVector thresholds(backend, thresholds_in, size, op, "thresholds");
    Tensor words = backend.empty({x.size(0), words_for(size)}, ScalarType::Int);
    LevelPackArgs args{};
    args.x = x.data_ptr();
    args.type = packable_type(x, op, "x");
    args.row_stride = x.stride(0);
    args.features = x.size(1);
    args.columns = data_or_null<int64_t>(columns);
    args.thresholds = thresholds.get();
    args.size = size;
    args.words = words.template mutable_data_ptr<int32_t>();
    if (!trusted && columns.has_value())
      check_columns(backend.on_host(*columns, op), args.features, op);
    if (words.numel() > 0) backend.pack_levels(args, x.size(0));
    return words;
  }

 private:
  static void check_columns(const Tensor& columns, int64_t features, const char* op) {
    const int64_t* values = columns.template const_data_ptr<int64_t>();
    for (int64_t i = 0; i < columns.size(0); ++i)
      BITGNN_CHECK(values[i] >= 0 && values[i] < features, op, ": columns must lie in [0, ",
                   features, "), got ", values[i]);
  }
};

}  // namespace bitgnn::ops

// PyTorch operator that merges a batch into running statistics of columns, for any backend.
#include <tuple>

#include "core/registration.h"
#include "training/column_arguments.h"

namespace bitgnn::ops {

template <class Backend>
struct ColumnOperators {
  using Moments = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

  static const float* number(const Backend& backend, const Tensor& t, const char* op,
                             const char* name) {
    check_operand(backend, t, ScalarType::Float, 0, op, name);
    return t.template const_data_ptr<float>();
  }

  static Moments merge_columns(const Tensor& x_in, int64_t every, double memory,
                               const Tensor& mean_in, const Tensor& variance_in,
                               const Tensor& present_in, const Tensor& negative, const Tensor& rows,
                               const OptionalTensor& due) {
    const char* op = "merge_columns";
    const Backend backend(x_in, op, "x");
    check_operand(backend, x_in, ScalarType::Float, 2, op, "x");
    BITGNN_CHECK(every >= 1, op, ": every must be at least 1, got ", every);
    BITGNN_CHECK(memory >= 1.0, op, ": memory must be at least 1, got ", memory);
    const Tensor x = with_unit_column_stride(x_in);
    MergeColumnsArgs a{};
    const int64_t number_of_rows = x.size(0);
    a.cols = x.size(1);
    // Without an overflow of the sum, whatever `every` is.
    a.rows = number_of_rows == 0 ? 0 : (number_of_rows - 1) / every + 1;
    BITGNN_CHECK(a.rows <= INT32_MAX, op, ": rows of x that are looked at must be below 2^31, got ",
                 a.rows);
    a.row_stride = a.rows > 1 ? x.stride(0) * every : 0;
    a.x = x.template const_data_ptr<float>();
    a.number = static_cast<double>(number_of_rows);
    a.memory = memory;
    const FloatVector mean(backend, mean_in, a.cols, op, "mean");
    const FloatVector variance(backend, variance_in, a.cols, op, "variance");
    const FloatVector present(backend, present_in, a.cols, op, "present");
    a.held = {mean.get(), variance.get(), present.get(), number(backend, negative, op, "negative"),
              number(backend, rows, op, "rows")};
    if (due) a.due = number(backend, *due, op, "due");
    Tensor out[6];
    for (int i = 0; i < 6; ++i)
      out[i] = i < 3 ? backend.empty({a.cols}, ScalarType::Float)
                     : backend.empty_of({}, ScalarType::Float);
    float* places[6];
    for (int i = 0; i < 6; ++i) places[i] = out[i].template mutable_data_ptr<float>();
    a.out = {places[0], places[1], places[2], places[3], places[4]};
    a.finite = places[5];
    backend.launch(kernel::merge_columns, a);
    return {out[0], out[1], out[2], out[3], out[4], out[5]};
  }
};

BITGNN_OPERATORS(table) {
  table.template add<&ColumnOperators<Backend>::merge_columns>(
      "merge_columns(Tensor x, int every, float memory, Tensor mean, Tensor variance, "
      "Tensor present, Tensor negative, Tensor rows, Tensor? due=None) "
      "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)");
}

}  // namespace bitgnn::ops

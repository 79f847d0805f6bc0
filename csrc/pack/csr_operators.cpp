// pack_csr for any backend.
#include "core/registration.h"
#include "pack/arguments.h"

namespace bitgnn::ops {

template <class Backend>
struct CsrPackOperators {
  static Tensor pack(const Tensor& rowptr_in, const Tensor& indices_in, const Tensor& values_in,
                     int64_t size, const OptionalTensor& threshold_in) {
    const char* op = "pack_csr";
    const Backend backend(rowptr_in, op, "rowptr");
    BITGNN_CHECK(size >= 0, op, ": size must not be negative, got ", size);
    CsrPackArgs a{};
    const Tensor rowptr = integers(backend, rowptr_in, &a.rowptr64, op, "rowptr");
    const Tensor indices = integers(backend, indices_in, &a.indices64, op, "indices");
    BITGNN_CHECK(rowptr.size(0) >= 1, op, ": rowptr must have at least one entry, got none");
    backend.check(values_in, op, "values");
    a.type = packable_type(values_in, op, "values");
    check_dim(values_in, 1, op, "values");
    check_size(values_in.size(0), indices.size(0), op, "entries of values");
    const Tensor values = as_contiguous(values_in);
    const FloatVector threshold(backend, threshold_in, size, op, "threshold");
    a.rowptr = rowptr.data_ptr();
    a.indices = indices.data_ptr();
    a.values = values.data_ptr();
    a.rows = rowptr.size(0) - 1;
    a.cols = size;
    a.entries = indices.size(0);
    a.threshold = threshold.get();
    Tensor words = backend.empty({a.rows, words_for(size)}, ScalarType::Int);
    a.words = words.template mutable_data_ptr<int32_t>();
    backend.launch(kernel::pack_csr, a);
    return words;
  }

 private:
  // A vector of int32 or int64, made contiguous.
  static Tensor integers(const Backend& backend, const Tensor& t, bool* wide, const char* op,
                         const char* name) {
    backend.check(t, op, name);
    const ScalarType type = t.scalar_type();
    BITGNN_CHECK(type == ScalarType::Int || type == ScalarType::Long, op, ": ", name,
                 " must be int32 or int64, got ", torch::headeronly::toString(type));
    check_dim(t, 1, op, name);
    *wide = type == ScalarType::Long;
    return as_contiguous(t);
  }
};

BITGNN_OPERATORS(table) {
  table.template add<&CsrPackOperators<Backend>::pack>(
      "pack_csr(Tensor rowptr, Tensor indices, Tensor values, int size, Tensor? threshold=None) "
      "-> Tensor");
}

}  // namespace bitgnn::ops

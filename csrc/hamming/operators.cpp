// hamming_topk for any backend.
#include <tuple>

#include "core/registration.h"
#include "hamming/arguments.h"

namespace bitgnn::ops {

// Distances are halves of sums of float32, and share 64 bits with indices.
constexpr int64_t kMostBits = int64_t{1} << 22;
constexpr int64_t kMostCodes = int64_t{1} << 40;

template <class Backend>
struct HammingOperators {
  static std::tuple<Tensor, Tensor> topk(const Tensor& queries_in, const Tensor& codes_in,
                                         int64_t size, int64_t k) {
    const char* op = "hamming_topk";
    const Backend backend(queries_in, op, "queries");
    BITGNN_CHECK(size <= kMostBits, op, ": size must be at most ", kMostBits, ", got ", size);
    const Tensor queries = bit_rows(backend, queries_in, size, op, "queries");
    const Tensor codes = bit_rows(backend, codes_in, size, op, "codes");
    HammingArgs a{};
    a.queries = queries.const_data_ptr<int32_t>();
    a.codes = codes.const_data_ptr<int32_t>();
    a.num_queries = queries.size(0);
    a.num_codes = codes.size(0);
    a.size = size;
    a.k = k;
    BITGNN_CHECK(a.num_codes <= kMostCodes, op, ": codes must have at most ", kMostCodes,
                 " rows, got ", a.num_codes);
    BITGNN_CHECK(k >= 0 && k <= a.num_codes, op, ": k must be from 0 to the ", a.num_codes,
                 " rows of codes, got ", k);
    Tensor distances = backend.empty({a.num_queries, k}, ScalarType::Int);
    Tensor indices = backend.empty({a.num_queries, k}, ScalarType::Long);
    a.distances = distances.template mutable_data_ptr<int32_t>();
    a.indices = indices.template mutable_data_ptr<int64_t>();
    if (a.num_queries > 0 && k > 0) backend.launch(kernel::hamming_topk, a);
    return {distances, indices};
  }
};

BITGNN_OPERATORS(table) {
  table.template add<&HammingOperators<Backend>::topk>(
      "hamming_topk(Tensor queries, Tensor codes, int size, int k) -> (Tensor, Tensor)");
}

}  // namespace bitgnn::ops

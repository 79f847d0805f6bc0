// PyTorch operators of graph attention over bits, for any backend.
#include "bspmm/problem.h"
#include "core/registration.h"
#include "gat/arguments.h"

namespace bitgnn::ops {

template <class Backend>
struct GatOperators {
  using Problems = BspmmProblems<Backend>;
  using Problem = typename Problems::Problem;

  // Sets what both kinds of scores share.
  static GatArgs start(Problem& p, const Tensor& x, int64_t size, int64_t heads,
                       const Tensor& rowptr, const Tensor& indices, bool shared, bool trusted) {
    Problems::set_csr(p, rowptr, indices);
    Problems::set_bits(p, x, size);
    Problems::check_csr(p, p.csr.cols, trusted);
    BITGNN_CHECK(heads >= 1, p.op, ": heads must be at least 1, got ", heads);
    BITGNN_CHECK(shared || size % heads == 0, p.op, ": heads must divide the ", size,
                 " features of x, got ", heads);
    BITGNN_CHECK(size == 0 || heads <= (int64_t{1} << 31) / size, p.op,
                 ": heads times size must be less than 2^31, got ", heads, " and ", size);
    GatArgs a{};
    a.rowptr = p.csr.rowptr;
    a.rowptr64 = p.csr.rowptr64;
    a.indices = p.csr.indices;
    a.rows = p.csr.rows;
    a.cols = p.csr.cols;
    a.edges = p.csr.edges;
    a.x = static_cast<const int32_t*>(p.csr.x);
    a.size = size;
    a.heads = heads;
    a.shared = shared;
    return a;
  }

  static Tensor finish(Problem& p, GatArgs& a, const OptionalTensor& bias,
                       const OptionalTensor& threshold, bool out_bits) {
    BITGNN_CHECK(!(out_bits && a.shared), p.op, ": out_bits must be left out with shared=True");
    p.bias = FloatVector(p.backend, bias, a.columns(), p.op, "bias");
    p.threshold = FloatVector(p.backend, threshold, a.columns(), p.op, "threshold");
    a.bias = p.bias.get();
    a.threshold = p.threshold.get();
    Tensor out = p.backend.empty({a.rows, out_bits ? words_for(a.size) : a.columns()},
                                 out_bits ? ScalarType::Int : ScalarType::Float);
    if (out_bits) {
      a.out_bits = out.mutable_data_ptr<int32_t>();
    } else {
      a.out_float = out.mutable_data_ptr<float>();
    }
    if (out.numel() > 0) p.backend.launch(kernel::gat, a);
    return out;
  }

  static Tensor float_rows(const Problem& p, const Tensor& t, int64_t rows, int64_t columns,
                           const char* name) {
    check_operand(p.backend, t, ScalarType::Float, 2, p.op, name);
    BITGNN_CHECK(t.size(0) == rows && t.size(1) == columns, p.op, ": ", name, " must be [", rows,
                 ", ", columns, "], got [", t.size(0), ", ", t.size(1), "]");
    return with_unit_column_stride(t);
  }

  // Sets float rows of both ends; `p` keeps them.
  static void set_ends(Problem& p, GatArgs& a, const Tensor& source, const Tensor& target,
                       int64_t columns, const char* source_name, const char* target_name) {
    p.held.push_back(float_rows(p, source, a.cols, columns, source_name));
    a.source = p.held.back().template const_data_ptr<float>();
    a.source_stride = p.held.back().stride(0);
    p.held.push_back(float_rows(p, target, a.rows, columns, target_name));
    a.target = p.held.back().template const_data_ptr<float>();
    a.target_stride = p.held.back().stride(0);
  }

  static void set_edge(Problem& p, GatArgs& a, const OptionalTensor& edge) {
    if (!edge.has_value()) return;
    p.extra = as_contiguous(float_rows(p, *edge, a.edges, a.heads, "edge"));
    a.edge = p.extra->template const_data_ptr<float>();
  }

  static Tensor gat(const Tensor& x, int64_t size, int64_t heads, const Tensor& rowptr,
                    const Tensor& indices, const OptionalTensor& source,
                    const OptionalTensor& target, double slope, const OptionalTensor& edge,
                    const OptionalTensor& bias, const OptionalTensor& threshold, bool shared,
                    bool out_bits, bool trusted) {
    Problem p(x, "gat_bits");
    GatArgs a = start(p, x, size, heads, rowptr, indices, shared, trusted);
    BITGNN_CHECK(source.has_value() == target.has_value(), p.op,
                 ": source and target must be given both or not at all");
    BITGNN_CHECK(source.has_value() || edge.has_value(), p.op,
                 ": edge must be given without source and target");
    if (source.has_value()) set_ends(p, a, *source, *target, heads, "source", "target");
    set_edge(p, a, edge);
    a.slope = static_cast<float>(slope);
    return finish(p, a, bias, threshold, out_bits);
  }

  static Tensor transformer(const Tensor& x, int64_t size, int64_t heads, const Tensor& rowptr,
                            const Tensor& indices, const Tensor& query, const Tensor& key,
                            int64_t width, const OptionalTensor& edge, const OptionalTensor& bias,
                            const OptionalTensor& threshold, bool shared, bool out_bits,
                            bool trusted) {
    Problem p(x, "transformer_bits");
    GatArgs a = start(p, x, size, heads, rowptr, indices, shared, trusted);
    BITGNN_CHECK(width >= 0 && width % heads == 0, p.op, ": heads must divide width ", width,
                 ", got ", heads);
    set_ends(p, a, key, query, width, "key", "query");
    set_edge(p, a, edge);
    a.width = width;
    a.scores = GatScores::kDots;
    return finish(p, a, bias, threshold, out_bits);
  }

  static Tensor gatv2(const Tensor& x, int64_t size, int64_t heads, const Tensor& rowptr,
                      const Tensor& indices, const Tensor& left_in, const Tensor& right_in,
                      int64_t width, const Tensor& alone_in, const Tensor& both_in,
                      const Tensor& step_in, const OptionalTensor& bias,
                      const OptionalTensor& threshold, bool shared, bool out_bits, bool trusted) {
    Problem p(x, "gatv2_bits");
    GatArgs a = start(p, x, size, heads, rowptr, indices, shared, trusted);
    const Tensor left = bit_rows(p.backend, left_in, width, p.op, "left");
    const Tensor right = bit_rows(p.backend, right_in, width, p.op, "right");
    check_size(left.size(0), a.cols, p.op, "rows of left");
    check_size(right.size(0), a.rows, p.op, "rows of right");
    BITGNN_CHECK(width % heads == 0, p.op, ": heads must divide width ", width, ", got ", heads);
    const Tensor alone = Problems::index_vector(p, alone_in, ScalarType::Int, "alone");
    const Tensor both = Problems::index_vector(p, both_in, ScalarType::Int, "both");
    const Tensor step = Problems::index_vector(p, step_in, ScalarType::Float, "step");
    check_size(alone.size(0), width, p.op, "entries of alone");
    check_size(both.size(0), width, p.op, "entries of both");
    check_size(step.size(0), heads, p.op, "entries of step");
    a.left = left.template const_data_ptr<int32_t>();
    a.right = right.template const_data_ptr<int32_t>();
    a.width = width;
    a.alone = alone.template const_data_ptr<int32_t>();
    a.both = both.template const_data_ptr<int32_t>();
    a.step = step.template const_data_ptr<float>();
    a.scores = GatScores::kPairs;
    return finish(p, a, bias, threshold, out_bits);
  }
};

BITGNN_OPERATORS(table) {
  const std::string end =
      "Tensor? bias=None, Tensor? threshold=None, bool shared=False, bool out_bits=False, "
      "bool trusted=False) -> Tensor";
  table.template add<&GatOperators<Backend>::gat>(
      "gat_bits(Tensor x, SymInt size, SymInt heads, Tensor rowptr, Tensor indices, Tensor? "
      "source, "
      "Tensor? target, float negative_slope, Tensor? edge=None, " +
      end);
  table.template add<&GatOperators<Backend>::transformer>(
      "transformer_bits(Tensor x, SymInt size, SymInt heads, Tensor rowptr, Tensor indices, Tensor "
      "query, Tensor key, SymInt width, Tensor? edge=None, " +
      end);
  table.template add<&GatOperators<Backend>::gatv2>(
      "gatv2_bits(Tensor x, SymInt size, SymInt heads, Tensor rowptr, Tensor indices, Tensor left, "
      "Tensor right, SymInt width, Tensor alone, Tensor both, Tensor step, " +
      end);
}

}  // namespace bitgnn::ops

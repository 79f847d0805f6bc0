// ADD and CONCAT for any backend: element-wise joins of packed or float rows.
#include "core/registration.h"
#include "pack/arguments.h"

namespace bitgnn::ops {

template <class Backend>
struct JoinOperators {
  // Keeps the contiguous forms of both operands alive along with the kernel's pointers.
  struct Pair {
    Tensor a, b;
    FloatVector a_scale, b_scale;
    JoinArgs args{};
  };

  static void set_rows(Pair& p, const char* op) {
    BITGNN_CHECK(p.a.size(0) == p.b.size(0), op, ": b must have as many rows as a, ", p.a.size(0),
                 ", got ", p.b.size(0));
    p.args.rows = p.a.size(0);
  }

  static Pair bit_pair(const Backend& backend, const Tensor& a, const Tensor& b, int64_t a_size,
                       int64_t b_size, const OptionalTensor& a_scale, const OptionalTensor& b_scale,
                       const char* op) {
    Pair p{bit_rows(backend, a, a_size, op, "a"), bit_rows(backend, b, b_size, op, "b"), {}, {}};
    p.a_scale = FloatVector(backend, a_scale, p.a.size(0), op, "a_scale");
    p.b_scale = FloatVector(backend, b_scale, p.b.size(0), op, "b_scale");
    set_rows(p, op);
    p.args.packed = true;
    p.args.a_bits = p.a.template const_data_ptr<int32_t>();
    p.args.b_bits = p.b.template const_data_ptr<int32_t>();
    p.args.a_scale = p.a_scale.get();
    p.args.b_scale = p.b_scale.get();
    p.args.a_size = a_size;
    p.args.b_size = b_size;
    return p;
  }

  static Tensor float_rows(const Backend& backend, const Tensor& t, const char* op,
                           const char* name) {
    check_operand(backend, t, ScalarType::Float, 2, op, name);
    return as_contiguous(t);
  }

  static Pair float_pair(const Backend& backend, const Tensor& a, const Tensor& b, const char* op) {
    Pair p{float_rows(backend, a, op, "a"), float_rows(backend, b, op, "b"), {}, {}};
    set_rows(p, op);
    p.args.a_float = p.a.template const_data_ptr<float>();
    p.args.b_float = p.b.template const_data_ptr<float>();
    p.args.a_size = p.a.size(1);
    p.args.b_size = p.b.size(1);
    return p;
  }

  static Tensor new_result(const Backend& backend, JoinArgs& args, int64_t size, Output output) {
    if (output == Output::kBits) {
      Tensor out = backend.empty({args.rows, words_for(size)}, ScalarType::Int);
      args.out_bits = out.mutable_data_ptr<int32_t>();
      return out;
    }
    Tensor out = backend.empty({args.rows, size}, ScalarType::Float);
    args.out_float = out.mutable_data_ptr<float>();
    return out;
  }

  static Tensor add(const Backend& backend, Pair p, const FloatVector& threshold, Output output) {
    p.args.threshold = threshold.get();
    Tensor out = new_result(backend, p.args, p.args.a_size, output);
    if (out.numel() > 0) backend.launch(kernel::add, p.args);
    return out;
  }

  static Tensor concat(const Backend& backend, Pair p, const FloatVector& threshold,
                       Output output) {
    p.args.threshold = threshold.get();
    Tensor out = new_result(backend, p.args, p.args.a_size + p.args.b_size, output);
    if (out.numel() > 0) backend.launch(kernel::concat, p.args);
    return out;
  }

  static Tensor add_bbb(const Tensor& a, const Tensor& b, int64_t size,
                        const OptionalTensor& a_scale, const OptionalTensor& b_scale,
                        const OptionalTensor& threshold) {
    const char* op = "add_bbb";
    const Backend backend(a, op, "a");
    return add(backend, bit_pair(backend, a, b, size, size, a_scale, b_scale, op),
               FloatVector(backend, threshold, size, op, "threshold"), Output::kBits);
  }

  static Tensor add_bbf(const Tensor& a, const Tensor& b, int64_t size,
                        const OptionalTensor& a_scale, const OptionalTensor& b_scale) {
    const char* op = "add_bbf";
    const Backend backend(a, op, "a");
    return add(backend, bit_pair(backend, a, b, size, size, a_scale, b_scale, op), {},
               Output::kFloat);
  }

  static Tensor add_ffb(const Tensor& a, const Tensor& b, const OptionalTensor& threshold) {
    const char* op = "add_ffb";
    const Backend backend(a, op, "a");
    const Pair p = float_pair(backend, a, b, op);
    check_size(p.args.b_size, p.args.a_size, op, "features of b");
    return add(backend, p, FloatVector(backend, threshold, p.args.a_size, op, "threshold"),
               Output::kBits);
  }

  static Tensor concat_bbb(const Tensor& a, const Tensor& b, int64_t a_size, int64_t b_size) {
    const char* op = "concat_bbb";
    const Backend backend(a, op, "a");
    return concat(backend, bit_pair(backend, a, b, a_size, b_size, {}, {}, op), {}, Output::kBits);
  }

  static Tensor concat_bbf(const Tensor& a, const Tensor& b, int64_t a_size, int64_t b_size,
                           const OptionalTensor& a_scale, const OptionalTensor& b_scale) {
    const char* op = "concat_bbf";
    const Backend backend(a, op, "a");
    return concat(backend, bit_pair(backend, a, b, a_size, b_size, a_scale, b_scale, op), {},
                  Output::kFloat);
  }

  static Tensor concat_ffb(const Tensor& a, const Tensor& b, const OptionalTensor& threshold) {
    const char* op = "concat_ffb";
    const Backend backend(a, op, "a");
    const Pair p = float_pair(backend, a, b, op);
    const int64_t size = p.args.a_size + p.args.b_size;
    return concat(backend, p, FloatVector(backend, threshold, size, op, "threshold"),
                  Output::kBits);
  }
};

BITGNN_OPERATORS(table) {
  table.template add<&JoinOperators<Backend>::add_bbb>(
      "add_bbb(Tensor a, Tensor b, int size, Tensor? a_scale=None, Tensor? b_scale=None, "
      "Tensor? threshold=None) -> Tensor");
  table.template add<&JoinOperators<Backend>::add_bbf>(
      "add_bbf(Tensor a, Tensor b, int size, Tensor? a_scale=None, Tensor? b_scale=None) "
      "-> Tensor");
  table.template add<&JoinOperators<Backend>::add_ffb>(
      "add_ffb(Tensor a, Tensor b, Tensor? threshold=None) -> Tensor");
  table.template add<&JoinOperators<Backend>::concat_bbb>(
      "concat_bbb(Tensor a, Tensor b, int a_size, int b_size) -> Tensor");
  table.template add<&JoinOperators<Backend>::concat_bbf>(
      "concat_bbf(Tensor a, Tensor b, int a_size, int b_size, Tensor? a_scale=None, "
      "Tensor? b_scale=None) -> Tensor");
  table.template add<&JoinOperators<Backend>::concat_ffb>(
      "concat_ffb(Tensor a, Tensor b, Tensor? threshold=None) -> Tensor");
}

}  // namespace bitgnn::ops

// BMM + BSpMM with the product held as narrow integers, for any backend.
#include <algorithm>

#include "bspmm/narrow_sums.h"
#include "core/registration.h"
#include "pairs/fused_operators.h"
#include "pairs/heads.h"

namespace bitgnn::ops {

template <class Backend>
struct NarrowOperators {
  using Problems = BspmmProblems<Backend>;
  using Problem = typename Problems::Problem;
  using Fused = FusedOperators<Backend>;

  // Arguments of the operator except the pattern. The root term, a product of packed rows that is
  // added to the scores, is there if its operands are given.
  struct Request {
    const char* op;
    const Tensor& x;
    const Tensor& w;
    int64_t size;
    const OptionalTensor &x_scale, &w_scale, &x_threshold, &x_gain;
    bool scale;
    const OptionalTensor &row, &col, &bias;
    const OptionalTensor &root, &root_w;
    int64_t root_size;
    const OptionalTensor &root_scale, &root_w_scale, &root_bias;
    const OptionalTensor& shift;
  };

  // The root term's arguments, checked and kept alive.
  struct RootProduct {
    OptionalTensor x, w;
    FloatVector x_scale, w_scale, bias;
    BmmArgs args{};

    RootProduct(const Backend& backend, const Request& q, int64_t rows) {
      BITGNN_CHECK(q.root.has_value() == q.root_w.has_value(), q.op,
                   ": root and root_w must be given together");
      if (!exists(q)) {
        BITGNN_CHECK(
            !q.root_scale.has_value() && !q.root_w_scale.has_value() && !q.root_bias.has_value(),
            q.op, ": root_scale, root_w_scale and root_bias must be left out ", "without root");
        return;
      }
      x = bit_rows(backend, *q.root, q.root_size, q.op, "root");
      w = bit_rows(backend, *q.root_w, q.root_size, q.op, "root_w");
      check_size(x->size(0), rows, q.op, "rows of root");
      check_size(w->size(0), q.w.size(0), q.op, "rows of root_w");
      x_scale = FloatVector(backend, q.root_scale, rows, q.op, "root_scale");
      w_scale = FloatVector(backend, q.root_w_scale, w->size(0), q.op, "root_w_scale");
      bias = FloatVector(backend, q.root_bias, w->size(0), q.op, "root_bias");
      args.x = x->template const_data_ptr<int32_t>();
      args.w = w->template const_data_ptr<int32_t>();
      args.rows = rows;
      args.size = q.root_size;
      args.out_features = w->size(0);
      args.row_scale = x_scale.get();
      args.out_scale = w_scale.get();
      args.bias = bias.get();
    }
    RootProduct(const RootProduct&) = delete;
    RootProduct& operator=(const RootProduct&) = delete;

    static bool exists(const Request& q) { return q.root.has_value(); }
  };

  // The product and the factors of its aggregation; the pattern must be set before.
  struct Call {
    PackArgs pack{};
    Tensor w;
    FloatVector threshold, gain, x_factor, w_factor, shift;
    NarrowCall args{};

    Call(Problem& p, const Request& q) : w(bit_rows(p.backend, q.w, q.size, q.op, "w")) {
      BmmArgs& product = args.product;
      if (q.x.scalar_type() == ScalarType::Int) {
        BITGNN_CHECK(!q.x_threshold.has_value() && !q.x_gain.has_value() && !q.scale, q.op,
                     ": x_threshold, x_gain and scale must be left out with packed x");
        p.x = bit_rows(p.backend, q.x, q.size, q.op, "x");
        product.x = p.x.template const_data_ptr<int32_t>();
      } else {
        p.x = packable_rows(p.backend, q.x, q.op, "x");
        check_size(p.x.size(1), q.size, q.op, "features of x");
        threshold = FloatVector(p.backend, q.x_threshold, q.size, q.op, "x_threshold");
        gain = FloatVector(p.backend, q.x_gain, q.size, q.op, "x_gain");
        pack = pack_args(p.x, threshold, gain, q.op);
        product.pack = &pack;
        product.packed_scale = q.scale;
      }
      x_factor = FloatVector(p.backend, q.x_scale, p.x.size(0), q.op, "x_scale");
      w_factor = FloatVector(p.backend, q.w_scale, w.size(0), q.op, "w_scale");
      product.w = w.template const_data_ptr<int32_t>();
      product.rows = p.x.size(0);
      product.size = q.size;
      product.out_features = w.size(0);
      product.row_scale = x_factor.get();
      product.out_scale = w_factor.get();
      p.csr.cols = p.x.size(0);
      p.csr.features = w.size(0);
      p.col = FloatVector(p.backend, q.col, p.csr.cols, q.op, "col");
      p.csr.col_scale = p.col.get();
      Problems::set_epilogue(p, q.row, q.bias, {});
      args.sums = p.csr;
      shift = FloatVector(p.backend, q.shift, w.size(0), q.op, "shift");
      args.shift = shift.get();
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
  };

  // Runs the kernels, including the head if they hold whole rows.
  static Tensor run(Problem& p, const Request& q, NarrowCall& args, Head head) {
    const RootProduct root(p.backend, q, p.csr.rows);
    args.root = root.exists(q) ? &root.args : nullptr;
    bool holds = false;
    if (!root.exists(q)) p.backend.launch(kernel::suits_head, args, head, &holds);
    args.head = holds ? head : Head::kNone;
    if (args.head == Head::kClasses) {
      Tensor out = p.backend.empty({p.csr.rows}, ScalarType::Long);
      args.classes = out.template mutable_data_ptr<int64_t>();
      p.backend.launch(kernel::aggregate_narrow, args);
      return out;
    }
    Tensor out = new_output(p.backend, args.sums, p.csr.rows, p.csr.features, Output::kFloat);
    if (out.numel() > 0) p.backend.launch(kernel::aggregate_narrow, args);
    return args.head == head ? out : torch_head(p.backend, out, head);
  }

  // Adds the root term, if there is one, to existing sums.
  static Tensor with_root(const Request& q, const Tensor& sums) {
    const Backend backend(q.x, q.op, "x");
    RootProduct root(backend, q, sums.size(0));
    if (!root.exists(q)) return sums;
    root.args.addend = sums.template const_data_ptr<float>();
    Tensor out = new_output(backend, root.args, sums.size(0), sums.size(1), Output::kFloat);
    backend.launch(kernel::bmm, root.args);
    return out;
  }

  // The row order, checked like the pattern.
  static OptionalTensor checked_order(const Problem& p, const OptionalTensor& order, bool trusted) {
    if (!order.has_value()) return {};
    check_operand(p.backend, *order, ScalarType::Long, 2, p.op, "order");
    check_size(order->size(0), p.csr.rows, p.op, "rows of order");
    check_size(order->size(1), 2, p.op, "columns of order");
    const Tensor whole = as_contiguous(*order);
    if (!trusted) {
      const typename Problems::HostPointers rowptr(p);
      const typename Problems::template HostVector<int64_t> entries(p, whole);
      check_order(rowptr.get(), entries.data(), p.csr.rows, p.op);
    }
    return whole;
  }

  static Tensor bmm_bspmm_narrow(const Tensor& x, const Tensor& w, int64_t size,
                                 const Tensor& rowptr, const Tensor& indices,
                                 const OptionalTensor& x_scale, const OptionalTensor& w_scale,
                                 const OptionalTensor& x_threshold, const OptionalTensor& x_gain,
                                 bool scale, const OptionalTensor& row, const OptionalTensor& col,
                                 const OptionalTensor& bias, int64_t head,
                                 const OptionalTensor& root, const OptionalTensor& root_w,
                                 int64_t root_size, const OptionalTensor& root_scale,
                                 const OptionalTensor& root_w_scale,
                                 const OptionalTensor& root_bias, const OptionalTensor& order_in,
                                 const OptionalTensor& shift, bool trusted) {
    const char* op = "bmm_bspmm_narrow";
    const Request q = {
        op,  x,    w,    size,   x_scale,   w_scale,    x_threshold,  x_gain,    scale, row,
        col, bias, root, root_w, root_size, root_scale, root_w_scale, root_bias, shift};
    Fused::check_x_scale(q.x, q.x_scale, q.op);
    const Head checked = checked_head(head, q.w.size(0), q.op);
    Problem p(q.x, q.op);
    check_dim(q.x, 2, q.op, "x");
    Problems::set_csr(p, rowptr, indices);
    Problems::check_csr(p, q.x.size(0), trusted);
    const OptionalTensor order = checked_order(p, order_in, trusted);
    if (q.size > kMostShortFeatures) {
      BITGNN_CHECK(!q.shift.has_value(), q.op, ": shift must be left out with more than ",
                   kMostShortFeatures, " features, got ", q.size);
      const Tensor sums =
          Fused::bmm_bspmm(q.x, q.w, q.size, rowptr, indices, q.x_scale, q.w_scale, q.x_threshold,
                           q.x_gain, q.scale, q.row, q.col, q.bias, {}, false, false, true);
      return torch_head(p.backend, with_root(q, sums), checked);
    }
    Call call(p, q);
    call.args.order = data_or_null<int64_t>(order);
    return run(p, q, call.args, checked);
  }
};

BITGNN_OPERATORS(table) {
  const std::string narrow =
      "Tensor? x_scale=None, Tensor? w_scale=None, Tensor? x_threshold=None, "
      "Tensor? x_gain=None, bool scale=False, Tensor? row=None, Tensor? col=None, "
      "Tensor? bias=None, int head=0, Tensor? root=None, Tensor? root_w=None, int root_size=0, "
      "Tensor? root_scale=None, Tensor? root_w_scale=None, Tensor? root_bias=None";
  table.template add<&NarrowOperators<Backend>::bmm_bspmm_narrow>(
      "bmm_bspmm_narrow(Tensor x, Tensor w, int size, Tensor rowptr, Tensor indices, " + narrow +
      ", Tensor? order=None, Tensor? shift=None, bool trusted=False) -> Tensor");
}

}  // namespace bitgnn::ops

// Max pooling of packed images, for any backend.
#include <vector>

#include "conv/pool_problem.h"
#include "core/registration.h"

namespace bitgnn::ops {

template <class Backend>
struct BitPoolOperators {
  static Tensor pool(const Tensor& x_in, std::vector<int64_t> kernel, std::vector<int64_t> stride,
                     std::vector<int64_t> padding, const OptionalTensor& flip_in) {
    const char* op = "pool_bits";
    const Backend backend(x_in, op, "x");
    check_operand(backend, x_in, ScalarType::Int, 4, op, "x");
    check_numbers(kernel, 2, 1, op, "kernel");
    check_numbers(stride, 2, 1, op, "stride");
    check_numbers(padding, 4, 0, op, "padding");
    for (size_t i = 0; i < 4; ++i)
      BITGNN_CHECK(padding[i] < kernel[i / 2], op, ": padding must be less than the kernel, ",
                   kernel[i / 2], ", or a window would hold no pixel, got ", padding[i]);
    const Tensor x = as_contiguous(x_in);
    BITGNN_CHECK(x.size(1) >= 1 && x.size(2) >= 1, op, ": x must have pixels, got ", x.size(1),
                 " x ", x.size(2));
    BitPoolProblem<Backend> problem(backend, x.size(0), x.size(1), x.size(2), x.size(3), kernel,
                                    stride, padding, flip_in, op, "kernel", "flip");
    problem.args.x = x.const_data_ptr<int32_t>();
    Tensor out = problem.new_images(backend);
    if (out.numel() > 0) backend.launch(kernel::pool_bits, problem.args);
    return out;
  }
};

BITGNN_OPERATORS(table) {
  table.template add<&BitPoolOperators<Backend>::pool>(
      "pool_bits(Tensor x, int[] kernel, int[] stride, int[] padding, Tensor? flip=None) -> "
      "Tensor");
}

}  // namespace bitgnn::ops

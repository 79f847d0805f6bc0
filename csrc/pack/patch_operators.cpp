// Patches of images as words, for any backend.
#include <vector>

#include "conv/problem.h"
#include "core/registration.h"
#include "pack/arguments.h"

namespace bitgnn::ops {

template <class Backend>
struct PatchOperators {
  static Tensor pack(const Tensor& x_in, std::vector<int64_t> kernel, std::vector<int64_t> stride,
                     std::vector<int64_t> padding, std::vector<int64_t> dilation,
                     const OptionalTensor& threshold_in) {
    const char* op = "pack_patches";
    const Backend backend(x_in, op, "x");
    check_operand(backend, x_in, ScalarType::Float, 4, op, "x");
    check_numbers(kernel, 2, 1, op, "kernel");
    check_numbers(stride, 2, 1, op, "stride");
    check_numbers(padding, 4, 0, op, "padding");
    check_numbers(dilation, 2, 1, op, "dilation");
    BITGNN_CHECK(kernel[0] <= kPatchBits && kernel[1] <= kPatchBits / kernel[0], op,
                 ": kernel must have at most ", kPatchBits, " pixels, got ", kernel[0], " x ",
                 kernel[1]);
    const Tensor x = as_contiguous(x_in);
    PatchArgs a{};
    a.x = x.const_data_ptr<float>();
    a.images = x.size(0);
    a.channels = x.size(1);
    a.height = x.size(2);
    a.width = x.size(3);
    BITGNN_CHECK(a.channels >= 1, op, ": x must have channels, got none");
    set_window(a, kernel, stride, padding, dilation, op, "kernel");
    const FloatVector threshold(backend, threshold_in, a.channels, op, "threshold");
    a.threshold = threshold.get();
    Tensor words =
        backend.empty({a.images, a.out_height, a.out_width, 2 * a.channels}, ScalarType::Int);
    a.words = words.template mutable_data_ptr<int32_t>();
    if (words.numel() > 0) backend.launch(kernel::pack_patches, a);
    return words;
  }
};

BITGNN_OPERATORS(table) {
  table.template add<&PatchOperators<Backend>::pack>(
      "pack_patches(Tensor x, int[] kernel, int[] stride, int[] padding, int[] dilation, "
      "Tensor? threshold=None) -> Tensor");
}

}  // namespace bitgnn::ops

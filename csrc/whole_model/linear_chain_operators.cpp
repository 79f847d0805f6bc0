// Operator that runs a chain of fully connected layers on bits in one call, for any backend.
#include <vector>

#include "core/registration.h"
#include "whole_model/linear_chain.h"

namespace bitgnn::ops {

template <class Backend>
struct LinearChainOperators {
  static constexpr const char* kName = "linear_chain";

  static int64_t image_part(int64_t offset, int64_t words, int64_t image_words, int layer,
                            const char* what) {
    BITGNN_CHECK(
        offset >= 0 && offset % 4 == 0 && words <= image_words && offset <= image_words - words,
        kName, ": layers must place the ", what, " of layer ", layer, " inside the ", image_words,
        " words of image, got ", offset);
    return offset;
  }

  static ChainLayer layer_at(const std::vector<int64_t>& numbers, int number, bool last,
                             int64_t image_words) {
    const int64_t* n = numbers.data() + number * kChainLayerNumbers;
    for (int i = 0; i < 2; ++i)
      BITGNN_CHECK(n[i] >= 1 && n[i] <= kMostChainFeatures, kName,
                   ": layers must have sizes and outputs in [1, ", kMostChainFeatures, "], got ",
                   n[i]);
    BITGNN_CHECK(number == 0 || n[0] == numbers[(number - 1) * kChainLayerNumbers + 1], kName,
                 ": layers must each take the outputs of the one before, got size ", n[0],
                 " in layer ", number);
    ChainLayer layer{};
    layer.size = n[0];
    layer.outputs = n[1];
    layer.weights = image_part(n[2], n[1] * chain_words(n[0]), image_words, number, "weights");
    layer.table =
        image_part(n[3], n[1] * (last ? kLastTable : kHiddenTable), image_words, number, "table");
    return layer;
  }

  static Tensor linear_chain(const Tensor& x_in, const Tensor& image_in,
                             std::vector<int64_t> layers) {
    const Backend backend(x_in, kName, "x");
    const auto count = static_cast<int64_t>(layers.size()) / kChainLayerNumbers;
    BITGNN_CHECK(static_cast<int64_t>(layers.size()) % kChainLayerNumbers == 0 && count >= 1 &&
                     count <= kMostChainLayers,
                 kName, ": layers must hold ", kChainLayerNumbers, " numbers for each of 1 to ",
                 kMostChainLayers, " layers, got ", layers.size(), " numbers");
    check_operand(backend, image_in, ScalarType::Int, 1, kName, "image");
    const Tensor image = as_contiguous(image_in);
    LinearChainArgs a{};
    a.count = static_cast<int>(count);
    for (int l = 0; l < a.count; ++l)
      a.layers[l] = layer_at(layers, l, l + 1 == a.count, image.numel());
    const Tensor x = bit_rows(backend, x_in, a.layers[0].size, kName, "x");
    a.rows = x.size(0);
    Tensor out = backend.empty({a.rows, a.layers[a.count - 1].outputs}, ScalarType::Float);
    a.x = x.const_data_ptr<int32_t>();
    a.image = image.const_data_ptr<int32_t>();
    a.out = out.template mutable_data_ptr<float>();
    if (out.numel() > 0) backend.launch(kernel::linear_chain, a);
    return out;
  }
};

BITGNN_OPERATORS(table) {
  table.template add<&LinearChainOperators<Backend>::linear_chain>(
      "linear_chain(Tensor x, Tensor image, int[] layers) -> Tensor");
}

}  // namespace bitgnn::ops

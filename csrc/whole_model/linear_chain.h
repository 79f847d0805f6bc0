// Layers and arguments of a chain of fully connected layers on bits that runs in one launch.
#pragma once

#include <cstdint>

#include "core/common.h"
#include "core/kernel.h"

namespace bitgnn {

constexpr int kMostChainLayers = 8;
constexpr int64_t kMostChainFeatures = 1 << 14;
constexpr int64_t kChainLayerNumbers = 4;  // per layer, in the order of ChainLayer's members
constexpr int64_t kChainStepWords = 8;     // weights are padded to whole steps of a product
// Table words per output: for a hidden layer the limit and whether the bit is inverted; for the
// last layer `bare`, the dot product of an input without set bits, then scale and bias as floats
// and an unused word.
constexpr int64_t kHiddenTable = 2;
constexpr int64_t kLastTable = 4;

// Layer l reads bits x [size]. For output o, with p = popc(x & w[o]) and |x| set bits,
//   dot = size - 2 |x| - 2 |w[o]| + 4 p.
// Hidden layers: bit = (2 p - |x| >= table[o].least) ^ turned, equivalent to comparing dot with a
// limit. Last layer: v = scale * (bare + 2 * (2 p - |x|)) + bias.
struct ChainLayer {
  int64_t size;
  int64_t outputs;
  int64_t weights;  // offset in the image in words, a multiple of 4: [outputs, chain_words(size)]
  int64_t table;    // likewise: [outputs, kHiddenTable or kLastTable]
};

constexpr int64_t chain_words(int64_t size) {
  return (words_for(size) + kChainStepWords - 1) / kChainStepWords * kChainStepWords;
}

struct LinearChainArgs {
  const int32_t* x;  // [rows, words_for(layers[0].size)]
  const int32_t* image;
  int64_t rows;
  int count;
  ChainLayer layers[kMostChainLayers];
  float* out;  // [rows, outputs of the last layer]
};

// On CUDA, a cluster of blocks of Hopper must hold the weights of all layers.
BITGNN_KERNEL(whole_model, linear_chain, const LinearChainArgs& args);

}  // namespace bitgnn

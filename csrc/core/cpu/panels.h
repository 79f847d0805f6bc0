// Weights in the order in which the products of the CPU read them.
#pragma once

#include <cstdint>
#include <vector>

namespace bitgnn::cpu {

// Rows [out_features, words] as [ceil(out_features / 32), words, 32]: the lanes of a vector are 32
// outputs, so products need no horizontal sum. Missing outputs are rows of zeros. With `parities` a
// word holds the XOR of its output's words up to it.
void pack_panels(const int32_t* w, int64_t out_features, int64_t words, bool parities, int32_t* to);

// One bit for each flag, 32 a word.
std::vector<int32_t> pack_flags(const bool* flags, int64_t count);

}  // namespace bitgnn::cpu

// Products on the CPU for other rooms, and the weights that they rearrange.
#pragma once

#include <cstdint>
#include <vector>

#include "bmm/arguments.h"

namespace bitgnn::cpu {

struct NarrowRows;

// bmm(), which with `out` writes products to narrow rows, whose factors are the row scale times
// `factor` ([rows] or null).
void multiply(const bitgnn::BmmArgs& args, const NarrowRows* out, const float* factor);

// Repacks rows [out_features, words] as [ceil(out_features / 32), words, 32]: the lanes of a vector
// are 32 outputs, so products need no horizontal sum. Missing outputs are zero. With `parities`,
// each word is the XOR of its output's words up to and including it.
void pack_panels(const int32_t* w, int64_t out_features, int64_t words, bool parities, int32_t* to);

// Packs one bit per flag, 32 per word.
std::vector<int32_t> pack_flags(const bool* flags, int64_t count);

}  // namespace bitgnn::cpu

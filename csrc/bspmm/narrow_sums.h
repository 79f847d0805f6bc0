// Summation order of float sums over narrow integers, the same on every device: it depends on a
// row's degree alone. A row is cut into pieces of kSumPiece edges. In edge order, edge p of a piece
// is added to slot p % kSumSlots with a fused multiply-add, slot = fma(factor, half, slot). The
// slots are folded in halves: s[i] += s[i + 4], then s[i] += s[i + 2], then s[0] += s[1]; the
// results of the pieces are added from first to last.
// Sums without factors are exact integers, rounded once.
#pragma once

#include <cstdint>

namespace bitgnn {

constexpr int kSumSlots = 8;
constexpr int64_t kSumPiece = 128;

// dot = 2 * half + (K & 1) for a product of K signs: the half takes one bit less. Bytes hold it up
// to K = 255, 16 bits up to K = 65535.
constexpr int64_t kMostByteFeatures = 255;
constexpr int64_t kMostShortFeatures = 65535;

}  // namespace bitgnn

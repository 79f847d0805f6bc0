// The order of float sums over narrow integers, the same on every device: it depends on a row's
// degree alone. A row is cut into pieces of kSumPiece edges. Edge p of a piece goes to slot
// p % kSumSlots by a fused multiply-add, slot = fma(factor, half, slot), in the order of the edges.
// The slots are folded in halves: s[i] += s[i + 4], then s[i] += s[i + 2], then s[0] += s[1]; the
// results of the pieces are added up from the first to the last. Only rows of more than 48 features
// that few edges read have another order on a GPU: with factors or scales of outputs, pieces of
// kWidePiece edges, each in edge order by fused multiply-adds; without either, whole numbers
// strictly in edge order.
#pragma once

#include <cstdint>

namespace bitgnn {

constexpr int kSumSlots = 8;
constexpr int64_t kSumPiece = 128;
constexpr int kWidePiece = 16;

// dot = 2 * half + (K & 1) for a product of K signs: the half has one bit less. Bytes hold it up to
// K = 255, 16 bits up to K = 65535.
constexpr int64_t kMostByteFeatures = 255;
constexpr int64_t kMostShortFeatures = 65535;

}  // namespace bitgnn

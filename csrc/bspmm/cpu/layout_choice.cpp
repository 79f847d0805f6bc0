// Predicts whether an aggregation of packed rows on a GPU is faster over slices of columns than
// over CSR. Arithmetic on a description of the device, in the library that is always there.
#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace bitgnn::cpu {
namespace {

// Edges whose gathers take less time on any GPU than the further launches of slices.
constexpr int64_t kLeastEdges = 1 << 17;
constexpr double kItemEdges = 63;  // most neighbours of an item
// Items whose places 32-bit numbers tell apart, with room for the error of the estimate.
constexpr double kMostItems = 1 << 28;

// Microseconds of the layouts' launches on a graph without edges.
constexpr double kCsrStart = 6.0, kSlicedStart = 22.0;
// Nanoseconds of one multiprocessor: for a neighbour's four words out of the second-level cache,
// for the same out of shared memory, and for an item.
constexpr double kGather = 1.0, kSlicedGather = 0.185, kItem = 7.3;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Expected number of (row, slice) pairs that hold a neighbour, for random columns.
double expected_items(int64_t rows, int64_t slices, int64_t edges) {
  const auto shares = static_cast<double>(std::max<int64_t>(1, rows * slices));
  const auto held = static_cast<double>(edges);
  return shares * (1.0 - std::exp(-held / shares)) + held / (2 * kItemEdges);
}

// All multiprocessors gather side by side, each at its own rate: CSR out of the second-level cache,
// slices pieces of four words out of shared memory. Slices also pay for each item, a row's share of
// a slice, whose count goes through memory, and there are as many slices as the shared memory of a
// block asks for. The rates fit measurements of 13 graphs on an H200; rows that outgrow the
// second-level cache, of which there was none, would favour slices more.
bool suits_slices(int64_t rows, int64_t columns, int64_t edges, int64_t words,
                  int64_t multiprocessors, int64_t slice_size) {
  if (edges < kLeastEdges) return false;
  const int64_t slices = std::max<int64_t>(1, ceil_div(columns, slice_size));
  const double items = expected_items(rows, slices, edges);
  if (items > kMostItems) return false;
  const double gather = words <= 4   ? kGather
                        : words <= 8 ? 1.58 * kGather
                                     : 2.11 * kGather * static_cast<double>(ceil_div(words, 16));
  const auto held = static_cast<double>(edges);
  const double share = 1e-3 / static_cast<double>(multiprocessors);
  const double csr = kCsrStart + share * gather * held;
  const double passes = static_cast<double>(ceil_div(words, 4));
  const double sliced = kSlicedStart + share * passes * (kSlicedGather * held + kItem * items);
  return sliced < csr;
}

}  // namespace
}  // namespace bitgnn::cpu

STABLE_TORCH_LIBRARY_FRAGMENT(bitgnn, m) {
  m.def(
      "suits_slices(int rows, int columns, int edges, int words, int multiprocessors, "
      "int slice_size) -> bool");
}

STABLE_TORCH_LIBRARY_IMPL(bitgnn, CompositeExplicitAutograd, m) {
  m.impl("suits_slices", TORCH_BOX(&bitgnn::cpu::suits_slices));
}

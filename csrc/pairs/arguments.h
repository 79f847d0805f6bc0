// Arguments of products whose results are aggregated, shared by the kernels of all backends.
#pragma once

#include <cstdint>

#include "bmm/arguments.h"
#include "bspmm/arguments.h"
#include "core/kernel.h"
#include "int8/arguments.h"

namespace bitgnn {

// A product whose halves are held as narrow integers, aggregated over a pattern: with f = x_scale *
// col_scale, v = (row_scale * out_scale) * sum of f[j] * dot[j] + bias. A shift of the product adds
// (row_scale * shift) * sum of f[j] in front of the bias. Float sums follow the order of
// bspmm/narrow_sums.h; without factors they are exact integers.
struct NarrowArgs {
  BmmArgs product;     // its row_scale is x_scale; bias, addend, threshold and outputs are null
  AggregateArgs sums;  // writes out_float; x and values are null
  const float* shift;  // [features] or null
};

// Step of degrees in an order of rows, in edges; within a step, rows keep their order.
constexpr int64_t kOrderStep = 32;

// Function applied to a row v of scores, m being the largest; schemas use the numbers.
enum class Head : int {
  kNone = 0,
  kLogSoftmax = 1,  // v - m - log(sum of exp(v - m))
  kSoftmax = 2,     // exp(v - m) / sum of exp(v - m)
  kClasses = 3,     // index of the largest score, the first among equals; the first NaN
};

struct NarrowCall : NarrowArgs {
  // [rows, 2] or null: rows of a CSR by descending degree / kOrderStep, each as its first edge and
  // degree + row * 2^32. It tells which rows to start first, which helps GPUs.
  const int64_t* order;
  Head head;
  int64_t* classes;  // [rows] with kClasses, which leaves out_float unwritten; else null
  // Root term: a product of packed rows that is added to the scores, or null. Its addend and
  // outputs are null, and it excludes a head.
  const BmmArgs* root;
};

// Sets `*holds`: whether aggregate_narrow() applies the head itself.
BITGNN_KERNEL(pairs, suits_head, const NarrowCall& call, Head head, bool* holds);
BITGNN_KERNEL(pairs, aggregate_narrow, const NarrowCall& call);
// Bits of an aggregation of bits plus a product without addend. The sums' row_scale and bias apply;
// the comparison and the output are the product's.
BITGNN_KERNEL(pairs, aggregate_product, const AggregateArgs& sums, const bitgnn::BmmArgs& product);
BITGNN_KERNEL(pairs, aggregate_product_int8, const AggregateArgs& sums,
              const bitgnn::Int8BmmArgs& product);
BITGNN_KERNEL(pairs, aggregate_product_sliced, const SlicedArgs& sums,
              const bitgnn::BmmArgs& product);

}  // namespace bitgnn

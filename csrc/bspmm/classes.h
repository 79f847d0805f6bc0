// Arguments of aggregations that give the class of each row, the feature of its largest sum.
#pragma once

#include "bspmm/arguments.h"

namespace bitgnn {

// classes[i] = argmax_o v[i, o] of the sums' values v, with the ties and NaNs of torch.argmax: the
// first of equal ones, and the first NaN where there is one.
struct ClassesArgs {
  AggregateArgs sums;  // x_type is kBits; without values, thresholds and outputs; features > 0
  int64_t* classes;    // [rows]
};

BITGNN_KERNEL(bspmm, aggregate_classes, const ClassesArgs& args);

}  // namespace bitgnn

// Tables that the CPU kernels of graph attention look scores of the second kind up in.
#pragma once

#include <cstdint>

#include "gat/arguments.h"

namespace bitgnn::cpu {

constexpr int64_t kGatEntries = 256;

// The bits of one head in one byte of a row, and its integer sums for all values of the byte.
struct GatPart {
  int64_t byte;
  int64_t head;
  uint32_t alone[kGatEntries];
  uint32_t both[kGatEntries];
};

// Graph attention with its tables; none for scores of the first kind.
struct GatPlan : GatArgs {
  const GatPart* parts;
  int64_t num_parts;

  int64_t row_begin(int64_t row) const {
    return rowptr64 ? static_cast<const int64_t*>(rowptr)[row]
                    : static_cast<const int32_t*>(rowptr)[row];
  }
};

}  // namespace bitgnn::cpu

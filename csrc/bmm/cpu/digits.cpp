// CPU product of packed rows with weights split into three digits.
#include <algorithm>

#include "bmm/arguments.h"
#include "capabilities/cpu/kernel_table.h"
#include "core/cpu/backend.h"

namespace bitgnn::cpu {
namespace {

constexpr int64_t kLinearGrain = 1 << 15;  // table look-ups per thread

// Fills the tables with the digit sums of every four features for all 16 sign patterns; see
// digits_kernel.h.
void fill_tables(const BitsLinearArgs& a, int32_t* tables) {
  const int64_t words = words_for(a.size);
  const int64_t group = words * kLinearParts * kLinearEntries * kLinearTableLanes;
  for (int64_t o = 0; o < linear_groups(a.out_features) * kLinearOutputs; ++o) {
    int32_t* table = tables + o / kLinearOutputs * group + o % kLinearOutputs;
    for (int64_t part = 0; part < words * kLinearParts; ++part) {
      int32_t* entries = table + part * kLinearEntries * kLinearTableLanes;
      int32_t high[4] = {}, low[4] = {};
      for (int64_t b = 0; b < 4 && o < a.out_features; ++b) {
        const int64_t feature = part % kLinearParts * 4 + b;  // within the word
        const int64_t byte = feature % 8 * 4 + feature / 8;
        const auto digit = [&](int64_t d) {
          const int64_t place = (d * a.out_features + o) * words + part / kLinearParts;
          return static_cast<int32_t>(a.digits[place * kWordBits + byte]);
        };
        high[b] = digit(0);
        low[b] = 256 * digit(1) + digit(2);
      }
      for (int64_t pattern = 0; pattern < kLinearEntries; ++pattern) {
        int32_t sums[2] = {};
        for (int64_t b = 0; b < 4; ++b) {
          const int32_t sign = (pattern >> b & 1) != 0 ? 1 : -1;
          sums[0] += sign * high[b];
          sums[1] += sign * low[b];
        }
        entries[pattern * kLinearTableLanes] = sums[0];
        entries[pattern * kLinearTableLanes + kLinearOutputs] = sums[1];
      }
    }
  }
}

}  // namespace

void bits_linear(const BitsLinearArgs& a) {
  const int64_t parts = words_for(a.size) * kLinearParts;
  const int64_t groups = linear_groups(a.out_features);
  const Tensor tables =
      Backend::empty({groups, parts, kLinearEntries * kLinearTableLanes}, ScalarType::Int);
  auto* entries = static_cast<int32_t*>(tables.data_ptr());
  fill_tables(a, entries);
  split(a.rows, grain(parts * groups, kLinearGrain), kernels().bits_linear, a, entries);
}

}  // namespace bitgnn::cpu

// Transposes bit matrices on the CPU, in squares of 32 x 32 bits by recursive halving.
#include <algorithm>

#include "core/cpu/backend.h"
#include "pack/arguments.h"

namespace bitgnn::cpu {
namespace {

constexpr int64_t kTransposeGrain = 1 << 10;  // squares per thread
constexpr int64_t kSquares = 16;              // side by side, one lane each if vectors are wide

// Transposes squares; row r holds one word of each. The off-diagonal halves of every 2^k x 2^k
// block are swapped, from the largest blocks to single bits (Warren, Hacker's Delight, 7-3).
void transpose_squares(uint32_t (&rows)[kWordBits][kSquares]) {
  uint32_t mask = 0x0000ffffu;
  for (int64_t half = kWordBits / 2; half > 0; half /= 2, mask ^= mask << half) {
    for (int64_t r = 0; r < kWordBits; ++r) {
      if ((r & half) != 0) continue;
      for (int64_t s = 0; s < kSquares; ++s) {
        const uint32_t moved = ((rows[r][s] >> half) ^ rows[r + half][s]) & mask;
        rows[r + half][s] ^= moved;
        rows[r][s] ^= moved << half;
      }
    }
  }
}

}  // namespace

void transpose_bits(const int32_t* words, int64_t rows, int64_t size, int32_t* out) {
  const int64_t row_words = words_for(size), out_words = words_for(rows);
  split(out_words, grain(row_words, kTransposeGrain), [&](int64_t begin, int64_t end) {
    uint32_t squares[kWordBits][kSquares];
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * kWordBits, count = std::min(rows - first, kWordBits);
      for (int64_t w = 0; w < row_words; w += kSquares) {
        const int64_t wide = std::min(row_words - w, kSquares);
        std::fill(&squares[0][0], &squares[0][0] + kWordBits * kSquares, 0u);
        for (int64_t r = 0; r < count; ++r) {
          const int32_t* from = words + (first + r) * row_words + w;
          std::copy(from, from + wide, squares[r]);
        }
        transpose_squares(squares);
        for (int64_t s = 0; s < wide; ++s) {
          const int64_t feature = (w + s) * kWordBits;
          for (int64_t r = 0; r < std::min(size - feature, kWordBits); ++r)
            out[(feature + r) * out_words + block] = static_cast<int32_t>(squares[r][s]);
        }
      }
    }
  });
}

}  // namespace bitgnn::cpu

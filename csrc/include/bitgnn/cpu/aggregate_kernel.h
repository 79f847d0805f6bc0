// Aggregation of packed rows over a 0/1 pattern: sum of -1/+1 neighbours = 2 count - degree.
// Bound by the gathers of packed rows where the table exceeds the cache, else by the adders.
// Included once a capability, with BITGNN_ISA naming the namespace of its primitives.

#include "bitgnn/cpu/finish_kernel.h"

namespace bitgnn::cpu::BITGNN_ISA {
namespace {

// A vector whose set bits are the features that exist; keeps padding bits of a last word clear.
template <class B>
inline B valid_bits(int64_t features, int64_t first_word, int64_t words, typename B::Tail tail) {
  int32_t mask[B::kWords];
  for (int64_t w = 0; w < words; ++w) {
    const bool last = first_word + w == words_for(features) - 1;
    mask[w] = static_cast<int32_t>(last ? last_word_mask(features) : 0xffffffffu);
  }
  return B::load(mask, tail);
}

// Rows of few edges take a path of their own where the result is bits; where they are most, the
// rows of a tile are sorted by their edges, so that no branch depends on what no processor could
// foresee. Floats are bound by their stores, which hide the mispredicted branches.
struct CsrCounter {
  template <class B>
  static void run(const CsrArgs& a, int64_t first_word, int64_t words, int64_t begin, int64_t end) {
    const bool sorts =
        a.out_bits != nullptr && a.row_begin(end) - a.row_begin(begin) < kMostOfFew * (end - begin);
    sorts ? sorted<B>(a, first_word, words, begin, end)
          : in_order<B>(a, first_word, words, begin, end);
  }

 private:
  static constexpr int64_t kTileRows = 256;
  static constexpr int64_t kFewEdges = 3, kMoreEdges = 7;  // what two and three planes count
  static constexpr int64_t kMostOfFew = 8;  // edges a row: above, sorting costs more than it saves

  template <class B>
  static void in_order(const CsrArgs& a, int64_t first_word, int64_t words, int64_t begin,
                       int64_t end) {
    const Rows<B> rows(a, first_word, words, end);
    CountBounds<B> bounds;
    const int64_t few = a.out_bits != nullptr ? kMoreEdges : 0;
    for (int64_t row = begin; row < end; ++row) {
      const int64_t degree = a.row_begin(row + 1) - a.row_begin(row);
      degree > 0 && degree <= few ? rows.template few<3>(row, bounds) : rows.many(row, bounds);
    }
  }

  template <class B>
  static void sorted(const CsrArgs& a, int64_t first_word, int64_t words, int64_t begin,
                     int64_t end) {
    const Rows<B> rows(a, first_word, words, end);
    CountBounds<B> bounds;
    int64_t few[kTileRows], more[kTileRows], many[kTileRows];
    for (int64_t tile = begin; tile < end; tile += kTileRows) {
      const int64_t tile_end = end - tile < kTileRows ? end : tile + kTileRows;
      int64_t few_count = 0, more_count = 0, many_count = 0;
      int64_t e = a.row_begin(tile);
      for (int64_t row = tile; row < tile_end; ++row) {
        const int64_t next = a.row_begin(row + 1), degree = next - e;
        few[few_count] = more[more_count] = many[many_count] = row;
        few_count += (degree > 0) & (degree <= kFewEdges);
        more_count += (degree > kFewEdges) & (degree <= kMoreEdges);
        many_count += (degree == 0) | (degree > kMoreEdges);
        e = next;
      }
      for (int64_t i = 0; i < few_count; ++i) rows.template few<2>(few[i], bounds);
      for (int64_t i = 0; i < more_count; ++i) rows.template few<3>(more[i], bounds);
      for (int64_t i = 0; i < many_count; ++i) rows.many(many[i], bounds);
    }
  }

  template <class B>
  struct Rows {
    const CsrArgs& a;
    int64_t first_word, words;
    typename B::Tail tail;
    B valid;
    Neighbours<int32_t> n;
    int64_t prefetch_end;

    Rows(const CsrArgs& args, int64_t first, int64_t count, int64_t end)
        : a(args),
          first_word(first),
          words(count),
          tail(B::tail(count)),
          valid(valid_bits<B>(args.features, first, count, tail)),
          n{args.indices, args.x_bits + first, args.x_stride},
          prefetch_end(args.prefetch ? args.row_begin(end) : 0) {}

    template <int kPlanes>
    BITGNN_INLINE void few(int64_t row, CountBounds<B>& bounds) const {
      const int64_t e = a.row_begin(row), degree = a.row_begin(row + 1) - e;
      B planes[kPlanes];
      count_few_bits<kPlanes, B>(n, tail, e, degree, planes);
      finish_few<kPlanes, B>(a, row, degree, planes, first_word, words, tail, valid, bounds);
    }
    BITGNN_INLINE void many(int64_t row, CountBounds<B>& bounds) const {
      const int64_t e = a.row_begin(row), next = a.row_begin(row + 1);
      B planes[kMaxPlanes];
      const int count = count_bits<B>(n, tail, e, next, prefetch_end, planes);
      finish_planes<B>(a, row, next - e, planes, count, bounds.planes_for(next - e), first_word,
                       words, tail, valid, bounds);
    }
  };
};

// Calls Kernel::run with the vector type that fits each stretch of a row's words.
template <class Kernel, class Args>
void for_word_chunks(const Args& a, int64_t features, int64_t begin, int64_t end) {
  const int64_t total = words_for(features);
  for (int64_t first = 0; first < total;) {
    const int64_t left = total - first;
    if (left > 8) {
      const int64_t words = left < 16 ? left : 16;
      Kernel::template run<Bits16>(a, first, words, begin, end);
      first += words;
    } else if (left > 4) {
      Kernel::template run<Bits8>(a, first, left, begin, end);
      first = total;
    } else if (left > 2) {
      Kernel::template run<Bits4>(a, first, left, begin, end);
      first = total;
    } else {
      Kernel::template run<Bits2>(a, first, left, begin, end);
      first = total;
    }
  }
}

// Fetches a small table whole. Half of it was often just written by another core, and lines that
// arrive one by one as random neighbours ask for them would take longer than the aggregation.
inline void fetch_table(const CsrArgs& a) {
  if (a.prefetch) return;
  const char* table = a.x_bits != nullptr ? reinterpret_cast<const char*>(a.x_bits)
                                          : reinterpret_cast<const char*>(a.x_float);
  for (int64_t offset = 0; offset < a.x_bytes; offset += 64) prefetch(table + offset);
}

void aggregate_bits(const CsrArgs& a, int64_t begin, int64_t end) {
  fetch_table(a);
  for_word_chunks<CsrCounter>(a, a.features, begin, end);
  if (a.stream) stream_fence();
}

// Column blocks in turn over a tile of rows whose planes stay in cache; the counts of the blocks
// are added plane by plane, so the result is the one of plain CSR to the bit.
struct BlockedCounter {
  static constexpr int64_t kTileRows = 128;

  template <class B>
  static void run(const BlockedArgs& a, int64_t first_word, int64_t words, int64_t begin,
                  int64_t end) {
    const auto tail = B::tail(words);
    const B valid = valid_bits<B>(a.csr.features, first_word, words, tail);
    CountBounds<B> bounds;
    std::unique_ptr<B[]> totals(new B[kTileRows * kMaxPlanes]);
    for (int64_t tile = begin; tile < end; tile += kTileRows) {
      const int64_t tile_end = tile + kTileRows < end ? tile + kTileRows : end;
      int64_t degrees[kTileRows];
      for (int64_t row = tile; row < tile_end; ++row) {
        degrees[row - tile] = 0;
        for (int64_t b = 0; b < a.num_blocks; ++b)
          degrees[row - tile] += segment_end(a, b, row) - segment_begin(a, b, row);
        B* total = &totals[(row - tile) * kMaxPlanes];
        for (int p = 0; p < planes_of(degrees[row - tile]); ++p) total[p] = B::zero();
      }
      for (int64_t b = 0; b < a.num_blocks; ++b) {
        const Neighbours<uint16_t> n{a.local_indices,
                                     a.csr.x_bits + b * a.block_size * a.csr.x_stride + first_word,
                                     a.csr.x_stride};
        for (int64_t row = tile; row < tile_end; ++row) {
          B part[kMaxPlanes];
          const int64_t segment = segment_end(a, b, row);
          const int count =
              count_bits<B>(n, tail, segment_begin(a, b, row), segment, segment, part);
          add_planes(&totals[(row - tile) * kMaxPlanes], planes_of(degrees[row - tile]), part,
                     count);
        }
      }
      for (int64_t row = tile; row < tile_end; ++row)
        finish_planes<B>(a.csr, row, degrees[row - tile], &totals[(row - tile) * kMaxPlanes],
                         planes_of(degrees[row - tile]), bounds.planes_for(degrees[row - tile]),
                         first_word, words, tail, valid, bounds);
    }
  }

 private:
  static int planes_of(int64_t degree) { return bit_length(static_cast<uint64_t>(degree)); }
  static int64_t segment_begin(const BlockedArgs& a, int64_t block, int64_t row) {
    return a.csr.row_begin(block * a.num_rows + row);
  }
  static int64_t segment_end(const BlockedArgs& a, int64_t block, int64_t row) {
    return a.csr.row_begin(block * a.num_rows + row + 1);
  }
};

void aggregate_blocked(const BlockedArgs& a, int64_t begin, int64_t end) {
  for_word_chunks<BlockedCounter>(a, a.csr.features, begin, end);
  if (a.csr.stream) stream_fence();
}

}  // namespace
}  // namespace bitgnn::cpu::BITGNN_ISA

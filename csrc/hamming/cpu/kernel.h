// Finds the codes near to queries, compiled once per capability: bound by reading the codes for few
// queries, by their products for many.
#pragma once

#include "hamming/arguments.h"
#include "hamming/cpu/nearest.h"

namespace bitgnn::cpu::BITGNN_ISA {

constexpr int64_t kFewQueries = 2;        // up to here rows are compared as they lie
constexpr int64_t kPanelWords = 1 << 12;  // of panels that stay in a core's own cache

// Adds codes whose bits of `near` are set.
inline void add_near(uint32_t near, int64_t first, const int32_t* distances, Nearest& nearest) {
  for (; near != 0; near &= near - 1) {
    const int lane = __builtin_ctz(near);
    // A code added just now may have lowered the limit.
    if (distances[lane] < nearest.limit()) nearest.add(first + lane, distances[lane]);
  }
}

// Reads rows of codes one after the other.
inline void scan_rows(const HammingArgs& a, Nearest* nearest, int64_t query_begin,
                      int64_t query_end, int64_t begin, int64_t end) {
  const int64_t words = words_for(a.size);
  int32_t counts[kWordBits] = {};
  for (int64_t code = begin; code < end; code += kWordBits) {
    const int64_t count = end - code < kWordBits ? end - code : kWordBits;
    const uint32_t valid = count < kWordBits ? (1u << count) - 1u : 0xffffffffu;
    const int32_t* rows = a.codes + code * words;
    for (int64_t q = query_begin; q < query_end; ++q) {
      const int32_t* query = a.queries + q * words;
      int64_t c = 0;
      for (; c + kScanRows <= count; c += kScanRows)
        distances<kScanRows>(query, rows + c * words, words, counts + c);
      for (; c < count; ++c) distances<1>(query, rows + c * words, words, counts + c);
      const Lanes limit = broadcast_lanes(static_cast<float>(nearest[q - query_begin].limit() - 1));
      const uint32_t near = ge_mask(limit, to_lanes(load_ints(counts))) & valid;
      if (near != 0) add_near(near, code, counts, nearest[q - query_begin]);
    }
  }
}

template <int R>
inline void scan_panel(const HammingArgs& a, const int32_t* panel, int64_t first, uint32_t valid,
                       int64_t query, Nearest* nearest) {
  const int64_t words = words_for(a.size);
  const auto size = static_cast<int32_t>(a.size);
  const auto emit = [&](int r, int, const IntLanes& dots) {
    // distance < limit, where dot = size - 2 distance
    const auto least = static_cast<float>(size - 2 * nearest[r].limit() + 2);
    const uint32_t near = ge_mask(to_lanes(dots), broadcast_lanes(least)) & valid;
    if (near == 0) return;
    alignas(64) int32_t found[kWordBits];
    store_ints(found, dots);
    for (int32_t& value : found) value = (size - value) / 2;
    add_near(near, first, found, nearest[r]);
  };
  xor_dots<R, 1>(a.queries + query * words, words, panel, words, a.size, emit);
}

// Transposes blocks of codes to panels of 32, which all queries read.
inline void scan_panels(const HammingArgs& a, Nearest* nearest, int64_t query_begin,
                        int64_t query_end, int64_t begin, int64_t end) {
  const int64_t words = words_for(a.size);
  const int64_t panel_words = words * kWordBits;
  const int64_t most = words == 0 || panel_words >= kPanelWords ? 1 : kPanelWords / panel_words;
  const auto mask = static_cast<int32_t>(last_word_mask(a.size));
  std::vector<int32_t> panels(static_cast<size_t>(most * panel_words));
  for (int64_t block = begin; block < end; block += most * kWordBits) {
    const int64_t left = (end - block + kWordBits - 1) / kWordBits;
    const int64_t count = left < most ? left : most;
    for (int64_t p = 0; p < count; ++p) {
      const int64_t code = block + p * kWordBits;
      int32_t* panel = panels.data() + p * panel_words;
      transpose_lanes(a.codes + code * words, end - code < kWordBits ? end - code : kWordBits,
                      words, panel);
      for (int64_t l = panel_words - kWordBits; l >= 0 && l < panel_words; ++l) panel[l] &= mask;
    }
    const auto scan = [&](auto rows, int64_t q) {
      for (int64_t p = 0; p < count; ++p) {
        const int64_t code = block + p * kWordBits;
        const uint32_t valid = end - code < kWordBits ? (1u << (end - code)) - 1u : 0xffffffffu;
        scan_panel<decltype(rows)::value>(a, panels.data() + p * panel_words, code, valid, q,
                                          nearest + (q - query_begin));
      }
    };
    int64_t q = query_begin;
    for (; q + kTileRows <= query_end; q += kTileRows)
      scan(std::integral_constant<int, kTileRows>{}, q);
    for (; q < query_end; ++q) scan(std::integral_constant<int, 1>{}, q);
  }
}

// Adds codes [begin, end) to the nearest of queries [query_begin, query_end), whose padding bits
// are 0.
inline void scan_codes(const HammingArgs& a, Nearest* nearest, int64_t query_begin,
                       int64_t query_end, int64_t begin, int64_t end) {
  // Rows as they lie may have padding bits.
  const bool by_rows = query_end - query_begin <= kFewQueries && a.size % kWordBits == 0;
  (by_rows ? scan_rows : scan_panels)(a, nearest, query_begin, query_end, begin, end);
}

}  // namespace bitgnn::cpu::BITGNN_ISA

// Nearest codes on the CPU: threads share the queries or, for few of them, the codes.
#include <algorithm>
#include <vector>

#include "capabilities/cpu/kernel_table.h"
#include "core/cpu/backend.h"
#include "hamming/arguments.h"
#include "hamming/cpu/nearest.h"

namespace bitgnn::cpu {
namespace {

constexpr int64_t kQueryGroup = 256;               // queries that pass the codes together
constexpr int64_t kManyQueries = 4;                // of a thread, to share the queries
constexpr int64_t kLeastWords = int64_t{1} << 15;  // words of codes a thread reads at least

std::vector<Nearest> none_yet(const HammingArgs& a, int64_t count) {
  return std::vector<Nearest>(static_cast<size_t>(count), Nearest(a.size, a.k));
}

void write(const HammingArgs& a, const Nearest& nearest, int64_t query) {
  nearest.write(a.distances + query * a.k, a.indices + query * a.k);
}

// All codes by a range of queries.
void find_for_queries(const HammingArgs& a, int64_t begin, int64_t end) {
  for (int64_t first = begin; first < end; first += kQueryGroup) {
    const int64_t last = std::min(first + kQueryGroup, end);
    std::vector<Nearest> nearest = none_yet(a, last - first);
    kernels().scan_codes(a, nearest.data(), first, last, 0, a.num_codes);
    for (int64_t q = first; q < last; ++q) write(a, nearest[static_cast<size_t>(q - first)], q);
  }
}

// All queries by parts of the codes.
void find_in_parts(const HammingArgs& a, int64_t parts) {
  std::vector<std::vector<Nearest>> found(static_cast<size_t>(parts));
  const auto part_begin = [&](int64_t part) { return part * (a.num_codes / parts); };
  split(parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      auto& nearest = found[static_cast<size_t>(part)] = none_yet(a, a.num_queries);
      const int64_t last = part + 1 < parts ? part_begin(part + 1) : a.num_codes;
      kernels().scan_codes(a, nearest.data(), 0, a.num_queries, part_begin(part), last);
    }
  });
  for (int64_t q = 0; q < a.num_queries; ++q) {
    Nearest& nearest = found[0][static_cast<size_t>(q)];
    for (size_t part = 1; part < found.size(); ++part)
      nearest.add_all(found[part][static_cast<size_t>(q)]);
    write(a, nearest, q);
  }
}

}  // namespace

void hamming_topk(const HammingArgs& args) {
  const int64_t words = words_for(args.size);
  std::vector<int32_t> queries(args.queries, args.queries + args.num_queries * words);
  const auto mask = static_cast<int32_t>(last_word_mask(args.size));
  for (int64_t q = 1; q <= args.num_queries && words > 0; ++q)
    queries[static_cast<size_t>(q * words - 1)] &= mask;
  HammingArgs a = args;
  a.queries = queries.data();
  const int64_t threads = torch::stable::get_num_threads();
  const int64_t parts = std::min(threads, a.num_codes * std::max<int64_t>(words, 1) / kLeastWords);
  if (parts > 1 && a.num_queries < kManyQueries * threads) return find_in_parts(a, parts);
  split(a.num_queries, grain(a.num_codes * words, kLeastWords),
        [&](int64_t begin, int64_t end) { find_for_queries(a, begin, end); });
}

}  // namespace bitgnn::cpu

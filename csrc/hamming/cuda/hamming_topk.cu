// Nearest codes on CUDA: rounds over ever more codes, each of which adds those nearer than the k-th
// so far.
//
// A limit from the codes before lets a round of g times as many add about g k codes of a query, as
// long as near codes are spread evenly. Memory is bounded by rows of keys for a group of queries.
#include <algorithm>

#include "hamming/cuda/nearest.cuh"
#include "hamming/cuda/scan_popcounts.cuh"
#include "hamming/cuda/scan_products.cuh"
#include "hamming/cuda/take_nearest.cuh"

namespace bitgnn::cuda::hamming {
namespace {

constexpr int64_t kRowBytes = int64_t{1} << 28;  // of all rows of a group of queries
constexpr int64_t kLeastCapacity = 4096;
constexpr int64_t kMostGrowth = 16;  // of the codes of a round over all codes before
constexpr int64_t kBlocksPerSm = 2;
constexpr int64_t kMostCodes = int64_t{1} << 30;  // of a round, which are counted in 32 bits
constexpr int64_t kPairBytes = 8;

int64_t power_of_two(int64_t least) {
  int64_t power = 1;
  while (power < least) power *= 2;
  return power;
}

template <int kSteps, int kTiles>
cudaError_t launch_products(const Round& r, const Context& context) {
  const int64_t groups = ceil_div(r.num_queries, kTiles * kMmaRows);
  const int64_t query_warps = std::min<int64_t>(power_of_two(groups), kWarps);
  const int64_t codes = kWarps / query_warps * (kMostSteps / kSteps) * kMmaColumns;
  const int64_t rows = ceil_div(groups, query_warps);
  const int64_t most = std::max<int64_t>(1, context.device.sm_count * kBlocksPerSm / rows);
  const dim3 blocks(static_cast<unsigned>(std::min(ceil_div(r.end - r.begin, codes), most)),
                    static_cast<unsigned>(rows));
  const bool in_pairs =
      r.words % 2 == 0 && is_aligned(r.queries, kPairBytes) && is_aligned(r.codes, kPairBytes);
  scan_products<kSteps, kTiles>
      <<<blocks, kThreads, 0, context.stream>>>(r, static_cast<int>(query_warps), in_pairs);
  return cudaGetLastError();
}

template <int kSteps>
cudaError_t scan_in_steps(const Round& r, const Context& context) {
  return r.num_queries <= kMmaRows ? launch_products<kSteps, 1>(r, context)
                                   : launch_products<kSteps, kMostTiles / kSteps>(r, context);
}

cudaError_t scan(const Round& r, const Context& context) {
  if (context.device.has_bit_products() && r.words <= kMostSteps * kMmaWords) {
    if (r.words <= kMmaWords) return scan_in_steps<1>(r, context);
    if (r.words <= 2 * kMmaWords) return scan_in_steps<2>(r, context);
    return scan_in_steps<kMostSteps>(r, context);
  }
  const int64_t rows = ceil_div(r.num_queries, kScanQueries);
  const int64_t most = std::max<int64_t>(1, 8 * context.device.sm_count / rows);
  const dim3 blocks(static_cast<unsigned>(std::min(ceil_div(r.end - r.begin, kScanThreads), most)),
                    static_cast<unsigned>(rows));
  scan_popcounts<<<blocks, kScanThreads, 0, context.stream>>>(r);
  return cudaGetLastError();
}

// All rounds of a group of queries.
cudaError_t find(Round r, const HammingArgs& a, int32_t* distances, int64_t* indices,
                 const Context& context) {
  start_rows<<<static_cast<unsigned>(ceil_div(r.num_queries, kSortThreads)), kSortThreads, 0,
               context.stream>>>(r);
  cudaError_t status = cudaGetLastError();
  // A quarter of the room is filled where near codes are spread evenly.
  const int64_t growth =
      std::min(std::max<int64_t>((r.capacity - a.k) / (4 * a.k), 1), kMostGrowth);
  while (status == cudaSuccess && r.end < a.num_codes) {
    r.begin = r.end;
    r.held = std::min(a.k, r.begin);
    r.end = std::min(a.num_codes,
                     r.begin == 0 ? r.capacity : r.begin + std::min(growth * r.begin, kMostCodes));
    status = scan(r, context);
    if (status != cudaSuccess) return status;
    const bool is_last = r.end == a.num_codes;
    take_nearest<<<static_cast<unsigned>(r.num_queries), kSortThreads, 0, context.stream>>>(
        r, is_last ? distances : nullptr, indices);
    status = cudaGetLastError();
  }
  return status;
}

}  // namespace

cudaError_t hamming_topk(const HammingArgs& a, const Context& context) {
  Round r{};
  r.codes = a.codes;
  r.words = words_for(a.size);
  r.mask = last_word_mask(a.size);
  r.size = static_cast<int>(a.size);
  r.k = a.k;
  r.capacity = std::min(power_of_two(std::max(4 * a.k, kLeastCapacity)), power_of_two(a.num_codes));
  const auto row_bytes = static_cast<int64_t>(sizeof(Key)) * r.capacity;
  const int64_t group = std::min(std::max<int64_t>(kRowBytes / row_bytes, 1), a.num_queries);
  r.keys = static_cast<Key*>(context.workspace.take(static_cast<size_t>(group * row_bytes)));
  const size_t number_bytes = static_cast<size_t>(group) * sizeof(int32_t);
  r.added = static_cast<int32_t*>(context.workspace.take(number_bytes));
  r.limits = static_cast<int32_t*>(context.workspace.take(number_bytes));
  r.counts = static_cast<int32_t*>(context.workspace.take(number_bytes));
  for (int64_t first = 0; first < a.num_queries; first += group) {
    r.queries = a.queries + first * r.words;
    r.num_queries = std::min(group, a.num_queries - first);
    const cudaError_t status =
        find(r, a, a.distances + first * a.k, a.indices + first * a.k, context);
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

}  // namespace bitgnn::cuda::hamming

// Writes the table of bounds.cuh: a block looks for a row of its degree and tries every count.
#include "bspmm/cuda/bounds.cuh"
#include "bspmm/cuda/rows.cuh"
#include "core/cuda/dependent_launch.cuh"

namespace bitgnn::cuda::bspmm {
namespace {

constexpr int kBoundThreads = 256;
constexpr int kBoundWords = kBoundThreads / kWarp;  // of a block
constexpr int kSamples = 16;                        // rows that a thread looks at
constexpr int64_t kBoundRows = 1 << 13;             // rows from which the table pays
constexpr int64_t kMostBoundWords = 64;             // wider tables push rows out of L1
constexpr int64_t kNone = INT64_MAX;

// A row of the degree among runs of 32 rows spread over the graph: sorted rows have all degrees
// among them, too. Kept in `found`, which is shared; kNone if there is none.
__device__ __forceinline__ void find_row(const AggregateArgs& a, int degree,
                                         unsigned long long* found) {
  constexpr int kRuns = kSamples * kBoundThreads / kWarp;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp;
  const int64_t span = max(a.rows / kRuns, int64_t{kWarp});
  int64_t least = kNone;
#pragma unroll
  for (int i = 0; i < kSamples; ++i) {
    const int64_t row = (thread / kWarp + int64_t{i} * kBoundWords) * span + lane;
    const bool is_one =
        row < a.rows && row_pointer(a, row + 1) - row_pointer(a, row) == int64_t{degree};
    if (is_one) least = min(least, row);
  }
  if (least != kNone) atomicMin(found, static_cast<unsigned long long>(least));
}

// blockIdx.x is the degree.
__global__ void __launch_bounds__(kBoundThreads)
    bounds_kernel(const __grid_constant__ AggregateArgs a, int pitch, uint32_t* planes,
                  BoundFactor* factors) {
  __shared__ unsigned long long found;
  const int degree = static_cast<int>(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp;
  if (thread == 0) found = static_cast<unsigned long long>(kNone);
  let_next_start();
  wait_for_previous();
  float scale = 1.0f;
  bool known = true;
  if (a.row_scale != nullptr) {
    __syncthreads();
    find_row(a, degree, &found);
    __syncthreads();
    known = static_cast<int64_t>(found) != kNone;
    if (known) scale = a.row_scale[found];
  }
  for (int base = 0; known && base < pitch; base += kBoundWords) {
    const int word = base + thread / kWarp;
    const int64_t feature = word * kWordBits + lane;
    const bool exists = feature < a.features;
    const float bias = exists && a.bias != nullptr ? a.bias[feature] : -0.0f;
    const float threshold = exists && a.threshold != nullptr ? a.threshold[feature] : 0.0f;
    int clear = 0, changes = 0;
    bool first = false, before = false;
#pragma unroll 8
    for (int count = 0; count <= degree; ++count) {
      const float value = __fadd_rn(__fmul_rn(scale, static_cast<float>(2 * count - degree)), bias);
      const bool bit = value >= threshold;
      if (count == 0) first = before = bit;
      clear += bit ? 0 : 1;
      changes += bit != before ? 1 : 0;
      before = bit;
    }
    // "Never" is the inverse of "always", whose bound is 0: no bound exceeds the degree.
    const bool inverse = changes == 0 ? !first : first;
    const int bound = changes == 0 ? 0 : first ? degree + 1 - clear : clear;
    if (__syncthreads_or(exists && changes > 1)) known = false;
    const uint32_t inverses = __ballot_sync(kFullWarp, inverse);
    uint32_t* record = planes + degree * kBoundRecord * pitch + word;
#pragma unroll
    for (int p = 0; p < kBoundPlanes; ++p) {
      const uint32_t plane = __ballot_sync(kFullWarp, ((bound >> p) & 1) == 0);
      if (lane == p && word < pitch) record[p * pitch] = plane;
    }
    if (lane == kBoundPlanes && word < pitch) record[kBoundPlanes * pitch] = inverses;
  }
  if (thread == 0) factors[degree] = {__float_as_uint(scale), known ? 1u : 0u};
}

}  // namespace

cudaError_t make_bounds(const AggregateArgs& a, const Context& context, BoundTable& table) {
  table = {};
  if (a.out_bits == nullptr || (a.threshold == nullptr && a.bias == nullptr)) return cudaSuccess;
  if (a.rows < kBoundRows || a.features == 0) return cudaSuccess;
  constexpr int kUnit = 4;  // words of the widest access
  const int64_t pitch = ceil_div(words_for(a.features), kUnit) * kUnit;
  if (pitch > kMostBoundWords) return cudaSuccess;
  const int64_t words = kBoundDegrees * kBoundRecord * pitch;
  auto* planes = static_cast<uint32_t*>(context.workspace.take(
      static_cast<size_t>(words) * sizeof(uint32_t) + kBoundDegrees * sizeof(BoundFactor)));
  auto* factors = reinterpret_cast<BoundFactor*>(planes + words);
  table = {planes, factors, static_cast<int>(pitch)};
  return launch_dependent(bounds_kernel, dim3(kBoundDegrees), kBoundThreads, 0, context, a,
                          table.pitch, planes, factors);
}

}  // namespace bitgnn::cuda::bspmm

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

// A factor of degrees as BitAdjacency normalises them: 1 / d or d^-1/2, rounded as there, 0 for 0.
template <bool kRoot>
__device__ __forceinline__ float degree_factor(int degree) {
  if (degree == 0) return 0.0f;
  if constexpr (kRoot) return __frcp_rn(__double2float_rn(__dsqrt_rn(degree)));
  return __frcp_rn(static_cast<float>(degree));
}

// The row of the degree with the least index among runs of 32 rows spread over the graph: sorted
// rows have all degrees among them, too. Kept in `found`, which is shared; kNone if there is none.
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

// The factor of a degree, and whether it is known. Where the first rows have a normalisation's
// factors, it is that one's: nothing waits for a search. All threads participate.
__device__ __forceinline__ bool find_factor(const AggregateArgs& a, int degree, float* scale) {
  __shared__ unsigned long long found;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp;
  if (thread == 0) found = static_cast<unsigned long long>(kNone);
  // Every warp looks at the same rows: there are more than it has lanes.
  const float given = __ldg(a.row_scale + lane);
  const auto own = static_cast<int>(row_pointer(a, lane + 1) - row_pointer(a, lane));
  constexpr int kMost = 3 * kWarp / 4;
  if (__popc(__ballot_sync(kFullWarp, given == degree_factor<false>(own))) >= kMost) {
    *scale = degree_factor<false>(degree);
    return true;
  }
  if (__popc(__ballot_sync(kFullWarp, given == degree_factor<true>(own))) >= kMost) {
    *scale = degree_factor<true>(degree);
    return true;
  }
  __syncthreads();
  find_row(a, degree, &found);
  __syncthreads();
  if (static_cast<int64_t>(found) == kNone) return false;
  *scale = a.row_scale[found];
  return true;
}

// blockIdx.x is the degree.
__global__ void __launch_bounds__(kBoundThreads)
    bounds_kernel(const __grid_constant__ AggregateArgs a, int pitch, uint32_t* planes,
                  BoundFactor* factors) {
  const int degree = static_cast<int>(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp;
  let_next_start();
  wait_for_previous();
  float bias = -0.0f, threshold = 0.0f;
  const auto load = [&](int base) {
    const int64_t feature = (base + thread / kWarp) * kWordBits + lane;
    bias = feature < a.features && a.bias != nullptr ? __ldg(a.bias + feature) : -0.0f;
    threshold =
        feature < a.features && a.threshold != nullptr ? __ldg(a.threshold + feature) : 0.0f;
  };
  load(0);
  float scale = 1.0f;
  bool known = a.row_scale == nullptr || find_factor(a, degree, &scale);
  // Rows read the planes of their degree along with whether it is known: all are written.
  for (int base = 0; base < pitch; base += kBoundWords) {
    const int word = base + thread / kWarp;
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
    if (__syncthreads_or(changes > 1)) known = false;
    const uint32_t inverses = __ballot_sync(kFullWarp, inverse);
    uint32_t* record = planes + degree * kBoundRecord * pitch + word;
#pragma unroll
    for (int p = 0; p < kBoundPlanes; ++p) {
      const uint32_t plane = __ballot_sync(kFullWarp, ((bound >> p) & 1) == 0);
      if (lane == p && word < pitch) record[p * pitch] = plane;
    }
    if (lane == kBoundPlanes && word < pitch) record[kBoundPlanes * pitch] = inverses;
    load(base + kBoundWords);
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

// Sums of packed neighbours plus a product of packed rows, compared with a threshold, in one
// launch.
//
// A block first counts the neighbours of its rows as aggregate_rows does, but leaves the bit planes
// of the counts in shared memory; then its warps multiply slabs of 16 of the same rows with the
// weights on tensor cores and add the sums in the epilogue. Neither term ever reaches memory. Hubs,
// whose counts take more planes, are finished one by one at the end. Bound by the gathers and the
// arithmetic of the epilogue.
#pragma once

#include "bitgnn/cuda/aggregate_bits.cuh"
#include "bitgnn/cuda/bmm_tall.cuh"

namespace bitgnn::cuda {

constexpr int kJoinColumns = 64;  // outputs of a warp's pass over a slab
constexpr int kJoinWords = kJoinColumns / static_cast<int>(kWordBits);

// What a row's sum contributes to its outputs.
struct JoinRow {
  int degree;
  float scale;  // 1 if there is none
  int planes;   // that its counts take, 0 for hubs
};

// Shared memory of a block, in bytes from its start; the launcher and the kernel agree on it here.
struct JoinPlan {
  TallPlan product;  // of rows and weights
  size_t sum_bias;   // float [features]
  size_t weights;    // [features, w_pitch] words
  size_t slabs;      // [kRows / 16] slabs of x
  size_t planes;     // [kRows, Shape::kPitch] words
  size_t bytes;      // in all
};

constexpr int most_of(int a, int b) { return a > b ? a : b; }
constexpr int log2_of(int n) { return n <= 1 ? 0 : 1 + log2_of(n / 2); }

// How a block stages the planes of its rows: plane p of word w of row r at r * kPitch +
// p * kRowWords + w. The pitch spreads rows over the banks.
template <class Source, class Short, int kWords, int kSplits, int kColumns>
struct JoinShape {
  static constexpr int kRowWords = kWords * kColumns;
  static constexpr int kFeatures = kRowWords * static_cast<int>(kWordBits);
  static constexpr int kShortPlanes =
      sum_planes<Source, Short::kUnits, Short::kPlanes>() + log2_of(kSplits);
  static constexpr int kLongRowPlanes =
      sum_planes<Source, kLongUnits, kLongPlanes>() + log2_of(kWarp / kColumns);
  static constexpr int kPlanes = most_of(kShortPlanes, kLongRowPlanes);
  static constexpr int kPitch = (kPlanes * kRowWords + 7) / 8 * 8 + 4;
  static_assert(kPlanes <= 16, "two bytes hold a count");
};

template <class Shape, int kRows>
JoinPlan plan_join(const BmmArgs& p) {
  JoinPlan plan{};
  plan.product.words = static_cast<int>(words_for(p.size));
  plan.product.steps = static_cast<int>(ceil_div(plan.product.words, kMmaWords));
  plan.product.passes = Shape::kFeatures / kJoinColumns;
  plan.product.w_pitch = tile_pitch(plan.product.steps * kMmaWords);
  plan.product.slabs = ceil_div(p.rows, kTallRows);
  size_t at = plan.product.passes * sizeof(ColumnTable<kJoinColumns>);
  const auto take = [&at](size_t bytes) {
    const size_t start = at;
    at += (bytes + 15) / 16 * 16;
    return start;
  };
  plan.sum_bias = take(Shape::kFeatures * sizeof(float));
  plan.weights = take(size_t{Shape::kFeatures} * plan.product.w_pitch * sizeof(uint32_t));
  plan.slabs = take(size_t{kRows} * plan.product.words * sizeof(uint32_t));
  plan.planes = take(size_t{kRows} * Shape::kPitch * sizeof(uint32_t));
  plan.bytes = at;
  return plan;
}

// Counts of a lane's columns of 64, a byte each: byte j of [half, word, e] is that of row
// g + 8 * half and column 32 * word + 8 * j + 2 * q + e.
using JoinBytes = uint32_t[2][2][2];

// Adds up planes [first, end), at most eight, of two words; `rows` are those of g and g + 8.
__device__ __forceinline__ void add_planes(JoinBytes& bytes, const uint32_t* const (&rows)[2],
                                           int first, int end, int row_words, int quad) {
  constexpr uint32_t kLowest = 0x01010101u;
  uint32_t weight = 1;
  for (int p = first; p < end; ++p, weight *= 2) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint2 pair = *reinterpret_cast<const uint2*>(rows[half] + p * row_words);
#pragma unroll
      for (int word = 0; word < 2; ++word) {
        const uint32_t plane = (word == 0 ? pair.x : pair.y) >> (2 * quad);
#pragma unroll
        for (int e = 0; e < 2; ++e) bytes[half][word][e] += (plane >> e & kLowest) * weight;
      }
    }
  }
}

// Byte `j` as float32: the mantissa of 2^23 + byte, less 2^23.
__device__ __forceinline__ float float_of_byte(uint32_t bytes, int j) {
  constexpr uint32_t kBase = 0x4b000000u;
  return __fadd_rn(__uint_as_float(__byte_perm(bytes, kBase, 0x7440 | j)), -8388608.0f);
}

// Bits of a lane for 64 columns, as value_bits() gives them, of product + row's sum.
template <bool kHigh>
__device__ __forceinline__ uint32_t join_bits(const ColumnTable<kJoinColumns>& table,
                                              const float* sum_bias, const SlabRows& rows,
                                              const JoinRow (&joined)[2], const JoinBytes& low,
                                              const JoinBytes& high,
                                              const int32_t (&sum)[kJoinColumns / 2], int quad) {
  const float degrees[2] = {__int2float_rn(joined[0].degree), __int2float_rn(joined[1].degree)};
  uint32_t bits = 0;
#pragma unroll
  for (int j = 0; j < kJoinColumns / 8; ++j) {
    const int at = j * 8 + quad * 2;
    const int2 terms = *reinterpret_cast<const int2*>(table.term + at);
    const float2 scales = *reinterpret_cast<const float2*>(table.scale + at);
    const float2 biases = *reinterpret_cast<const float2*>(table.bias + at);
    const float2 thresholds = *reinterpret_cast<const float2*>(table.threshold + at);
    const float2 added = *reinterpret_cast<const float2*>(sum_bias + at);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const bool even = e == 0;
        const int32_t dot =
            4 * sum[j * 4 + half * 2 + e] + ((even ? terms.x : terms.y) + rows.term[half]);
        float count = float_of_byte(low[half][j / 4][e], j % 4);
        if constexpr (kHigh)
          count = __fmaf_rn(256.0f, float_of_byte(high[half][j / 4][e], j % 4), count);
        // Exact: counts and degrees are small integers.
        const float total = __fmaf_rn(2.0f, count, -degrees[half]);
        const float addend =
            __fadd_rn(__fmul_rn(joined[half].scale, total), even ? added.x : added.y);
        const float v = __fadd_rn(slab_value(rows.scale[half], even ? scales.x : scales.y,
                                             even ? biases.x : biases.y, dot),
                                  addend);
        if (v >= (even ? thresholds.x : thresholds.y)) bits |= 1u << (16 * half + 2 * j + e);
      }
    }
  }
  return bits;
}

// Folded planes of the lane's row, zeros above them.
template <class Shape, class Lanes, int kPlanes>
__device__ __forceinline__ void stage_planes(const Lanes& lanes,
                                             const CountPlanes<Lanes::kKept, kPlanes>& planes,
                                             bool wanted, int slot, uint32_t* staged) {
  static_assert(kPlanes <= Shape::kPlanes, "all planes have a place");
  if (!wanted || !lanes.owns_words()) return;
  constexpr uint32_t kZeros[Lanes::kKept] = {};
  uint32_t* to = staged + slot * Shape::kPitch + lanes.kept_word();
#pragma unroll
  for (int p = 0; p < Shape::kPlanes; ++p) {
    if (p < kPlanes) {
      store_words<Lanes::kKept>(to + p * Shape::kRowWords, planes.plane[p]);
    } else {
      store_words<Lanes::kKept>(to + p * Shape::kRowWords, kZeros);
    }
  }
}

// A block's share is kRows rows and, by blockIdx.y, as many features as Lanes has words for; Source
// is as for aggregate_rows.
template <class Source, class Short, int kWords, int kSplits, int kColumns, int kRows>
__global__ void __launch_bounds__(Short::kThreads, Short::kBlocks)
    aggregate_product(const __grid_constant__ Source source,
                      const __grid_constant__ AggregateArgs a,
                      const __grid_constant__ BmmArgs whole,
                      const __grid_constant__ JoinPlan plan) {
  using Lanes = RowLanes<kWords, kSplits, kColumns>;
  using LongLanes = RowLanes<kWords, kWarp / kColumns, kColumns>;
  using Shape = JoinShape<Source, Short, kWords, kSplits, kColumns>;
  constexpr int kFeatures = Shape::kFeatures;
  constexpr int kHubUnits = kLongUnits / 2 * (kWarp / kColumns);
  constexpr int kRowWarps = Short::kThreads / kWarp;
  constexpr int kPassRows = kRowWarps * Lanes::kRows;
  static_assert(kRows % kPassRows == 0 || kPassRows % kRows == 0, "whole passes");
  extern __shared__ __align__(16) uint32_t memory[];
  __shared__ RowExtent list[kRows];
  __shared__ int16_t list_rows[kRows];
  __shared__ JoinRow joined[kRows];
  __shared__ int num_long, num_hubs;
  __shared__ int hub_counts[kFeatures];
  auto* tables = reinterpret_cast<ColumnTable<kJoinColumns>*>(memory);
  auto* const bytes = reinterpret_cast<unsigned char*>(memory);
  auto* sum_bias = reinterpret_cast<float*>(bytes + plan.sum_bias);
  auto* weights = reinterpret_cast<uint32_t*>(bytes + plan.weights);
  auto* slabs = reinterpret_cast<uint32_t*>(bytes + plan.slabs);
  auto* staged = reinterpret_cast<uint32_t*>(bytes + plan.planes);
  const int thread = threadIdx.x, warp = thread / kWarp;
  const Lanes lanes(thread % kWarp);
  const int64_t chunk = static_cast<int64_t>(blockIdx.y) * Lanes::kRowWords;
  const int64_t first_feature = chunk * kWordBits;
  const int64_t block_row = static_cast<int64_t>(blockIdx.x) * kRows;
  BmmArgs p = whole;
  p.w += first_feature * plan.product.words;
  p.out_features = min(int64_t{kFeatures}, whole.out_features - first_feature);
  if (p.out_scale != nullptr) p.out_scale += first_feature;
  if (p.bias != nullptr) p.bias += first_feature;
  if (p.threshold != nullptr) p.threshold += first_feature;
  if (p.flip != nullptr) p.flip += first_feature;

  if (thread == 0) num_long = num_hubs = 0;
  let_next_start();
  wait_for_previous();
  // The product's operands arrive while neighbours are counted.
  load_weights(weights, p, plan.product);
  for (int s = warp; s < kRows / kTallRows; s += kRowWarps)
    load_slab(slabs + s * kTallRows * plan.product.words, p, plan.product,
              block_row / kTallRows + s, lanes.lane);
  for (int o = thread; o < kFeatures; o += Short::kThreads) {
    share_column<BmmOutput::kBits>(tables[o / kJoinColumns], o % kJoinColumns,
                                   load_column<BmmOutput::kBits>(p, o));
    sum_bias[o] = a.bias != nullptr && o < p.out_features ? a.bias[first_feature + o] : -0.0f;
  }
  __syncthreads();

#pragma unroll 1
  for (int first = warp * Lanes::kRows; first < kRows; first += kPassRows) {
    const int slot = first + lanes.row();
    const int64_t row = block_row + slot;
    const bool exists = row < a.rows;
    const RowExtent extent = exists ? source.extent(row) : RowExtent{0, 0, 0};
    const bool is_short = extent.units <= Short::kUnits * kSplits;
    CountPlanes<kWords, sum_planes<Source, Short::kUnits, Short::kPlanes>()> planes;
    planes.clear();
    if (is_short && chunk + lanes.word() < words_for(a.features))
      source.template count<Short::kBatch>(planes, extent, lanes.split(), extent.units, kSplits,
                                           chunk + lanes.word());
    stage_planes<Shape>(lanes, lanes.fold(planes), is_short, slot, staged);
    if (lanes.is_first_of_row()) {
      const int needed = extent.units > kHubUnits ? 0 : kWarp - __clz(extent.degree);
      joined[slot] = {extent.degree, exists && a.row_scale != nullptr ? a.row_scale[row] : 1.0f,
                      needed};
      if (!is_short) {
        // Long rows fill the list from the front, hubs from the back.
        const bool hub = extent.units > kHubUnits;
        const int entry = atomicAdd(hub ? &num_hubs : &num_long, 1);
        const int place = hub ? kRows - 1 - entry : entry;
        list[place] = extent;
        list_rows[place] = static_cast<int16_t>(slot);
      }
    }
  }
  asm volatile("cp.async.wait_all;\n" ::: "memory");
  __syncthreads();
  for (int o = thread; o < p.out_features; o += Short::kThreads) {
    int32_t count = 0;
    for (int word = 0; word < plan.product.steps * kMmaWords; word += 4) {
      const uint4 v = *reinterpret_cast<const uint4*>(weights + o * plan.product.w_pitch + word);
      count += __popc(v.x) + __popc(v.y) + __popc(v.z) + __popc(v.w);
    }
    tables[o / kJoinColumns].term[o % kJoinColumns] = column_term<BmmOutput::kBits>(count);
  }
  for (int i = warp; i < num_long; i += kRowWarps) {
    const LongLanes of_row(lanes.lane);
    CountPlanes<kWords, sum_planes<Source, kLongUnits, kLongPlanes>()> planes;
    planes.clear();
    if (chunk + of_row.word() < words_for(a.features))
      source.template count<Short::kBatch>(planes, list[i], of_row.split(), list[i].units,
                                           LongLanes::kSplits, chunk + of_row.word());
    stage_planes<Shape>(of_row, of_row.fold(planes), true, list_rows[i], staged);
  }
  __syncthreads();

  const int group = fragment_group(lanes.lane), quad = fragment_quad(lanes.lane);
  const uint32_t w = column_fragments_address(weights, plan.product.w_pitch, lanes.lane);
  const int64_t output_pitch = words_for(whole.out_features);
#pragma unroll 1
  for (int unit = warp; unit < kRows / kTallRows * (kFeatures / kJoinColumns); unit += kRowWarps) {
    const int slab = unit % (kRows / kTallRows), pass = unit / (kRows / kTallRows);
    const int64_t row = block_row + slab * kTallRows;
    if (row >= whole.rows) continue;
    int32_t sum[kJoinColumns / 2] = {};
    int32_t row_counts[4] = {};
    multiply_slab<kJoinColumns>(
        sum, row_counts, true, plan.product, slabs + slab * kTallRows * plan.product.words,
        w + static_cast<uint32_t>(pass * kJoinColumns * plan.product.w_pitch) * sizeof(uint32_t),
        lanes.lane);
    SlabRows rows;
    load_row_scales(rows, p, row, lanes.lane);
    set_row_terms<BmmOutput::kBits>(rows, p, row_counts[0], row_counts[2]);
    const int slot = slab * kTallRows + group;
    const JoinRow of_rows[2] = {joined[slot], joined[slot + 8]};
    const uint32_t* low_row = staged + slot * Shape::kPitch + pass * kJoinWords;
    const uint32_t* const of_planes[2] = {low_row, low_row + 8 * Shape::kPitch};
    const int planes = __reduce_max_sync(kFullWarp, max(of_rows[0].planes, of_rows[1].planes));
    JoinBytes low{}, high{};
    add_planes(low, of_planes, 0, min(planes, 8), Shape::kRowWords, quad);
    uint32_t bits;
    if (planes <= 8) {
      bits = join_bits<false>(tables[pass], sum_bias + pass * kJoinColumns, rows, of_rows, low,
                              high, sum, quad);
    } else {
      add_planes(high, of_planes, 8, planes, Shape::kRowWords, quad);
      bits = join_bits<true>(tables[pass], sum_bias + pass * kJoinColumns, rows, of_rows, low, high,
                             sum, quad);
    }
    const SlabTarget target{whole.out_bits + row * output_pitch + chunk + pass * kJoinWords,
                            output_pitch,
                            whole.rows - row,
                            p.out_features - pass * kJoinColumns,
                            nullptr,
                            0};
    store_words<2>(target, tables[pass], gather_words(bits, 0, quad), 0, lanes.lane);
  }

  for (int i = kRows - num_hubs; i < kRows; ++i) {
    count_hub<Short::kBatch, kWords, kColumns, Short::kThreads>(source, a, list[i], hub_counts,
                                                                chunk);
    const int slot = list_rows[i];
    const int64_t row = block_row + slot;
    const float row_scale = p.row_scale != nullptr ? p.row_scale[row] : 1.0f;
    const uint32_t* x = slabs + slot * plan.product.words;
    for (int o = thread; o < kFeatures; o += Short::kThreads) {
      const auto& table = tables[o / kJoinColumns];
      const int at = o % kJoinColumns;
      int32_t differing = 0;
      for (int word = 0; word < plan.product.words; ++word)
        differing += __popc(x[word] ^ weights[o * plan.product.w_pitch + word]);
      const auto dot = static_cast<int32_t>(p.size) - 2 * differing;
      const float total = __int2float_rn(2 * hub_counts[o] - joined[slot].degree);
      const float addend = __fadd_rn(__fmul_rn(joined[slot].scale, total), sum_bias[o]);
      const float v =
          __fadd_rn(slab_value(row_scale, table.scale[at], table.bias[at], dot), addend);
      const uint32_t bits = __ballot_sync(kFullWarp, v >= table.threshold[at]);
      if (lanes.lane == 0 && o < p.out_features)
        whole.out_bits[row * output_pitch + chunk + o / kWarp] =
            static_cast<int32_t>((bits ^ table.flip[at / kWarp]) & table.exists[at / kWarp]);
    }
    __syncthreads();
  }
}

// Launches enough blocks for all rows and words; cudaErrorInvalidConfiguration where the weights do
// not fit shared memory.
template <class Short, int kWords, int kSplits, int kColumns, int kRows, class Source>
cudaError_t launch_join(const Source& source, const AggregateArgs& a, const BmmArgs& p,
                        const Context& context) {
  const JoinPlan plan = plan_join<JoinShape<Source, Short, kWords, kSplits, kColumns>, kRows>(p);
  const auto kernel = aggregate_product<Source, Short, kWords, kSplits, kColumns, kRows>;
  const cudaError_t status = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(plan.bytes));
  if (status != cudaSuccess) return status;
  const dim3 grid(grid_size(ceil_div(a.rows, kRows)),
                  grid_size(ceil_div(words_for(a.features), kWords * kColumns)));
  return launch_dependent(kernel, grid, Short::kThreads, plan.bytes, context, source, a, p, plan);
}

}  // namespace bitgnn::cuda

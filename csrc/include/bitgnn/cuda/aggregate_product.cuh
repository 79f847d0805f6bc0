// Sums of packed neighbours plus a product of packed rows, compared with a threshold, in one
// launch.
//
// The weights stay in shared memory and every warp takes slabs of 16 rows of its own: it counts
// their neighbours as aggregate_rows does, but leaves the bit planes of the counts in shared
// memory, multiplies the same rows with the weights on tensor cores and adds the sums in the
// epilogue. Neither term ever reaches memory. Hubs, whose counts take more planes, are left to the
// first blocks, which look for them. Bound by the gathers and the arithmetic of the epilogue.
#pragma once

#include "bitgnn/cuda/aggregate_bits.cuh"
#include "bitgnn/cuda/bmm_tall.cuh"
#include "bitgnn/cuda/shared_memory.h"

namespace bitgnn::cuda {

constexpr int kJoinColumns = 64;  // outputs of a warp's pass over a slab
constexpr int kJoinWords = kJoinColumns / static_cast<int>(kWordBits);

// What a row's sum contributes to its outputs.
struct JoinRow {
  int degree;   // negative for rows that are left to others or do not exist
  float scale;  // 1 if there is none
  int planes;   // that its counts take
};

// Shared memory of a block, in bytes from its start; the launcher and the kernel agree on it here.
struct JoinPlan {
  TallPlan product;   // of rows and weights
  size_t sum_bias;    // float [features]
  size_t weights;     // [features, w_pitch] words
  size_t warps;       // what each warp has for itself, `warp_bytes` of it:
  size_t warp_bytes;  // its slab of x, planes [16, Shape::kPitch] and JoinRow [16]
  size_t bytes;       // in all
  unsigned hub_blocks;
};

constexpr int most_of(int a, int b) { return a > b ? a : b; }
constexpr int log2_of(int n) { return n <= 1 ? 0 : 1 + log2_of(n / 2); }

// How a warp stages the planes of its rows: plane p of word w of row r at r * kPitch +
// p * kRowWords + w. The pitch spreads rows over the banks. Rows of at most kUnits * kSplits units
// are counted by the lanes that share them, longer ones by the whole warp.
template <class Source, class Short, int kWords, int kSplits, int kColumns, int kMostPlanes>
struct JoinShape {
  using Lanes = RowLanes<kWords, kSplits, kColumns>;
  using LongLanes = RowLanes<kWords, kWarp / kColumns, kColumns>;
  static constexpr int kRowWords = kWords * kColumns;
  static constexpr int kFeatures = kRowWords * static_cast<int>(kWordBits);
  static constexpr int kCounted = sum_planes<Source, Short::kUnits, Short::kPlanes>();
  static constexpr int kCountedLong = sum_planes<Source, kLongUnits, kLongPlanes>();
  static constexpr int kShortPlanes = kCounted + log2_of(kSplits);
  static constexpr int kPlanes =
      kMostPlanes > 0 ? kMostPlanes
                      : most_of(kShortPlanes, kCountedLong + log2_of(kWarp / kColumns));
  static constexpr int kPitch = (kPlanes * kRowWords + 7) / 8 * 8 + 4;
  static constexpr int kShortUnits = Short::kUnits * kSplits;
  static constexpr int kHubUnits = kLongUnits / 2 * (kWarp / kColumns);
  static constexpr int kMaxShort = kShortUnits * ((1 << Source::kUnitPlanes) - 1);
  static_assert(kPlanes <= 16 && kMaxShort < 1 << kPlanes, "the planes hold the counts");
  static_assert(kTallRows % Lanes::kRows == 0, "whole passes");

  __device__ static bool is_hub(const RowExtent& extent) {
    return extent.units > kShortUnits &&
           (extent.units > kHubUnits || kWarp - __clz(extent.degree) > kPlanes);
  }
};

template <class Shape, int kThreads>
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
  const size_t row_words = static_cast<size_t>(plan.product.words) + Shape::kPitch;
  plan.warp_bytes = kTallRows * (row_words * sizeof(uint32_t) + sizeof(JoinRow));
  plan.warps = take(plan.warp_bytes * (kThreads / kWarp));
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
  // Planes beyond the shape's are zeros.
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

// Writes two words of each row of a slab but of those that others do: lane q of a quad has words of
// row g + 8 * q.
__device__ __forceinline__ void store_joined(const ColumnTable<kJoinColumns>& table, uint2 words,
                                             const JoinRow* joined, int32_t* to, int64_t pitch,
                                             int64_t columns, int lane) {
  const int row = fragment_group(lane) + fragment_quad(lane) * 8;
  if (fragment_quad(lane) > 1 || columns <= 0 || joined[row].degree < 0) return;
  const uint32_t x = (words.x ^ table.flip[0]) & table.exists[0];
  const uint32_t y = (words.y ^ table.flip[1]) & table.exists[1];
  to += row * pitch;
  if ((pitch & 1) == 0) {
    *reinterpret_cast<uint2*>(to) = make_uint2(x, y);
  } else {
    to[0] = static_cast<int32_t>(x);
    if (columns > kWordBits) to[1] = static_cast<int32_t>(y);
  }
}

// Counts and stages the rows of a slab from `first_row` on.
template <class Shape, class Short, class Source>
__device__ __forceinline__ void count_slab(const Source& source, const AggregateArgs& a,
                                           int64_t first_row, int64_t chunk, uint32_t* staged,
                                           JoinRow* joined, int lane) {
  using Lanes = typename Shape::Lanes;
  using LongLanes = typename Shape::LongLanes;
  const Lanes lanes(lane);
  const LongLanes of_row(lane);
  const int64_t words = words_for(a.features);
#pragma unroll 1
  for (int first = 0; first < kTallRows; first += Lanes::kRows) {
    const int slot = first + lanes.row();
    const int64_t row = first_row + slot;
    const bool exists = row < a.rows;
    const RowExtent extent = exists ? source.extent(row) : RowExtent{0, 0, 0};
    const bool is_short = extent.units <= Shape::kShortUnits;
    const bool hub = Shape::is_hub(extent);
    if (lanes.is_first_of_row())
      joined[slot] = {exists && !hub ? extent.degree : -1,
                      exists && a.row_scale != nullptr ? a.row_scale[row] : 1.0f,
                      hub ? 0 : kWarp - __clz(extent.degree)};
    {
      CountPlanes<Lanes::kWords, Shape::kCounted> planes;
      planes.clear();
      if (is_short && chunk + lanes.word() < words)
        source.template count<Short::kBatch>(planes, extent, lanes.split(), extent.units,
                                             Lanes::kSplits, chunk + lanes.word());
      stage_planes<Shape>(lanes, lanes.fold(planes), is_short, slot, staged);
    }
    unsigned left = __ballot_sync(kFullWarp, lanes.is_first_of_row() && !is_short && !hub);
    while (left != 0) {
      const int from = __ffs(left) - 1;
      left &= left - 1;
      const RowExtent whole{__shfl_sync(kFullWarp, extent.begin, from),
                            __shfl_sync(kFullWarp, extent.units, from),
                            __shfl_sync(kFullWarp, extent.degree, from)};
      CountPlanes<Lanes::kWords, Shape::kCountedLong> planes;
      planes.clear();
      if (chunk + of_row.word() < words)
        source.template count<Short::kBatch>(planes, whole, of_row.split(), whole.units,
                                             LongLanes::kSplits, chunk + of_row.word());
      stage_planes<Shape>(of_row, of_row.fold(planes), true, __shfl_sync(kFullWarp, slot, from),
                          staged);
    }
  }
}

// A hub's bits by the whole block; the weights come from memory.
template <class Shape, class Short, class Source>
__device__ __forceinline__ void join_hub(const Source& source, const AggregateArgs& a,
                                         const BmmArgs& p, int64_t row, int64_t chunk) {
  using Lanes = typename Shape::Lanes;
  __shared__ int counts[Shape::kFeatures];
  const RowExtent extent = source.extent(row);
  count_hub<Short::kBatch, Lanes::kWords, Lanes::kColumns, Short::kThreads>(source, a, extent,
                                                                            counts, chunk);
  const int64_t words = words_for(p.size);
  const int32_t* x = p.x + row * words;
  for (int o = static_cast<int>(threadIdx.x); o < Shape::kFeatures; o += Short::kThreads) {
    const int64_t output = chunk * kWordBits + o;
    bool bit = false;
    if (output < p.out_features) {
      int32_t differing = 0;
      for (int64_t word = 0; word < words; ++word)
        differing += __popc(x[word] ^ p.w[output * words + word]);
      const float scale = p.row_scale != nullptr ? p.row_scale[row] : 1.0f;
      const float column = p.out_scale != nullptr ? p.out_scale[output] : 1.0f;
      const float bias = p.bias != nullptr ? p.bias[output] : -0.0f;
      const float product =
          slab_value(scale, column, bias, static_cast<int32_t>(p.size) - 2 * differing);
      const float sum =
          aggregate_value(a, row, output, __int2float_rn(2 * counts[o] - extent.degree));
      const float threshold = p.threshold != nullptr ? p.threshold[output] : 0.0f;
      bit = (__fadd_rn(product, sum) >= threshold) != (p.flip != nullptr && p.flip[output]);
    }
    const uint32_t bits = __ballot_sync(kFullWarp, bit);
    if (o % kWarp == 0 && output < p.out_features)
      p.out_bits[row * words_for(p.out_features) + output / kWarp] = static_cast<int32_t>(bits);
  }
  __syncthreads();
}

// Looks for hubs among every hub_blocks-th row.
template <class Shape, class Short, class Source>
__device__ __forceinline__ void join_hubs(const Source& source, const AggregateArgs& a,
                                          const BmmArgs& p, unsigned hub_blocks, int64_t chunk) {
  __shared__ int64_t found[Short::kThreads];
  __shared__ int count;
  const int64_t step = static_cast<int64_t>(hub_blocks) * Short::kThreads;
  for (int64_t base = blockIdx.x; base < a.rows; base += step) {
    const int64_t row = base + static_cast<int64_t>(threadIdx.x) * hub_blocks;
    const bool hub = row < a.rows && Shape::is_hub(source.extent(row));
    if (!__syncthreads_or(hub)) continue;
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    if (hub) found[atomicAdd(&count, 1)] = row;
    __syncthreads();
    for (int i = 0; i < count; ++i) join_hub<Shape, Short>(source, a, p, found[i], chunk);
    __syncthreads();
  }
}

// blockIdx.y tells which of the features a block does, as many as Shape has words for; Source is as
// for aggregate_rows.
template <class Shape, class Short, class Source>
__global__ void __launch_bounds__(Short::kThreads, Short::kBlocks)
    aggregate_product(const __grid_constant__ Source source,
                      const __grid_constant__ AggregateArgs a,
                      const __grid_constant__ BmmArgs whole,
                      const __grid_constant__ JoinPlan plan) {
  constexpr int kFeatures = Shape::kFeatures;
  constexpr int kWarps = Short::kThreads / kWarp;
  extern __shared__ __align__(16) uint32_t memory[];
  const int64_t chunk = static_cast<int64_t>(blockIdx.y) * Shape::kRowWords;
  let_next_start();
  wait_for_previous();
  if (blockIdx.x < plan.hub_blocks) {
    join_hubs<Shape, Short>(source, a, whole, plan.hub_blocks, chunk);
    return;
  }
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarp, lane = thread % kWarp;
  auto* tables = reinterpret_cast<ColumnTable<kJoinColumns>*>(memory);
  auto* const bytes = reinterpret_cast<unsigned char*>(memory);
  auto* sum_bias = reinterpret_cast<float*>(bytes + plan.sum_bias);
  auto* weights = reinterpret_cast<uint32_t*>(bytes + plan.weights);
  auto* x = reinterpret_cast<uint32_t*>(bytes + plan.warps + warp * plan.warp_bytes);
  uint32_t* staged = x + kTallRows * plan.product.words;
  auto* joined = reinterpret_cast<JoinRow*>(staged + kTallRows * Shape::kPitch);
  const int64_t first_feature = chunk * kWordBits;
  BmmArgs p = whole;
  p.w += first_feature * plan.product.words;
  p.out_features = min(int64_t{kFeatures}, whole.out_features - first_feature);
  if (p.out_scale != nullptr) p.out_scale += first_feature;
  if (p.bias != nullptr) p.bias += first_feature;
  if (p.threshold != nullptr) p.threshold += first_feature;
  if (p.flip != nullptr) p.flip += first_feature;

  load_weights(weights, p, plan.product);
  for (int o = thread; o < kFeatures; o += Short::kThreads) {
    share_column<BmmOutput::kBits>(tables[o / kJoinColumns], o % kJoinColumns,
                                   load_column<BmmOutput::kBits>(p, o));
    sum_bias[o] = a.bias != nullptr && o < p.out_features ? a.bias[first_feature + o] : -0.0f;
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
  __syncthreads();

  const int group = fragment_group(lane), quad = fragment_quad(lane);
  const uint32_t w = column_fragments_address(weights, plan.product.w_pitch, lane);
  const int64_t output_pitch = words_for(whole.out_features);
  const int64_t stride = static_cast<int64_t>(gridDim.x - plan.hub_blocks) * kWarps;
#pragma unroll 1
  for (int64_t slab = static_cast<int64_t>(blockIdx.x - plan.hub_blocks) * kWarps + warp;
       slab < plan.product.slabs; slab += stride) {
    const int64_t first_row = slab * kTallRows;
    // The rows arrive while neighbours are counted.
    load_slab(x, p, plan.product, slab, lane);
    count_slab<Shape, Short>(source, a, first_row, chunk, staged, joined, lane);
    asm volatile("cp.async.wait_all;\n" ::: "memory");
    __syncwarp();
    const JoinRow of_rows[2] = {joined[group], joined[group + 8]};
    const int planes = __reduce_max_sync(kFullWarp, max(of_rows[0].planes, of_rows[1].planes));
    SlabRows rows;
    load_row_scales(rows, p, first_row, lane);
#pragma unroll 1
    for (int pass = 0; pass < kFeatures / kJoinColumns; ++pass) {
      int32_t sum[kJoinColumns / 2] = {};
      int32_t row_counts[4] = {};
      const int place = pass * kJoinColumns * plan.product.w_pitch;
      multiply_slab<kJoinColumns>(sum, row_counts, true, plan.product, x,
                                  w + static_cast<uint32_t>(place) * sizeof(uint32_t), lane);
      set_row_terms<BmmOutput::kBits>(rows, p, row_counts[0], row_counts[2]);
      const uint32_t* low_row = staged + group * Shape::kPitch + pass * kJoinWords;
      const uint32_t* const of_planes[2] = {low_row, low_row + 8 * Shape::kPitch};
      JoinBytes low{}, high{};
      add_planes(low, of_planes, 0, min(planes, 8), Shape::kRowWords, quad);
      const float* const biases = sum_bias + pass * kJoinColumns;
      uint32_t bits;
      if (Shape::kPlanes <= 8 || planes <= 8) {
        bits = join_bits<false>(tables[pass], biases, rows, of_rows, low, high, sum, quad);
      } else {
        add_planes(high, of_planes, 8, planes, Shape::kRowWords, quad);
        bits = join_bits<true>(tables[pass], biases, rows, of_rows, low, high, sum, quad);
      }
      store_joined(tables[pass], gather_words(bits, 0, quad), joined,
                   whole.out_bits + first_row * output_pitch + chunk + pass * kJoinWords,
                   output_pitch, p.out_features - pass * kJoinColumns, lane);
    }
    __syncwarp();
  }
}

// Launches as many blocks as are resident, and one a multiprocessor for hubs.
template <class Shape, class Short, class Source>
cudaError_t launch_join(const Source& source, const AggregateArgs& a, const BmmArgs& p,
                        const Context& context) {
  JoinPlan plan = plan_join<Shape, Short::kThreads>(p);
  const auto kernel = aggregate_product<Shape, Short, Source>;
  cudaError_t status = grant_shared_memory(kernel, static_cast<int64_t>(plan.bytes));
  if (status != cudaSuccess) return status;
  int resident = 0;
  status =
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, Short::kThreads, plan.bytes);
  if (status != cudaSuccess) return status;
  if (resident == 0) return cudaErrorInvalidConfiguration;
  plan.hub_blocks = static_cast<unsigned>(context.device.sm_count);
  const int64_t blocks = std::min(ceil_div(plan.product.slabs, Short::kThreads / kWarp),
                                  static_cast<int64_t>(resident) * context.device.sm_count);
  const dim3 grid(grid_size(blocks + plan.hub_blocks),
                  grid_size(ceil_div(words_for(a.features), Shape::kRowWords)));
  return launch_dependent(kernel, grid, Short::kThreads, plan.bytes, context, source, a, p, plan);
}

}  // namespace bitgnn::cuda

// Sums of packed neighbours plus a product of packed rows, compared with a threshold, in one
// launch.
//
// A block first counts the neighbours of its rows as aggregate_rows does, but leaves the counts in
// shared memory, 16 bits each; then its warps multiply slabs of 16 of the same rows with the
// weights on tensor cores and add the sums in the epilogue. Neither term ever reaches memory. Hubs,
// whose counts may need more bits, are finished one by one at the end. Bound by the gathers.
#pragma once

#include "bitgnn/cuda/aggregate_bits.cuh"
#include "bitgnn/cuda/bmm_tall.cuh"

namespace bitgnn::cuda {

constexpr int kJoinColumns = 64;  // outputs of a warp's pass over a slab

// What a row's sum contributes to its outputs.
struct JoinRow {
  int degree;
  float scale;  // 1 if there is none
};

// Shared memory of a block, in bytes from its start; the launcher and the kernel agree on it here.
struct JoinPlan {
  TallPlan product;  // of rows and weights
  size_t sum_bias;   // float [features]
  size_t weights;    // [features, w_pitch] words
  size_t slabs;      // [kRows / 16] slabs of x
  size_t counts;     // uint16 [kRows, count_pitch]
  size_t bytes;      // in all
};

template <int kFeatures>
__host__ __device__ constexpr int join_count_pitch() {
  return kFeatures + 8;  // keeps 16-byte alignment and spreads rows over the banks
}

template <int kFeatures, int kRows>
JoinPlan plan_join(const BmmArgs& p) {
  JoinPlan plan{};
  plan.product.words = static_cast<int>(words_for(p.size));
  plan.product.steps = static_cast<int>(ceil_div(plan.product.words, kMmaWords));
  plan.product.passes = kFeatures / kJoinColumns;
  plan.product.w_pitch = tile_pitch(plan.product.steps * kMmaWords);
  plan.product.slabs = ceil_div(p.rows, kTallRows);
  size_t at = plan.product.passes * sizeof(ColumnTable<kJoinColumns>);
  const auto take = [&at](size_t bytes) {
    const size_t start = at;
    at += (bytes + 15) / 16 * 16;
    return start;
  };
  plan.sum_bias = take(kFeatures * sizeof(float));
  plan.weights = take(size_t{kFeatures} * plan.product.w_pitch * sizeof(uint32_t));
  plan.slabs = take(size_t{kRows} * plan.product.words * sizeof(uint32_t));
  plan.counts = take(size_t{kRows} * join_count_pitch<kFeatures>() * sizeof(uint16_t));
  plan.bytes = at;
  return plan;
}

// Bits of a lane for 64 columns, as value_bits() gives them, of product + row's sum; `counts` are
// those of the lane's rows g and g + 8 from its first column on.
__device__ __forceinline__ uint32_t join_bits(const ColumnTable<kJoinColumns>& table,
                                              const float* sum_bias, const SlabRows& rows,
                                              const JoinRow (&joined)[2],
                                              const uint16_t* const (&counts)[2],
                                              const int32_t (&sum)[kJoinColumns / 2], int quad) {
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
      const uint32_t pair = *reinterpret_cast<const uint32_t*>(counts[half] + j * 8);
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const bool even = e == 0;
        const int32_t dot =
            4 * sum[j * 4 + half * 2 + e] + ((even ? terms.x : terms.y) + rows.term[half]);
        const int count = static_cast<int>(even ? pair & 0xffff : pair >> 16);
        const float total = __int2float_rn(2 * count - joined[half].degree);
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

// Counts of folded planes into rows of 16-bit numbers, `first_row` of which is the warp's first.
template <class Lanes, int kPitch, int kPlanes>
__device__ __forceinline__ void stage_counts(const Lanes& lanes,
                                             const CountPlanes<Lanes::kKept, kPlanes>& planes,
                                             bool wanted, int first_row, uint16_t* staged) {
  lanes.for_quads(planes, [&](int r, int word, int first, const int (&counts)[4], bool valid) {
    const bool row_wanted = __shfl_sync(kFullWarp, wanted, r * Lanes::kSplits * Lanes::kColumns);
    if (!valid || !row_wanted) return;
    const auto pack = [](int low, int high) {
      return static_cast<uint32_t>(low) | static_cast<uint32_t>(high) << 16;
    };
    *reinterpret_cast<uint2*>(staged + (first_row + r) * kPitch + word * kWarp + first) =
        make_uint2(pack(counts[0], counts[1]), pack(counts[2], counts[3]));
  });
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
  constexpr int kFeatures = Lanes::kRowWords * static_cast<int>(kWordBits);
  constexpr int kPitch = join_count_pitch<kFeatures>();
  constexpr int kHubUnits = kLongUnits / 2 * (kWarp / kColumns);
  constexpr int kRowWarps = Short::kThreads / kWarp;
  constexpr int kPassRows = kRowWarps * Lanes::kRows;
  static_assert(kRows % kPassRows == 0 || kPassRows % kRows == 0, "whole passes");
  static_assert(kHubUnits * ((1 << Source::kUnitPlanes) - 1) < 1 << 16, "counts fit 16 bits");
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
  auto* counts = reinterpret_cast<uint16_t*>(bytes + plan.counts);
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
    stage_counts<Lanes, kPitch>(lanes, lanes.fold(planes), is_short, first, counts);
    if (lanes.is_first_of_row()) {
      joined[slot] = {extent.degree, exists && a.row_scale != nullptr ? a.row_scale[row] : 1.0f};
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
    stage_counts<LongLanes, kPitch>(of_row, of_row.fold(planes), true, list_rows[i], counts);
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
    const uint16_t* low = counts + slot * kPitch + pass * kJoinColumns + quad * 2;
    const uint16_t* const of_counts[2] = {low, low + 8 * kPitch};
    const uint32_t bits = join_bits(tables[pass], sum_bias + pass * kJoinColumns, rows, of_rows,
                                    of_counts, sum, quad);
    const int word = pass * kJoinColumns / static_cast<int>(kWordBits);
    const SlabTarget target{whole.out_bits + row * output_pitch + chunk + word,
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
  constexpr int kFeatures = kWords * kColumns * static_cast<int>(kWordBits);
  const JoinPlan plan = plan_join<kFeatures, kRows>(p);
  const auto kernel = aggregate_product<Source, Short, kWords, kSplits, kColumns, kRows>;
  const cudaError_t status = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(plan.bytes));
  if (status != cudaSuccess) return status;
  const dim3 grid(grid_size(ceil_div(a.rows, kRows)),
                  grid_size(ceil_div(words_for(a.features), kWords * kColumns)));
  return launch_dependent(kernel, grid, Short::kThreads, plan.bytes, context, source, a, p, plan);
}

}  // namespace bitgnn::cuda

// Sums of narrow rows over a pattern, in the order of bitgnn/narrow_sums.h. A group of lanes owns a
// row and a chunk of features: the eight slots of the order lie in different lanes where rows are
// long, else several in the registers of a lane, which spares the folding. Rows of several pieces
// are taken by a whole block. Bound by the number of gathered pieces, of 8 to 64 bytes.
#pragma once

#include "bitgnn/cuda/dependent_launch.cuh"
#include "bitgnn/cuda/narrow_table.cuh"

namespace bitgnn::cuda {

constexpr int kNarrowThreads = 128;

// Loads where count > place, leaving the result undefined elsewhere.
__device__ __forceinline__ int32_t load_index(const int32_t* p, int place, int count) {
  int32_t v;
  asm("{.reg .pred p;\n setp.gt.s32 p, %2, %3;\n @p ld.global.nc.s32 %0, [%1];}"
      : "=r"(v)
      : "l"(p), "r"(count), "r"(place));
  return v;
}

// What the sums are made of: the elements alone, or times the rows' factors, whose own sum is
// needed too where the products are odd.
enum class NarrowSum : int { kPlain, kFactors, kFactorsOdd };

// Folds sum[0 .. kCount) of lanes `kStep` apart; where the count is even each of the two keeps half
// of the elements, of which `first` is the first. The lanes of `mask` take part.
template <int kCount, int kStep, int kLanes, int kSize>
__device__ __forceinline__ void fold_lanes(float (&sum)[kSize], unsigned mask, int lane,
                                           int& first) {
  if constexpr (kStep >= kLanes) {
    constexpr int kKept = kCount % 2 == 0 ? kCount / 2 : kCount;
    const bool upper = kCount % 2 == 0 && (lane & kStep) != 0;
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      const float given = upper ? sum[i] : sum[i + kCount - kKept];
      const float kept = upper ? sum[i + kCount - kKept] : sum[i];
      sum[i] = __fadd_rn(kept, __shfl_xor_sync(mask, given, kStep));
    }
    first += upper ? kKept : 0;
    fold_lanes<kKept, kStep / 2, kLanes>(sum, mask, lane, first);
  }
}

// Elements that fold_lanes leaves a lane.
constexpr int folded(int count, int slots) {
  return slots == 1 ? count : folded(count % 2 == 0 ? count / 2 : count, slots / 2);
}

// How a row is shared: kSlots of the eight slots lie in lanes, and a lane has kLoads pieces in
// flight.
template <class Row_, int kSlots_, int kLoads_>
struct NarrowShare {
  using Row = Row_;
  static constexpr int kSlots = kSlots_;
  static constexpr int kLoads = kLoads_;
  static constexpr int kSerial = kSumSlots / kSlots;  // slots in a lane's registers
  static constexpr int kGroup = Row::kLanes * kSlots;
  static constexpr int kGroups = kNarrowThreads / kGroup;
  static constexpr int kKept = folded(Row::kUsed, kSlots);
  static_assert(kGroup <= kWarp && kLoads % kSerial == 0, "groups lie in a warp");
};

// A lane's share of the sums of one piece: elements [first, first + kKept) of the row's part that
// is the lane's, and the sum of the factors.
template <class Share>
struct NarrowSums {
  float sum[Share::kKept];
  float ones;
};

// The canonical sums of the pieces of a row, by a group of lanes.
template <class Share, NarrowSum kSum>
struct NarrowWalk {
  using Row = typename Share::Row;
  using Fragment = typename Row::Fragment;
  static constexpr int kSlots = Share::kSlots;
  static constexpr int kLoads = Share::kLoads;
  static constexpr int kSerial = Share::kSerial;
  static constexpr int kGroup = Share::kGroup;
  static constexpr int kStep = kLoads * kSlots;  // edges at a time
  static constexpr int kSums = Row::kUsedWords * Row::Elements::kPerWord;
  static_assert(kSumPiece % kStep == 0, "pieces end with a step");

  const char* x;
  int lane, slot, part;
  unsigned mask;  // of the group
  float slots[kSerial][kSums];
  float factors[kSerial];

  __device__ explicit NarrowWalk(const char* table) : lane(static_cast<int>(threadIdx.x) % kWarp) {
    slot = lane / Row::kLanes % kSlots;
    part = lane % Row::kLanes;
    mask = kGroup == kWarp ? kFullWarp : ((1u << (kGroup % kWarp)) - 1) << (lane / kGroup * kGroup);
    x = table + part * sizeof(Fragment);
    // Keeps the sum in registers, where the compiler would add its parts up for every edge.
    asm volatile("" : "+l"(x));
  }

  // First of the lane's elements in a row of kLanes * kUsed.
  __device__ int first_element() const {
    int first = part * Row::kUsed;
    skip_lanes<Row::kUsed, kGroup / 2>(first);
    return first;
  }

  // Calls emit(sums) for each piece of `count` edges whose column indices start at `indices`, in
  // order. Lanes of the same group go the same way, others may not.
  template <class Index, class Emit>
  __device__ __forceinline__ void add(const Index* indices, int count, const Emit& emit) {
    clear();
    const Index* own = indices + slot;
    int left = count - slot;  // edges from the slot's next one on
    int32_t next[kLoads];
    const auto prefetch = [&] {
#pragma unroll
      for (int l = 0; l < kLoads; ++l) next[l] = load_index(own + l * kSlots, l * kSlots, left);
    };
    const auto at = [&](int32_t row) {
      return reinterpret_cast<const Fragment*>(
          x + static_cast<uint64_t>(static_cast<uint32_t>(row)) * Row::kPitchBytes);
    };
    prefetch();
    int to_end = kSumPiece / kStep;  // steps of the piece
    int rest = count;
    for (; rest >= kStep; rest -= kStep) {
      Fragment f[kLoads];
#pragma unroll
      for (int l = 0; l < kLoads; ++l) f[l] = __ldg(at(next[l]));
      own += kStep;
      left -= kStep;
      prefetch();
#pragma unroll
      for (int l = 0; l < kLoads; ++l) add_row(l % kSerial, f[l], true);
      if (--to_end == 0) {
        emit(fold());
        clear();
        to_end = kSumPiece / kStep;
      }
    }
    if (rest > 0) {
      Fragment f[kLoads];
#pragma unroll
      for (int l = 0; l < kLoads; ++l) {
        f[l] = Fragment{};
        if (left > l * kSlots) f[l] = __ldg(at(next[l]));
      }
#pragma unroll
      for (int l = 0; l < kLoads; ++l) {
        if (rest <= l * kSlots) break;
        add_row(l % kSerial, f[l], left > l * kSlots);
      }
    }
    if (rest > 0 || to_end < kSumPiece / kStep) emit(fold());
  }

 private:
  template <int kCount, int kLanes>
  __device__ void skip_lanes(int& first) const {
    if constexpr (kLanes >= Row::kLanes) {
      constexpr int kKept = kCount % 2 == 0 ? kCount / 2 : kCount;
      if (kCount % 2 == 0 && (lane & kLanes) != 0) first += kKept;
      skip_lanes<kKept, kLanes / 2>(first);
    }
  }

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int s = 0; s < kSerial; ++s) {
#pragma unroll
      for (float& v : slots[s]) v = 0.0f;
      factors[s] = 0.0f;
    }
  }

  __device__ __forceinline__ void add_row(int s, const Fragment& fragment, bool exists) {
    uint32_t word[Row::kWords];
    memcpy(word, &fragment, sizeof(word));
    // A fragment of zeros has none.
    float factor = __uint_as_float(word[Row::kWords - 1]);
    if constexpr (Row::kFactor == FactorPlace::kLast)
      factor = __shfl_sync(mask, factor, Row::kLanes - 1, Row::kLanes);
    if constexpr (Row::kFactor == FactorPlace::kNone) factor = exists ? 1.0f : 0.0f;
    if constexpr (kSum == NarrowSum::kFactorsOdd) factors[s] = __fadd_rn(factors[s], factor);
#pragma unroll
    for (int w = 0; w < Row::kUsedWords; ++w)
      Row::Elements::add(slots[s] + w * Row::Elements::kPerWord, word[w], factor);
  }

  __device__ __forceinline__ NarrowSums<Share> fold() {
#pragma unroll
    for (int half = kSerial / 2; half > 0; half /= 2) {
#pragma unroll
      for (int s = 0; s < half; ++s) {
#pragma unroll
        for (int i = 0; i < kSums; ++i) slots[s][i] = __fadd_rn(slots[s][i], slots[s + half][i]);
        factors[s] = __fadd_rn(factors[s], factors[s + half]);
      }
    }
    int first = 0;
    fold_lanes<Row::kUsed, kGroup / 2, Row::kLanes>(slots[0], mask, lane, first);
    NarrowSums<Share> result;
#pragma unroll
    for (int i = 0; i < Share::kKept; ++i) result.sum[i] = slots[0][i];
    result.ones = factors[0];
    if constexpr (kSum == NarrowSum::kFactorsOdd) {
#pragma unroll
      for (int step = kGroup / 2; step >= Row::kLanes; step /= 2)
        result.ones = __fadd_rn(result.ones, __shfl_xor_sync(mask, result.ones, step));
    }
    return result;
  }
};

// Row j of chunk c of the table lies at c * chunk_stride + j * Row::kPitchBytes.
struct NarrowLaunch {
  AggregateArgs a;
  const char* table;
  int64_t chunk_stride;
  int64_t long_degree;   // rows of more edges are taken by whole blocks,
  unsigned long_blocks;  // the first of a grid, or if it is 0 those that meet them
  const float* out_scale;
  bool odd;  // dot = 2 * half + 1
};

__device__ __forceinline__ int64_t narrow_edge(const AggregateArgs& a, int64_t row) {
  return a.rowptr64 ? __ldg(static_cast<const long long*>(a.rowptr) + row)
                    : __ldg(static_cast<const int*>(a.rowptr) + row);
}

// Writes a feature of a row from its sum of halves; `ones` is the sum of the factors.
template <NarrowSum kSum>
__device__ __forceinline__ void store_narrow_sum(const NarrowLaunch& d, int64_t row, int64_t degree,
                                                 int64_t feature, float sum, float ones) {
  float v = __fmul_rn(2.0f, sum);
  if constexpr (kSum == NarrowSum::kFactorsOdd) v = __fadd_rn(v, ones);
  // The sum holds an integer of any size as it is.
  if constexpr (kSum == NarrowSum::kPlain)
    v = __int2float_rn(2 * __float_as_int(sum) + (d.odd ? static_cast<int32_t>(degree) : 0));
  // Factors of 1 and a bias of -0 change nothing.
  const float left = d.a.row_scale != nullptr ? __ldg(d.a.row_scale + row) : 1.0f;
  const float right = d.out_scale != nullptr ? __ldg(d.out_scale + feature) : 1.0f;
  const float bias = d.a.bias != nullptr ? __ldg(d.a.bias + feature) : -0.0f;
  d.a.out_float[row * d.a.features + feature] =
      __fadd_rn(__fmul_rn(__fmul_rn(left, right), v), bias);
}

// Adds up pieces: floats, or integers that plain pieces hold exactly as floats.
template <NarrowSum kSum>
__device__ __forceinline__ float add_piece(float total, float piece) {
  if constexpr (kSum == NarrowSum::kPlain)
    return __int_as_float(__float_as_int(total) + static_cast<int32_t>(piece));
  return __fadd_rn(total, piece);
}

template <class Row>
__device__ __forceinline__ int features_of_chunk(const NarrowLaunch& d, int64_t chunk) {
  return static_cast<int>(
      min(d.a.features - chunk * Row::kFeatures, static_cast<int64_t>(Row::kFeatures)));
}

constexpr int kManyGroups = 16;

// A block a row: its groups take runs of pieces, a thread then adds up the pieces of a feature.
template <class Share, NarrowSum kSum>
__device__ __forceinline__ void aggregate_long_row(const NarrowLaunch& d, int64_t row) {
  using Row = typename Share::Row;
  constexpr int kTotal = Row::kLanes * Row::kUsed;
  // Few groups take several pieces at a time, so that they wait for each other less often.
  constexpr int kRunPieces = Share::kGroups >= kManyGroups ? 1 : 4;
  constexpr int64_t kRun = kRunPieces * kSumPiece;
  static_assert(kTotal <= kNarrowThreads, "a thread adds up the pieces of a feature");
  __shared__ float part[Share::kGroups * kRunPieces][kTotal + 1];
  const AggregateArgs& a = d.a;
  const int64_t chunk = blockIdx.y;
  const int group = static_cast<int>(threadIdx.x) / Share::kGroup;
  const int feature = static_cast<int>(threadIdx.x);
  const int features = features_of_chunk<Row>(d, chunk);
  const int64_t begin = narrow_edge(a, row);
  const int64_t degree = narrow_edge(a, row + 1) - begin;
  NarrowWalk<Share, kSum> walk(d.table + chunk * d.chunk_stride);
  const int first = walk.first_element();
  float total = 0.0f;
  float ones = 0.0f;
  for (int64_t base = 0; base < degree; base += Share::kGroups * kRun) {
    const int64_t own = base + group * kRun;
    int place = group * kRunPieces;
    walk.add(a.indices + begin + own, static_cast<int>(max(min(degree - own, kRun), int64_t{0})),
             [&](const NarrowSums<Share>& piece) {
#pragma unroll
               for (int i = 0; i < Share::kKept; ++i) part[place][first + i] = piece.sum[i];
               part[place][kTotal] = piece.ones;
               ++place;
             });
    __syncthreads();
    const int pieces = static_cast<int>(
        min((degree - base + kSumPiece - 1) / kSumPiece, int64_t{Share::kGroups * kRunPieces}));
    if (feature < features) {
      for (int p = 0; p < pieces; ++p) {
        total = add_piece<kSum>(total, part[p][feature]);
        ones = __fadd_rn(ones, part[p][kTotal]);
      }
    }
    __syncthreads();
  }
  if (feature < features)
    store_narrow_sum<kSum>(d, row, degree, chunk * Row::kFeatures + feature, total, ones);
}

// Rows that a block found to be long.
struct LongRows {
  int64_t rows[kNarrowThreads];
  int count;
};

// All threads of the block take part; each may have found one.
template <class Share, NarrowSum kSum>
__device__ __forceinline__ void aggregate_found(const NarrowLaunch& d, LongRows& found,
                                                bool is_long, int64_t row) {
  if (!__syncthreads_or(is_long)) return;
  if (threadIdx.x == 0) found.count = 0;
  __syncthreads();
  if (is_long) found.rows[atomicAdd(&found.count, 1)] = row;
  __syncthreads();
  for (int i = 0; i < found.count; ++i) aggregate_long_row<Share, kSum>(d, found.rows[i]);
  __syncthreads();
}

// A group a row; where no blocks do so before, the block then takes the long rows that it met.
template <class Share, NarrowSum kSum>
__device__ __forceinline__ void aggregate_short_rows(const NarrowLaunch& d, LongRows& found) {
  using Row = typename Share::Row;
  const AggregateArgs& a = d.a;
  const int64_t chunk = blockIdx.y;
  const int64_t row = static_cast<int64_t>(blockIdx.x - d.long_blocks) * Share::kGroups +
                      static_cast<int>(threadIdx.x) / Share::kGroup;
  int64_t begin = 0;
  int64_t degree = 0;
  if (row < a.rows) {
    begin = narrow_edge(a, row);
    degree = narrow_edge(a, row + 1) - begin;
  }
  wait_for_previous();
  const bool is_long = degree > d.long_degree;
  if (!is_long && row < a.rows) {
    NarrowWalk<Share, kSum> walk(d.table + chunk * d.chunk_stride);
    NarrowSums<Share> total{};
    walk.add(a.indices + begin, static_cast<int>(degree), [&](const NarrowSums<Share>& piece) {
#pragma unroll
      for (int i = 0; i < Share::kKept; ++i)
        total.sum[i] = add_piece<kSum>(total.sum[i], piece.sum[i]);
      total.ones = __fadd_rn(total.ones, piece.ones);
    });
    const int features = features_of_chunk<Row>(d, chunk);
    const int first = walk.first_element();
#pragma unroll
    for (int i = 0; i < Share::kKept; ++i)
      if (first + i < features)
        store_narrow_sum<kSum>(d, row, degree, chunk * Row::kFeatures + first + i, total.sum[i],
                               total.ones);
  }
  if (d.long_blocks == 0)
    aggregate_found<Share, kSum>(d, found, is_long && threadIdx.x % Share::kGroup == 0, row);
}

// Long rows, which start first: each block looks for them among every long_blocks-th row.
template <class Share, NarrowSum kSum>
__device__ __forceinline__ void aggregate_long_rows(const NarrowLaunch& d, LongRows& found) {
  const AggregateArgs& a = d.a;
  const int64_t step = static_cast<int64_t>(d.long_blocks) * kNarrowThreads;
  wait_for_previous();
  for (int64_t base = blockIdx.x; base < a.rows; base += step) {
    const int64_t row = base + static_cast<int64_t>(threadIdx.x) * d.long_blocks;
    aggregate_found<Share, kSum>(
        d, found, row < a.rows && narrow_edge(a, row + 1) - narrow_edge(a, row) > d.long_degree,
        row);
  }
}

// blockIdx.y is the chunk of features.
template <class Share, NarrowSum kSum>
__global__ void __launch_bounds__(kNarrowThreads)
    aggregate_narrow_kernel(const __grid_constant__ NarrowLaunch d) {
  __shared__ LongRows found;
  let_next_start();
  if (blockIdx.x < d.long_blocks)
    aggregate_long_rows<Share, kSum>(d, found);
  else
    aggregate_short_rows<Share, kSum>(d, found);
}

}  // namespace bitgnn::cuda

// Packs rows of floats by comparing them with their own mean: a warp keeps its rows in registers
// between the sum and the comparison, so the kernel is bound by reading the input once.
#pragma once

#include <type_traits>

#include "pack/arguments.h"
#include "pack/cuda/rows.cuh"

namespace bitgnn::cuda::pack {

constexpr int kStandardizedThreads = 256;

// Blocks resident on a multiprocessor, by the number of values per thread.
constexpr int standardized_blocks(int values) { return values <= 32 ? 4 : values <= 40 ? 3 : 2; }

// The arguments, plus values derived from the number of columns.
struct StandardizedRows {
  StandardizedPackArgs args;
  double part;    // 1 / cols
  double degree;  // 1 / (cols - 1), or 1 for a single column
  float low;      // lower bound of the values, 0 with a ReLU
};

// max(x, low), but NaN stays NaN.
__device__ __forceinline__ float bounded(float x, float low) {
  float value;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(value) : "f"(x), "f"(low));
  return value;
}
__device__ __forceinline__ double bounded(double x, float low) { return x < low ? low : x; }

// A finite sum divided by the number of columns, rounded twice: the product with the reciprocal and
// its residual give the exactly rounded float64.
__device__ __forceinline__ float row_mean(const StandardizedRows& rows, double total) {
  const double quotient = total * rows.part;
  const double left = __fma_rn(-quotient, static_cast<double>(rows.args.cols), total);
  return __double2float_rn(__fma_rn(left, rows.part, quotient));
}

// The value that a row is compared with: NaN, which nothing reaches, if the mean is not finite.
__device__ __forceinline__ float row_limit(const StandardizedRows& rows, double total) {
  const float mean = row_mean(rows, total);
  return isfinite(mean) ? mean : nanf("");
}

__device__ __forceinline__ float standardized_scale(const StandardizedRows& rows, double total,
                                                    float mean, double distance, double squares) {
  // Remainder from rounding the mean.
  const double rest =
      __fma_rn(-static_cast<double>(mean), static_cast<double>(rows.args.cols), total);
  const double variance = (squares - rest * rest * rows.part) * rows.degree;
  // Beyond the range of float32, the variance is scaled by 2^-126.
  const bool is_large = variance > 1e38;
  const float root = __fsqrt_rn(__double2float_rn(is_large         ? variance * 0x1p-126
                                                  : variance > 0.0 ? variance
                                                                   : 0.0));
  const float deviation = is_large ? root * 0x1p63f : root;
  return __double2float_rn(distance * rows.part) /
         (deviation + static_cast<float>(kStandardizeEpsilon));
}

// Where the words of a warp's rows end up: word c of row r, for as many rows as have room, in lane
// r * kSlots + c.
template <int kRows, int kWords>
struct StandardizedTile {
  static constexpr int kSlots = kWords <= 2    ? 2
                                : kWords <= 4  ? 4
                                : kWords <= 8  ? 8
                                : kWords <= 16 ? 16
                                               : kWarp;
  static constexpr int kChosenRows = kRows < kWarp / kSlots ? kRows : kWarp / kSlots;
  static constexpr int kChunks = (kWords + kWarp - 1) / kWarp;
};

// Sums of squared distances of float rows from their limits, for those that exceed float32.
template <int kRows, class Row>
__device__ __noinline__ double wide_squares(Row row, int64_t stride, int existing, int cols,
                                            float low, float own_limit, int lane) {
  constexpr int kLanesPerRow = kWarp / kRows;
  double own = 0.0;
  for (int r = 0; r < kRows; ++r) {
    const double limit = __shfl_sync(kFullWarp, own_limit, r * kLanesPerRow);
    double sum[1] = {};
    for (int k = 0; k + lane < cols; k += kWarp) {
      const double centred = static_cast<double>(bounded(row.load(0, -k), low)) - limit;
      sum[0] += centred * centred;
    }
    const double folded = fold_lanes(sum, lane);
    if (lane / kLanesPerRow == r) own = folded;
    if (r + 1 < existing) row.x += stride;
  }
  return own;
}

// A warp takes kRows rows of kLeast to kWords words. Float32 is exact enough for few distances.
template <int kRows, int kWords, int kLeast, bool kScale, class T>
__global__ void __launch_bounds__(kStandardizedThreads, standardized_blocks(kRows* kWords))
    pack_standardized_kernel(DenseRows<T> source, StandardizedRows all, int64_t rows) {
  using Value = typename DenseRows<T>::Value;
  using Tile = StandardizedTile<kRows, kWords>;
  constexpr int kLanesPerRow = kWarp / kRows;  // lanes in which fold_lanes() leaves a row's sum
  const StandardizedPackArgs& args = all.args;
  const int lane = threadIdx.x % kWarp;
  const int64_t warp = static_cast<int64_t>(blockIdx.x) * (kStandardizedThreads / kWarp) +
                       static_cast<int>(threadIdx.x) / kWarp;
  const int64_t first_row = warp * kRows;
  if (first_row >= rows) return;
  const int existing = static_cast<int>(min(rows - first_row, static_cast<int64_t>(kRows)));
  const int cols = static_cast<int>(args.cols);
  const int words = static_cast<int>(word_count(cols));
  const auto exists = [&](int c) { return c < kLeast - 1 || c * kWarp + lane < cols; };

  Value value[kRows][kWords];
  auto row = source.row(first_row, lane);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int c = 0; c < kWords; ++c) value[r][c] = exists(c) ? row.load(c, 0) : Value(0);
    if (r + 1 < existing) row = source.next(row);
  }
  double total[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    total[r] = 0.0;
#pragma unroll
    for (int c = 0; c < kWords; ++c) {
      value[r][c] = bounded(value[r][c], all.low);
      if (exists(c)) total[r] += static_cast<double>(value[r][c]);
    }
  }
  const double own_total = fold_lanes(total, lane);
  const float own_limit = row_limit(all, own_total);

  Value distance[kRows] = {}, squares[kRows] = {};
#pragma unroll
  for (int first = 0; first < kRows; first += Tile::kChosenRows) {
    uint32_t vote[Tile::kChunks][Tile::kChosenRows * Tile::kSlots] = {};
#pragma unroll
    for (int i = 0; i < Tile::kChosenRows; ++i) {
      const int r = first + i;
      const auto limit = static_cast<Value>(__shfl_sync(kFullWarp, own_limit, r * kLanesPerRow));
#pragma unroll
      for (int c = 0; c < kWords; ++c) {
        vote[c / kWarp][i * Tile::kSlots + c % kWarp] =
            __ballot_sync(kFullWarp, exists(c) && value[r][c] >= limit);
        if constexpr (kScale) {
          const Value centred = exists(c) ? value[r][c] - limit : Value(0);
          distance[r] += fabs(centred);
          if constexpr (std::is_same_v<Value, float>)
            squares[r] = __fmaf_rn(centred, centred, squares[r]);
          else
            squares[r] += centred * centred;
        }
      }
    }
#pragma unroll
    for (int chunk = 0; chunk < Tile::kChunks; ++chunk) {
      const uint32_t word = choose_by_lane(vote[chunk], lane);
      const int r = first + lane / Tile::kSlots % Tile::kChosenRows;
      const int column = chunk * kWarp + lane % Tile::kSlots;
      if (lane < Tile::kChosenRows * Tile::kSlots && r < existing && column < words)
        args.words[(first_row + r) * words + column] = static_cast<int32_t>(word);
    }
  }
  if constexpr (kScale) {
    const double own_distance = fold_lanes(distance, lane);
    double own_squares = fold_lanes(squares, lane);
    if constexpr (std::is_same_v<Value, float>) {
      if (__any_sync(kFullWarp, isinf(own_squares)))
        own_squares = wide_squares<kRows>(source.row(first_row, lane), source.stride, existing,
                                          cols, all.low, own_limit, lane);
    }
    const float scale = standardized_scale(all, own_total, own_limit, own_distance, own_squares);
    const int r = lane / kLanesPerRow;
    if (args.scale != nullptr && lane % kLanesPerRow == 0 && r < existing)
      args.scale[first_row + r] = scale;
  }
}

// Rows longer than a warp's registers hold: one block per row. What its registers cannot hold
// either stays in the caches for the second pass.
template <class T>
__global__ void __launch_bounds__(kStandardizedThreads)
    pack_standardized_long_kernel(DenseRows<T> source, StandardizedRows all) {
  using Value = typename DenseRows<T>::Value;
  constexpr int kWarps = kStandardizedThreads / kWarp;
  constexpr int kHeld = 16;  // words per warp
  __shared__ double part[3][kWarps];
  const StandardizedPackArgs& args = all.args;
  const int lane = threadIdx.x % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t row = blockIdx.x;
  const int64_t words = word_count(args.cols);
  const T* x = source.x + row * source.stride + lane;
  Value value[kHeld];
  const auto load = [&](int64_t first) {
#pragma unroll
    for (int c = 0; c < kHeld; ++c) {
      const int64_t k = (first + c * kWarps) * kWarp;
      value[c] = k + lane < args.cols ? Value(to_value(__ldg(x + k))) : Value(0);
    }
  };
  const auto whole = [&](int kind, double sum) {
    const double own[1] = {sum};
    const double folded = fold_lanes(own, lane);
    if (lane == 0) part[kind][warp] = folded;
    __syncthreads();
    double all_warps = 0.0;
    for (int w = 0; w < kWarps; ++w) all_warps += part[kind][w];
    return all_warps;
  };

  double sum = 0.0;
  for (int64_t first = warp; first < words; first += kHeld * kWarps) {
    load(first);
#pragma unroll
    for (int c = 0; c < kHeld; ++c) {
      if ((first + c * kWarps) * kWarp + lane < args.cols)
        sum += static_cast<double>(bounded(value[c], all.low));
    }
  }
  const double total = whole(0, sum);
  const float limit = row_limit(all, total);
  const bool is_held = words <= kHeld * kWarps;

  double distance = 0.0, squares = 0.0;
  for (int64_t first = warp; first < words; first += kHeld * kWarps) {
    if (!is_held) load(first);
#pragma unroll
    for (int c = 0; c < kHeld; ++c) {
      const int64_t w = first + c * kWarps;
      if (w >= words) break;
      const bool exists = w * kWarp + lane < args.cols;
      const Value v = bounded(value[c], all.low);
      const uint32_t vote = __ballot_sync(kFullWarp, exists && v >= static_cast<Value>(limit));
      if (lane == 0) args.words[row * words + w] = static_cast<int32_t>(vote);
      if (args.scale != nullptr && exists) {
        const double centred = static_cast<double>(v) - static_cast<double>(limit);
        distance += fabs(centred);
        squares += centred * centred;
      }
    }
  }
  if (args.scale == nullptr) return;
  const double all_distance = whole(1, distance), all_squares = whole(2, squares);
  if (threadIdx.x == 0)
    args.scale[row] = standardized_scale(all, total, limit, all_distance, all_squares);
}

template <int kRows, int kWords, int kLeast, class T>
cudaError_t launch_standardized_tile(const DenseRows<T>& source, const StandardizedRows& all,
                                     int64_t rows, const Context& context) {
  const int64_t blocks = ceil_div(ceil_div(rows, kRows), kStandardizedThreads / kWarp);
  auto kernel = pack_standardized_kernel<kRows, kWords, kLeast, true, T>;
  if constexpr (!DenseRows<T>::kFewForms)
    if (all.args.scale == nullptr)
      kernel = pack_standardized_kernel<kRows, kWords, kLeast, false, T>;
  kernel<<<static_cast<unsigned>(blocks), kStandardizedThreads, 0, context.stream>>>(source, all,
                                                                                     rows);
  return cudaGetLastError();
}

template <class T>
cudaError_t launch_pack_standardized(const StandardizedPackArgs& args, int64_t rows,
                                     const Context& context) {
  const DenseRows<T> source{static_cast<const T*>(args.x), args.row_stride};
  const int64_t words = word_count(args.cols);
  if (rows == 0) return cudaSuccess;
  if (words == 0) return clear_scales(args.scale, rows, context);
  const auto size = static_cast<double>(args.cols);
  const StandardizedRows all{args, 1.0 / size, args.cols > 1 ? 1.0 / (size - 1.0) : 1.0,
                             args.relu ? 0.0f : -HUGE_VALF};
  if constexpr (std::is_same_v<T, double>) {
    if (words <= 16) return launch_standardized_tile<1, 16, 1>(source, all, rows, context);
  } else if constexpr (!std::is_same_v<T, float>) {
    if (words <= 4) return launch_standardized_tile<8, 4, 1>(source, all, rows, context);
    if (words <= 12) return launch_standardized_tile<2, 12, 5>(source, all, rows, context);
    if (words <= 48) return launch_standardized_tile<1, 48, 13>(source, all, rows, context);
  } else {
    if (words <= 2) return launch_standardized_tile<16, 2, 1>(source, all, rows, context);
    if (words <= 4) return launch_standardized_tile<8, 4, 3>(source, all, rows, context);
    if (words <= 8) return launch_standardized_tile<4, 8, 5>(source, all, rows, context);
    if (words <= 12) return launch_standardized_tile<2, 12, 9>(source, all, rows, context);
    if (words <= 16) return launch_standardized_tile<2, 16, 13>(source, all, rows, context);
    if (words <= 20) return launch_standardized_tile<2, 20, 17>(source, all, rows, context);
    if (words <= 32) return launch_standardized_tile<1, 32, 21>(source, all, rows, context);
    if (words <= 48) return launch_standardized_tile<1, 48, 33>(source, all, rows, context);
  }
  pack_standardized_long_kernel<<<static_cast<unsigned>(rows), kStandardizedThreads, 0,
                                  context.stream>>>(source, all);
  return cudaGetLastError();
}

}  // namespace bitgnn::cuda::pack

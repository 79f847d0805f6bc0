// Rows of floats to bits by comparison with their own mean: a warp keeps its rows in registers
// between the sum and the comparison, so that the one read of the input bounds it.
#pragma once

#include <type_traits>

#include "bitgnn/cuda/pack_rows.cuh"

namespace bitgnn::cuda {

constexpr int kStandardizedThreads = 256;

// What a row's bits and scale follow from.
struct RowMean {
  double total;
  float mean;
};

__device__ __forceinline__ RowMean row_mean(double total, int64_t cols) {
  return {total, __double2float_rn(total / static_cast<double>(cols))};
}

__device__ __forceinline__ float standardized_scale(const RowMean& row, double distance,
                                                    double squares, int64_t cols) {
  if (!isfinite(row.mean)) return nanf("");
  const double size = static_cast<double>(cols);
  const double rest = row.total - size * static_cast<double>(row.mean);  // of rounding the mean
  const double variance = (squares - rest * rest / size) / (cols > 1 ? size - 1.0 : 1.0);
  return __double2float_rn(distance / size /
                           (sqrt(variance > 0.0 ? variance : 0.0) + kStandardizeEpsilon));
}

// At least `low`, but NaN stays NaN.
template <class Value>
__device__ __forceinline__ Value bounded(Value x, Value low) {
  return x < low ? low : x;
}

// kRows rows of up to kWords words a warp.
template <int kRows, int kWords, class T>
__global__ void __launch_bounds__(kStandardizedThreads)
    pack_standardized_kernel(DenseRows<T> source, StandardizedPackArgs args, int64_t rows) {
  using Value = typename DenseRows<T>::Value;
  constexpr int kLanesPerRow = kWarp / kRows;  // that fold_lanes() leaves a row's sum in
  const int lane = threadIdx.x % kWarp;
  const int64_t warp = static_cast<int64_t>(blockIdx.x) * (kStandardizedThreads / kWarp) +
                       static_cast<int>(threadIdx.x) / kWarp;
  const int64_t first_row = warp * kRows;
  if (first_row >= rows) return;
  const int cols = static_cast<int>(args.cols);
  const int words = static_cast<int>(word_count(cols));
  const Value low = args.relu ? Value(0) : -static_cast<Value>(HUGE_VALF);

  Value value[kRows][kWords];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const auto row = source.row(min(first_row + r, rows - 1), lane);
#pragma unroll
    for (int c = 0; c < kWords; ++c)
      value[r][c] = c * kWarp + lane < cols ? row.load(c, 0) : Value(0);
  }
  double total[kRows] = {};
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int c = 0; c < kWords; ++c) {
      value[r][c] = bounded(value[r][c], low);
      if (c < words && c * kWarp + lane < cols) total[r] += static_cast<double>(value[r][c]);
    }
  }
  const RowMean own = row_mean(fold_lanes(total, lane), cols);

  double distance[kRows] = {}, squares[kRows] = {};
  const int64_t left = rows - first_row;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const float mean = __shfl_sync(kFullWarp, own.mean, r * kLanesPerRow);
    // NaN lies below nothing and reaches nothing: no bit where the mean is not finite.
    const Value limit = static_cast<Value>(isfinite(mean) ? mean : nanf(""));
    uint32_t word = 0;
#pragma unroll
    for (int c = 0; c < kWords; ++c) {
      if (c < words) {
        const bool is_column = c * kWarp + lane < cols;
        const uint32_t vote = __ballot_sync(kFullWarp, is_column && value[r][c] >= limit);
        if (lane == c % kWarp) word = vote;
        if (args.scale != nullptr && is_column) {
          const double centred = static_cast<double>(value[r][c]) - static_cast<double>(mean);
          distance[r] += fabs(centred);
          squares[r] += centred * centred;
        }
      }
      // A warp stores 32 words of a row at once.
      if (c % kWarp == kWarp - 1 || c == kWords - 1) {
        const int column = c / kWarp * kWarp + lane;
        if (r < left && column < words && lane <= c % kWarp)
          args.words[(first_row + r) * words + column] = static_cast<int32_t>(word);
      }
    }
  }
  if (args.scale == nullptr) return;
  const float scale =
      standardized_scale(own, fold_lanes(distance, lane), fold_lanes(squares, lane), cols);
  const int r = lane / kLanesPerRow;
  if (lane % kLanesPerRow == 0 && r < left) args.scale[first_row + r] = scale;
}

// Rows longer than registers hold: a block a row, which the caches keep for the second pass.
template <class T>
__global__ void __launch_bounds__(kStandardizedThreads)
    pack_standardized_long_kernel(DenseRows<T> source, StandardizedPackArgs args) {
  using Value = typename DenseRows<T>::Value;
  constexpr int kWarps = kStandardizedThreads / kWarp;
  __shared__ double part[3][kWarps];
  const int lane = threadIdx.x % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t row = blockIdx.x;
  const int64_t words = word_count(args.cols);
  const T* x = source.x + row * source.stride;
  const Value low = args.relu ? Value(0) : -static_cast<Value>(HUGE_VALF);

  double sum[1] = {};
#pragma unroll 8
  for (int64_t k = threadIdx.x; k < args.cols; k += kStandardizedThreads)
    sum[0] += static_cast<double>(bounded(static_cast<Value>(to_value(__ldg(x + k))), low));
  const double total = fold_lanes(sum, lane);
  if (lane == 0) part[0][warp] = total;
  __syncthreads();
  const auto whole = [&](int kind) {
    double all = 0.0;
    for (int w = 0; w < kWarps; ++w) all += part[kind][w];
    return all;
  };
  const RowMean own = row_mean(whole(0), args.cols);
  const Value limit = static_cast<Value>(isfinite(own.mean) ? own.mean : nanf(""));

  double distance[1] = {}, squares[1] = {};
#pragma unroll 4
  for (int64_t w = warp; w < words; w += kWarps) {
    const int64_t k = w * kWarp + lane;
    const bool is_column = k < args.cols;
    const Value v = is_column ? bounded(static_cast<Value>(to_value(__ldg(x + k))), low) : Value(0);
    const uint32_t vote = __ballot_sync(kFullWarp, is_column && v >= limit);
    if (lane == 0) args.words[row * words + w] = static_cast<int32_t>(vote);
    if (is_column) {
      const double centred = static_cast<double>(v) - static_cast<double>(own.mean);
      distance[0] += fabs(centred);
      squares[0] += centred * centred;
    }
  }
  if (args.scale == nullptr) return;
  const double distances = fold_lanes(distance, lane), square_sum = fold_lanes(squares, lane);
  if (lane == 0) {
    part[1][warp] = distances;
    part[2][warp] = square_sum;
  }
  __syncthreads();
  if (threadIdx.x == 0) args.scale[row] = standardized_scale(own, whole(1), whole(2), args.cols);
}

template <int kRows, int kWords, class T>
cudaError_t launch_standardized_tile(const DenseRows<T>& source, const StandardizedPackArgs& args,
                                     int64_t rows, const Context& context) {
  const int64_t blocks = ceil_div(ceil_div(rows, kRows), kStandardizedThreads / kWarp);
  pack_standardized_kernel<kRows, kWords>
      <<<static_cast<unsigned>(blocks), kStandardizedThreads, 0, context.stream>>>(source, args,
                                                                                   rows);
  return cudaGetLastError();
}

template <class T>
cudaError_t launch_pack_standardized(const StandardizedPackArgs& args, int64_t rows,
                                     const Context& context) {
  const DenseRows<T> source{static_cast<const T*>(args.x), args.row_stride};
  const int64_t words = word_count(args.cols);
  if (rows == 0) return cudaSuccess;
  if (words == 0)
    return args.scale != nullptr
               ? cudaMemsetAsync(args.scale, 0, static_cast<size_t>(rows) * sizeof(float),
                                 context.stream)
               : cudaSuccess;
  if (words <= 2) return launch_standardized_tile<8, 2>(source, args, rows, context);
  if (words <= 4) return launch_standardized_tile<4, 4>(source, args, rows, context);
  if (words <= 8) return launch_standardized_tile<2, 8>(source, args, rows, context);
  if (words <= 16) return launch_standardized_tile<1, 16>(source, args, rows, context);
  if (words <= 24) return launch_standardized_tile<1, 24>(source, args, rows, context);
  if constexpr (sizeof(T) <= sizeof(float)) {
    if (words <= 48) return launch_standardized_tile<1, 48>(source, args, rows, context);
  }
  pack_standardized_long_kernel<<<static_cast<unsigned>(rows), kStandardizedThreads, 0,
                                  context.stream>>>(source, args);
  return cudaGetLastError();
}

}  // namespace bitgnn::cuda

// Arguments of the operator that merges a batch into running statistics of columns.
#pragma once

#include "training/arguments.h"

namespace bitgnn {

// Statistics of columns and of all entries: means, mean squared deviations, shares of entries that
// are at least the smallest normal number, [cols]; the share below 0 and the rows they stand for.
template <class T>
struct ColumnMoments {
  T *mean, *variance, *present, *negative, *rows;
};

// out = held merged with x by the weight number / (number + held.rows), in float64, rounded once;
// held itself where `due` is not above 0 or a merged mean or variance is not finite. `finite` is 0
// in the second case, else 1. Sums are those of values minus the first row's.
struct MergeColumnsArgs {
  const float* x;
  int64_t rows, cols, row_stride;  // of the rows that are looked at
  double number;                   // of rows that they stand for
  double memory;                   // batches that statistics stand for at most
  ColumnMoments<const float> held;
  const float* due;  // a single number, or null
  ColumnMoments<float> out;
  float* finite;

  BITGNN_BOTH_SIDES bool is_due() const {
    return rows > 0 && cols > 0 && (due == nullptr || *due > 0.0f);
  }

  BITGNN_BOTH_SIDES double weight() const {
    return number / (static_cast<double>(*held.rows) + number);
  }
};

// What is counted of a column, or of a part of its rows.
struct ColumnCounts {
  double sum, squares;
  int32_t present, negative;
};

BITGNN_BOTH_SIDES void count_value(float x, float first, ColumnCounts* counts) {
  const double value = static_cast<double>(x) - static_cast<double>(first);
  counts->sum += value;
  counts->squares += value * value;
  counts->present += static_cast<int32_t>(x >= 1.17549435e-38f);
  counts->negative += static_cast<int32_t>(x < 0.0f);
}

BITGNN_BOTH_SIDES void add_counts(const ColumnCounts& more, ColumnCounts* counts) {
  counts->sum += more.sum;
  counts->squares += more.squares;
  counts->present += more.present;
  counts->negative += more.negative;
}

BITGNN_BOTH_SIDES float blended(double held, double found, double weight) {
  return static_cast<float>(held + (found - held) * weight);
}

// Writes the merged statistics of a column; true if they are finite.
BITGNN_BOTH_SIDES bool merge_column(const MergeColumnsArgs& a, int64_t column,
                                    const ColumnCounts& counts) {
  const double rows = static_cast<double>(a.rows), weight = a.weight();
  const double shift = counts.sum / rows;
  const double mean = static_cast<double>(a.x[column]) + shift;
  double variance = counts.squares / rows - shift * shift;
  variance = variance < 0.0 ? 0.0 : variance;
  const double held = static_cast<double>(a.held.mean[column]), distance = mean - held;
  if (*a.held.rows > 0.0f)
    variance = static_cast<double>(a.held.variance[column]) * (1.0 - weight) + variance * weight +
               distance * distance * (weight * (1.0 - weight));
  a.out.mean[column] = blended(held, mean, weight);
  a.out.variance[column] = static_cast<float>(variance);
  a.out.present[column] = blended(static_cast<double>(a.held.present[column]),
                                  static_cast<double>(counts.present) / rows, weight);
  // Differences of finite numbers are 0, others NaN.
  return a.out.mean[column] - a.out.mean[column] == 0.0f &&
         a.out.variance[column] - a.out.variance[column] == 0.0f;
}

// Writes the merged statistics of all entries, of which `negative` are below 0.
BITGNN_BOTH_SIDES void merge_entries(const MergeColumnsArgs& a, int64_t negative) {
  const double entries = static_cast<double>(a.rows) * static_cast<double>(a.cols);
  *a.out.negative = blended(static_cast<double>(*a.held.negative),
                            static_cast<double>(negative) / entries, a.weight());
  const double rows = static_cast<double>(*a.held.rows);
  const double grown = rows + a.number, most = (a.memory - 1.0) * a.number;
  const double kept = rows * (1.0 - 1.0 / a.memory), bounded = grown < most ? grown : most;
  *a.out.rows = static_cast<float>(bounded > kept ? bounded : kept);
}

BITGNN_KERNEL(training, merge_columns, const MergeColumnsArgs& args);

}  // namespace bitgnn

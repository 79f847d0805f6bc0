// The operator that makes a pattern of edges on the CPU.
#pragma once

#include <torch/csrc/stable/tensor.h>

#include <tuple>

namespace bitgnn::cpu {

// Row pointer int32 [num_rows + 1] and columns int32 [E] of the pattern of edges, which are int32
// or int64 [E]; with self_loops one loop a node in place of those that are there, and room for
// [E + num_rows] columns, of which rowptr[num_rows] are filled.
std::tuple<torch::stable::Tensor, torch::stable::Tensor> csr_from_edges_operator(
    const torch::stable::Tensor& sources, const torch::stable::Tensor& destinations,
    int64_t num_rows, int64_t num_cols, bool self_loops);

}  // namespace bitgnn::cpu

// The CPU operator that builds a CSR pattern from edges.
#pragma once

#include <torch/csrc/stable/tensor.h>

#include <tuple>

namespace bitgnn::cpu {

// Row pointer int32 [num_rows + 1] and columns int32 [E] of the pattern given by edges, int32 or
// int64 [E]. With self_loops, one loop per node replaces the existing ones, and there is room for
// [E + num_rows] columns, of which rowptr[num_rows] are filled.
std::tuple<torch::stable::Tensor, torch::stable::Tensor> csr_from_edges_operator(
    const torch::stable::Tensor& sources, const torch::stable::Tensor& destinations,
    int64_t num_rows, int64_t num_cols, bool self_loops);

}  // namespace bitgnn::cpu

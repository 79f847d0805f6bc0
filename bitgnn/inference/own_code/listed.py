"""Functions, methods and modules that a checkpoint may name."""

from __future__ import annotations

import builtins
import inspect
import operator
from collections.abc import Callable
from typing import Any

import torch
import torch_geometric.nn
import torch_geometric.utils
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import aggr, norm

import bitgnn.nn
from bitgnn.nn.edge_features import graph_scores_of_pairs, ordered_features
from bitgnn.nn.gine_conv import sums_beside_edges
from bitgnn.nn.propagation.reductions import aggregate, extreme_of_sums


class Method:
    """A method of a tensor, to be called as a function."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        """Call it."""
        return getattr(value, self.__name__)(*args, **kwargs)


def results(value: Any) -> Any:
    """Result of a forward that returns a structure of several tensors."""
    return value


def _named(*rows: tuple[str, Any, str]) -> dict[str, Any]:
    """Members of packages by these names; versions of them may lack some."""
    return {
        f"{package}.{name}": getattr(owner, name)
        for package, owner, names in rows
        for name in names.split()
        if hasattr(owner, name)
    }


_LAYERS = """
    Identity Dropout Dropout1d AlphaDropout FeatureAlphaDropout Flatten Linear Bilinear
    Embedding BatchNorm1d LayerNorm GroupNorm InstanceNorm1d RMSNorm ReLU ReLU6 ELU SELU CELU
    GELU SiLU Mish Sigmoid LogSigmoid Tanh Softplus Softsign Softshrink Hardshrink Tanhshrink
    Hardtanh Hardsigmoid Hardswish LeakyReLU PReLU RReLU Threshold GLU Softmax LogSoftmax
    Softmin CosineSimilarity PairwiseDistance
"""
_NORMS = """
    BatchNorm InstanceNorm LayerNorm GraphNorm GraphSizeNorm PairNorm MeanSubtractionNorm
    MessageNorm DiffGroupNorm
"""
_AGGREGATIONS = """
    SumAggregation MeanAggregation MaxAggregation MinAggregation MulAggregation VarAggregation
    StdAggregation MedianAggregation SortAggregation VariancePreservingAggregation
"""
_PYG = """
    Linear JumpingKnowledge GCNConv SAGEConv GraphConv GATConv GATv2Conv ChebConv TAGConv LEConv
    SGConv APPNP InnerProductDecoder
"""
_OWN = """
    GCNConv SAGEConv GraphConv GATConv GATv2Conv RGCNConv FastRGCNConv Linear BinaryLinear
    NodeStandardize
"""
_TENSOR = """
    abs acos add addmm all amax amin any arange argmax argmin argsort asin atan atan2 bmm cat
    addcdiv addcmul aminmax bincount bucketize cdist count_nonzero cross hstack isin kron
    moveaxis nanmean nansum narrow nonzero ravel searchsorted select sinc std_mean swapdims
    unique unique_consecutive var_mean vstack
    ceil celu chunk clamp clamp_max clamp_min clip concat cos cosh cummax cumprod cumsum deg2rad
    diff div dot einsum eq erf erfc exp expm1 eye flatten flip floor floor_divide fmod full
    full_like gather ge gt heaviside hypot index_select inner isfinite isinf isnan le lerp
    linspace log log10 log1p log2 log_softmax logaddexp logical_and logical_not logical_or
    logical_xor logsumexp lt masked_fill matmul max maximum mean median min minimum mm movedim
    mul multiply mv nan_to_num ne neg norm ones ones_like outer permute pow prelu prod
    reciprocal relu remainder repeat_interleave reshape roll round rsqrt scatter scatter_add
    selu sigmoid sign sin sinh softmax sort split sqrt square squeeze stack std sub subtract sum
    swapaxes t take_along_dim tan tanh tile topk transpose tril triu true_divide trunc unbind
    unsqueeze var where zeros zeros_like
"""
_OF_TENSORS = (
    _TENSOR
    + """
    bool clone contiguous cpu detach dim double expand expand_as float half int long new_full
    new_ones new_zeros numel repeat size to type_as view view_as index_add masked_fill_ add_
    mul_ div_ sub_ clamp_ relu_ sigmoid_ tanh_ pow_ square_ exp_ unflatten item
"""
)
_FUNCTIONAL = """
    celu cosine_similarity dropout elu gelu glu group_norm hardshrink hardsigmoid hardswish
    hardtanh layer_norm leaky_relu linear log_softmax logsigmoid mish normalize one_hot pad
    pairwise_distance prelu relu relu6 rms_norm rrelu selu sigmoid silu softmax softmin softplus
    softshrink softsign tanh tanhshrink threshold embedding instance_norm batch_norm
"""
_OPERATORS = """
    add sub mul truediv floordiv mod pow matmul neg abs eq ne lt le gt ge and_ or_ xor invert
    iadd isub imul itruediv getitem
"""
_UTILITIES = """
    scatter softmax degree to_dense_batch segment one_hot cumsum to_dense_adj add_self_loops
    remove_self_loops add_remaining_self_loops contains_self_loops coalesce to_undirected
    is_undirected sort_edge_index lexsort spmm subgraph k_hop_subgraph index_to_mask mask_select
    select narrow group_argsort group_cat homophily normalize_edge_index unbatch
    unbatch_edge_index negative_sampling dropout_edge dropout_node trim_to_layer
"""
_POOLS = """
    global_add_pool global_mean_pool global_max_pool global_sort_pool avg_pool_neighbor_x
    dense_diff_pool dense_mincut_pool knn_interpolate
"""
MODULES: dict[str, type[nn.Module]] = _named(
    ("torch.nn", nn, _LAYERS),
    ("torch_geometric.nn.norm", norm, _NORMS),
    ("torch_geometric.nn.aggr", aggr, _AGGREGATIONS),
    ("torch_geometric.nn", torch_geometric.nn, _PYG),
    ("bitgnn.nn", bitgnn.nn, _OWN),
)
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "results": results,
    "builtins.getattr": builtins.getattr,
    "bitgnn.nn.aggregate": inspect.unwrap(aggregate),
    "bitgnn.nn.propagation.extreme_of_sums": extreme_of_sums,
    "bitgnn.nn.edge_features.ordered_features": ordered_features,
    "bitgnn.nn.gine_conv.sums_beside_edges": inspect.unwrap(sums_beside_edges),
    "bitgnn.nn.edge_features.graph_scores_of_pairs": graph_scores_of_pairs,
    **_named(
        ("torch", torch, _TENSOR),
        ("torch.nn.functional", functional, _FUNCTIONAL),
        ("operator", operator, _OPERATORS),
        ("torch_geometric.nn", torch_geometric.nn, _POOLS),
        ("torch_geometric.utils", torch_geometric.utils, _UTILITIES),
    ),
}
METHODS = frozenset(name for name in _OF_TENSORS.split() if hasattr(Tensor, name))
ATTRIBUTES = ("shape", "dtype", "device", "ndim", "T", "mT", "values", "indices")
"""All that a checkpoint can name, ``getattr`` an attribute; nothing else is ever looked up."""

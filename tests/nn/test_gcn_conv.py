"""GCNConv: PyG's behaviour in fp32, the stated formulas in the binary forms."""

import pytest
import torch
import torch_geometric.nn
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from bitgnn import BitAdjacency
from bitgnn.nn import GCNConv
from bitgnn.quantize import binary_linear, sgn

N, IN, OUT = 30, 40, 12


def _dense(edge_index):
    index, weight = gcn_norm(edge_index, None, N)
    dense = torch.zeros(N, N)
    return dense.index_put_((index[1], index[0]), weight, accumulate=True)


def test_fp32_is_pyg(graph, x):
    torch.manual_seed(0)
    theirs = torch_geometric.nn.GCNConv(IN, OUT)
    torch.manual_seed(0)
    ours = GCNConv(IN, OUT, precision="fp32")
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    assert torch.equal(ours.lin.weight, theirs.lin.weight)
    assert torch.equal(ours(x, graph), theirs(x, graph))
    assert str(ours) == str(theirs)


def test_full_is_the_formula(graph, x):
    conv = GCNConv(IN, OUT, precision="FBF+FBF")
    torch.nn.init.normal_(conv.bias)
    weight = conv.lin.weight
    product = (x.abs().mean(1, keepdim=True) * sgn(x)) @ (
        weight.abs().mean(1, keepdim=True) * sgn(weight)
    ).t()
    expected = _dense(graph) @ product + conv.bias
    assert torch.allclose(conv(x, graph), expected, atol=1e-5)


@pytest.mark.parametrize("letters", ["FBB+BBF", "FBB+BBB"])
def test_bin_leaves_the_column_factor_out(graph, x, letters):
    conv = GCNConv(IN, OUT, precision=letters)
    torch.nn.init.normal_(conv.bias)
    bits = sgn(sgn(x) @ sgn(conv.lin.weight).t())
    pattern = torch.zeros(N, N).index_put_(
        tuple(gcn_norm(graph, None, N)[0].flip(0)), torch.ones(()), accumulate=True
    )
    expected = pattern.sum(1, keepdim=True).rsqrt() * (pattern @ bits) + conv.bias
    if letters.endswith("B"):
        expected = sgn(expected)
    assert torch.allclose(conv(x, graph), expected, atol=1e-5)


def test_float_adjacency_letter_uses_exact_weights(graph, x):
    weight = torch.rand(graph.size(1))
    conv = GCNConv(IN, OUT, precision="FBF+FFF")
    # Feed PyG's layer the binary product by making its own linear map the identity.
    plain = torch_geometric.nn.GCNConv(OUT, OUT, bias=False)
    plain.lin.weight.data = torch.eye(OUT)
    product = binary_linear(x, conv.lin.weight)
    expected = plain(product, graph, weight)
    assert torch.allclose(conv(x, graph, weight), expected, atol=1e-5)
    with pytest.raises(ValueError, match="aggregates with float edge weights"):
        conv(x, BitAdjacency.from_edge_index(graph, N))


def test_aggregation_gradient_is_the_transposed_matrix(graph, x):
    from bitgnn.nn.aggregation import aggregate

    adjacency = BitAdjacency.from_edge_index(graph, N, normalize="sym", add_self_loops=True)
    bias = torch.zeros(IN, requires_grad=True)
    x = x.clone().requires_grad_()
    grad = torch.randn(N, IN)
    aggregate(x, adjacency, bias).backward(grad)
    assert torch.allclose(x.grad, _dense(graph).t() @ grad, atol=1e-5)
    assert torch.allclose(bias.grad, grad.sum(0), atol=1e-5)

"""SAGEConv and GraphConv: PyG's behaviour in fp32, the stated formulas in the binary forms."""

import pytest
import torch
import torch_geometric.nn
from torch_geometric import EdgeIndex
from torch_geometric.utils import to_torch_csr_tensor
from wrong_calls import check_wrong_calls

from bitgnn import BitAdjacency
from bitgnn.nn import GraphConv, SAGEConv
from bitgnn.ops.int8 import quantise_weight
from bitgnn.quantize import sgn
from bitgnn.quantize.int8_linear import UNITS, column_factors

N, IN, OUT = 30, 40, 12
LAYERS = [
    (SAGEConv, {}),
    (SAGEConv, {"aggr": "sum"}),
    (GraphConv, {}),
    (GraphConv, {"aggr": "mean"}),
]
LETTERS = ["FBF+FBF", "FBB+BBF", "FBB+BBB", "BBF+FBF", "BFF+FBF"]
NAMES = ["full", "bin"]
BINARY = [*NAMES, *LETTERS]


def _parts(conv):
    """Maps of the neighbours and of the node."""
    linear, *root = conv._products()
    return linear, root[0] if root else None


def _randomised(conv):
    torch.manual_seed(4)
    torch.nn.init.normal_(_parts(conv)[0].bias)
    return conv


def _matrix(edges, num_destinations, num_sources, conv, weight=None):
    """The dense matrix of the aggregation."""
    weight = torch.ones(edges.size(1)) if weight is None else weight
    matrix = torch.zeros(num_destinations, num_sources)
    matrix.index_put_((edges[1], edges[0]), weight, accumulate=True)
    if str(conv.aggr) == "mean":
        degree = torch.bincount(edges[1], minlength=num_destinations).clamp(min=1)
        matrix = matrix / degree.unsqueeze(1)
    return matrix


def _product(x, weight, letters, signs=False):
    """The dense product by its definition."""
    used = sgn(weight) if letters[1] == "B" else weight
    dot = sgn(x) @ used.t()
    if signs:
        return sgn(dot)
    if letters[1] == "B":
        dot = dot * weight.abs().mean(1)
    return dot * x.abs().mean(1, keepdim=True) if letters[0] == "F" else dot


def _expected(conv, matrix, x_source, x_destination):
    """The layer's output by its definition, before a sign of its own."""
    neighbours, root = _parts(conv)
    letters = conv.letters.bmm
    z = _product(x_source, neighbours.weight, letters, signs=letters[2] == "B")
    out = matrix @ z + neighbours.bias
    return out if x_destination is None else out + _product(x_destination, root.weight, letters)


def _looked_up(conv, x, side):
    """The product of a layer of named precision on features by its definition: 8-bit rows."""
    bits = conv.root_bits if side and conv.root_bits is not None else conv.input_bits
    assert bits.kind == "rows"
    centre, inverse = bits.scales()
    codes, steps = quantise_weight(_parts(conv)[side].weight * column_factors(inverse))
    product = ((x - centre) * inverse).round().clamp(-127, 127) @ codes[:, : x.size(1)].float().t()
    return (conv.root_gain if side else conv.output_gain) * product * steps / UNITS


def _agree(out, expected, conv):
    if conv.letters.bspmm[2] == "F":
        assert torch.allclose(out, expected, atol=1e-4)
        return
    clear = expected.abs() > 1e-4
    assert clear.float().mean() > 0.9
    assert torch.equal(out[clear], sgn(expected)[clear])


@pytest.mark.parametrize(("layer", "options"), LAYERS)
def test_fp32_is_pyg(graph, x, layer, options):
    theirs_class = getattr(torch_geometric.nn, layer.__name__)
    torch.manual_seed(0)
    theirs = theirs_class(IN, OUT, **options)
    torch.manual_seed(0)
    ours = layer(IN, OUT, precision="fp32", **options)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    assert torch.equal(ours(x, graph), theirs(x, graph))
    assert str(ours) == str(theirs)
    for precision in ("bin", "FBB+BBF"):
        binary = layer(IN, OUT, precision=precision, **options)
        binary.load_state_dict(theirs.state_dict())
        for ours_linear, theirs_linear in zip(_parts(binary), _parts(ours), strict=True):
            assert torch.equal(ours_linear.weight, theirs_linear.weight)


@pytest.mark.parametrize("precision", LETTERS)
@pytest.mark.parametrize(("layer", "options"), LAYERS)
def test_binary_forms_are_the_formula(graph, x, layer, options, precision):
    conv = _randomised(layer(IN, OUT, precision=precision, **options))
    _agree(conv(x, graph), _expected(conv, _matrix(graph, N, N, conv), x, x), conv)


@pytest.mark.parametrize("precision", BINARY)
@pytest.mark.parametrize(("layer", "options"), LAYERS)
def test_bipartite_pairs(bipartite, x, layer, options, precision):
    x2 = torch.randn(9, 7)
    conv = _randomised(layer((IN, 7), OUT, precision=precision, **options))
    matrix = _matrix(bipartite, 9, N, conv)
    conv((x, x2), bipartite)  # Statistics go on in training.
    out = conv.eval()((x, x2), bipartite)
    if precision in LETTERS:
        _agree(out, _expected(conv, matrix, x, x2), conv)
        expected = _expected(conv, matrix, x, None)
    else:
        z, root = (_looked_up(conv, *side) for side in zip((x, x2), range(2), strict=True))
        expected = matrix @ z + _parts(conv)[0].bias
        _agree(out, expected + root, conv)
    assert torch.equal(conv((x, x2), bipartite, size=(N, 9)), out)
    _agree(conv((x, None), bipartite, size=(N, 9)), expected, conv)
    sparse = to_torch_csr_tensor(bipartite.flip(0), size=(9, N))
    assert torch.allclose(conv((x, x2), sparse), out, atol=1e-5)
    assert conv((x, None), sparse).shape == (9, OUT)
    index = EdgeIndex(bipartite.contiguous(), sparse_size=(N, 9))
    assert torch.allclose(conv((x, x2), index), out, atol=1e-5)
    assert conv((x, None), index).shape == (9, OUT)


@pytest.mark.parametrize("precision", ["FBF+FBF", "FBB+BBF", "FBF+FFF"])
def test_edge_weights_are_exact_and_get_their_gradient(simple, x, precision):
    weight = torch.randn(simple.size(1)).requires_grad_()
    conv = _randomised(GraphConv(IN, OUT, precision=precision))
    out = conv(x, simple, weight)
    _agree(out, _expected(conv, _matrix(simple, N, N, conv, weight.detach()), x, x), conv)
    out.sum().backward()
    assert weight.grad.abs().sum() > 0


@pytest.mark.parametrize("precision", [*NAMES, "FBF+FBF", "FBB+BBF", "FBF+FFF"])
@pytest.mark.parametrize("layer", [SAGEConv, GraphConv])
def test_flow(graph, x, layer, precision):
    conv = _randomised(layer(IN, OUT, precision=precision, flow="target_to_source"))
    out = conv(x, graph)
    straight = layer(IN, OUT, precision=precision)
    straight.load_state_dict(conv.state_dict())
    assert torch.allclose(out, straight(x, graph.flip(0)), atol=1e-5)
    sparse = to_torch_csr_tensor(graph.flip(0), size=N)
    with pytest.raises(ValueError, match=r"(?i)flow.*target_to_source"):
        conv(x, sparse)


@pytest.mark.parametrize("layer", [SAGEConv, GraphConv])
def test_one_product_of_both_maps_is_two_products(graph, x, layer):
    # The same features as a pair of two tensors take the way of bipartite graphs.
    for precision in BINARY:
        conv = _randomised(layer(IN, OUT, precision=precision))
        one, other = x.clone().requires_grad_(), x.clone().requires_grad_()
        out = conv(one, graph)
        out.mul(torch.arange(OUT)).sum().backward()
        learning = [p for p in conv.parameters() if p.grad is not None]
        assert len(learning) >= 3
        held = [p.grad.clone() for p in learning]
        conv.zero_grad()
        pair = conv((other, other.clone()), graph)
        assert torch.allclose(out, pair, atol=1e-5)
        pair.mul(torch.arange(OUT)).sum().backward()
        for grad, parameter in zip(held, learning, strict=True):
            assert torch.allclose(grad, parameter.grad, rtol=1e-4, atol=1e-4)
        assert torch.allclose(one.grad, other.grad, rtol=1e-4, atol=1e-4)


def test_sage_options(graph, x):
    rootless = SAGEConv(IN, OUT, root_weight=False, precision="FBF+FBF")
    assert set(rootless.state_dict()) == {"lin_l.weight", "lin_l.bias"}
    matrix = _matrix(graph, N, N, rootless)
    expected = matrix @ _product(x, rootless.lin_l.weight, "FBF") + rootless.lin_l.bias
    assert torch.allclose(rootless(x, graph), expected, atol=1e-5)
    for precision in ("bin", "FBB+BBF"):
        unit = SAGEConv(IN, OUT, normalize=True, precision=precision)
        assert torch.allclose(unit(x, graph).norm(dim=1), torch.ones(N), atol=1e-5)
        assert SAGEConv(IN, OUT, bias=False, precision=precision)(x, graph).shape == (N, OUT)
    rootless = SAGEConv(IN, OUT, root_weight=False, precision="full")
    rootless(x, graph)
    out = rootless.eval()(x, graph)
    assert rootless.root_norm is None
    assert torch.allclose(out, matrix @ _looked_up(rootless, x, 0) + rootless.lin_l.bias, atol=1e-5)
    signs = SAGEConv(IN, OUT, normalize=True, precision="FBB+BBB")(x, graph)
    assert signs.abs().eq(1).all()


@pytest.mark.parametrize("precision", ["FBF+FBF", *NAMES])
@pytest.mark.parametrize("sizes", [IN, (IN, IN)])
@pytest.mark.parametrize("layer", [SAGEConv, GraphConv])
def test_other_widths_are_refused_before_and_after_the_first_batch(
    graph, x, layer, sizes, precision
):
    conv = layer(sizes, OUT, precision=precision)
    for _ in range(2):
        for wrong in (x[:, 1:], (x, x[:, 1:])):
            with pytest.raises(
                ValueError, match=rf"{layer.__name__}: x must be \[N, 40\], got \[30, 39\]"
            ):
                conv(wrong, graph)
        conv((x, x.clone()), graph)


WRONG = r"""
conv(x.numpy(), graph) -> TypeError: Conv: x must be a tensor or a pair, got float32 nd
conv((x, x.numpy()), graph) -> TypeError: x must be a tensor or a pair, got float32 ndarray
conv((x, x[:8]), bipartite, size=(30, 9)) -> ValueError: Conv: x holds 8 destinations, .* says 9
conv((None, x), graph) -> ValueError: must hold the features of the sources
conv(x, narrow) -> ValueError: must be 30 x 30 like the nodes, got 30 x 29
exact(x, square) -> ValueError: aggregates with float edge weights, got a BitAdjacency
conv((x, x[:9]), graph) -> ValueError: edge_index\[1\] must lie in \[0, 9\)
conv(x, graph.float()) -> TypeError: int64 or int32, got torch\.float32
layer(4, 4, dropout=1.0) -> ValueError: Conv: dropout must be in \[0, 1\), got 1.0
"""


@pytest.mark.parametrize("layer", [SAGEConv, GraphConv])
def test_wrong_calls(graph, bipartite, x, layer):
    conv, exact = layer(IN, OUT, precision="bin"), layer(IN, OUT, precision="FBF+FFF")
    narrow = BitAdjacency.from_edge_index(torch.tensor([[0], [1]]), (N, 29))
    square = BitAdjacency.from_edge_index(graph, N)
    check_wrong_calls(WRONG, locals())

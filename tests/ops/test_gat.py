"""Graph attention over bits: the formula in plain torch, orders of sums, wrong calls."""

import pytest
import torch
from torch.nn import functional
from wrong_calls import check_wrong_calls

from bitgnn import BitAdjacency, BitTensor
from bitgnn.ops import gat
from bitgnn.ops.reference.gat import exponential

N, HEADS, CHANNELS = 40, 4, 10


def _graph(rows=N, sources=N, edges=300, seed=0):
    generator = torch.Generator().manual_seed(seed)
    pairs = torch.stack(
        [torch.randint(0, size, (edges,), generator=generator) for size in (sources, rows)]
    )
    return BitAdjacency.from_edge_index(pairs, (rows, sources))


def _attended(x, adjacency, scores, shared=False):
    """Softmax and weighted sums in float64, edge by edge."""
    sources, targets = adjacency.to_edge_index()
    rows, heads = adjacency.shape[0], scores.size(1)
    out = torch.zeros(rows, heads, x.size(-1) if shared else x.size(-1) // heads).double()
    values = x.double().unsqueeze(1) if shared else x.double().view(len(x), heads, -1)
    for row in range(rows):
        own = targets == row
        if own.any():
            weights = scores[own].double().softmax(0).unsqueeze(2)
            out[row] = (weights * values[sources[own]]).sum(0)
    return out.flatten(1).float()


def _signs(rows, size, seed):
    x = torch.randn(rows, size, generator=torch.Generator().manual_seed(seed))
    return torch.where(x >= 0, 1.0, -1.0)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("rows", [N, 7])
def test_gat_is_a_softmax_of_scores(shared, rows, device):
    x, adjacency = _signs(N, HEADS * CHANNELS, 1), _graph(rows)
    source, target, edge = torch.randn(N, HEADS), torch.randn(rows, HEADS), torch.randn(300, HEADS)
    bias = torch.randn(x.size(1) * (HEADS if shared else 1))
    j, i = adjacency.to_edge_index()
    scores = functional.leaky_relu(source[j] + target[i] + edge, 0.2)
    expected = _attended(x, adjacency, scores, shared) + bias
    found = gat.gat(
        BitTensor.from_float(x).to(device), adjacency.to(device), source.to(device),
        target.to(device), edge=edge.to(device), bias=bias.to(device), shared=shared,
    )  # fmt: skip
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("channels", [1, 8, 10, 32])
def test_gatv2_is_a_softmax_of_pairs(channels, device):
    torch.manual_seed(0)
    size, adjacency = HEADS * channels, _graph()
    left, right = _signs(N, size, 1), _signs(N, size, 2)
    att, left_bias, right_bias = torch.randn(HEADS, channels), torch.randn(size), torch.randn(size)
    j, i = adjacency.to_edge_index()
    pairs = functional.leaky_relu(left[j] + left_bias + right[i] + right_bias, 0.2)
    scores = (pairs.view(len(j), HEADS, channels) * att).sum(2)
    weights = gat.pair_weights(att, 0.2, left_bias, right_bias)
    found = gat.gatv2(
        BitTensor.from_float(left).to(device), adjacency.to(device),
        BitTensor.from_float(left).to(device), BitTensor.from_float(right).to(device),
        gat.PairWeights(*(part.to(device) for part in weights)),
    )  # fmt: skip
    expected = _attended(left, adjacency, scores)
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("channels", [1, 8, 10, 32])
@pytest.mark.parametrize("rows", [N, 7])
def test_transformer_is_a_softmax_of_dot_products(channels, rows, device):
    torch.manual_seed(0)
    x, adjacency, width = _signs(N, HEADS * CHANNELS, 1), _graph(rows), HEADS * channels
    query, key, edge = torch.randn(rows, width), torch.randn(N, width), torch.randn(300, HEADS)
    j, i = adjacency.to_edge_index()
    scores = (query[i] * key[j]).view(300, HEADS, channels).sum(2) + edge
    found = gat.transformer(
        BitTensor.from_float(x).to(device), adjacency.to(device), query.to(device), key.to(device),
        HEADS, edge=edge.to(device),
    )  # fmt: skip
    torch.testing.assert_close(found.cpu(), _attended(x, adjacency, scores), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shared", [False, True])
def test_scores_of_edges_alone(shared, device):
    x, adjacency, edge = _signs(N, 40, 1), _graph(7), torch.randn(300, HEADS)
    found = gat.gat(
        BitTensor.from_float(x).to(device), adjacency.to(device), None, None, edge=edge.to(device),
        negative_slope=1.0, shared=shared,
    )  # fmt: skip
    expected = _attended(x, adjacency, edge, shared)
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-5, atol=1e-5)
    csr = adjacency.rowptr.to(device), adjacency.indices.to(device)
    words, last = BitTensor.from_float(x).words.to(device), (None, None, 0.2, edge.to(device))
    torch.library.opcheck(torch.ops.bitgnn.gat_bits.default, (words, 40, 4, *csr, *last))
    for given in ((None, None, 1.0), (edge[:N].to(device), None, 1.0, edge.to(device))):
        with pytest.raises((RuntimeError, ValueError), match="source and target"):
            torch.ops.bitgnn.gat_bits(words, 40, 4, *csr, *given)


def test_exponentials():
    x = -torch.rand(100_000) * 86
    exact = x.double().exp()
    assert ((exponential(x).double() - exact) / exact).abs().max() < 3e-7
    edge = torch.tensor([0.0, -87.0, -float("inf"), float("nan")])
    found = exponential(edge)
    assert found[:3].tolist() == [1.0, 0.0, 0.0]
    assert found[3].isnan()


def test_long_rows_have_one_order(device, sampler, assert_kernel_equals_reference):
    degrees = [0, 1, 31, 33, 255, 256, 257, 512, 513, 3000, 0, 5]
    rowptr = torch.tensor([0, *degrees]).cumsum(0).int()
    for seed, size in enumerate((33, 64, 256, 320)):
        for name in ("gat_bits", "edges", "gatv2_bits", "transformer_bits"):
            by_edges, name = name == "edges", name.replace("edges", "gat_bits")
            arguments = sampler(seed=seed).arguments(name, 50, size, 5, rowptr=rowptr)
            total = int(rowptr[-1])
            generator = torch.Generator().manual_seed(seed)
            arguments["indices"] = torch.randint(0, 50, (total,), generator=generator).int()
            arguments.pop("edge", None)
            if by_edges:
                edge = torch.randn(total, arguments["heads"], generator=generator)
                arguments |= {"source": None, "target": None, "edge": edge}
            assert_kernel_equals_reference(name, arguments, device)


def test_nothing_to_attend_to(device):
    empty = BitAdjacency.from_edge_index(torch.zeros(2, 0, dtype=torch.long), (3, 3)).to(device)
    x = BitTensor.from_float(torch.ones(3, 8)).to(device)
    scores = torch.zeros(3, 2, device=device)
    assert torch.equal(gat.gat(x, empty, scores, scores).cpu(), torch.zeros(3, 8))
    one = BitAdjacency.from_edge_index(torch.zeros(2, 1, dtype=torch.long), 1).to(device)
    x = BitTensor.from_float(torch.ones(1, 8)).to(device)
    assert torch.equal(gat.gat(x, one, scores[:1], scores[:1]).cpu(), torch.ones(1, 8))


WRONG_CALLS = """
gat.gat(scores, adjacency, scores, scores) -> TypeError: gat.gat: x must be a BitTensor
gat.gat(x, scores, scores, scores) -> TypeError: gat.gat: adjacency must be a BitAdjacency
gat.gat(x, adjacency, scores.double(), scores) -> TypeError: source must be a float32 tensor
gat.gat(x, adjacency, scores[:, :3], scores) -> ValueError: heads must divide the 40 .*, got 3
gat.gat(x, adjacency, scores, scores[:, :2]) -> ValueError: target must have shape .40, 4.
gat.gat(x, adjacency, scores, scores, edge=scores) -> ValueError: edge must have shape .300, 4.
gat.gat(x, adjacency, scores, scores, bias=scores[0]) -> ValueError: bias must have shape .40.
gat.gat(x, adjacency, scores, None) -> ValueError: source and target must be given both or not
gat.gat(x, adjacency, None, None) -> ValueError: heads must divide the 40 .*, got 0
gat.transformer(x, adjacency, scores, scores, 3) -> ValueError: heads must divide the 40 features
gat.transformer(x, adjacency, scores, scores, 8) -> ValueError: heads must divide the 4 columns
gat.transformer(x, adjacency, scores, scores[1:], 4) -> ValueError: key must have shape .40, 4.
gat.transformer(x, adjacency, x, scores, 4) -> TypeError: query must be a float32 tensor, got BitT
gat.gatv2(x, adjacency, narrow, x, weights) -> ValueError: left must have shape .40, 40., got
gat.gatv2(x, adjacency, x, scores, weights) -> TypeError: gat.gatv2: right must be a BitTensor
"""


def test_wrong_calls():
    names = {"gat": gat, "x": BitTensor.from_float(_signs(N, 40, 0)), "adjacency": _graph()}
    names |= {"scores": torch.zeros(N, 4), "narrow": BitTensor.from_float(_signs(N, 8, 0))}
    check_wrong_calls(WRONG_CALLS, names | {"weights": gat.pair_weights(torch.zeros(4, 10), 0.2)})

"""Edges of weight 0: no entries of a pattern, as good as removed; a mean counts them as in PyG."""

import warnings

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch.nn import functional

import bitgnn
import bitgnn.nn as bits
from bitgnn import BitAdjacency

N, WIDTH = 30, 40
BINARY = ["bin", "full", "FBF+FBF", "FBB+BBF", "FFF+FBF", "FBF+FFF", "TBF+TBF"]


@pytest.fixture
def masked(graph: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Edges, their mask as weights, and the edges that it leaves; no loop is masked."""
    generator = torch.Generator().manual_seed(6)
    keep = torch.rand(graph.size(1), generator=generator) < 0.5
    keep |= graph[0] == graph[1]
    return graph, keep.float(), graph[:, keep]


def trained(layer: nn.Module, x: Tensor, edges: Tensor) -> nn.Module:
    functional.cross_entropy(layer(x, edges), torch.arange(len(x)) % 6).backward()
    return layer.eval()


def sparse(form: str, edges: Tensor, weight: Tensor, nodes: int) -> Tensor:
    coo = torch.sparse_coo_tensor(edges.flip(0), weight, (nodes, nodes)).coalesce()
    return coo if form == "coo" else getattr(coo, f"to_sparse_{form}")()


class Net(nn.Module):
    """Two layers with weights of edges, in a form that can be frozen."""

    def __init__(self, layer: type[nn.Module], precision: str, **options: object) -> None:
        super().__init__()
        self.first = layer(WIDTH, 12, precision=precision, **options)
        self.second = layer(12, 6, precision=precision, **options)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return self.second(self.first(x, edge_index, edge_weight).relu(), edge_index, edge_weight)


@pytest.mark.parametrize("form", ["edge index", "coo", "csr", "csc"])
def test_patterns_hold_no_entry_of_weight_zero(form: str) -> None:
    edges = torch.tensor([[0, 1, 2, 2, 0], [1, 1, 0, 2, 2]])
    weight = torch.tensor([2.0, 0.0, -0.0, 2.0, 2.0])
    if form == "edge index":
        adjacency = BitAdjacency.from_edge_index(edges, 3, weight)
    else:
        adjacency = BitAdjacency.from_edge_index(sparse(form, edges, weight, 3))
    assert adjacency.rowptr.tolist() == [0, 0, 1, 3]
    assert adjacency.indices.tolist() == [0, 0, 2]
    assert adjacency.row_scale.tolist() == [0.0, 2.0, 2.0]
    assert adjacency.col_scale is None


def test_duplicates_that_cancel_and_loops_of_weight_zero_are_no_entries() -> None:
    edges = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 0]])
    weight = torch.tensor([1.5, -1.5, 0.0, 4.0])
    adjacency = BitAdjacency.from_edge_index(edges, 2, weight, coalesce=True, add_self_loops=True)
    # Node 1 has a loop already, of weight 0, which add_remaining_self_loops keeps.
    assert adjacency.to_dense().tolist() == [[1.0, 4.0], [0.0, 0.0]]
    assert adjacency.nnz == 2


def test_nothing_but_zeros_is_an_empty_pattern() -> None:
    edges = torch.tensor([[0, 1], [1, 0]])
    for normalize in (None, "sym", "mean"):
        adjacency = BitAdjacency.from_edge_index(edges, 2, torch.zeros(2), normalize=normalize)
        assert adjacency.nnz == 0
        assert not adjacency.to_dense().any()


@pytest.mark.parametrize("precision", BINARY)
@pytest.mark.parametrize(
    ("layer", "options"),
    [
        (bits.GCNConv, {}),
        (bits.GCNConv, {"normalize": False}),
        (bits.GCNConv, {"add_self_loops": False}),
        (bits.GraphConv, {}),
    ],
)
def test_masked_edges_equal_removed_ones(
    masked: tuple[Tensor, Tensor, Tensor],
    x: Tensor,
    layer: type[nn.Module],
    options: dict[str, bool],
    precision: str,
) -> None:
    edges, mask, left = masked
    conv = trained(layer(WIDTH, 6, precision=precision, **options), x, edges)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        ones = torch.ones(left.size(1))
        torch.testing.assert_close(conv(x, edges, mask), conv(x, left, ones), rtol=0, atol=1e-6)
        # Not with loops: one of weight 0 takes the place of the one that GCNConv would add.
        padded = torch.cat([left, torch.tensor([[0], [1]]).expand(2, 40)], 1)
        weight = torch.cat([ones, torch.zeros(40)])
        torch.testing.assert_close(conv(x, padded, weight), conv(x, left, ones), rtol=0, atol=1e-6)


@pytest.mark.parametrize("precision", ["bin", "full"])
@pytest.mark.parametrize("name", ["GCNConv", "GraphConv"])
@pytest.mark.parametrize("aggr", ["add", "mean"])
def test_frozen_models_agree(
    masked: tuple[Tensor, Tensor, Tensor], x: Tensor, name: str, precision: str, aggr: str
) -> None:
    edges, mask, left = masked
    model = trained(Net(getattr(bits, name), precision, aggr=aggr), x, edges)
    frozen = bitgnn.freeze(model)
    with torch.no_grad():
        expected = model(x, edges, mask)
        for graph in (None, frozen.prepare_graph(edges, N, mask)):
            found = frozen(x, edges, mask) if graph is None else frozen(x, graph)
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
        if aggr == "add":
            removed = frozen(x, left, torch.ones(left.size(1)))
            torch.testing.assert_close(found, removed, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["GCNConv", "GraphConv"])
@pytest.mark.parametrize("aggr", ["add", "mean"])
@pytest.mark.parametrize("form", ["edge index", "coo", "csr"])
def test_sums_and_means_are_those_of_pyg(
    simple: Tensor, x: Tensor, name: str, aggr: str, form: str
) -> None:
    edges, mask = simple, (torch.arange(simple.size(1)) % 3 > 0).float()
    theirs = getattr(pyg, name)(WIDTH, 6, aggr=aggr)
    mine = getattr(bits, name)(WIDTH, 6, aggr=aggr, precision="FFF+FBF")
    mine.load_state_dict(theirs.state_dict(), strict=False)
    with torch.no_grad():
        graph: tuple[Tensor, ...] = (edges, mask)
        expected = theirs(x, *graph)
        if form != "edge index":
            graph = (sparse(form, edges, mask, N),)
        torch.testing.assert_close(mine(x, *graph), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("precision", ["bin", "full"])
@pytest.mark.parametrize("name", ["GCNConv", "GraphConv"])
@pytest.mark.parametrize("aggr", ["add", "mean"])
def test_messages_of_masked_edges_are_zero(
    masked: tuple[Tensor, Tensor, Tensor], x: Tensor, name: str, precision: str, aggr: str
) -> None:
    edges, mask, _ = masked
    conv = trained(getattr(bits, name)(WIDTH, 6, precision=precision, aggr=aggr), x, edges)
    with torch.no_grad():
        expected = conv(x, edges, mask)
        conv.register_message_forward_hook(lambda *found: None)
        torch.testing.assert_close(conv(x, edges, mask), expected, rtol=0, atol=1e-5)


def test_weights_still_get_their_gradient_from_float_edges(
    masked: tuple[Tensor, Tensor, Tensor], x: Tensor
) -> None:
    edges, mask, _ = masked
    weight = mask.clone().requires_grad_()
    bits.GraphConv(WIDTH, 6, precision="FBF+FFF")(x, edges, weight).square().sum().backward()
    assert (weight.grad[mask == 0] != 0).any()

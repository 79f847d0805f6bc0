"""aggregate() and layers of one's own message passing, trained and frozen."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import add_self_loops, degree, scatter, spmm

import bitgnn
from bitgnn import BitAdjacency, BitTensor
from bitgnn.nn import Linear, aggregate
from bitgnn.nn.own_messages import OwnMessages, take_messages
from bitgnn.quantize import binary_sign

NODES, WIDTH, CLASSES = 50, 33, 4
EDGES = torch.randint(0, NODES - 1, (2, 200), generator=torch.Generator().manual_seed(0))
WEIGHTS = torch.rand(200, generator=torch.Generator().manual_seed(2)) - 0.5
X = torch.randn(NODES, WIDTH, generator=torch.Generator().manual_seed(1))
REDUCE = ("sum", "mean", "max", "min")


def plain(x, reduce, weight=None, edges=EDGES, nodes=NODES):
    messages = x.index_select(-2, edges[0])
    messages = messages if weight is None else messages * weight.unsqueeze(1)
    return scatter(messages, edges[1], -2, nodes, reduce)


@pytest.mark.parametrize("weight", [None, WEIGHTS], ids=["plain", "weighted"])
@pytest.mark.parametrize("reduce", REDUCE)
def test_is_pygs_message_passing(reduce, weight):
    x = X.clone().requires_grad_()
    given = None if weight is None else weight.clone().requires_grad_()
    leaves = [x] if given is None else [x, given]
    expected, out = plain(x, reduce, given), aggregate(x, EDGES, reduce, given)
    assert torch.allclose(out, expected, atol=1e-5)
    grad = torch.randn(out.shape, generator=torch.Generator().manual_seed(3))
    for a, b in zip(
        torch.autograd.grad(out, leaves, grad), torch.autograd.grad(expected, leaves, grad),
        strict=True,
    ):  # fmt: skip
        assert torch.allclose(a, b, atol=1e-4)
    static = torch.stack([X, -X])
    assert torch.allclose(aggregate(static, EDGES, reduce, weight), plain(static, reduce, weight),
                          atol=1e-5)  # fmt: skip
    assert aggregate(X.half(), EDGES, reduce, weight).dtype == torch.float16


@pytest.mark.parametrize("size", [1, 31, 33, 64])
@pytest.mark.parametrize("reduce", REDUCE)
def test_bits_are_their_signs(reduce, size):
    signs = torch.where(X.repeat(1, 2)[:, :size] >= 0, 1.0, -1.0)
    bits = BitTensor.from_float(signs)
    expected = plain(signs, reduce)
    out = aggregate(bits, EDGES, reduce)
    assert torch.equal(out, expected) if reduce != "mean" else torch.allclose(out, expected)
    assert torch.equal(aggregate(signs, EDGES, reduce), out)
    weighted = aggregate(bits, EDGES, reduce, WEIGHTS)
    assert torch.allclose(weighted, plain(signs, reduce, WEIGHTS), atol=1e-5)
    scaled = BitTensor.from_float(X, scale="mean")
    assert torch.allclose(aggregate(scaled, EDGES), plain(scaled.to_float(), "sum"), atol=1e-4)


def test_forms_of_the_graph():
    simple = torch.unique(EDGES, dim=1)
    expected = plain(X, "sum", edges=simple)
    matrix = torch.sparse_coo_tensor(simple.flip(0), torch.ones(simple.size(1)), (NODES, NODES))
    adjacency = BitAdjacency.from_edge_index(simple, NODES)
    for graph in (matrix.to_sparse_csr(), adjacency):
        assert torch.allclose(aggregate(X, graph), expected, atol=1e-5)
        assert torch.allclose(aggregate(X, graph, "max"), plain(X, "max", edges=simple))
    tall = BitAdjacency.from_edge_index(torch.tensor([[0, 1, 2], [0, 0, 6]]), (7, 3))
    out = aggregate(X[:3], tall)
    assert torch.equal(out, plain(X[:3], "sum", None, tall.to_edge_index(), 7))
    none = torch.empty(2, 0, dtype=torch.long)
    for reduce in REDUCE:
        assert torch.equal(aggregate(X[:1], none, reduce), torch.zeros(1, WIDTH))
        assert aggregate(X[:0], none, reduce).shape == (0, WIDTH)
    loop = torch.zeros(2, 1, dtype=torch.long)
    assert aggregate(torch.full((1, 2), torch.nan), loop).isnan().all()


@pytest.mark.parametrize(
    ("error", "given", "message"),
    [
        (ValueError, {"reduce": "prod"}, "reduce must be one of 'sum', .* got 'prod'"),
        (TypeError, {"x": X.long()}, "x must hold floats, got torch.int64"),
        (TypeError, {"x": [X]}, "x must be a tensor or a BitTensor, got list"),
        (ValueError, {"x": X[0]}, r"x must be \[N, K\], got \[33\]"),
        (ValueError, {"x": X[:9]}, "node|index|9"),
        (ValueError, {"graph": BitAdjacency.from_edge_index(EDGES, 51)}, "51 sources, x has 50"),
        (ValueError, {"graph": BitAdjacency.from_edge_index(EDGES, NODES), "reduce": "mean"},
         "edge index or a sparse matrix with reduce='mean', got a BitAdjacency"),
        (ValueError, {"graph": BitAdjacency.from_edge_index(EDGES, NODES), "edge_weight": WEIGHTS},
         "edge index or a sparse matrix with edge_weight, got a BitAdjacency"),
        (ValueError, {"edge_weight": WEIGHTS[:3]}, "edge_weight"),
    ],
)  # fmt: skip
def test_bad_arguments(error, given, message):
    with pytest.raises(error, match=message):
        aggregate(**{"x": X, "graph": EDGES, **given})


class Called(nn.Module):
    """A model of a user who calls aggregate()."""

    def __init__(self, reduce="sum", is_weighted=False):
        super().__init__()
        self.first, self.last = Linear(WIDTH, 40, precision="bin"), Linear(40, 4, precision="bin")
        self.reduce, self.is_weighted = reduce, is_weighted

    def forward(self, x, edge_index, edge_weight=None):
        weight = edge_weight if self.is_weighted else None
        x = aggregate(binary_sign(self.first(x)), edge_index, self.reduce, weight)
        return aggregate(self.last(functional.relu(x)), edge_index, "mean")


def trained(model, *inputs, steps=5):
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        model(*inputs).square().sum().backward()
        optimizer.step()
    return model.eval()


@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize("reduce", REDUCE)
def test_called_in_a_model(reduce, is_weighted, tmp_path):
    torch.manual_seed(0)
    model = trained(Called(reduce, is_weighted), X, EDGES, WEIGHTS)
    # Nearly every maximum of signs is +1, so that the last layer takes it as rows.
    assert (model.first.role, model.last.role) == ("first", "only" if reduce == "max" else "last")
    frozen = bitgnn.freeze(model)
    with torch.no_grad():
        expected = model(X, EDGES, WEIGHTS)
    assert torch.equal(frozen(X, EDGES, WEIGHTS), expected)
    on_bits = reduce in ("sum", "mean") or not is_weighted
    assert ("bspmm_bb" in str(frozen.program)) == on_bits
    read = bitgnn.load(bitgnn.save(frozen, tmp_path))
    assert torch.equal(read(X, EDGES, WEIGHTS), expected)


class Mean(MessagePassing):
    def __init__(self, inputs, outputs, aggr="mean"):
        super().__init__(aggr=aggr)
        self.lin, self.root = nn.Linear(inputs, outputs), nn.Linear(inputs, outputs)

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=self.lin(x)) + self.root(x)


class Weighted(MessagePassing):
    def __init__(self, inputs, outputs, aggr="add"):
        super().__init__(aggr=aggr)
        self.lin, self.bias = nn.Linear(inputs, outputs), nn.Parameter(torch.zeros(outputs))

    def forward(self, x, edge_index, edge_weight=None):
        return self.propagate(edge_index, x=self.lin(x), edge_weight=edge_weight) + self.bias

    def message(self, x_j, edge_weight):
        return x_j if edge_weight is None else edge_weight.view(-1, 1) * x_j


class SumFirst(MessagePassing):
    def __init__(self, inputs, outputs, aggr="add"):
        super().__init__(aggr=aggr)
        self.lin = nn.Linear(inputs, outputs)

    def forward(self, x, edge_index):
        return self.lin(self.propagate(edge_index, x=(x, x)) + x)

    def message_and_aggregate(self, adj_t, x):
        return spmm(adj_t, x[0], reduce=self.aggr)


class Tutorial(MessagePassing):
    """PyG's tutorial, which computes its graph."""

    def __init__(self, inputs, outputs, aggr="add"):
        super().__init__(aggr=aggr)
        self.lin = nn.Linear(inputs, outputs, bias=False)

    def forward(self, x, edge_index):
        edge_index, _ = add_self_loops(edge_index, num_nodes=x.size(0))
        x = self.lin(x)
        row, col = edge_index
        norm = degree(col, x.size(0), dtype=x.dtype).pow(-0.5)
        return self.propagate(edge_index, x=x, norm=norm[row] * norm[col])

    def message(self, x_j, norm):
        return norm.view(-1, 1) * x_j


class Other(Mean):
    """Its messages are something else."""

    def message(self, x_j):
        return x_j.relu()


class Noisy(Mean):
    def message(self, x_j):
        return functional.dropout(x_j, training=self.training)


class Net(nn.Module):
    def __init__(self, kind, *options):
        super().__init__()
        self.first, self.last = kind(WIDTH, 40, *options), kind(40, CLASSES, *options)

    def forward(self, x, edge_index, edge_weight=None):
        rest = (edge_weight,) if isinstance(self.first, Weighted) else ()
        return self.last(functional.relu(self.first(x, edge_index, *rest)), edge_index, *rest)


@pytest.mark.parametrize("aggr", ["add", "mean", "max", "min"])
@pytest.mark.parametrize("kind", [Mean, Weighted, SumFirst, Tutorial])
def test_own_layers_freeze(kind, aggr, tmp_path):
    torch.manual_seed(0)
    model = bitgnn.binarize(Net(kind, aggr))
    assert isinstance(model.first, OwnMessages)
    assert isinstance(model.first, kind)
    trained(model, X, EDGES, WEIGHTS)
    traced = kind is not Tutorial
    assert model.first.lin.gives_signs == (traced and kind is not SumFirst)
    frozen = bitgnn.freeze(model)
    with torch.no_grad():
        expected = model(X, EDGES, WEIGHTS)
    assert torch.equal(frozen(X, EDGES, WEIGHTS), expected)
    if kind in (Mean, Weighted) and aggr in ("add", "mean"):
        assert "bspmm_bb" in str(frozen.program)
    if traced:
        read = bitgnn.load(bitgnn.save(frozen, tmp_path))
        assert torch.equal(read(X, EDGES, WEIGHTS), expected)
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert isinstance(again.first, OwnMessages)
        assert torch.equal(again(X, EDGES, WEIGHTS), expected)


def test_own_layers_compute_what_they_did():
    """In floats the sums are PyG's."""
    torch.manual_seed(0)
    plain_layer = Weighted(WIDTH, 7)
    layer = copy.deepcopy(plain_layer)
    assert take_messages(layer)
    assert torch.allclose(layer(X, EDGES, WEIGHTS), plain_layer(X, EDGES, WEIGHTS), atol=1e-5)
    assert torch.allclose(layer(X, EDGES), plain_layer(X, EDGES), atol=1e-5)
    sparse = torch.sparse_coo_tensor(EDGES.flip(0), torch.ones(200), (NODES, NODES)).coalesce()
    assert torch.allclose(layer(X, sparse.to_sparse_csr()), plain_layer(X, EDGES), atol=1e-5)


@pytest.mark.parametrize("kind", [Other, Noisy])
def test_other_messages_stay_pygs(kind):
    model = bitgnn.binarize(Net(kind))
    assert type(model.first) is kind
    trained(model, X, EDGES)
    with torch.no_grad():
        expected = model(X, EDGES)
    assert torch.equal(bitgnn.freeze(model)(X, EDGES), expected)

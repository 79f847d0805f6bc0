"""Frozen models of graphs with several types of nodes: HeteroConv, to_hetero, bipartite layers."""

import copy
import dataclasses
import pickle

import pytest
import torch
import torch_geometric.nn as pyg
from chains import agree
from torch import nn
from torch_geometric import EdgeIndex
from torch_geometric.nn import HeteroConv, to_hetero
from torch_geometric.typing import SparseTensor

import bitgnn
from bitgnn.inference import FrozenHetero
from bitgnn.inference.call_by_call import steps
from bitgnn.inference.program import Program
from bitgnn.nn import GCNConv, GraphConv, SAGEConv

USERS, ITEMS, WIDTH, CLASSES = 30, 20, 16, 5
CITES, LIKES, LIKED = ("user", "cites", "user"), ("user", "likes", "item"), ("item", "by", "user")
pytestmark = pytest.mark.filterwarnings("ignore:freeze. parts of", "ignore:SAGEConv. aggr")


def drawn(*sizes):
    return torch.stack([torch.randint(0, size, (90,)) for size in sizes])


@pytest.fixture
def graph():
    torch.manual_seed(0)
    x = {"user": torch.randn(USERS, WIDTH), "item": torch.randn(ITEMS, WIDTH)}
    sizes = {CITES: (USERS, USERS), LIKES: (USERS, ITEMS), LIKED: (ITEMS, USERS)}
    return x, {kind: drawn(*pair) for kind, pair in sizes.items()}


def hetero(width, out):
    return HeteroConv(
        {
            CITES: GCNConv(width[0] if isinstance(width, tuple) else width, out),
            LIKES: SAGEConv(width, out, precision="bin"),
            LIKED: GraphConv(width, out, precision="bin"),
        }
    )


class Hetero(nn.Module):
    """Two layers; the activation between them goes through the mapping or knows its types."""

    def __init__(self, width=WIDTH, loops=True):
        super().__init__()
        self.first, self.last, self.loops = hetero(width, 24), hetero(24, CLASSES), loops

    def forward(self, x_dict, edge_index_dict):
        x = self.first(x_dict, edge_index_dict)
        names = x if self.loops else ("user", "item")
        return self.last({name: x[name].relu() for name in names}, edge_index_dict)


class Stack(nn.Module):
    """Two layers of the package, or of PyG, which learn their widths from the first batch."""

    def __init__(self, first, last):
        super().__init__()
        self.first, self.last = first, last

    def forward(self, x, edge_index):
        return self.last(self.first(x, edge_index).relu(), edge_index)


def stack(width, **options):
    sage = SAGEConv(width, 24, precision="bin", **options)
    return Stack(sage, SAGEConv((24, 24), CLASSES, precision="bin"))


class Pair(nn.Module):
    def __init__(self, conv):
        super().__init__()
        self.conv = conv

    def forward(self, users, items, edge_index):
        return {"item": self.conv((users, items), edge_index=edge_index)}


def trained(model, graph):
    for _ in range(3):
        model.train()(*graph)
    return model.eval()


def check(model, graph, kind="hetero"):
    """The frozen model returns what the trained one does."""
    frozen = bitgnn.freeze(model, check=False)
    assert frozen.kind == kind
    assert frozen.report.letters
    with torch.no_grad():
        expected = model(*graph)
    for again in (frozen, frozen, copy.deepcopy(frozen), pickle.loads(pickle.dumps(frozen))):
        agree(again(*graph), expected)
    return frozen


@pytest.mark.parametrize("loops", [True, False])
@pytest.mark.parametrize("width", [WIDTH, (WIDTH, WIDTH)])
def test_hetero_conv(width, loops, graph, tmp_path):
    model = trained(Hetero(width, loops), graph)
    frozen = check(model, graph)
    assert len(frozen.letters) == 6
    assert frozen.calls is None or [call.name for call in frozen.calls] == ["results"]
    read = bitgnn.load(bitgnn.save(frozen, tmp_path))
    x, edges = graph
    prepared = read.prepare_graph(edges, {name: len(rows) for name, rows in x.items()})
    expected = frozen(*graph)
    for given in (edges, prepared):
        found = read(x, given)
        assert all(torch.equal(found[name], expected[name]) for name in expected)
    edges[LIKES][1].fill_(3)  # a write that frozen layers notice
    with torch.no_grad():
        expected = model(x, edges)
    torch.testing.assert_close(frozen(x, edges)["item"], expected["item"])


def test_hetero_conv_binarized(graph):
    x, edges = graph
    edges = {CITES: edges[CITES], LIKES: edges[LIKES]}
    model = Hetero(loops=False)
    for name, width, out in (("first", WIDTH, 24), ("last", 24, CLASSES)):
        setattr(model, name, HeteroConv({kind: pyg.SAGEConv(width, out) for kind in edges}))
    model = trained(bitgnn.binarize(model), (x, edges))
    assert len(check(model, (x, edges)).letters) == 4


class Renamed(Hetero):
    def forward(self, features, graphs):
        return super().forward(features, graphs)


class Indexed(nn.Module):
    """No part of the forward takes the mapping as a whole."""

    def __init__(self):
        super().__init__()
        self.conv = SAGEConv(WIDTH, CLASSES, precision="bin")

    def forward(self, features, graphs):
        return {"item": self.conv((features["user"], features["item"]), graphs[LIKES])}


@pytest.mark.parametrize("make", [lambda: Renamed(loops=False), Renamed, Indexed])
def test_mappings_of_any_name(make, graph):
    check(trained(make(), graph), graph)


@pytest.mark.parametrize("options", [{}, {"aggr": "sum"}, {"project": True}, {"normalize": True}])
def test_to_hetero(options, graph):
    x, edges = graph
    model = to_hetero(stack((WIDTH, WIDTH), **options), (list(x), list(edges)))
    assert len(check(trained(model, graph), graph).letters) == 6


def test_widths_that_differ(graph):
    x, edges = graph
    model = to_hetero(stack((-1, -1)), (list(x), list(edges)))
    graph = {"user": torch.randn(USERS, 7), "item": x["item"]}, edges
    frozen = check(trained(model, graph), graph)
    assert len(frozen.letters) == 6


@pytest.mark.parametrize("is_hetero_first", [True, False])
def test_layers_of_unknown_widths_are_binarized(is_hetero_first, graph):
    x, edges = graph
    kinds = list(x), list(edges)
    plain = Stack(*(pyg.SAGEConv((-1, -1), size) for size in (24, CLASSES)))
    if is_hetero_first:
        model = bitgnn.binarize(to_hetero(plain, kinds))
    else:
        model = to_hetero(bitgnn.binarize(plain), kinds)
    assert len(check(trained(model, graph), graph).letters) == 6


@pytest.mark.parametrize("make", [pyg.SAGEConv, pyg.GraphConv])
def test_one_unknown_width_is_two_where_the_first_batch_says_so(make, graph):
    x, edges = graph
    x = {"user": torch.randn(USERS, 7), "item": x["item"]}
    plain = to_hetero(Stack(make(-1, 24), make(24, CLASSES)), (list(x), list(edges)))
    with torch.no_grad():
        plain(x, edges)
    model = trained(bitgnn.binarize(plain), (x, edges))
    assert len(check(model, (x, edges)).letters) == 6


@pytest.mark.parametrize("form", ["edge index", "csr", "csc", "coo", "SparseTensor"])
@pytest.mark.parametrize("make", [SAGEConv, GraphConv])
def test_forms_of_the_graph(make, form, graph):
    x, edges = graph
    row, col = edges[LIKES].unique(dim=1).flip(0)  # destinations first
    if form == "SparseTensor":
        pytest.importorskip("torch_sparse")
        given = SparseTensor(row=row, col=col, sparse_sizes=(ITEMS, USERS))
    elif form == "edge index":
        given = EdgeIndex(torch.stack([col, row]), sparse_size=(USERS, ITEMS))
    else:
        given = torch.sparse_coo_tensor(
            torch.stack([row, col]), torch.ones(len(row)), (ITEMS, USERS)
        ).coalesce()
        given = given if form == "coo" else getattr(given, f"to_sparse_{form}")()

    conv = make((WIDTH, WIDTH), CLASSES, precision="FBB+BBF")
    check(Pair(conv).eval(), (x["user"], x["item"], given), "layers")


def test_layers_that_read_no_destinations(graph):
    x, edges = graph
    conv = SAGEConv(WIDTH, CLASSES, root_weight=False, precision="FBB+BBF")
    check(Pair(conv).eval(), (x["user"], x["item"][:, :3], edges[LIKES]), "layers")


def test_pairs_that_are_none(graph):
    x, edges = graph
    frozen = bitgnn.freeze(trained(Hetero(), graph), check=False)
    layer = frozen.own_form.layers["first.convs.<user___likes___item>"]
    with pytest.raises(ValueError, match="x must be a tensor, or a pair of those of sources and"):
        layer((None, x["item"]), edges[LIKES])
    with pytest.raises(TypeError, match="edge_index must be an edge index or a sparse tensor"):
        layer((x["user"], x["item"]), [[0], [1]])


class OfUsers(nn.Module):
    def __init__(self, kinds, aggr):
        super().__init__()
        convs = {kind: SAGEConv((WIDTH, WIDTH), 24, precision="bin") for kind in kinds}
        self.first = HeteroConv(convs, aggr)
        width = 24 * len(kinds) if aggr == "cat" else 24
        self.last = SAGEConv(width, CLASSES, precision="bin")

    def forward(self, x_dict, edge_index_dict):
        users = self.first(x_dict, edge_index_dict)["user"].relu()
        return self.last(users, edge_index_dict[CITES])


@pytest.mark.filterwarnings("ignore:There exist node types")
@pytest.mark.parametrize("aggr", ["mean", "max", "cat"])
@pytest.mark.parametrize("relations", [2, 3])
def test_aggregations_over_relations(aggr, relations, graph):
    x, edges = graph
    kinds = [CITES, LIKED, ("item", "rates", "user")][:relations]
    edges = {kind: edges[LIKED if kind[0] == "item" else CITES] for kind in kinds}
    frozen = check(trained(OfUsers(kinds, aggr), (x, edges)), (x, edges))
    assert frozen.calls is None


class Single(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = hetero(WIDTH, CLASSES)

    def forward(self, x_dict, edge_index_dict):
        return self.conv(x_dict, edge_index_dict)


def test_other_types_run_the_code_of_the_model(graph, tmp_path):
    x, edges = graph
    model = trained(Single(), graph)
    frozen = bitgnn.freeze(model, check=False)
    read = bitgnn.load(bitgnn.save(frozen, tmp_path))
    fewer = {kind: edges[kind] for kind in (CITES, LIKED)}
    empty = {**edges, LIKES: torch.zeros(2, 0, dtype=torch.int64)}
    lone = {"user": x["user"][:1], "item": x["item"][:1]}, dict.fromkeys(edges, empty[LIKES])
    with torch.no_grad():
        for given in ((x, empty), lone):
            agree(frozen(*given), model(*given))
            agree(read(*given), model(*given))
        agree(frozen(x, fewer), model(x, fewer))
        agree(frozen(x_dict=x, edge_index_dict=edges), model(x, edges))
    doubles = frozen({name: rows.double() for name, rows in x.items()}, edges)
    assert torch.equal(doubles["user"].float(), frozen(x, edges)["user"])
    assert bitgnn.inference.capture(frozen, x, read.prepare_graph(edges, {"user": 30, "item": 20}))
    with pytest.raises(ValueError, match=r"edge_index_dict must have the keys .* got \[.*trained"):
        read(x, fewer)
    with pytest.raises(ValueError, match="x_dict must have the keys"):
        read({"user": x["user"]}, edges)
    with pytest.raises(TypeError, match="x_dict must be a mapping, got Tensor"):
        read(x["user"], edges)
    with pytest.raises(ValueError, match=r"x_dict\['item'\] must be \[N, 16\], got \[20, 3\]"):
        read({**x, "item": x["item"][:, :3]}, edges)
    with pytest.raises(ValueError, match=r"edges \('item', 'by', 'user'\)"):
        read({**x, "item": x["item"][:5]}, edges)
    sizes = {"user": USERS, "item": ITEMS}
    with pytest.raises(ValueError, match="features are of"):
        read({**x, "item": x["item"][:5]}, read.prepare_graph(edges, sizes))
    with pytest.raises(TypeError, match="takes x_dict and edge_index_dict, got 1 arguments more"):
        read(x, edges, 3)
    with pytest.raises(ValueError, match="takes floats of several types"):
        read.pack_features(x)
    with pytest.raises(ValueError, match="calls are not run one by one"):
        steps(read, x, edges)
    with pytest.raises(ValueError, match="summary: data must be None"):
        bitgnn.summary(read, graph)
    assert len(bitgnn.summary(model).layers) == len(bitgnn.summary(read).layers)


def test_programs_of_several_inputs(graph):
    frozen = bitgnn.freeze(trained(Hetero(), graph), check=False)
    program, state = frozen.program, frozen.state_dict()
    assert program.inputs == 2
    assert program.entry is None
    assert Program.read(str(program)) == program
    calls = frozen.calls
    parts = {"report": frozen.report, "calls": calls, "types": frozen.types}
    again = FrozenHetero(program, state, frozen.graphs, **parts)
    agree(again(*graph), frozen(*graph))
    turned = [
        dataclasses.replace(spec, sources=spec.destinations, destinations=spec.sources)
        for spec in frozen.graphs
    ]
    with pytest.raises(ValueError, match="sums over a graph must be of its nodes' rows"):
        FrozenHetero(program, state, turned, **parts)
    far = [dataclasses.replace(spec, sources=2) for spec in frozen.graphs]
    with pytest.raises(ValueError, match="is of types that are not there"):
        FrozenHetero(program, state, far, **parts)
    with pytest.raises(ValueError, match="types must name 2 types of nodes"):
        FrozenHetero(program, state, frozen.graphs, frozen.report, calls)
    with pytest.raises(ValueError, match="features must lie in registers 0 to 1"):
        Program.read(str(program).replace("%1: floats[16]\n", "%9: floats[16]\n"))

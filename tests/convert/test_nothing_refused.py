"""What binarize() leaves in floats freezes, runs as trained, is saved and read again."""

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch.nn import functional
from torch_geometric.data import Data

import bitgnn

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
N, WIDTH, CLASSES = 40, 16, 3
torch.manual_seed(0)
X = torch.randn(N, WIDTH)
EDGES = torch.randint(0, N, (2, 160))
EDGES = EDGES[:, EDGES[1].argsort()]
BATCH = torch.arange(N) // 10
DEGREES = torch.bincount(torch.bincount(EDGES[1], minlength=N))


def mlp(size, out):
    return nn.Sequential(nn.Linear(size, out), nn.BatchNorm1d(out), nn.ReLU(), nn.Linear(out, out))


def trained(model, *inputs, config=None):
    binary = bitgnn.binarize(model, config)
    for _ in range(3):
        found = binary(*inputs)
        found = found if isinstance(found, torch.Tensor) else found[0]
        if found.requires_grad:
            found.square().mean().backward()
    return binary.eval()


def check(model, *inputs, folder, kind="program", other=None):
    """Frozen equals trained, and so does what is read again."""
    frozen = bitgnn.freeze(model, check=False)
    assert frozen.kind == kind
    with torch.no_grad():
        expected = model(*inputs)
    compare = torch.testing.assert_close
    compare(frozen(*inputs), expected, rtol=1e-5, atol=1e-6)
    read = bitgnn.load(bitgnn.save(frozen, folder), *(() if other is None else (other,)))
    compare(read(*inputs), expected, rtol=1e-5, atol=1e-6)
    assert str(read.report) == str(frozen.report)
    return frozen


class Around(nn.Module):
    """A binary layer, a part in floats, pools and a head."""

    def __init__(self, part, call, width=WIDTH):
        super().__init__()
        self.first, self.part = pyg.GCNConv(WIDTH, WIDTH), part
        self.head, self.call = nn.Linear(width, CLASSES), call

    def forward(self, x, edge_index, batch):
        x = functional.relu(self.first(x, edge_index))
        return self.head(self.call(self.part, x, edge_index, batch))


def of_nodes(part, x, edges, batch):
    return part(x, edges)


def of_graphs(part, x, edges, batch):
    return part(x, batch)


PARTS = {
    "gates": (lambda: pyg.ResGatedGraphConv(WIDTH, WIDTH), of_nodes),
    "transformer": (lambda: pyg.TransformerConv(WIDTH, WIDTH, heads=2, concat=False), of_nodes),
    "GIN": (lambda: pyg.GINConv(mlp(WIDTH, WIDTH), train_eps=True), of_nodes),
    "edges": (lambda: pyg.EdgeConv(mlp(2 * WIDTH, WIDTH)), of_nodes),
    "gated": (lambda: pyg.GatedGraphConv(WIDTH, 2), of_nodes),
    "degrees": (
        lambda: pyg.PNAConv(WIDTH, WIDTH, ["mean", "std"], ["amplification"], DEGREES),
        of_nodes,
    ),
    "LightGCN": (pyg.LGConv, of_nodes),
    "several aggregations": (
        lambda: pyg.SAGEConv(WIDTH, WIDTH, aggr=["mean", "max", "std"]),
        of_nodes,
    ),
    "GPS": (lambda: pyg.GPSConv(WIDTH, pyg.GINConv(mlp(WIDTH, WIDTH)), heads=2), of_nodes),
    "two directions": (lambda: pyg.DirGNNConv(pyg.TransformerConv(WIDTH, WIDTH)), of_nodes),
    "block": (
        lambda: pyg.DeepGCNLayer(pyg.GENConv(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.ReLU()),
        of_nodes,
    ),
    "packed inside": (
        lambda: pyg.GroupAddRev(pyg.SAGEConv(WIDTH // 2, WIDTH // 2), num_groups=2),
        lambda part, x, edges, batch: part(x + 0, edges),  # it frees its input
    ),
    "set to set": (lambda: pyg.Set2Set(WIDTH, 2), of_graphs),
    "attention": (lambda: pyg.AttentionalAggregation(nn.Linear(WIDTH, 1)), of_graphs),
    "softmax": (lambda: pyg.SoftmaxAggregation(learn=True), of_graphs),
    "multiset": (lambda: pyg.GraphMultisetTransformer(WIDTH, 2), of_graphs),
    "GRU": (lambda: nn.GRU(WIDTH, WIDTH), lambda part, x, *rest: part(x)[0]),
    "torch's attention": (
        lambda: nn.MultiheadAttention(WIDTH, 2),
        lambda part, x, *rest: part(x, x, x)[0],
    ),
    "signals": (
        lambda: nn.Conv1d(1, 1, 3, padding=1),
        lambda part, x, *rest: part(x.unsqueeze(1)).squeeze(1),
    ),
    "words": (lambda: nn.Embedding(4, WIDTH), lambda part, x, edges, batch: x + part(batch)),
}


@pytest.mark.parametrize("name", PARTS)
def test_parts_in_floats(name, tmp_path):
    make, call = PARTS[name]
    whole = Around(make(), call, 2 * WIDTH if name == "set to set" else WIDTH)
    model = trained(whole, X, EDGES, BATCH, config=bitgnn.GraphConfig(linear=False))
    frozen = check(model, X, EDGES, BATCH, folder=tmp_path)
    assert "first" in frozen.report.letters
    held = sum(t.nbytes for t in model.part.state_dict().values())
    if name not in (
        "GIN",
        "transformer",
        "several aggregations",
        "packed inside",
        "two directions",
        "GPS",
    ):  # packed or folded in parts
        shares = [s for n, s in frozen.report.shares.items() if n.startswith("part")]
        assert sum(shares) == pytest.approx(held / frozen.nbytes, rel=0.01)


@pytest.mark.parametrize("name", PARTS)
def test_parts_with_linear_layers(name, tmp_path):
    make, call = PARTS[name]
    width = 2 * WIDTH if name == "set to set" else WIDTH
    model = trained(Around(make(), call, width), X, EDGES, BATCH)
    check(model, X, EDGES, BATCH, folder=tmp_path)


FLOATS = {
    "edges": (lambda: pyg.EdgeCNN(WIDTH, 8, 2, CLASSES), (X, EDGES)),
    "relations": (lambda: pyg.RGCNConv(WIDTH, CLASSES, 2, aggr="max"), (X, EDGES, EDGES[0] % 2)),
    "MLP": (lambda: pyg.MLP([WIDTH, 8, CLASSES]), (X,)),
    "labels": (pyg.WLConv, (torch.arange(N) % 3, EDGES)),
}


@pytest.mark.parametrize("name", FLOATS)
def test_models_without_a_binary_layer(name, tmp_path):
    make, inputs = FLOATS[name]
    model = make()
    if name != "labels":
        with pytest.raises(ValueError, match=r"has no binary layer; binarize\(\) it"):
            bitgnn.freeze(model)
    config = None if name == "MLP" else bitgnn.GraphConfig(linear=False)
    model = trained(model, *inputs, config=config)
    frozen = bitgnn.freeze(model)
    assert not frozen.report.letters
    with torch.no_grad():
        expected = model(*inputs)
    assert torch.equal(frozen(*inputs), expected)
    path = bitgnn.save(frozen, tmp_path)
    read = bitgnn.load(path, *([make()] if frozen.kind == "layers" else []))
    assert torch.equal(read(*inputs), expected)


class Pair(nn.Module):
    """A head of links, whose linear layers a network of rows would have, on the nodes of edges."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, 32), nn.Linear(32, 1)

    def forward(self, x, edge_index):
        h = torch.tanh(self.first(x))
        return self.last(h[edge_index[0]] * h[edge_index[1]])


class Parts(nn.Module):
    """Goes through its inputs, which no trace can."""

    def __init__(self):
        super().__init__()
        self.lins = nn.ModuleList(nn.Linear(WIDTH, 32) for _ in range(2))
        self.last = nn.Linear(64, CLASSES)

    def forward(self, xs):
        return self.last(
            torch.cat([lin(x).tanh() for x, lin in zip(xs, self.lins, strict=True)], 1)
        )


def test_linear_layers_in_forwards_of_several_inputs(tmp_path):
    inputs = ([X, X.flip(0)],)
    model = trained(Parts(), *inputs)
    assert bitgnn.report_of(model).swapped
    check(model, *inputs, folder=tmp_path, kind="layers", other=bitgnn.binarize(Parts()))


def test_a_head_of_links_is_a_model_of_graphs(tmp_path):
    model = trained(Pair(), X, EDGES)
    assert list(bitgnn.report_of(model).swapped) == ["first"]
    check(model, X, EDGES, folder=tmp_path)


class Places(Around):
    """Computed places: first nodes of graphs, and nodes in the order of their sums."""

    def forward(self, x, edge_index, batch):
        x = functional.relu(self.first(x, edge_index))
        roots = (batch[1:] - batch[:-1]).nonzero().view(-1)
        roots = torch.cat([roots.new_zeros(1), roots + 1])
        order = x.sum(1).argsort()[:4]
        return self.head(x[roots] + x[-(order * 1) - 0])


def test_computed_places_stay_integers(tmp_path):
    model = trained(Places(None, None), X, EDGES, BATCH)
    check(model, X, EDGES, BATCH, folder=tmp_path)


class Stacked(Around):
    """Results of three dimensions, whose second one is not that of the features."""

    def forward(self, x, edge_index, batch):
        x = functional.relu(self.first(x, edge_index))
        both = torch.cat([x.unsqueeze(1), -x.unsqueeze(1), x.abs().unsqueeze(1)], 1)
        more = torch.cat([both, both * 2], 1) + self.head.weight[:, :1].mean()
        shares = functional.softmax(more, dim=1) * functional.normalize(more, dim=1)
        return self.head(shares.sum(1))


def test_dimensions_count_as_in_the_trained_forward(tmp_path):
    model = trained(Stacked(None, None), X, EDGES, BATCH)
    check(model, X, EDGES, BATCH, folder=tmp_path)


class OfData(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = pyg.GraphConv(WIDTH, WIDTH), pyg.GraphConv(WIDTH, CLASSES)
        self.pool = pyg.TopKPooling(WIDTH, ratio=0.8)

    def forward(self, data):
        x, edges, batch = data.x, data.edge_index, data.batch
        x = functional.relu(self.first(x, edges))
        x, edges, _, batch, _, _ = self.pool(x, edges, None, batch)
        return pyg.global_mean_pool(self.last(x, edges), batch)


def test_a_forward_of_data_with_pools(tmp_path):
    data = Data(x=X, edge_index=EDGES, batch=BATCH)
    model = trained(OfData(), data)
    check(model, data, folder=tmp_path, kind="layers", other=OfData())


class OfTypes(nn.Module):
    """Mappings by type under names that say nothing."""

    def __init__(self):
        super().__init__()
        types = (["a", "b"], [("a", "to", "b"), ("b", "to", "a")])
        self.conv = pyg.HGTConv(WIDTH, WIDTH, types)
        self.last = pyg.SAGEConv(WIDTH, CLASSES)

    def forward(self, first, second):
        found = self.conv(first, second)
        return self.last((found["a"], found["b"]), second["a", "to", "b"])


def test_mappings_under_any_name(tmp_path):
    graph = {("a", "to", "b"): EDGES, ("b", "to", "a"): EDGES.flip(0)}
    inputs = {"a": X, "b": X.flip(0)}, graph
    model = trained(OfTypes(), *inputs)
    frozen = check(model, *inputs, folder=tmp_path, kind="layers", other=OfTypes())
    assert "last" in frozen.report.letters


class Sources(nn.Module):
    """Layers on pairs whose destinations have no features."""

    def __init__(self, kind, **options):
        super().__init__()
        self.convs = nn.ModuleList([kind(WIDTH, 8, **options), kind(8, CLASSES, **options)])

    def forward(self, x, edge_index, size=None):
        if x.size(0) == 0:
            return x
        for conv in self.convs[:1]:
            x = conv((x, None), edge_index).tanh()
        return self.convs[1]((x, None), edge_index, size=size)


@pytest.mark.parametrize("size", [None, (N, N + 3), (N, N)])
@pytest.mark.parametrize("precision", ["bin", "full"])
@pytest.mark.parametrize(
    ("kind", "options"),
    [(pyg.SAGEConv, {}), (pyg.SAGEConv, {"normalize": True}), (pyg.GraphConv, {}),
     (pyg.SAGEConv, {"root_weight": False}), (pyg.SAGEConv, {"aggr": "max"})],
)  # fmt: skip
def test_pairs_without_destinations(kind, options, precision, size, tmp_path):
    model = trained(Sources(kind, **options), X, EDGES, config=precision)
    other = Sources(kind, **options)
    frozen = check(model, X, EDGES, size, folder=tmp_path, kind="layers", other=other)
    whole = bitgnn.freeze(trained(other, X, EDGES, config=precision), check=False)
    assert frozen.nbytes == whole.nbytes


def test_a_layer_without_destinations_shares_its_weights():
    alone = trained(Sources(pyg.SAGEConv), X, EDGES)
    layer = bitgnn.freeze(alone, check=False).layers["convs.0"]
    words = {name: t.data_ptr() for name, t in layer.frozen.named_buffers()}
    assert any(t.data_ptr() in words.values() for _, t in layer.sources_alone.named_buffers())


def test_activations_behind_a_layer_may_write_in_place():
    class InPlace(nn.Module):
        def __init__(self, act):
            super().__init__()
            torch.manual_seed(1)
            self.first, self.last = pyg.SAGEConv(WIDTH, 8), pyg.SAGEConv(8, CLASSES)
            self.act = act

        def forward(self, x, edge_index):
            return self.last(self.act(self.first(x, edge_index)), edge_index)

    models = [bitgnn.binarize(InPlace(act)) for act in (torch.relu, torch.relu_)]
    for model in models:
        for _ in range(2):
            model(X, EDGES).square().mean().backward()
    for one, other in zip(*(model.parameters() for model in models), strict=True):
        assert torch.equal(one.grad, other.grad)

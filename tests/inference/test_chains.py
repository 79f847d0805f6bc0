"""Frozen networks decide as the trained ones, for every chain of layers, letters and norms."""

import copy
import itertools

import pytest
import torch
import torch_geometric.nn
from torch import nn
from torch.nn import functional

from bitgnn import BitTensor, models
from bitgnn.convert import BinarizeConfig, binarize, freeze
from bitgnn.inference import load, save
from bitgnn.nn import GCNConv, GraphConv, LayerPrecision, Linear, SAGEConv

N, FEATURES, HIDDEN, CLASSES = 90, 37, 41, 4
CONVS = {"gcn": GCNConv, "sage": SAGEConv, "graph": GraphConv}


@pytest.fixture
def edges():
    generator = torch.Generator().manual_seed(3)
    found = torch.randint(0, N - 1, (2, 260), generator=generator)
    # Node N - 1 stays isolated; a duplicate edge and a self loop are added.
    return torch.cat([found, found[:, :1], torch.tensor([[4], [4]])], dim=1)


@pytest.fixture
def x():
    return torch.randn(N, FEATURES, generator=torch.Generator().manual_seed(4))


def shake(model, *inputs, seed=0):
    """Parameters and statistics as after some training: gains of both signs, some of them 0."""
    generator = torch.Generator().manual_seed(seed)
    model.train()
    with torch.no_grad():
        for _ in range(3):
            model(*inputs)
        for module in model.modules():
            if isinstance(module, nn.BatchNorm1d) and module.affine:
                module.weight.copy_(torch.randn(module.num_features, generator=generator))
                module.weight[::7] = 0.0
                module.bias.copy_(0.5 * torch.randn(module.num_features, generator=generator))
                module.running_mean += 0.1
            bias = getattr(module, "bias", None)
            if isinstance(bias, nn.Parameter) and not isinstance(module, nn.BatchNorm1d):
                bias.copy_(0.3 * torch.randn(bias.shape, generator=generator))
    return model.eval()


def assert_frozen_equals(model, *inputs, weight=None, atol=1e-4):
    """Same class and logits for features in each form; returns the frozen model."""
    features, edge_index, *rest = inputs
    with torch.no_grad():
        expected = model(*inputs)
    assert expected.std(0).max() > 0  # equality of constants would prove nothing
    frozen = freeze(model)
    graph = frozen.prepare_graph(edge_index, len(features), *rest)
    forms = [features]
    if frozen.program.entry is not None:
        forms += [frozen.pack_features(features), frozen.pack_features(features, layout="dense")]
    for form in forms:
        found = frozen(form, graph)
        torch.testing.assert_close(found, expected, atol=atol, rtol=1e-4)
        assert torch.equal(found.argmax(1), expected.argmax(1))
    if not rest:
        assert torch.equal(frozen(features, edge_index), frozen(features, graph))
    return frozen


class Chain(nn.Module):
    """Layers one after the other."""

    def __init__(self, kind, precisions, dropout=0.3, **options):
        super().__init__()
        sizes = [FEATURES, *[HIDDEN] * (len(precisions) - 1), CLASSES]
        self.convs = nn.ModuleList(
            CONVS[kind](a, b, precision=precision, dropout=dropout, **options)
            for a, b, precision in zip(sizes[:-1], sizes[1:], precisions, strict=True)
        )

    def forward(self, x, edge_index):
        for conv in self.convs:
            x = conv(x, edge_index)
        return x


def precision(letters, **options):
    bmm, bspmm = letters.split("+")
    return LayerPrecision(bmm, bspmm, **options)


LETTERS = [
    f"{bmm}+{bspmm}"
    for bmm in ("FBF", "FBB", "BBF", "BBB", "FFB", "BFF", "FFF")
    for bspmm in ("BBB", "BBF", "FBF", "FBB", "BFF", "FFB", "FFF", "BFB")
    if bmm[2] == bspmm[0] and (bmm, bspmm) != ("FFF", "FFF")
]


@pytest.mark.parametrize("letters", LETTERS)
@pytest.mark.parametrize("kind", CONVS)
def test_letters(kind, letters, x, edges):
    torch.manual_seed(1)
    model = Chain(kind, [letters, letters, "BBF+FBF"])
    assert_frozen_equals(shake(model, x, edges), x, edges)


@pytest.mark.parametrize("kind", CONVS)
@pytest.mark.parametrize("letters", ["FBF+FBF", "FBB+BBB", "BBB+BBB", "BBF+FBB", "FBB+BBF"])
@pytest.mark.parametrize(
    "options",
    [
        {"hardtanh": True},
        {"input_norm": "batch"},
        {"input_norm": "standardize", "hardtanh": True},
        {"hidden_norm": "batch"},
        {"output_norm": "batch"},
        {"input_norm": "batch", "hidden_norm": "batch", "output_norm": "batch", "hardtanh": True},
    ],
    ids=lambda options: "+".join(options),
)
def test_norms(kind, letters, options, x, edges):
    torch.manual_seed(2)
    model = Chain(kind, [precision(letters, **options)] * 2 + [precision("FBF+FBF", **options)])
    assert_frozen_equals(shake(model, x, edges), x, edges)


@pytest.mark.parametrize("kind", CONVS)
@pytest.mark.parametrize("bias", [False, True])
def test_bits_run_from_layer_to_layer(kind, bias, x, edges):
    model = Chain(kind, ["FBB+BBB", "BBB+BBB", "BBF+FBF"], bias=bias)
    frozen = assert_frozen_equals(shake(model, x, edges), x, edges)
    assert list(frozen.report.boundaries.values()) == ["bits", "bits", "floats"]
    assert not frozen.report.floats
    graph = frozen.prepare_graph(edges, N)
    hidden, checked = x, 0
    results = [(step.layer, result) for step, _, result in frozen.steps(x, graph)]
    with torch.no_grad():
        for number, conv in enumerate(model.convs[:-1]):
            hidden = conv(hidden, edges)
            *_, last = (result for layer, result in results if layer == f"convs.{number}")
            assert isinstance(last, BitTensor)
            assert torch.equal(last.validate().to_float(), hidden)
            assert 0.05 < (hidden > 0).float().mean() < 0.95
            checked += 1
    assert checked == 2


@pytest.mark.parametrize("seed", range(12))
def test_random_mixtures(seed, x, edges):
    """Layers of all kinds with norms, clips and dropout between them in random order."""
    generator = torch.Generator().manual_seed(seed)

    def draw(choices):
        return choices[int(torch.randint(len(choices), (), generator=generator))]

    class Mixture(nn.Module):
        def __init__(self):
            super().__init__()
            sizes = [FEATURES, *(draw([31, 32, 33, 64]) for _ in range(3))]
            self.layers = nn.ModuleList()
            for a, b in itertools.pairwise(sizes):
                letters = draw(["FBF+FBF", "FBB+BBB", "BBB+BBB", "BBB+BBF", "BBF+FBB"])
                norms = {name: draw([None, "batch"]) for name in ("hidden_norm", "output_norm")}
                self.layers.append(
                    draw(list(CONVS.values()))(a, b, precision=precision(letters, **norms))
                )
                self.layers.append(
                    draw(
                        [
                            nn.Identity(),
                            nn.BatchNorm1d(b),
                            nn.Hardtanh(),
                            nn.Dropout(0.3),
                            nn.Sequential(nn.BatchNorm1d(b), nn.Tanh(), nn.Dropout(0.2)),
                            nn.Sequential(nn.LeakyReLU(), nn.BatchNorm1d(b)),
                            nn.LayerNorm(b),
                        ]
                    )
                )
            self.last = draw([Linear, nn.Linear])(sizes[-1], CLASSES)

        def forward(self, x, edge_index):
            for layer in self.layers:
                x = layer(x, edge_index) if hasattr(layer, "letters") else layer(x)
            return self.last(x)

    torch.manual_seed(seed)
    model = shake(Mixture(), x, edges, seed=seed)
    assert_frozen_equals(model, x, edges)


@pytest.mark.parametrize("jk", [None, "cat", "max", "last"])
@pytest.mark.parametrize("name", ["GCN", "GraphSAGE"])
def test_models_of_pyg(name, jk, x, edges, tmp_path):
    torch.manual_seed(0)
    model = getattr(torch_geometric.nn.models, name)(
        FEATURES, HIDDEN, 3, CLASSES, dropout=0.2, act="hardtanh", norm="batch_norm", jk=jk
    )
    binary = shake(binarize(model, BinarizeConfig("bin")), x, edges)
    frozen = assert_frozen_equals(binary, x, edges)
    copied = load(save(frozen, tmp_path))
    assert torch.equal(copied(x, edges), frozen(x, edges))
    assert frozen.letters[0] == "FBB+BBF"  # a batch norm stands behind it


@pytest.mark.parametrize("precision", ["full", "bin"])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (models.GCN, {}),
        (models.GCN, {"num_layers": 3, "output_norm": "batch", "hidden_norm": "batch"}),
        (models.GCN, {"inductive": True}),
        (models.GraphSAGE, {}),
        (models.GraphSAGE, {"num_layers": 3, "output_norm": "batch"}),
        (models.GraphSAINT, {}),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_models_of_the_package(kind, options, precision, x, edges, tmp_path):
    torch.manual_seed(0)
    model = kind(FEATURES, HIDDEN, CLASSES, precision=precision, dropout=0.3, **options)
    frozen = assert_frozen_equals(shake(model, x, edges), x, edges)
    read = load(save(frozen, tmp_path))
    assert torch.equal(read(x, edges), frozen(x, edges))


@pytest.mark.parametrize("kind", CONVS)
@pytest.mark.parametrize("letters", ["FBF+FBF", "FBB+BBB", "FBF+FFF"])
def test_sparse_graphs(kind, letters, x):
    """A transposed adjacency as torch CSR, with weights and without."""
    torch.manual_seed(1)
    edge_index = torch.randint(N, (2, 300)).unique(dim=1)
    # PyG adds a self loop to a torch sparse tensor even where there is one.
    edge_index = edge_index[:, edge_index[0] != edge_index[1]]
    model = shake(Chain(kind, [letters, "FBF+FBF"]), x, edge_index)
    matrix = torch.zeros(N, N)
    matrix[edge_index[1], edge_index[0]] = 1.0
    assert_frozen_equals(model, x, matrix.to_sparse_csr())
    with torch.no_grad():
        expected = model(x, edge_index)
    torch.testing.assert_close(freeze(model)(x, matrix.to_sparse_csr()), expected)


def test_graphs_of_other_models_are_refused(x, edges):
    chain = freeze(Chain("gcn", ["full", "full"]))
    mixed = freeze(Chain("gcn", ["full", "FBF+FFF"]))
    graph, both = chain.prepare_graph(edges, N), mixed.prepare_graph(edges, N)
    assert both.to("cpu").nnz == graph.nnz
    assert both.nbytes > graph.nbytes
    with pytest.raises(ValueError, match="must come from prepare_graph, a BitAdjacency is not all"):
        mixed(x, graph)
    with pytest.raises(ValueError, match="was prepared for another model"):
        chain(x, both)
    with pytest.raises(ValueError, match="must be a graph, got None"):
        mixed(x)
    with pytest.raises(ValueError, match="adjacency has 90 nodes, x has 89"):
        mixed(x[:-1], both)
    with pytest.raises(ValueError, match="x must be on cpu, got meta"):
        chain(x.to("meta"), graph)
    sage = freeze(Chain("sage", ["full"]))
    with pytest.raises(ValueError, match="edge_weight must be None"):
        sage.prepare_graph(edges, N, torch.ones(edges.size(1)))


def test_sequential_of_pyg(x, edges):
    model = torch_geometric.nn.Sequential(
        "x, edge_index",
        [
            (GCNConv(FEATURES, HIDDEN, precision="FBB+BBB"), "x, edge_index -> x"),
            nn.BatchNorm1d(HIDDEN),
            (nn.Dropout(0.2), "x -> x"),
            (SAGEConv(HIDDEN, CLASSES, precision="BBF+FBF"), "x, edge_index -> x"),
        ],
    )
    frozen = assert_frozen_equals(shake(model, x, edges), x, edges)
    assert frozen.report.boundaries["module_0"] == "bits"
    assert len(frozen.graphs) == 2


def test_sequential_without_graph(x):
    model = nn.Sequential(
        Linear(FEATURES, 64, precision="FBB"),
        nn.BatchNorm1d(64),
        nn.Hardtanh(),
        Linear(64, 33, precision="bin"),
        nn.Sequential(nn.Dropout(0.1), Linear(33, CLASSES, precision="FBF")),
    )
    model = shake(model, x)
    frozen = freeze(model)
    assert torch.equal(frozen(x), model(x).detach())
    assert torch.equal(frozen(frozen.pack_features(x)), frozen(x))
    with pytest.raises(ValueError, match="has no graph layers"):
        frozen.prepare_graph(torch.zeros(2, 0, dtype=torch.long), N)


class Saint(nn.Module):
    """Two layers, both outputs joined in front of a float linear layer; a residual on the way."""

    def __init__(self):
        super().__init__()
        self.first = GraphConv(FEATURES, HIDDEN, precision="full")
        self.second = GraphConv(HIDDEN, HIDDEN, precision="FBB+BBF")
        self.third = GraphConv(HIDDEN, HIDDEN, precision="BBB+BBB")
        self.last = nn.Linear(3 * HIDDEN, CLASSES)

    def forward(self, x, edge_index, edge_weight=None):
        first = self.first(x, edge_index, edge_weight)
        second = functional.dropout(first, 0.2, training=self.training)
        second = self.second(second, edge_index, edge_weight) + first
        third = self.third(second, edge_index, edge_weight)
        return self.last(torch.cat([first, second, third], dim=-1)).log_softmax(dim=-1)


@pytest.mark.parametrize("weights", [None, "rank one"])
def test_joined_layers(weights, x, edges):
    model = shake(Saint(), x, edges)
    if weights is None:
        frozen = assert_frozen_equals(model, x, edges)
        assert frozen.report.floats == {"add": "its value is read in floats as well as by sign"}
    else:
        factor = 0.5 + torch.rand(N, generator=torch.Generator().manual_seed(1))
        weight = factor[edges[0]] * factor[edges[1]]
        assert_frozen_equals(model, x, edges, weight)


def test_residual_of_bits(x, edges):
    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = GCNConv(FEATURES, 64, precision="FBB+BBB")
            self.second = GCNConv(64, 64, precision="BBB+BBB")
            self.norm = nn.BatchNorm1d(64)
            self.last = SAGEConv(64, CLASSES, precision="BBF+FBF")

        def forward(self, x, edge_index):
            first = self.first(x, edge_index)
            return self.last(self.norm(first + self.second(first, edge_index)), edge_index)

    frozen = assert_frozen_equals(shake(Residual(), x, edges), x, edges)
    assert "add_bbb" in [step.kind for step in frozen.program.steps]


def test_joined_bits(x, edges):
    class Joined(nn.Module):
        def __init__(self):
            super().__init__()
            precision = LayerPrecision("FBB", "BBB", output_norm="batch")
            self.first = GCNConv(FEATURES, 33, precision=precision)
            self.second = SAGEConv(FEATURES, 31, precision=precision)
            self.last = GCNConv(64, CLASSES, precision="BBF+FBF")

        def forward(self, x, edge_index):
            both = torch.cat([self.first(x, edge_index), self.second(x, edge_index)], dim=1)
            return self.last(both, edge_index)

    frozen = assert_frozen_equals(shake(Joined(), x, edges), x, edges)
    assert "concat" in [step.kind for step in frozen.program.steps]


def test_code_of_the_user_runs_and_is_reported(x, edges):
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = GCNConv(FEATURES, HIDDEN, precision="FBB+BBF")
            self.attention = torch_geometric.nn.GATConv(HIDDEN, HIDDEN)
            self.shift = nn.Parameter(torch.randn(HIDDEN))
            self.table = nn.Parameter(torch.randn(N, 1))
            self.second = GCNConv(HIDDEN, CLASSES, precision="full")

        def forward(self, x, edge_index):
            x = torch.sin(self.first(x, edge_index) + self.shift) * self.table
            x = self.attention(x, edge_index)
            return self.second(x - x.mean(dim=0, keepdim=True), edge_index)

    with pytest.warns(UserWarning, match=r"parts of Odd stay in full precision: sin: it runs as"):
        frozen = assert_frozen_equals(shake(Odd(), x, edges), x, edges)
    assert {"sin", "attention", "mean"} <= frozen.report.floats.keys()
    assert "attention: full precision, it runs as its own code" in str(frozen.report)
    copied = copy.deepcopy(frozen)
    expected = frozen(x, edges)
    with torch.no_grad():
        for tensor in [*frozen.parameters(), *frozen.buffers()]:
            tensor.zero_()
    assert torch.equal(copied(x, edges), expected)


def test_a_state_loaded_into_a_frozen_model_acts_in_every_form(x, edges):
    torch.manual_seed(3)
    first, second = (freeze(Chain("gcn", ["FBB+BBB", "BBF+FBF"])) for _ in range(2))
    graph = first.prepare_graph(edges, N)
    forms = [x, first.pack_features(x, layout="dense"), first.pack_features(x, layout="sparse")]
    expected = second(x, graph)
    assert not torch.equal(first(forms[2], graph), expected)
    first.load_state_dict(second.state_dict())
    for form in forms:
        assert torch.equal(first(form, graph), expected)


def test_aggregations_without_binary_form_run_as_they_are(x, edges):
    with pytest.warns(UserWarning, match="dense products stay binary"):
        model = nn.ModuleDict({"a": SAGEConv(FEATURES, HIDDEN, aggr="max", precision="full")})

    class Max(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = model["a"]
            self.last = GCNConv(HIDDEN, CLASSES, precision="full")

        def forward(self, x, edge_index):
            return self.last(self.first(x, edge_index), edge_index)

    frozen = assert_frozen_equals(shake(Max(), x, edges), x, edges)
    assert "neither a sum nor a mean" in frozen.report.floats["first"]


def test_a_layer_alone(x, edges):
    for layer in (
        GCNConv(FEATURES, CLASSES, precision="full"),
        SAGEConv(FEATURES, CLASSES, precision="bin"),
    ):
        assert_frozen_equals(shake(layer, x, edges), x, edges)


@pytest.mark.parametrize("kind", CONVS)
def test_no_edges_one_node_and_isolated_nodes(kind, x):
    model = shake(Chain(kind, ["FBB+BBB", "BBF+FBF"]), x, torch.randint(0, N, (2, 200)))
    none = torch.empty(2, 0, dtype=torch.long)
    for features, edge_index in (
        (x, none),
        (x[:1], none),
        (x[:1], torch.zeros(2, 1, dtype=torch.long)),
        (x[:5], torch.tensor([[0], [1]])),
    ):
        frozen = freeze(model)
        with torch.no_grad():
            expected = model(features, edge_index)
        torch.testing.assert_close(frozen(features, edge_index), expected, atol=1e-4, rtol=1e-4)
    assert freeze(model)(x[:0], none).shape == (0, CLASSES)


@pytest.mark.parametrize("letters", ["FBF+FBF", "FBB+BBB", "FBF+FFF", "FBB+BFF"])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("gcn", {}),
        ("gcn", {"improved": True}),
        ("gcn", {"add_self_loops": False}),
        ("gcn", {"normalize": False}),
        ("gcn", {"aggr": "mean"}),
        ("gcn", {"flow": "target_to_source"}),
        ("graph", {}),
        ("graph", {"aggr": "mean"}),
        ("graph", {"flow": "target_to_source"}),
    ],
    ids=str,
)
def test_edge_weights(kind, options, letters, x, edges):
    class Weighted(Chain):
        def forward(self, x, edge_index, edge_weight=None):
            for conv in self.convs:
                x = conv(x, edge_index, edge_weight)
            return x

    torch.manual_seed(5)
    model = Weighted(kind, [letters, "FBF+FBF"], **options)
    factor = 0.5 + torch.rand(N, generator=torch.Generator().manual_seed(1))
    weight = factor[edges[0]] * factor[edges[1]]
    shake(model, x, edges, weight)
    assert_frozen_equals(model, x, edges, weight)
    assert_frozen_equals(model, x, edges)  # traced with weights, given none


def test_edge_weights_that_a_forward_asks_for(x, edges):
    class Asks(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = GCNConv(FEATURES, CLASSES, precision="full")

        def forward(self, x, edge_index, edge_weight=None):
            if edge_weight is not None and edge_weight.numel() != edge_index.size(1):
                raise ValueError("edge_weight does not fit")
            return self.conv(x, edge_index, edge_weight)

    frozen = assert_frozen_equals(shake(Asks(), x, edges), x, edges)
    with pytest.raises(ValueError, match="edge_weight must be None"):
        frozen.prepare_graph(edges, N, torch.ones(edges.size(1)))


def test_weighted_models_of_pyg(x, edges):
    torch.manual_seed(0)
    model = torch_geometric.nn.models.GCN(FEATURES, HIDDEN, 2, CLASSES, act=None)
    factor = 0.5 + torch.rand(N, generator=torch.Generator().manual_seed(1))
    weight = factor[edges[0]] * factor[edges[1]]
    binary = shake(binarize(model, "bin"), x, edges, weight)
    assert_frozen_equals(binary, x, edges, weight)


def test_norms_of_rows_between_layers_are_reported(x, edges):
    class Rows(Chain):
        def __init__(self):
            super().__init__("gcn", ["FBB+BBF", "BBF+FBF"])
            self.norm = nn.LayerNorm(HIDDEN)

        def forward(self, x, edge_index):
            first, last = self.convs
            return last(self.norm(first(x - 0.5, edge_index)), edge_index)

    with pytest.warns(
        UserWarning, match="norm: a sign is taken of floats that layer_norm computes"
    ):
        frozen = assert_frozen_equals(shake(Rows(), x, edges), x, edges)
    assert list(frozen.report.floats) == ["norm"]

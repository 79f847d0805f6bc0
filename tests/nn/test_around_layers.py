"""Tools of torch around graph layers: each leaves, or makes, a model as its users know it."""

import copy
import io
import itertools

import pytest
import torch
import torch_geometric.nn as pyg
from safetensors.torch import load, save
from torch import nn
from torch.nn import functional
from torch.optim.swa_utils import AveragedModel

import bitgnn
from bitgnn.nn import GCNConv, GraphConv, SAGEConv

N, K, CLASSES = 60, 12, 4
LAYERS = (GCNConv, SAGEConv, GraphConv)
ROLES = ("first", "last")


class Two(nn.Module):
    """Two layers with a dropout between them."""

    def __init__(self, layer):
        super().__init__()
        self.first, self.last = layer(K, 16, precision="bin"), layer(16, CLASSES, precision="bin")

    def forward(self, x, edges):
        hidden = functional.dropout(self.first(x, edges).relu(), 0.3, self.training)
        return self.last(hidden, edges)

    @property
    def roles(self):
        return self.first.role, self.last.role


def graph_of(seed, nodes=N):
    generator = torch.Generator().manual_seed(seed)
    edges = torch.randint(0, nodes, (2, 3 * nodes), generator=generator)
    y = torch.randint(0, CLASSES, (nodes,), generator=generator)
    return torch.randn(nodes, K, generator=generator) + seed, edges, y


GRAPH, OTHER = graph_of(0), graph_of(3, 40)


def train(net, steps=6, graph=GRAPH, run=None):
    optimizer = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], 0.01)
    x, edges, y = graph
    net.train()
    for number in range(steps):
        torch.manual_seed(number)
        optimizer.zero_grad()
        functional.cross_entropy((run or net)(x, edges), y).backward()
        optimizer.step()
    return net


def differing(one, other):
    states = one.state_dict(), other.state_dict()
    return [name for name, held in states[0].items() if not torch.equal(held, states[1][name])]


@pytest.fixture(params=LAYERS)
def layer(request):
    torch.manual_seed(0)
    return request.param


def test_an_average_with_buffers_is_a_model_of_its_own(layer):
    net = Two(layer)
    average = AveragedModel(net, use_buffers=True)
    for _ in range(4):
        train(net, 3)
        average.update_parameters(net)
    average.eval()
    scores = average(*GRAPH[:2])
    assert average.module.roles == ROLES
    assert scores.isfinite().all()
    frozen = bitgnn.freeze(average.module, check=False)
    assert torch.equal(frozen(*GRAPH[:2]).argmax(1), scores.argmax(1))


@pytest.mark.parametrize("steps", [0, 3])
def test_copies_files_and_wrappers_train_like_the_model(layer, steps):
    net = train(Two(layer), steps)
    pickled = io.BytesIO()
    torch.save(net, pickled)
    pickled.seek(0)
    loaded = Two(layer)
    loaded.load_state_dict(load(save(net.state_dict())))
    others = [copy.deepcopy(net), torch.load(pickled, weights_only=False), loaded]
    inner = copy.deepcopy(net)
    wrapped = nn.DataParallel(inner)
    train(net)
    for other in others:
        assert differing(net, train(other)) == []
    assert differing(net, train(inner, run=wrapped)) == []
    assert net.roles == others[0].roles == ROLES


def test_a_first_layer_without_gradients(layer):
    net = Two(layer)
    net.first.requires_grad_(False)
    train(net)
    assert net.roles == ROLES
    frozen = bitgnn.freeze(net.eval(), check=False)
    assert torch.equal(frozen(*GRAPH[:2]).argmax(1), net(*GRAPH[:2]).argmax(1))


def test_a_part_in_evaluation_stays_as_it_is(layer):
    net = train(Two(layer))
    net.first.requires_grad_(False)
    held = copy.deepcopy(net.first)
    x, edges, y = OTHER
    for _ in range(3):
        net.train()
        net.first.eval()
        functional.cross_entropy(net(x, edges), y).backward()
    assert differing(net.first, held) == []


def test_evaluation_before_training_changes_nothing(layer):
    net = Two(layer)
    untouched = copy.deepcopy(net)
    net.eval()
    net(*OTHER[:2])
    with torch.no_grad():
        net(OTHER[0][:1], torch.zeros(2, 0, dtype=torch.long))
    assert differing(train(net), train(untouched)) == []


def test_reset_parameters_between_two_data_sets(layer):
    net = train(Two(layer), graph=OTHER)
    net.first.reset_parameters()
    net.last.reset_parameters()
    assert net.roles == (None, None)
    fresh = Two(layer)
    own = dict(net.named_parameters())
    with torch.no_grad():
        for name, parameter in fresh.named_parameters():
            parameter.copy_(own[name])
    assert differing(train(net), train(fresh)) == []


def test_maps_that_share_a_weight(layer):
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            widths = (K, 16, 16, 16, CLASSES)
            self.layers = nn.ModuleList(
                layer(*pair, precision="bin") for pair in itertools.pairwise(widths)
            )
            pairs = zip(self.layers[1]._products(), self.layers[2]._products(), strict=True)
            for one, other in pairs:
                other.weight = one.weight

        def forward(self, x, edges):
            for each in self.layers[:-1]:
                x = each(x, edges).relu()
            return self.layers[-1](x, edges)

    net = train(Shared()).eval()
    assert [each.role for each in net.layers] == ["first", "inner", "inner", "last"]
    frozen = bitgnn.freeze(net, check=False)
    assert torch.equal(frozen(*GRAPH[:2]).argmax(1), net(*GRAPH[:2]).argmax(1))


def test_closures_accumulation_and_other_graphs(layer):
    net = Two(layer)
    optimizer = torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=3)

    def closure():
        optimizer.zero_grad()
        torch.manual_seed(0)
        for x, edges, y in (GRAPH, OTHER):
            (functional.cross_entropy(net(x, edges), y) / 2).backward()
        norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0, error_if_nonfinite=True)
        assert norm > 0
        return torch.zeros(())

    for _ in range(3):
        optimizer.step(closure)
    net.eval()
    frozen = bitgnn.freeze(net, check=False)
    for x, edges, _ in (GRAPH, OTHER, GRAPH):
        assert torch.allclose(frozen(x, edges), net(x, edges), atol=1e-5)


def test_float64_by_default(layer):
    torch.set_default_dtype(torch.float64)
    try:
        net = Two(layer)
        x, edges, y = GRAPH
        train(net, graph=(x.double(), edges, y)).eval()
        assert net(x.double(), edges).dtype == torch.float64
        assert net.first.input_bits.mean.dtype == torch.float32
        frozen = bitgnn.freeze(net, check=False)
        classes = frozen(x.double(), edges).argmax(1)
        assert torch.equal(classes, net(x.double(), edges).argmax(1))
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_sequence_of_pyg_tells_roles_and_dropout(layer):
    net = pyg.Sequential(
        "x, edges",
        [
            (layer(K, 16, precision="bin"), "x, edges -> x"),
            nn.ReLU(),
            nn.Dropout(0.4),
            (layer(16, CLASSES, precision="bin"), "x, edges -> x"),
        ],
    )
    train(net)
    layers = [module for module in net.modules() if isinstance(module, layer)]
    assert tuple(each.role for each in layers) == ROLES
    assert [each.input_bits.kept_share for each in layers] == pytest.approx([1.0, 0.6])

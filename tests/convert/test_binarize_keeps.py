"""What binarize() must not lose: what layers compute, their hooks, ties, names and attributes."""

import copy
import warnings

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch.nn.utils import parametrizations, prune

import bitgnn
from bitgnn import report_of
from bitgnn.nn import BinaryConv2d, BinaryLinear, GCNConv, Linear, SAGEConv

EDGES = torch.tensor([[0, 1, 2, 3, 0, 4], [1, 2, 3, 4, 4, 0]])
X = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))


class Doubled(pyg.GCNConv):
    """A message of its own."""

    def message(self, x_j, edge_weight):
        return 2 * super().message(x_j, edge_weight)


class Halved(pyg.GraphConv):
    """An aggregation of its own."""

    def aggregate(self, inputs, index, ptr=None, dim_size=None):
        return super().aggregate(inputs, index, ptr, dim_size) / 2


class Sized(pyg.SAGEConv):
    """Nothing of its own but the constructor and an attribute."""

    def __init__(self, size):
        super().__init__(size, size)
        self.tag = "mine"


class Net(nn.Module):
    """Layers in a row, whatever they are."""

    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x, edge_index):
        for layer in self.layers:
            x = layer(x) if isinstance(layer, nn.Linear | pyg.Linear) else layer(x, edge_index)
        return x


def _changed(kind, name):
    """A layer whose class defines a method of its own."""
    return type("Mine", (kind,), {name: lambda self, inputs, index: inputs})(6, 6)


def _helper(layer):
    layer.forward = layer.forward  # a method on the object hides that of its class
    return layer


def _buffered(layer):
    layer.register_buffer("mask", torch.ones(6), persistent=False)
    return layer


def _normed(module):
    return parametrizations.weight_norm(module) if isinstance(module, pyg.Linear) else None


KEPT = {
    "message": (lambda: Doubled(6, 6), "Doubled defines message"),
    "forward": (lambda: _changed(pyg.SAGEConv, "forward"), "Mine defines forward"),
    "aggregate": (lambda: Halved(6, 6), "Halved defines aggregate"),
    "propagate": (lambda: _changed(pyg.GCNConv, "propagate"), "Mine defines propagate"),
    "object": (lambda: _helper(pyg.GCNConv(6, 6)), "GCNConv defines forward"),
    "buffer": (lambda: _buffered(pyg.GCNConv(6, 6)), "it has further tensors, mask"),
    "parametrised": (lambda: pyg.GCNConv(6, 6).apply(_normed), "its weight is parametrised"),
    "linear": (lambda: parametrizations.spectral_norm(nn.Linear(6, 6)), "is parametrised"),
    "pruned": (
        lambda: prune.random_unstructured(nn.Linear(6, 6), "weight", 0.5),
        "its weight is no parameter of its own",
    ),
}


@pytest.mark.parametrize("case", KEPT)
def test_what_it_does_not_understand_stays(case):
    make, reason = KEPT[case]
    layer = make()
    model = Net(layer, pyg.GCNConv(6, 6))
    binary = bitgnn.binarize(model, bitgnn.GraphConfig("full", linear=True))
    assert reason in report_of(binary).left["layers.0"]
    assert type(binary.layers[0]) is type(layer)
    assert report_of(binary).swapped == {"layers.1": "full"}
    with pytest.raises(ValueError, match=r"layer 'layers.0' cannot be binary: "):
        bitgnn.binarize(model, bitgnn.GraphConfig(layers={"layers.0": "full"}))


def test_classes_of_ones_own():
    sized = Sized(6)
    sized.note = {"any": "thing"}
    model = Net(Doubled(6, 6), sized)
    binary = bitgnn.binarize(model, "full")
    assert torch.equal(binary.layers[0](X, EDGES), model.layers[0](X, EDGES))
    assert isinstance(binary.layers[1], SAGEConv)
    assert (binary.layers[1].tag, binary.layers[1].note) == ("mine", {"any": "thing"})


def test_hooks_are_still_called():
    called = []

    def note(text):
        return lambda *_: called.append(text)

    model = Net(pyg.GCNConv(6, 6), nn.Linear(6, 3))
    for name, layer in model.named_modules():
        if name.count(".") == 1:
            layer.register_forward_pre_hook(note(f"pre {name}"))
            layer.register_forward_hook(note(f"post {name}"))
            layer.register_full_backward_hook(note(f"back {name}"))
    model.layers[0].register_propagate_forward_hook(note("propagate"))
    model.layers[0].register_forward_hook(
        lambda module, args, kwargs, out: out + 1, with_kwargs=True
    )
    handle = model.layers[0].register_message_forward_hook(note("message"))
    handle.remove()
    binary = bitgnn.binarize(model, bitgnn.GraphConfig("full", linear=True))
    assert isinstance(binary.layers[0], GCNConv)
    binary(X, EDGES).sum().backward()
    assert called == [
        "pre layers.0", "propagate", "post layers.0", "pre layers.1", "post layers.1",
        "back layers.1", "back layers.0",
    ]  # fmt: skip
    plain = copy.deepcopy(binary.layers[0])
    plain._forward_hooks.clear()
    assert torch.equal(binary.layers[0](X, EDGES), plain(X, EDGES) + 1)


@pytest.mark.parametrize("precision", ["full", "FBF+FBF"])
def test_hooks_on_maps_inside_of_layers_are_called(precision):
    model, called = Net(pyg.GCNConv(6, 6)), []
    model.layers[0].lin.register_forward_hook(lambda *_: called.append("lin"))
    binary = bitgnn.binarize(model, precision)
    binary(X, EDGES)
    assert called == ["lin"]


@pytest.mark.parametrize("precision", ["full", "FBF+FBF"])
def test_ties_stay_ties_and_frozen_parameters_frozen(precision):
    shared, twin = pyg.GCNConv(6, 6), nn.Linear(6, 6)
    model = Net(shared, shared, nn.Linear(6, 6), twin)
    model.again = shared
    twin.weight = model.layers[2].weight
    twin.bias.requires_grad_(False)
    shared.lin.weight.requires_grad_(False)
    binary = bitgnn.binarize(model, bitgnn.GraphConfig(precision, linear=True, dropout=0.25))
    assert isinstance(binary.again, GCNConv)
    assert binary.again is binary.layers[0] is binary.layers[1]
    assert binary.layers[2].weight is binary.layers[3].weight
    assert isinstance(binary.layers[3], Linear)
    trained = {name for name, p in binary.named_parameters() if p.requires_grad}
    own = set(binary.state_dict()) - set(model.state_dict())
    assert bool(own) == (precision == "full")
    assert trained - own == {name for name, p in model.named_parameters() if p.requires_grad}
    assert binary.layers[2].weight is not model.layers[2].weight
    kept = [name for name in binary.state_dict() if name not in own]
    assert kept == list(model.state_dict())
    skipped = bitgnn.binarize(model, bitgnn.GraphConfig(skip="again", linear=True))
    assert type(skipped.layers[1]) is pyg.GCNConv


def test_dtype_mode_and_options_survive():
    model = Net(pyg.GCNConv(6, 6, decomposed_layers=2), pyg.SAGEConv(6, 6)).double()
    model.layers[1].eval()
    binary = bitgnn.binarize(model, "full")
    assert binary.layers[0].lin.weight.dtype == torch.float64
    assert (binary.training, binary.layers[0].training) == (True, True)
    assert not binary.layers[1].training
    assert binary.layers[0].decomposed_layers == 2


def test_models_of_this_package_keep_hooks_and_frozen_parameters():
    model, called = bitgnn.models.GCN(6, 8, 3), []
    model.convs[1].register_forward_hook(lambda *_: called.append(1))
    model.convs[0].lin.weight.requires_grad_(False)
    binary = bitgnn.binarize(model)
    binary(X, EDGES)
    assert called == [1]
    assert not binary.convs[0].lin.weight.requires_grad


def test_networks_of_images_keep_the_same():
    class Mine(nn.Conv2d):
        def forward(self, x):
            return super().forward(x) + 1

    called = []
    one, two = nn.Conv2d(3, 4, 3), nn.Linear(4 * 4, 6)
    two.register_forward_hook(lambda *_: called.append(1))
    two.weight.requires_grad_(False)
    two.tag = "mine"
    model = nn.Sequential(one, Mine(4, 4, 3), nn.Flatten(), two, nn.Linear(6, 6), nn.Linear(6, 6))
    model[5].weight = model[4].weight
    parametrizations.weight_norm(model.append(nn.Linear(6, 3))[6])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        binary = bitgnn.binarize(model)
    assert report_of(binary).left == {
        "1": "Mine defines forward, which a swap would lose",
        "6": "its weight is parametrised, which a binary layer would not compute",
    }
    assert (type(binary[0]), type(binary[3])) == (BinaryConv2d, BinaryLinear)
    assert binary[3].tag == "mine"
    assert not binary[3].weight.requires_grad
    assert binary[4].weight is binary[5].weight
    binary(torch.randn(2, 3, 6, 6))
    assert called == [1]


def _gin():
    first = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8))
    return Net(pyg.GINConv(first), pyg.GINConv(pyg.MLP([8, 8, 3], norm=None)))


@pytest.mark.parametrize("make", [lambda: pyg.GIN(6, 8, 2), _gin])
def test_the_maps_inside_of_gin_are_swapped(make):
    model = make()
    binary = bitgnn.binarize(
        model, bitgnn.GraphConfig("FBF+FBF", linear=True, activation="hardtanh")
    )
    maps = [n for n, m in model.named_modules() if isinstance(m, nn.Linear | pyg.Linear)]
    assert set(report_of(binary).swapped) == set(maps)
    assert all(isinstance(binary.get_submodule(name), Linear) for name in maps)
    assert not any(isinstance(m, nn.ReLU) for n, m in binary.named_modules() if ".nn." in n)
    binary(X, EDGES).sum().backward()
    kept = bitgnn.binarize(model, bitgnn.GraphConfig("FBF+FBF", linear=True, activation="keep"))
    assert any("feeds the sign of" in text for text in report_of(kept).warnings)


class Remembering(nn.Module):
    """Keeps what it sees: a tensor, a count, a list, a set; clips by its own ReLU."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = GCNConv(8, 8), GCNConv(8, 3)
        self.register_buffer("memory", torch.zeros(8))
        self.calls, self.seen, self.kinds = 0, [], set()

    def forward(self, x, edge_index):
        self.memory = 0.5 * self.memory + x.mean(0)
        self.calls += 1
        self.seen.append(x)
        self.kinds.add(type(x))
        self.last = x
        return self.conv2(self.conv1(x, edge_index).relu(), edge_index)


def test_tracing_leaves_nothing_in_a_model():
    x, edges = torch.randn(12, 8), torch.randint(12, (2, 40))
    model = Remembering()
    model(x, edges)
    before = {**vars(model), "memory": model.memory, "seen": list(model.seen)}
    binary = bitgnn.binarize(model, "bin")
    for one in (model, binary):
        assert one.calls == 1
        assert one.kinds == {torch.Tensor}
        assert all(type(value) is torch.Tensor for value in (one.memory, one.last, *one.seen))
    assert all(getattr(model, name) is before[name] for name in ("memory", "last", "calls"))
    assert list(vars(model)) == [name for name in before if name != "memory"]
    trained = bitgnn.binarize(Remembering(), "bin", example=(x, edges))
    assert all(type(value) is torch.Tensor for value in (trained.memory, *trained.seen))
    trained.load_state_dict(trained.state_dict())

"""Modules of torch and PyG told by class, attributes and parts: read again, and never more."""

import copy
import json

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch.nn import functional

import bitgnn
from bitgnn.inference.descriptions import describe
from bitgnn.inference.descriptions import read as read_description
from bitgnn.inference.own_code.known import FUNCTIONS, describe_function, read_function
from bitgnn.inference.own_code.structure import Names, Untold, describe_structure, read_structure

NAMES = Names({function: name for name, function in FUNCTIONS.items()}, FUNCTIONS)
SIZE = 8


def seen(module):
    module.seen = {"limits": (1, float("inf")), "kinds": {"a", "b"}, "type": torch.float16}
    return module


MODULES = {
    "attention": lambda: pyg.TransformerConv(SIZE, SIZE, heads=2, edge_dim=3),
    "GIN": lambda: pyg.GINConv(nn.Sequential(nn.Linear(SIZE, SIZE), nn.ReLU())),
    "types": lambda: pyg.HGTConv(SIZE, SIZE, (["a"], [("a", "to", "a")]), heads=2),
    "recurrent": lambda: nn.LSTM(SIZE, SIZE, 2, bidirectional=True),
    "transformer": lambda: nn.TransformerEncoderLayer(SIZE, 2, activation=functional.gelu),
    "further attributes": lambda: seen(nn.Linear(SIZE, SIZE)),
    "changed": lambda: setattr(m := pyg.GATConv(SIZE, SIZE), "negative_slope", 0.5) or m,
    "shared name": lambda: pyg.SAGEConv(SIZE, SIZE, aggr=pyg.aggr.LSTMAggregation(SIZE, SIZE)),
    "empty": lambda: nn.ModuleList([nn.ModuleDict({}), nn.Identity()]),
}


@pytest.mark.parametrize("name", MODULES)
def test_modules_are_made_again(name):
    module = MODULES[name]().eval()
    told = json.loads(json.dumps(describe_structure(module, NAMES)))
    state = {f"in.{key}": tensor for key, tensor in module.state_dict().items()}
    made = read_structure(told, state, NAMES, "in.")
    assert str(made) == str(module)
    assert not made.training
    assert not any(parameter.requires_grad for parameter in made.parameters())
    found = made.state_dict()
    assert found.keys() == module.state_dict().keys()
    assert all(torch.equal(t, found[key]) for key, t in module.state_dict().items())
    assert json.loads(json.dumps(describe_structure(made, NAMES))) == told
    if name == "further attributes":
        assert made.seen == module.seen
    x = torch.randn(5, 3, SIZE)
    if name in ("recurrent", "transformer"):
        result, expected = made(x), module(x)
        pairs = (
            zip(result, expected, strict=True)
            if name == "transformer"
            else [(result[0], expected[0])]
        )
        assert all(torch.equal(one, other) for one, other in pairs)


class Own(nn.Linear):
    pass


def hooked():
    module = nn.Linear(SIZE, SIZE)
    module.register_forward_hook(lambda *args: None)
    return module


def hidden():
    module = nn.Linear(SIZE, SIZE)
    module.register_buffer("table", torch.ones(3), persistent=False)
    return module


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Own(SIZE, SIZE), "Own is a class of its own"),
        (lambda: nn.Sequential(Own(SIZE, SIZE)), "Own is a class of its own"),
        (hooked, "Linear has hooks"),
        (hidden, "Linear keeps table out of its state"),
        (lambda: setattr(m := nn.ReLU(), "f", print) or m, "f of ReLU is no plain value"),
        (lambda: setattr(m := nn.ReLU(), "t", torch.ones(1)) or m, "t of ReLU is no plain value"),
    ],
)
def test_what_plain_values_do_not_tell(make, message):
    with pytest.raises(Untold, match=message):
        describe_structure(make(), NAMES)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update({"class": "os.system"}), "module 'os.system' is unknown"),
        (lambda d: d.update({"class": "torch.nn.modules.linear.init"}), "is unknown"),
        (lambda d: d.update({"class": "torch.nn.modules.module.torch.nn.Linear"}), "is unknown"),
        (lambda d: d.update({"class": "torch_geometric.nn.summary.Tensor"}), "is unknown"),
        (lambda d: d["attributes"].update(forward="x"), "attribute 'forward' of Linear is its own"),
        (lambda d: d["attributes"].update(__class__="x"), "Linear has no attribute '__class__'"),
        (lambda d: d["attributes"].update(_forward_hooks={}), "no attribute '_forward_hooks'"),
        (lambda d: d["attributes"].update(f={"function": "os.system"}), "attribute of a module is"),
        (lambda d: d["attributes"].update(n=1 << 40), "n must be at most"),
        (lambda d: d["attributes"].update(n=[1]), "an attribute of a module is wrong"),
        (lambda d: d["parts"].update(forward=None), "attribute 'forward' already exists"),
        (lambda d: d["parameters"].update(more=True), "more"),
        (lambda d: d.pop("parts"), "must have the entries"),
        (lambda d: d.update(parts=[]), "must be mappings"),
    ],
)
def test_odd_descriptions_are_refused(change, message):
    module = nn.Linear(SIZE, SIZE)
    told = copy.deepcopy(describe_structure(module, NAMES))
    change(told)
    with pytest.raises((ValueError, KeyError), match=message):
        read_function(
            {"structure": told},
            {f"function.{name}": tensor for name, tensor in module.state_dict().items()},
        )


def test_layers_of_this_package_are_told_by_their_constructors():
    assert "module" in describe_function(bitgnn.nn.Linear(SIZE, SIZE))
    assert "structure" in describe_function(nn.Linear(SIZE, SIZE))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_earlier_files_of_packed_layers_are_read():
    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = pyg.SAGEConv(SIZE, SIZE), pyg.GCNConv(SIZE, 3)

        def forward(self, x, edge_index):
            if x.size(1) != SIZE:
                return x
            h = self.first((x, x.flip(0)), edge_index)
            return self.last(h.tanh() if h.sum() < 1e9 else h, edge_index)

    x, edges = torch.randn(20, SIZE), torch.randint(20, (2, 60))
    model = bitgnn.binarize(Whole())
    model(x, edges).sum().backward()
    frozen = bitgnn.freeze(model.eval(), check=False)
    description, state = describe(frozen), frozen.model.state_dict()
    for name, entry in description["layers"].items():
        description["layers"][name] = entry["packed"]["frozen"]
    state = {name: tensor for name, tensor in state.items() if "sources_alone" not in name}
    description["shared"] = {}
    read = read_description(description, state, Whole())
    assert torch.equal(read(x, edges), frozen(x, edges))

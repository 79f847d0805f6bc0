"""All that torch offers around a module, before the first batch and behind it."""

import copy
import pickle
import tempfile
from pathlib import Path

import pytest
import torch
import torch_geometric.nn as pyg
from small_models import EDGES, WORDS, C, H, K, Net, X, Y, chain, roles, steps, two
from torch import nn
from torch.func import functional_call
from torch.nn import functional
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import bitgnn
from bitgnn.nn import GCNConv, SAGEConv

KINDS = pytest.mark.parametrize("kind", [GCNConv, SAGEConv])  # GraphConv is SAGEConv's sibling
WIDTHS = pytest.mark.parametrize("width", [K, -1], ids=["known", "lazy"])
WHEN = pytest.mark.parametrize("when", ["before", "after"])
DATA = pytest.mark.parametrize("x", [X, WORDS], ids=["dense", "words"])


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def loss(model, x=X):
    return functional.cross_entropy(model(x, EDGES), Y)


def same(one, two):
    """Equal states and equal results."""
    first, second = one.state_dict(), two.state_dict()
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    return torch.equal(one.eval()(X, EDGES), two.eval()(X, EDGES))


@KINDS
@WIDTHS
@pytest.mark.parametrize("pair", [False, True], ids=["one", "pair"])
def test_shapes_never_depend_on_data(kind, width, pair):
    sizes = (width, width) if pair and kind is not GCNConv else width
    layer = kind(sizes, C)
    shapes = []
    for x in (X, WORDS, X[:1], X):
        layer(x, EDGES if len(x) > 1 else EDGES[:, :0]).sum().backward()
        shapes.append({name: tuple(value.shape) for name, value in layer.state_dict().items()})
    assert all(found == shapes[0] for found in shapes)
    assert shapes[0] == {
        n: tuple(v.shape) for n, v in kind((K, K) if sizes != width else K, C).state_dict().items()
    }
    theirs = getattr(pyg, kind.__name__)(K, C).state_dict()
    assert {name: tuple(value.shape) for name, value in theirs.items()}.items() <= shapes[0].items()
    for value in layer.buffers():
        assert value.dtype in (torch.float32, torch.int64)


@KINDS
@WIDTHS
@WHEN
@pytest.mark.parametrize("way", ["deepcopy", "pickle", "state dict", "assigned"])
def test_copies_train_alike(kind, width, when, way):
    if way == "assigned" and when == "before":
        width = K  # torch refuses to assign lazy parameters
    model = two(kind, width)
    if when == "after":
        loss(model).backward()
        model.zero_grad()
    settled = roles(model.first, model.last)
    if way == "deepcopy":
        other = copy.deepcopy(model)
    elif way == "pickle":
        other = pickle.loads(pickle.dumps(model))
    else:
        other = two(kind, -1)
        other.load_state_dict(copy.deepcopy(model.state_dict()), assign=way == "assigned")
    assert roles(other.first, other.last) == roles(model.first, model.last)
    assert way == "assigned" or roles(model.first, model.last) == settled
    for each in (model, other):
        torch.manual_seed(1)
        steps(each, 3, X, EDGES)
        assert roles(each.first, each.last) == ["first", "last"]
    if width == -1 and when == "before":  # each has drawn weights of its own
        other.load_state_dict(model.state_dict())
    assert same(model, other)


@KINDS
def test_a_part_without_gradients_and_in_evaluation_stays_as_it_is(kind):
    model = two(kind)
    model.first.requires_grad_(False)
    steps(model, 4, X, EDGES)
    assert roles(model.first, model.last) == ["first", "last"]
    held = copy.deepcopy(model.first.state_dict())
    model.first.eval()
    steps(model, 3, 3 * X + 1, EDGES)
    assert all(torch.equal(held[name], now) for name, now in model.first.state_dict().items())
    frozen = bitgnn.freeze(model.eval(), check=False)
    assert torch.equal(frozen(X, EDGES), model(X, EDGES))


@KINDS
@pytest.mark.parametrize("moving", [False, True], ids=["mean", "moving"])
@pytest.mark.parametrize(
    ("when", "buffers"), [("before", False), ("before", True), ("after", True)]
)
def test_averaged_models(kind, when, buffers, moving):
    model, x = two(kind), X if moving else WORDS
    if when == "after":
        loss(model, x).backward()
    how = {"multi_avg_fn": get_ema_multi_avg_fn(0.5)} if moving else {}
    average = AveragedModel(model, use_buffers=buffers, **how)
    for _ in range(5):
        steps(model, 1, x, EDGES)
        average.update_parameters(model)
    inner = average.module
    assert roles(inner.first, inner.last) == ["first", "last"]
    assert inner.first.input_bits.kind == model.first.input_bits.kind
    assert inner.first.letters == model.first.letters
    with torch.no_grad():
        found = average.eval()(x, EDGES)
    assert torch.equal(bitgnn.freeze(inner, check=False)(x, EDGES), found)
    if moving:
        for _ in range(40):  # goes to where the model is
            average.update_parameters(model)
        torch.testing.assert_close(average(x, EDGES), model.eval()(x, EDGES))


OPTIMISERS = {
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05),
    "Adadelta": lambda p: torch.optim.Adadelta(p, lr=1.0),
    "LBFGS": lambda p: torch.optim.LBFGS(p, lr=0.1, max_iter=2),
    "fused AdamW": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
    "Rprop": torch.optim.Rprop,
}


@KINDS
@DATA
@pytest.mark.parametrize("name", OPTIMISERS)
def test_optimisers_made_before_the_first_batch(kind, x, name):
    model = two(kind)
    optimizer = OPTIMISERS[name](list(model.parameters()))
    start = {name: value.detach().clone() for name, value in model.named_parameters()}

    def closure():
        optimizer.zero_grad()
        found = loss(model, x)
        found.backward()
        return found

    for _ in range(3):
        optimizer.step(closure)
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    optimizer.step(closure)
    assert loss(model, x).isfinite()
    moved = {
        name for name, value in model.named_parameters() if not torch.equal(value, start[name])
    }
    weights = {name for name in start if name.endswith("weight") and "lin" in name}
    assert weights | {"last.gain_level"} <= moved


@pytest.fixture(scope="module")
def process_group():
    with tempfile.TemporaryDirectory() as folder:
        address = f"file://{Path(folder) / 'group'}"
        torch.distributed.init_process_group("gloo", init_method=address, rank=0, world_size=1)
        yield
        torch.distributed.destroy_process_group()


@KINDS
@WHEN
@pytest.mark.parametrize("how", ["layer", "model", "binarize", "example"])
def test_distributed_data_parallel(kind, when, how, process_group):
    float_kind = getattr(pyg, kind.__name__)
    if how == "layer":
        model = kind(K, C)
    elif how == "model":
        model = two(kind)
    else:
        example = (X, EDGES) if how == "example" else None
        floats = Net(chain, first=float_kind(K, H), last=float_kind(H, C))
        model = bitgnn.binarize(floats, example=example).train()
    if when == "after":
        loss(model).backward()
        model.zero_grad(set_to_none=True)
    parallel = nn.parallel.DistributedDataParallel(model)
    for _ in range(3):
        loss(parallel).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    wanted = "only" if how == "layer" else ["first", "last"]
    assert (model.role if how == "layer" else roles(model.first, model.last)) == wanted


@KINDS
@WHEN
def test_functional_calls(kind, when):
    model = two(kind)
    if when == "after":
        loss(model).backward()
        model.zero_grad()
    other = copy.deepcopy(model)
    parameters = {name: value.detach().clone() for name, value in model.named_parameters()}
    for value in parameters.values():
        value.requires_grad_()
    buffers = {name: value.clone() for name, value in model.named_buffers()}
    before = copy.deepcopy(model.state_dict())
    expected = loss(other)
    expected.backward()
    found = functional_call(model, (parameters, buffers), (X, EDGES))
    out = functional.cross_entropy(found, Y)
    out.backward()
    assert torch.equal(out, expected)
    for name, value in other.named_parameters():
        torch.testing.assert_close(parameters[name].grad, value.grad)
    assert all(parameter.grad is None for parameter in model.parameters())
    if when == "after":  # what is learnt is in the buffers that were given
        assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
        assert float(buffers["first.input_bits.batches"]) == 2.0
    with torch.no_grad():
        swapped = functional_call(model.eval(), other.state_dict(), (X, EDGES))
        assert torch.equal(swapped, other.eval()(X, EDGES))


@KINDS
@WHEN
def test_models_made_without_memory(kind, when):
    model = two(kind)
    if when == "after":
        steps(model, 2, X, EDGES)
    with torch.device("meta"):
        empty = two(kind)
    other = empty.to_empty(device="cpu")
    other.load_state_dict(model.state_dict())
    assert same(model, other)
    assigned = copy.deepcopy(empty)
    assigned.load_state_dict(model.state_dict(), assign=True)
    assert same(model, assigned)


@KINDS
def test_checkpoints_of_pyg_and_of_trained_layers_fit(kind):
    theirs, layer = getattr(pyg, kind.__name__)(K, C), kind(K, C)
    layer.load_state_dict(theirs.state_dict())
    steps(layer, 2, X, EDGES)
    trained = copy.deepcopy(layer.state_dict())
    layer.load_state_dict(theirs.state_dict())  # statistics stay
    assert float(layer.input_bits.batches) == 2.0
    theirs.load_state_dict({k: v for k, v in trained.items() if k in theirs.state_dict()})
    with pytest.raises(RuntimeError, match="size mismatch"):
        kind(K + 1, C).load_state_dict(trained)
    del trained["input_bits.mean"]
    with pytest.raises(RuntimeError, match=r"Missing key.*input_bits\.mean"):
        kind(K, C).load_state_dict(trained)


@KINDS
@pytest.mark.parametrize("cast", ["half", "double", "float", "cpu"])
def test_lazy_layers_are_cast_and_moved_before_they_know_their_width(kind, cast):
    model = getattr(two(kind, -1), cast)()
    dtype = next(p.dtype for p in model.parameters())
    out = model(X.to(dtype), EDGES)
    assert out.dtype == dtype
    out.sum().backward()
    assert model.first.input_bits.mean.dtype == torch.float32
    assert copy.deepcopy(model)(X.to(dtype), EDGES).dtype == dtype


@KINDS
@DATA
def test_sparse_tensors_are_what_they_hold(kind, x):
    model, other = two(kind), two(kind)
    for features in (x.to_sparse(), x.to_sparse_csr(), x.to_sparse()):
        torch.testing.assert_close(model(features, EDGES), other(x, EDGES))
    assert model.first.input_bits.kind == other.first.input_bits.kind
    assert same(model, other)

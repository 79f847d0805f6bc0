"""The user's own loop: layers that were swapped learn, and a step waits for no device."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from toy_problems import CLASSES, planted

import bitgnn
from bitgnn.nn import GCNConv, GraphConv, SAGEConv, default_precision
from bitgnn.nn.host_state import HostState
from bitgnn.nn.inputs.input_statistics import OFTEN
from bitgnn.nn.roles.has_role import STEPS

N, K, HIDDEN, OUT = 60, 40, 33, 5
WAITING = {"_local_scalar_dense", "nonzero", "_unique2", "equal", "repeat_interleave"}
"""Operators whose results, or their sizes, the host waits for."""
MOST_READS = 8
"""Reads of the scalar buffers of a layer and its input in a training forward."""

LAYERS = pytest.mark.parametrize("kind", [GCNConv, SAGEConv, GraphConv])
FEATURES = pytest.mark.parametrize("features", ["bag", "dense"])


class Dispatched(TorchDispatchMode):
    """Names of the operators that run."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


class Two(nn.Module):
    def __init__(self, kind, share, width=K, out=OUT):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = kind(width, HIDDEN), kind(HIDDEN, out)
        self.share = share

    def forward(self, x, edges):
        x = self.first(functional.dropout(x, self.share, self.training), edges)
        return self.second(functional.dropout(x.relu(), self.share, self.training), edges)


def _data(features, device):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(N, K, generator=generator)
    x = (x > 1.2).float() if features == "bag" else x
    edges = torch.randint(N, (2, 240), generator=generator)
    return x.to(device), edges.to(device), (torch.arange(N) % OUT).to(device)


def _warm(model, x, edges, y, steps=3):
    """A step that has been done some times, around an evaluation."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, weight_decay=1e-3)

    def step():
        optimizer.zero_grad()
        functional.cross_entropy(model(x, edges), y).backward()
        optimizer.step()

    step()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, weight_decay=1e-3)
    model.eval()
    with torch.no_grad():
        model(x, edges)
    model.train()
    for _ in range(steps):
        step()
    return step


@LAYERS
@FEATURES
@pytest.mark.parametrize("precision", ["bin", "full"])
def test_swapped_layers_learn_and_freeze_exactly(precision, features, kind):
    """As the loop of PyG's tutorials has it."""
    data = planted()
    x, edges, y, train = data.x, data.edge_index, data.y, data.train_mask
    if features == "dense":
        x = 2 * x + 0.5 * torch.randn(x.shape, generator=torch.Generator().manual_seed(1))
    with default_precision(precision):
        model = Two(kind, 0.5, x.size(1), CLASSES)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for _ in range(60):
        optimizer.zero_grad()
        functional.cross_entropy(model(x, edges)[train], y[train]).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        expected = model(x, edges)
    assert float((expected.argmax(1) == y)[data.test_mask].float().mean()) > 0.85
    assert expected.std(0).min() > 0.1
    first, second = model.first, model.second
    assert (first.role, second.role) == ("first", "last")
    assert (first.precision, second.precision) == (precision, precision)
    assert first.input_bits.kind == ("pattern" if features == "bag" else "rows")
    assert second.input_bits.kind == "activation"
    assert torch.equal(bitgnn.freeze(model)(x, edges), expected)


@LAYERS
def test_weights_are_packed_once(kind):
    x, edges, y = _data("bag", "cpu")
    step = _warm(Two(kind, 0.0), x, edges, y)
    with Dispatched() as seen:
        step()
    assert seen.names.count("fold_weight") == 2
    assert seen.names.count("pack_scaled") == seen.names.count("activation_bits") == 1
    assert "pack" not in seen.names
    assert seen.names.count("bspmm_fbf") == 4
    # On a CPU values are asked for whether they are finite.
    assert not (WAITING - {"_local_scalar_dense"}) & set(seen.names)


@pytest.mark.cuda
@LAYERS
@FEATURES
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_gpu_is_not_waited_for(kind, features, share):
    x, edges, y = _data(features, "cuda")
    # Behind the first batches, whose values are asked for.
    step = _warm(Two(kind, share).cuda(), x, edges, y, OFTEN)
    mode = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        step()
    finally:
        torch.cuda.set_sync_debug_mode(mode)


@LAYERS
@FEATURES
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")], ids=str)
def test_values_that_are_not_finite(kind, features, bad):
    """Training refuses them by column; in evaluation the rows that they reach are NaN."""
    x, edges, _ = _data(features, "cpu")
    layer = kind(K, HIDDEN)
    layer(x, edges)
    edges = torch.stack([torch.arange(N), torch.arange(N).roll(1)])
    broken = x.clone()
    broken[3, 7] = bad
    state = copy.deepcopy(layer.state_dict())
    with pytest.raises(ValueError, match=rf"^{kind.__name__}: x must be finite .* in columns 7$"):
        layer(broken, edges)
    for name, value in layer.state_dict().items():
        assert torch.equal(state[name], value) or name == "steps"
    layer.eval()
    out, expected = layer(broken, edges), layer(x, edges)
    with torch.no_grad():
        assert torch.equal(layer(broken, edges).isnan(), out.isnan())
    is_nan = out.isnan().all(1)
    # The node itself, and the one that it sends to.
    assert is_nan.nonzero().view(-1).tolist() == [2, 3]
    assert out.isnan().any(1).equal(is_nan)
    torch.testing.assert_close(out[~is_nan], expected[~is_nan])


@LAYERS
@pytest.mark.parametrize("rows", [0, 1, 2])
@pytest.mark.parametrize("features", ["bag", "dense", "zeros", "constant"])
def test_few_rows_and_columns_that_do_not_vary(kind, features, rows):
    x, edges, y = _data("bag" if features == "bag" else "dense", "cpu")
    x = x if features in ("bag", "dense") else torch.full_like(x, float(features != "zeros"))
    model, none = Two(kind, 0.0), edges[:, :0]
    model(x[:rows], none).sum().backward()
    assert model.eval()(x[:rows], none).shape == (rows, OUT)
    for _ in range(3):
        functional.cross_entropy(model.train()(x, edges), y).backward()
    out = model.eval()(x, edges)
    assert bool(out.isfinite().all())
    assert torch.equal(bitgnn.freeze(model, check=False)(x, edges), out.detach())


@LAYERS
def test_a_forward_reads_its_state_a_few_times(kind, monkeypatch):
    x, edges, y = _data("dense", "cpu")
    model = Two(kind, 0.0)
    step = _warm(model, x, edges, y, STEPS)
    model.train()
    read, calls = HostState.read, []
    monkeypatch.setattr(HostState, "read", lambda *given: calls.append(1) or read(*given))
    step()
    assert 0 < len(calls) <= MOST_READS * len(list(model.children()))


@pytest.mark.parametrize("write", ["data", "numpy", "state dict"])
def test_a_forward_follows_every_write_to_a_role(write):
    x, edges, y = _data("dense", "cpu")
    model = Two(SAGEConv, 0.0)
    _warm(model, x, edges, y, STEPS)
    model.eval()
    other = copy.deepcopy(model)
    other.first.feeds.fill_(-1.0)
    before, expected = model(x, edges), other(x, edges)
    assert model.first.role == "first"
    if write == "data":
        model.first.feeds.data.fill_(-1.0)
    elif write == "numpy":
        model.first.feeds.numpy()[...] = -1.0
    else:
        model.load_state_dict(other.state_dict())
    found = model(x, edges)
    assert torch.equal(found, expected)
    assert not torch.equal(found, before)

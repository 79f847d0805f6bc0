"""The user's own loop: layers that were swapped learn, and a step waits for no device."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from toy_problems import CLASSES, planted

import bitgnn
from bitgnn.nn import GCNConv, GraphConv, SAGEConv, default_precision

N, K, HIDDEN, OUT = 60, 40, 33, 5
WAITING = {"_local_scalar_dense", "nonzero", "_unique2", "equal", "repeat_interleave"}
"""Operators whose results, or their sizes, the host waits for."""

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


def _warm(model, x, edges, y):
    """A step that has been done a few times, around an evaluation."""
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
    for _ in range(3):
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
    assert (first.role, second.role) == ("hidden", None)
    assert (first.precision, second.precision) == (precision, precision)
    assert first.input_bits.kind == ("pattern" if features == "bag" else "thermometer")
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
    assert not WAITING & set(seen.names)


@pytest.mark.cuda
@LAYERS
@FEATURES
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_gpu_is_not_waited_for(kind, features, share):
    x, edges, y = _data(features, "cuda")
    step = _warm(Two(kind, share).cuda(), x, edges, y)
    mode = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        step()
    finally:
        torch.cuda.set_sync_debug_mode(mode)


@LAYERS
@FEATURES
def test_rows_that_are_not_finite_give_nan_in_training(kind, features):
    x, edges, _ = _data(features, "cpu")
    layer = kind(K, HIDDEN)
    layer(x, edges)
    edges = torch.stack([torch.arange(N), torch.arange(N).roll(1)])
    expected = layer(x, edges)
    for bad in (float("nan"), float("inf"), -float("inf")):
        broken = x.clone()
        broken[3, 7] = bad
        out = layer(broken, edges)
        is_nan = out.isnan().all(1)
        # The node itself, and the one that it sends to.
        assert is_nan.nonzero().view(-1).tolist() == [2, 3]
        assert out.isnan().any(1).equal(is_nan)
        assert expected.isfinite().all()


def test_dense_features_without_zeros_are_unchanged_by_a_dropout_that_is_not_there():
    x, *_ = _data("dense", "cpu")
    bits = GCNConv(K, OUT).input_bits
    bits.look_up(x)
    assert bool(bits.rare.any())
    plain = bits.train()(x)

    class Elsewhere(torch.Tensor):
        """As on a GPU: nobody asks whether there are zeros."""

        is_cuda = True

    gone = bits._gone(x.as_subclass(Elsewhere))
    assert gone is not None
    assert not bool(gone.any())
    bits._gone = lambda x: torch.zeros_like(x, dtype=torch.bool)
    general = bits(x)
    assert torch.equal(general.words, plain.words)
    assert torch.equal(general.offset, plain.offset)
    assert float(general.gain) == 1.0

"""The pass that finds roles: once, in time, whatever wraps the model, and changing nothing."""

import copy
import gc
import subprocess
import sys
import threading
import weakref
from collections import Counter, deque

import pytest
import torch
import torch_geometric
from small_models import EDGES, C, H, K, N, Net, X, Y, chain, roles, two
from torch import nn
from torch.nn import functional

import bitgnn
from bitgnn.nn import GCNConv, SAGEConv


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


class Eventful(nn.Module):
    """A model whose forward writes to all that a module can hold."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = GCNConv(K, H), nn.BatchNorm1d(H), GCNConv(H, C)
        self.drop = nn.Dropout(0.5)
        self.register_buffer("seen", torch.zeros(()))
        self.calls, self.memo, self.history, self.recent = 0, {}, [], deque()
        self.nested = {"sizes": [], "counts": Counter()}
        self.state, self.latest = torch.zeros(N), None

    def forward(self, x, edges):
        self.calls += 1
        self.memo[len(self.memo)] = len(x)
        self.history.append(len(x))
        self.recent.append(len(x))
        self.nested["sizes"].append(len(x))
        self.nested["counts"]["calls"] += 1
        self.seen.add_(1.0)
        self.state.add_(1.0)
        hidden = self.norm(self.first(x, edges)).relu()
        self.latest = hidden.detach()
        hidden = self.drop(hidden) + 0.1 * torch.randn_like(hidden)
        if self.calls == 1:
            self.extra = nn.Parameter(torch.zeros(C))
        return self.last(hidden, edges) + self.extra


def test_a_forward_with_side_effects_has_happened_once():
    model = Eventful()
    torch.manual_seed(5)
    out = model(X, EDGES)
    number = torch.rand(1)
    assert roles(model.first, model.last) == ["first", "last"]
    assert (model.calls, model.memo, model.history) == (1, {0: N}, [N])
    assert (list(model.recent), model.nested) == ([N], {"sizes": [N], "counts": {"calls": 1}})
    assert (float(model.seen), float(model.state[0])) == (1.0, 1.0)
    assert int(model.norm.num_batches_tracked) == 1
    assert all(parameter.grad is None for parameter in model.parameters())
    # Given its roles, a model makes the same of the same random numbers.
    other = Eventful()
    other.first.load_state_dict(model.first.state_dict())
    other.last.load_state_dict(model.last.state_dict())
    for layer, role in ((other.first, "first"), (other.last, "last")):
        layer.reset_parameters()
        layer.set_role(role)
        for name, value in layer.state_dict().items():
            if "bits" not in name and "norm" not in name:
                held = getattr(model, "first" if role == "first" else "last").state_dict()[name]
                value.copy_(held if name != "steps" else torch.zeros(()))
    torch.manual_seed(5)
    torch.testing.assert_close(other(X, EDGES), out)
    assert torch.equal(torch.rand(1), number)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda net: net,
        lambda net: Net(lambda self, x, edges: self.inner(x, edges), inner=net),
        nn.DataParallel,
        lambda net: Net(lambda self, x, edges: self.inner.forward(x, edges=edges), inner=net),
    ],
    ids=["itself", "a module", "DataParallel", "forward alone"],
)
@pytest.mark.parametrize("kind", [GCNConv, SAGEConv])
def test_whatever_wraps_a_model(kind, wrap):
    net = two(kind)
    wrapped = wrap(net)
    functional.cross_entropy(wrapped(X, EDGES), Y).backward()
    assert roles(net.first, net.last) == ["first", "last"]
    expected = two(kind)
    expected.way(expected, X, EDGES)
    expected.load_state_dict(net.state_dict())
    torch.testing.assert_close(wrapped.eval()(X, EDGES), expected.eval()(X, EDGES))


def test_evaluation_and_graphs_without_gradients_settle_nothing_false():
    net = two(GCNConv)
    state = copy.deepcopy(net.state_dict())
    for _ in range(3):
        net.eval()(X, EDGES)
        bitgnn.freeze(net, check=False)
    assert all(torch.equal(state[name], value) for name, value in net.state_dict().items())
    with torch.no_grad():  # Monte Carlo dropout on a fresh model
        net.train()(X, EDGES)
    assert roles(net.first, net.last) == ["first", "last"]
    assert float(net.first.input_bits.batches) == 0.0
    with torch.inference_mode():
        fresh = two(GCNConv)
        fresh(X, EDGES)
    assert roles(fresh.first, fresh.last) == ["first", "last"]
    functional.cross_entropy(net(X, EDGES), Y).backward()
    assert net.first.is_trained is False


def test_an_error_of_the_users_is_theirs_and_the_next_call_settles():
    def forward(net, x, edges):
        out = chain(net, x, edges)
        if x.size(1) != K or net.breaks:
            raise KeyError("mine")
        return out

    net = Net(forward, first=GCNConv(K, H), last=GCNConv(H, C))
    net.breaks = True
    with pytest.raises(KeyError, match="mine"):
        net(X, EDGES)
    net.breaks = False
    with pytest.raises(ValueError, match=r"x must be \[N, 12\], got \[30, 11\]"):
        net(X[:, 1:], EDGES)
    net(X, EDGES)
    assert roles(net.first, net.last) == ["first", "last"]


def test_part_of_a_model_that_was_not_called_waits():
    def forward(net, x, edges):
        hidden = net.first(x, edges).relu()
        return net.last(hidden, edges) if net.deep else net.early(hidden)

    net = Net(forward, first=GCNConv(K, H), last=GCNConv(H, C), early=nn.Linear(H, C))
    net.deep = False
    net(X, EDGES)
    net.deep = True
    net(X, EDGES)
    assert net.last.role == "last"
    assert net.first.role == "first"


def test_models_of_several_threads_settle_apart():
    models = [two(kind) for kind in (GCNConv, SAGEConv) * 4]
    failures = []

    def run(net):
        try:
            for _ in range(3):
                functional.cross_entropy(net(X, EDGES), Y).backward()
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(net,)) for net in models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    for net in models:
        assert roles(net.first, net.last) == ["first", "last"]
        assert float(net.first.input_bits.batches) == 3.0


def test_a_model_is_not_kept_alive():
    net = two(GCNConv)
    net(X, EDGES)
    unused = GCNConv(K, H)
    held = [weakref.ref(net), weakref.ref(net.first), weakref.ref(unused)]
    del net, unused
    gc.collect()
    assert [reference() for reference in held] == [None] * 3


@pytest.mark.parametrize("width", [K, -1], ids=["known", "lazy"])
def test_hooks_of_the_users_are_called_once(width):
    net, calls = two(GCNConv, width), []
    for name, module in net.named_modules():
        if name in ("first", "first.lin", "last", "last.lin"):
            module.register_forward_pre_hook(lambda *_, name=name: calls.append(name))
            module.register_forward_hook(lambda *_, name=name: calls.append(name))
    for _ in range(2):
        calls.clear()
        net(X, EDGES)
        assert calls == [
            name
            for layer in ("first", "last")
            for name in (layer, f"{layer}.lin", f"{layer}.lin", layer)
        ]
    assert roles(net.first, net.last) == ["first", "last"]


def test_copies_wait_for_a_model_as_their_layers_do():
    model = bitgnn.binarize(torch_geometric.nn.GCN(6, 8, 2, 3), "bin")
    graph = torch.randint(0, 20, (2, 60))

    def waiting(module):
        return [m for m in module.modules() if getattr(m, "waits_for_model", False)]

    assert len(waiting(copy.deepcopy(model))) == 2
    model(torch.randn(20, 6), graph)
    assert not waiting(model)
    assert not waiting(copy.deepcopy(model))


def test_modules_pay_for_waiting_layers_only_while_there_are_some():
    script = (
        "import gc, torch, bitgnn\n"
        "hooks = torch.nn.modules.module._global_forward_pre_hooks\n"
        "layer = bitgnn.nn.GCNConv(3, 3)\n"
        "assert len(hooks) == 1\n"
        "del layer\n"
        "gc.collect()\n"
        "torch.nn.Linear(1, 1)(torch.ones(1, 1))\n"
        "assert len(hooks) == 0\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True)

"""Optimisers spare weights that are used by their sign from decay that is coupled."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from bitgnn.nn import GCNConv
from bitgnn.nn.weight_decay import COUPLED, spare_from_decay

DECAY, STEPS = 0.1, 5
EDGES = torch.randint(0, 20, (2, 60), generator=torch.Generator().manual_seed(1))
OPTIMISERS = [
    (torch.optim.SGD, {"lr": 0.1}),
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.5}),
    (torch.optim.Adam, {"lr": 0.05}),
    (torch.optim.Adam, {"lr": 0.05, "amsgrad": True}),
    (torch.optim.RMSprop, {"lr": 0.05}),
    (torch.optim.RMSprop, {"lr": 0.05, "momentum": 0.9, "centered": True}),
    (torch.optim.Adagrad, {"lr": 0.1}),
    (torch.optim.Adadelta, {"lr": 1.0}),
    (torch.optim.NAdam, {"lr": 0.05}),
    (torch.optim.RAdam, {"lr": 0.05}),
    (torch.optim.Adamax, {"lr": 0.05}),
    (torch.optim.ASGD, {"lr": 0.1}),
]
EACH = pytest.mark.parametrize(
    ("kind", "options"), OPTIMISERS, ids=[f"{k.__name__}-{'-'.join(o)}" for k, o in OPTIMISERS]
)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def trained(kind, options, decay, marked, way="plain"):
    """Two parameters behind some steps, of which the first is marked or not.

    Gradients do not depend on the parameters: one number would else hide another.
    """
    generator = torch.Generator().manual_seed(2)
    parameters = [nn.Parameter(torch.randn(4, 5, generator=generator)) for _ in range(2)]
    if marked:
        spare_from_decay(parameters[0])
    optimiser = kind(parameters, weight_decay=decay, **options)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for _ in range(STEPS):
        gradients = [torch.randn(4, 5, generator=generator) for _ in parameters]

        def closure(gradients=gradients):
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient.clone()
            return torch.tensor(1.5)

        if way == "positional":
            assert float(optimiser.step(closure)) == 1.5
        elif way == "keyword":
            assert float(optimiser.step(closure=closure)) == 1.5
        elif way == "scaled":
            optimiser.zero_grad()
            loss = sum((p * g).sum() for p, g in zip(parameters, gradients, strict=True))
            scaler.scale(loss).backward()
            scaler.step(optimiser)
            scaler.update()
        else:
            closure()
            optimiser.step()
        if marked and way != "scaled":  # PyTorch itself changes others in place, now and then
            assert torch.equal(parameters[0].grad, gradients[0])
    return [parameter.detach() for parameter in parameters]


def check(kind, options, way="plain"):
    """The marked one goes as without decay, the other one as with it, and they differ."""
    marked, other = trained(kind, options, DECAY, True, way)
    plain, _ = trained(kind, options, 0.0, False)
    decayed, usual = trained(kind, options, DECAY, False, way)
    torch.testing.assert_close(marked, plain, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(other, usual, rtol=0, atol=0)
    assert float((decayed - plain).abs().max()) > 1e-3


@EACH
@pytest.mark.parametrize("foreach", [False, True], ids=["single", "foreach"])
@pytest.mark.parametrize("maximize", [False, True], ids=["", "maximize"])
def test_marked_weights_step_as_without_decay(kind, options, foreach, maximize):
    check(kind, {**options, "foreach": foreach, "maximize": maximize})


@EACH
@pytest.mark.parametrize("way", ["positional", "keyword"])
def test_closures_make_the_gradients_inside_of_the_step(kind, options, way):
    check(kind, options, way)


def test_scaled_losses_of_a_fused_optimiser():
    check(torch.optim.Adam, {"lr": 0.05, "fused": True}, "scaled")


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.optim.AdamW, {}),
        (torch.optim.NAdam, {"decoupled_weight_decay": True}),
        (torch.optim.RAdam, {"decoupled_weight_decay": True}),
    ],
)
def test_decoupled_decay_is_left_alone(kind, options):
    options = {"lr": 0.05, **options}
    marked, usual = (trained(kind, options, DECAY, is_marked) for is_marked in (True, False))
    assert all(map(torch.equal, marked, usual))


def test_all_coupled_optimisers_are_tested_and_others_keep_their_gradients():
    assert {kind for kind, _ in OPTIMISERS} == set(COUPLED)

    class Own(torch.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {"weight_decay": DECAY})

        def step(self):
            self.seen = self.param_groups[0]["params"][0].grad.clone()

    weight = nn.Parameter(torch.ones(3))
    spare_from_decay(weight)
    weight.grad = torch.ones(3)
    optimiser = Own([weight])
    optimiser.step()
    assert torch.equal(optimiser.seen, torch.ones(3))


class Net(nn.Module):
    def __init__(self, precision):
        super().__init__()
        self.first = GCNConv(6, 8, precision=precision)
        self.last = GCNConv(8, 3, precision=precision)

    def forward(self, x):
        edges = EDGES[:, (len(x) == 2) * EDGES.size(1) :]
        return self.last(self.first(x, edges).relu(), edges)


@pytest.mark.parametrize("how", ["trained", "copied", "loaded"])
@pytest.mark.parametrize("precision", ["bin", "full"])
@pytest.mark.parametrize("features", ["words", "dense"])
def test_layers_mark_weights_that_are_used_by_their_sign(how, precision, features):
    x, y = torch.randn(20, 6), torch.randint(3, (20,))
    spared = ["last.lin.weight", "last.gain_level"]
    if features == "words":
        x = (x > 0.5).float()
        spared.append("first.lin.weight")
    model = Net(precision)

    def step(decay):
        optimiser = torch.optim.SGD(model.parameters(), lr=0.5, weight_decay=decay)
        functional.cross_entropy(model(x), y).backward()
        optimiser.step()
        gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        optimiser.zero_grad()
        return gradients

    model(torch.rand(2, 6).round())  # a dry run on other features marks nothing for good
    step(0.0)
    if how == "copied":
        model = copy.deepcopy(model)
    elif how == "loaded":
        state = model.state_dict()
        model = Net(precision)
        model.load_state_dict(state)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    gradients = step(DECAY)
    assert {"first.lin.weight", "last.lin.weight", "first.bias", "last.gain_level"} <= set(
        gradients
    )
    for name, parameter in model.named_parameters():
        if name not in gradients:
            assert torch.equal(parameter, before[name])
            continue
        whole = gradients[name] if name in spared else gradients[name] + DECAY * before[name]
        torch.testing.assert_close(parameter.detach(), before[name] - 0.5 * whole)
    assert float(model.first.lin.weight.detach().abs().max()) > 0.1

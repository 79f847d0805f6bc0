"""Optimisers spare weights that are used by their sign from decay that is coupled."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from bitgnn.nn import GCNConv
from bitgnn.nn.weight_decay import COUPLED, spare_from_decay

DECAY = 0.1
STEPS = 5
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


def _parameters():
    generator = torch.Generator().manual_seed(2)
    return [nn.Parameter(torch.randn(4, 5, generator=generator)) for _ in range(2)]


def _gradients(step, like):
    """Gradients that do not depend on the parameters: one number would else hide another."""
    generator = torch.Generator().manual_seed(10 + step)
    return [torch.randn(p.shape, generator=generator) for p in like]


def _trained(kind, options, decay, marked, closure=None, groups=False):
    """Both parameters behind some steps, of which the first is marked or not."""
    parameters = _parameters()
    if marked:
        spare_from_decay(parameters[0])
    given = [{"params": [p]} for p in parameters] if groups else parameters
    optimiser = kind(given, weight_decay=decay, **options)
    for step in range(STEPS):
        gradients = _gradients(step, parameters)

        def set_gradients(gradients=gradients):
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient.clone()
            return torch.tensor(1.5)

        if closure is None:
            set_gradients()
            optimiser.step()
        elif closure == "positional":
            assert float(optimiser.step(set_gradients)) == 1.5
        else:
            assert float(optimiser.step(closure=set_gradients)) == 1.5
        if marked:  # PyTorch itself changes others in place, now and then
            assert torch.equal(parameters[0].grad, gradients[0])
    return [parameter.detach() for parameter in parameters]


def _check(kind, options, **how):
    """The marked one goes as without decay, the other one as with it, and they differ."""
    marked, other = _trained(kind, options, DECAY, True, **how)
    plain, _ = _trained(kind, options, 0.0, False)
    decayed, usual = _trained(kind, options, DECAY, False)
    torch.testing.assert_close(marked, plain, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(other, usual, rtol=0, atol=0)
    assert float((decayed - plain).abs().max()) > 1e-3


@EACH
@pytest.mark.parametrize("foreach", [False, True], ids=["single", "foreach"])
@pytest.mark.parametrize("maximize", [False, True], ids=["", "maximize"])
def test_marked_weights_step_as_without_decay(kind, options, foreach, maximize):
    _check(kind, {**options, "foreach": foreach, "maximize": maximize})


@EACH
@pytest.mark.parametrize("closure", ["positional", "keyword"])
def test_closures_make_the_gradients_inside_of_the_step(kind, options, closure):
    _check(kind, options, closure=closure)


def test_all_of_the_coupled_optimisers_are_tested():
    assert {kind for kind, _ in OPTIMISERS} == set(COUPLED)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.optim.AdamW, {}),
        (torch.optim.NAdam, {"decoupled_weight_decay": True}),
        (torch.optim.RAdam, {"decoupled_weight_decay": True}),
    ],
    ids=["AdamW", "NAdam", "RAdam"],
)
def test_decoupled_decay_is_left_alone(kind, options):
    options = {"lr": 0.05, **options}
    marked = _trained(kind, options, DECAY, True)
    usual = _trained(kind, options, DECAY, False)
    for one, other in zip(marked, usual, strict=True):
        assert torch.equal(one, other)


def test_optimisers_that_are_not_known_keep_their_gradients():
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


def _step(model, x, y, decay):
    """One step, whose gradients are returned."""
    optimiser = torch.optim.SGD(model.parameters(), lr=0.5, weight_decay=decay)
    torch.manual_seed(3)
    model.train()
    functional.cross_entropy(model(x, EDGES), y).backward()
    optimiser.step()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    optimiser.zero_grad()
    return gradients


@pytest.mark.parametrize("how", ["trained", "copied", "loaded"])
@pytest.mark.parametrize("precision", ["bin", "full"])
def test_layers_mark_their_latent_weights_alone(how, precision):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = GCNConv(6, 8, precision=precision)
            self.last = GCNConv(8, 3, precision=precision)

        def forward(self, x, edges):
            return self.last(self.first(x, edges).relu(), edges)

    x, y = torch.randn(20, 6), torch.randint(3, (20,))
    model = Net()
    model(x, EDGES)
    _step(model, x, y, 0.0)
    if how == "copied":
        model = copy.deepcopy(model)
    elif how == "loaded":
        fresh = Net()
        fresh.load_state_dict(model.state_dict())
        model = fresh
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    gradients = _step(model, x, y, DECAY)
    assert {"first.lin.weight", "last.lin.weight", "first.bias", "last.gain_level"} <= set(
        gradients
    )
    for name, parameter in model.named_parameters():
        if name not in gradients:
            assert torch.equal(parameter, before[name])
            continue
        is_spared = name.endswith(("lin.weight", "gain_level"))
        whole = gradients[name] if is_spared else gradients[name] + DECAY * before[name]
        torch.testing.assert_close(parameter.detach(), before[name] - 0.5 * whole)
    assert float(model.first.lin.weight.detach().abs().max()) > 0.1


def test_scaled_losses_of_a_fused_optimiser():
    def trained(decay, marked):
        parameter = _parameters()[0]
        if marked:
            spare_from_decay(parameter)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        optimiser = torch.optim.Adam([parameter], lr=0.05, weight_decay=decay, fused=True)
        for step in range(STEPS):
            optimiser.zero_grad()
            (gradient,) = _gradients(step, [parameter])
            scaler.scale((parameter * gradient).sum()).backward()
            scaler.step(optimiser)
            scaler.update()
        return parameter.detach()

    torch.testing.assert_close(trained(DECAY, True), trained(0.0, False), rtol=1e-5, atol=1e-5)
    assert float((trained(DECAY, False) - trained(0.0, False)).abs().max()) > 1e-3

"""Dropout that a recipe scales: functions, modules, defaults, nesting."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from bitgnn.distillation.fitting import scaled_dropout
from bitgnn.nn import GCNConv

ROWS = 100_000


def share_of_zeros(call):
    torch.manual_seed(0)
    return float((call(torch.ones(ROWS)) == 0).float().mean())


CALLS = {
    "positional": (lambda x: functional.dropout(x, 0.6, True), 0.6),
    "named": (lambda x: functional.dropout(x, p=0.6, training=True), 0.6),
    "default": (lambda x: functional.dropout(x, training=True), 0.5),
    "named input": (lambda x: functional.dropout(input=x, p=0.6, training=True), 0.6),
    "module": (nn.Dropout(0.6).train(), 0.6),
    "in place": (lambda x: functional.dropout(x, 0.6, True, True), 0.6),
    "torch's own": (lambda x: torch.dropout(x, 0.6, True), 0.6),
    "channels": (lambda x: functional.dropout1d(x.view(1, -1, 1), 0.6).flatten(), 0.6),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("on_cpu", [False, True])
@pytest.mark.parametrize("factor", [0.0, 0.5, 1.0, 1.5, 4.0])
def test_probabilities_are_multiplied(name, factor, on_cpu):
    call, p = CALLS[name]
    with scaled_dropout(factor, on_cpu):
        found = share_of_zeros(call)
    assert found == pytest.approx(min(factor * p, 1.0), abs=0.01)
    assert share_of_zeros(call) == pytest.approx(p, abs=0.01)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_few_random_bits_drop_as_many(dtype, monkeypatch):
    drawn = []
    bernoulli = torch.Tensor.random_
    monkeypatch.setattr(torch.Tensor, "random_", lambda *a: drawn.append(0) or bernoulli(*a))
    torch.manual_seed(0)
    x = torch.ones(ROWS, dtype=dtype, requires_grad=True)
    with scaled_dropout(1.0, on_cpu=True):
        kept = functional.dropout(x, 0.25)
        assert drawn
        assert share_of_zeros(nn.Dropout(0.25).eval()) == 0
        assert functional.dropout(torch.full((9,), torch.nan), 0.25).isnan().all()
        assert functional.dropout(torch.ones(9), 1.0).eq(0).all()
        assert functional.dropout(torch.ones(0), 0.25).numel() == 0
    assert kept.dtype == dtype
    assert float((kept == 0).double().mean()) == pytest.approx(0.25, abs=0.01)
    assert float(kept.double().mean()) == pytest.approx(1.0, abs=0.01)
    kept.sum().backward()
    assert torch.equal(x.grad, kept.detach())


def test_what_is_kept_is_scaled_by_the_probability_in_use():
    torch.manual_seed(0)
    with scaled_dropout(0.5):
        assert share_of_zeros(nn.Dropout(0.6).eval()) == 0
        kept = functional.dropout(torch.ones(1000), 0.5)
        assert kept.unique().tolist() == pytest.approx([0.0, 4 / 3])
        with pytest.raises(ValueError, match="between 0 and 1"):
            functional.dropout(torch.ones(3), 1.5)


def interrupted(call):
    with scaled_dropout(0.0):
        assert share_of_zeros(call) == 0
        raise KeyboardInterrupt


def test_dropout_is_as_before_behind_an_error_and_within_another_context():
    call = CALLS["positional"][0]
    with scaled_dropout(0.5):
        with pytest.raises(KeyboardInterrupt):
            interrupted(call)
        assert share_of_zeros(call) == pytest.approx(0.3, abs=0.01)
    assert share_of_zeros(call) == pytest.approx(0.6, abs=0.01)


class Behind(nn.Module):
    """A binary layer behind a call of dropout."""

    def __init__(self, call):
        super().__init__()
        self.call = call
        self.conv = GCNConv(8, 4)

    def forward(self, x, edges):
        return self.conv(self.call(x.flatten()).view(x.shape), edges)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("on_cpu", [False, True])
def test_layers_hear_of_what_is_dropped(name, on_cpu):
    call, p = CALLS[name]
    model, edges = Behind(call).train(), torch.tensor([[0, 1], [1, 0]])
    with scaled_dropout(0.5), scaled_dropout(0.8, on_cpu):
        model((torch.rand(20, 8) < 0.2).float(), edges)
    assert model.conv.input_bits.kept_share == pytest.approx(1 - 0.4 * p)

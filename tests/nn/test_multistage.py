"""Stages of a schedule, early stops, and scales that follow from level to level."""

from collections import OrderedDict

import pytest
import torch
from torch import nn
from wrong_calls import check_wrong_calls

from bitgnn.nn import BWTALinear, BWTASelfAttention
from bitgnn.nn.multistage import (
    BERT_LEVELS,
    Stage,
    activation_quantizers,
    enter_level,
    initialize_scales,
    plan_stages,
    set_level,
)


def test_half_of_the_epochs_belong_to_the_last_stage():
    assert plan_stages(BERT_LEVELS, 80) == [Stage(4, 14), Stage(3, 13), Stage(2, 13), Stage(1, 40)]
    assert plan_stages((4, 2, 1), 8) == [Stage(4, 2), Stage(2, 2), Stage(1, 4)]
    assert plan_stages((1,), 7) == [Stage(1, 7)]


@pytest.mark.parametrize("levels", [BERT_LEVELS, (9, 7, 5, 3, 1), (4, 2, 1), (2, 1), (1,)])
@pytest.mark.parametrize("epochs", range(1, 40))
def test_stages_take_all_epochs_and_end_at_the_last_level(levels, epochs):
    stages = plan_stages(levels, epochs)
    assert sum(stage.epochs for stage in stages) == epochs
    assert stages[-1].level == levels[-1]
    assert all(stage.epochs > 0 for stage in stages)
    if len(levels) > 1:
        assert stages[-1].epochs == epochs - epochs // 2
    # What is left out for want of epochs is left out at the beginning.
    assert [stage.level for stage in stages] == list(levels[len(levels) - len(stages) :])


WRONG = r"""
plan_stages((), 10) -> ValueError: levels must fall and be at least 1
plan_stages((1, 2), 10) -> ValueError: levels must fall and be at least 1
plan_stages((2, 2, 1), 10) -> ValueError: levels must fall and be at least 1
plan_stages((3, 0), 10) -> ValueError: levels must fall and be at least 1
plan_stages((0,), 10) -> ValueError: levels must fall and be at least 1
plan_stages((1,), 0) -> ValueError: epochs must be at least 1, got 0
enter_level(MADE, 2, RUN) -> ValueError: last\.input_quantizer has no level
enter_level(nn.Sequential(BWTALinear(4, 4)), 1, RUN)
    -> ValueError: scale of 0\.input_quantizer is not set
"""


def made(level=4):
    torch.manual_seed(0)
    model = nn.Sequential(
        OrderedDict(
            first=BWTALinear(32, 32),
            attention=BWTASelfAttention(32, 2),
            relu=nn.ReLU(),
            last=BWTALinear(32, 4, activation="bool"),
        )
    ).eval()
    x = torch.randn(8, 16, 32)
    set_level(model, level)
    initialize_scales(model, lambda: model(x))
    return model, lambda: model(x)


def test_every_quantiser_is_found():
    model, _ = made()
    names = list(activation_quantizers(model))
    # One input each of six linear layers, and queries, keys, values and probabilities.
    assert len(names) == 10
    assert list(activation_quantizers(model, ["last"])) == ["last.input_quantizer"]
    # Names are compared part by part.
    assert not activation_quantizers(model, ["la", "attention.o"])
    assert len(activation_quantizers(model, ["attention"])) == 8


def test_projection_is_the_ratio_of_magnitudes_of_the_same_activations():
    model, run = made(4)
    expected = {}
    quantizers = activation_quantizers(model)

    def note(quantizer, given, level=2):
        was = quantizer.forward(*given)[0].abs().sum()
        quantizer.level = level
        expected[quantizer] = float(was / quantizer.forward(*given)[0].abs().sum())
        quantizer.level = 4

    with torch.no_grad():
        handles = [q.register_forward_pre_hook(note) for q in quantizers.values()]
        run()
    for handle in handles:
        handle.remove()
    factors = enter_level(model, 2, run)
    assert factors == pytest.approx({name: expected[q] for name, q in quantizers.items()}, rel=1e-5)
    # Fewer integers on both sides of 0 are smaller ones; 0 and 1 of ReLU and softmax may grow.
    signed = [name for name, quantizer in quantizers.items() if quantizer.kind == "ternary"]
    assert all(factors[name] > 1 for name in signed)
    assert all(quantizer.level == 2 for quantizer in quantizers.values())


def test_a_scale_under_which_all_becomes_zero_starts_anew():
    model = nn.Sequential(BWTALinear(4, 4, level=9))
    quantizer = model[0].input_quantizer
    x = torch.tensor([[0.6, -0.55, 0.0, 0.0]])
    nn.init.ones_(quantizer.scale)
    # Level 9 and level 1 agree here, so the scale stays.
    assert enter_level(model, 1, lambda: model.eval()(x)) == {"0.input_quantizer": 1.0}
    nn.init.constant_(quantizer.scale, 100.0)
    quantizer.level = 9
    enter_level(model, 1, lambda: model.eval()(x))
    torch.testing.assert_close(quantizer.scale.detach(), 2 * x.abs().mean())


def test_what_cannot_be_planned_or_entered_is_named():
    model, run = made(4)
    set_level(model, None, ["last"])
    check_wrong_calls(WRONG, {**globals(), "MADE": model, "RUN": run})

"""Losses against a teacher: values by hand, zero for equal states, masks, gradients."""

import math

import pytest
import torch

from experiments.text.losses import attention_loss, logit_loss, state_loss


def test_states_by_hand():
    student = [torch.tensor([[[1.0, 3.0], [9.0, 9.0]]]), torch.zeros(1, 2, 2)]
    teacher = [torch.zeros(1, 2, 2), torch.full((1, 2, 2), 2.0)]
    weight = torch.tensor([[1.0, 0.0]])
    # (1 + 9) / 2 of the first token of the first layer, 4 of the second layer's.
    assert float(state_loss(student, teacher, weight)) == pytest.approx(5 + 4)
    both = torch.ones(1, 2)
    assert float(state_loss(student, teacher, both)) == pytest.approx((5 + 81) / 2 + 4)
    assert float(state_loss(student, student, both)) == 0
    assert float(state_loss(student, teacher, torch.zeros(1, 2))) == 0


def test_attention_by_hand():
    teacher = [torch.tensor([[[[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.2, 0.3, 0.5]]]])]
    student = [torch.tensor([[[[0.25, 0.75, 0.0], [0.5, 0.5, 0.0], [0.2, 0.3, 0.5]]]])]
    first = 0.5 * math.log(2) + 0.5 * math.log(0.5 / 0.75)
    weight = torch.tensor([[1.0, 1.0, 0.0]])
    expected = (first + math.log(2)) / 2
    assert float(attention_loss(student, teacher, weight)) == pytest.approx(expected, rel=1e-5)
    assert float(attention_loss(teacher, teacher, torch.ones(1, 3))) == pytest.approx(0, abs=1e-6)


def test_a_probability_of_zero_gives_a_finite_loss_and_gradient():
    scores = torch.tensor([[[[-200.0, 0.0]]]], requires_grad=True)
    teacher = [torch.tensor([[[[1.0, 0.0]]]])]
    loss = attention_loss([scores.softmax(-1)], teacher, torch.ones(1, 1))
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(scores.grad).all()


def test_logits_by_hand():
    student, teacher = (
        torch.tensor([[0.0, 0.0], [5.0, 1.0]]),
        torch.tensor([[2.0, 0.0], [0.0, 9.0]]),
    )
    p = 1 / (1 + math.exp(-1))
    expected = 4 * (p * math.log(p / 0.5) + (1 - p) * math.log((1 - p) / 0.5))
    found = logit_loss(student, teacher, torch.tensor([1.0, 0.0]), 2.0)
    assert float(found) == pytest.approx(expected, rel=1e-5)
    assert float(logit_loss(teacher, teacher, torch.ones(2), 1.0)) == pytest.approx(0, abs=1e-7)


def test_shapes_must_be_the_teachers():
    a, b = torch.zeros(1, 2, 4), torch.zeros(1, 3, 4)
    with pytest.raises(ValueError, match=r"shapes \[\[1, 3, 4\]\], got \[\[1, 2, 4\]\]"):
        state_loss([a], [b], torch.ones(1, 2))
    with pytest.raises(ValueError, match="attention_loss: student must have"):
        attention_loss([a], [a, a], torch.ones(1, 2))
    with pytest.raises(ValueError, match="logit_loss: student must have"):
        logit_loss(torch.zeros(2, 3), torch.zeros(2, 2), torch.ones(2), 1.0)

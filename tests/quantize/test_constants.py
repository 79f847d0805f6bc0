"""Constant tensors that forwards share: made once, and fit for every mode."""

import torch

from bitgnn.quantize.dropout import MOST, filled, made_once


def test_made_once_for_each_value_and_size():
    like = torch.empty(0)
    assert torch.equal(filled(3, 0.25, like), torch.full((3,), 0.25))
    assert filled(3, 0.25, like) is filled(3, 0.25, like)
    assert filled(3, 0.25, like) is not filled(3, 0.5, like)
    assert filled(4, 0.25, like).shape == (4,)
    assert filled(3, 0.25, torch.empty(0, device="meta")).is_meta


def test_serves_training_after_inference_mode():
    with torch.inference_mode():
        found = filled(3, 0.75, torch.empty(0))
    x = torch.ones(3, requires_grad=True)
    (x * found).sum().backward()
    assert torch.equal(x.grad, found)


def test_nothing_traced_is_kept():
    class Traced(torch.Tensor):
        pass

    like = torch.empty(0).as_subclass(Traced)
    assert filled(3, 0.125, like) is not filled(3, 0.125, like)


def test_few_are_kept():
    like, first = torch.empty(0), filled(1, -1.0, torch.empty(0))
    for number in range(MOST + 1):
        made_once(("few", number), like, lambda: torch.empty(1))
    assert filled(1, -1.0, like) is not first
    assert torch.equal(filled(1, -1.0, like), first)

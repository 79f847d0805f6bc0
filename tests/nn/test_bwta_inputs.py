"""What BWTA layers make of inputs that do not fit, trained and frozen: an error naming them."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import bitgnn
from bitgnn.nn import BWTAAttention, BWTALinear, BWTAMultiheadAttention, BWTASelfAttention


def layers(layer: nn.Module, *x: Tensor) -> tuple[nn.Module, nn.Module]:
    """A layer that has seen ``x``, and its frozen form."""
    layer(*x)
    return layer.eval(), bitgnn.freeze(layer)


def linear() -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    return layers(BWTALinear(33, 7), torch.randn(4, 33))


def multihead() -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    x = torch.randn(2, 5, 32)
    return layers(BWTAMultiheadAttention(32, 4, batch_first=True), x, x, x)


def core() -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    x = torch.randn(2, 4, 5, 8)
    return layers(BWTAAttention(), x, x, x)


WRONG: list[tuple[str, Callable[[Tensor], object], type[Exception], str]] = [
    ("list", lambda x: x.tolist(), TypeError, "{} must be a tensor, got list"),
    ("none", lambda x: None, TypeError, "{} must be a tensor, got NoneType"),
    ("integers", lambda x: x.long(), TypeError, "{} must .*, got torch.int64"),
    ("bools", lambda x: x > 0, TypeError, "{} must .*, got torch.bool"),
    ("complex", lambda x: x.cfloat(), TypeError, "{} must .*, got torch.complex64"),
    ("sparse", lambda x: x.to_sparse(), TypeError, "{} must be dense, got a tensor of layout"),
    (
        "nested",
        lambda x: torch.nested.nested_tensor([x[0], x[1]]),
        TypeError,
        "{} must be dense, got a nested tensor",
    ),
    ("elsewhere", lambda x: x.to("meta"), ValueError, "{} must be on cpu like the layer, got meta"),
]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("case", WRONG, ids=[case[0] for case in WRONG])
@pytest.mark.parametrize("frozen", [False, True], ids=["trained", "frozen"])
def test_inputs_that_do_not_fit(case, frozen) -> None:
    _, change, error, message = case
    with pytest.raises(error, match=message.format("input")):
        linear()[frozen](change(torch.randn(4, 33)))
    for make, shape in ((multihead, (2, 5, 32)), (core, (2, 4, 5, 8))):
        layer, x = make()[frozen], torch.randn(shape)
        for place, name in enumerate(("query", "key", "value")):
            operands = [x, x, x]
            operands[place] = change(x)  # type: ignore[call-overload]
            with pytest.raises(error, match=message.format(name)):
                layer(*operands)


def test_constructors_refuse_sizes_and_scales() -> None:
    for hidden in (0, -8):
        with pytest.raises(ValueError, match=f"heads must divide hidden, got 4 and {hidden}"):
            BWTASelfAttention(hidden, 4)
    with pytest.raises(TypeError, match="heads must be an integer, got float"):
        BWTASelfAttention(32, 4.0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="x must be a tensor, got list"):
        BWTASelfAttention(32, 4)([[0.0] * 32])
    for scale in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="scale must be positive and finite, got"):
            BWTAAttention(scale=scale)

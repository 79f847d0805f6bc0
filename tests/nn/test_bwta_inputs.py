"""What BWTA layers make of inputs that do not fit, trained and frozen: an error naming them."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

import bitgnn
from bitgnn.nn import BWTAAttention, BWTALinear, BWTAMultiheadAttention, BWTASelfAttention

HALVES = (torch.float32, torch.float16, torch.bfloat16)


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


def test_frozen_forms_take_no_double() -> None:
    x = torch.randn(4, 33, dtype=torch.float64)
    trained, frozen = linear()
    assert trained(x).dtype == torch.float64
    with pytest.raises(TypeError, match=r"float32, float16 or bfloat16, got torch\.float64"):
        frozen(x)


@pytest.mark.parametrize("frozen", [False, True], ids=["trained", "frozen"])
def test_masks_that_do_not_fit(frozen) -> None:
    layer, x = multihead()[frozen], torch.randn(2, 5, 32)
    for name, shape in (("attn_mask", (5, 5)), ("key_padding_mask", (2, 5))):
        for mask in (torch.zeros(shape, dtype=torch.long), torch.zeros(shape).tolist()):
            with pytest.raises(TypeError, match=f"{name} must be a tensor of bools or floats, got"):
                layer(x, x, x, **{name: mask})
    layer, x = core()[frozen], torch.randn(2, 4, 5, 8)
    with pytest.raises(TypeError, match="key_mask must be a tensor, got list"):
        layer(x, x, x, [[1] * 5] * 2)
    for allowed in (torch.ones(5, 5), torch.ones(5, 5, dtype=torch.long)):
        with pytest.raises(TypeError, match="allowed must be a bool tensor, got"):
            layer(x, x, x, allowed=allowed)
    for shape in ((4, 5), (3, 1, 5, 5), (1, 1, 1, 5, 5)):
        with pytest.raises(ValueError, match=r"allowed must broadcast to \[2, 4, 5, 5\], got"):
            layer(x, x, x, allowed=torch.ones(shape, dtype=torch.bool))
    for shape in ((), (5,), (5, 1), (2, 1, 1, 5)):
        assert torch.equal(
            layer(x, x, x, allowed=torch.ones(shape, dtype=torch.bool)), layer(x, x, x)
        )


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


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("queries", [0, 1, 33])
def test_long_and_empty_sequences_of_every_type(dtype, queries) -> None:
    trained, frozen = core()
    q, k = (torch.randn(1, 4, n, 8).to(dtype) for n in (queries, 4100))
    with torch.no_grad():
        expected = trained(q, k, k, causal=True)
    assert expected.dtype == dtype
    assert torch.equal(frozen(q, k, k, causal=True), expected)


def test_nan_counts_as_zero() -> None:
    for (trained, frozen), shape in ((linear(), (4, 33)), (core(), (2, 4, 5, 8))):
        x = torch.randn(shape)
        x[..., ::3] = float("nan")
        zeros = x.nan_to_num(nan=0.0)
        count = 1 if len(shape) == 2 else 3
        expected = trained(*[zeros] * count)
        assert torch.equal(trained(*[x] * count), expected)
        assert torch.equal(frozen(*[x] * count), expected)


def test_averages_of_weights_know_their_scales() -> None:
    torch.manual_seed(0)
    model = BWTALinear(16, 4)
    average = AveragedModel(model)
    x = torch.randn(8, 16)
    model(x)
    average.update_parameters(model)
    assert torch.equal(average.eval()(x), model.eval()(x))
    assert torch.equal(bitgnn.freeze(average.module)(x), model(x))


def test_copies_and_states_of_frozen_layers() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 5, 32)
    frozen = []
    for factor in (1.0, 3.0):
        layer = BWTAMultiheadAttention(32, 4, batch_first=True)
        layer(x, x, x)
        with torch.no_grad():
            for name in ("key", "value", "probability"):
                getattr(layer.attention, f"{name}_quantizer").scale.mul_(factor)
        frozen.append(bitgnn.freeze(layer.eval()))
    first, second = frozen
    for masks in ({"need_weights": False}, {"need_weights": True}):
        expected = second(x, x, x, **masks)[0]
        assert not torch.equal(first(x, x, x, **masks)[0], expected)
        assert torch.equal(copy.deepcopy(second)(x, x, x, **masks)[0], expected)
    # The numbers that the operators take follow the tensors.
    assert first.load_state_dict(second.state_dict()).missing_keys == []
    for masks in ({"need_weights": False}, {"need_weights": True}):
        assert torch.equal(first(x, x, x, **masks)[0], second(x, x, x, **masks)[0])

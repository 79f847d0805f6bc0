"""What BWTA layers make of arguments and inputs that do not fit: an error naming them."""

import pytest
import torch
from torch import nn
from wrong_calls import check_wrong_calls

import bitgnn
from bitgnn.nn import BWTAAttention, BWTALinear, BWTAMultiheadAttention

ROWS, TOKENS, HEADS = torch.randn(4, 33), torch.randn(2, 5, 24), torch.randn(2, 4, 5, 8)
MAKERS = {
    "linear": (lambda: BWTALinear(33, 7), [ROWS], ["input"]),
    "multihead": (
        lambda: BWTAMultiheadAttention(24, 3, batch_first=True),
        [TOKENS] * 3,
        ["query", "key", "value"],
    ),
    "core": (lambda: BWTAAttention(), [HEADS] * 3, ["query", "key", "value"]),
}


def trained(name: str, frozen: bool = False) -> nn.Module:
    """A layer that has seen its input, or its frozen form."""
    torch.manual_seed(0)
    make, inputs, _ = MAKERS[name]
    layer = make()
    layer(*inputs)
    return bitgnn.freeze(layer.eval()) if frozen else layer.eval()


WRONG_INPUTS = {
    "list": (lambda x: x.tolist(), TypeError, "{} must be a tensor, got list"),
    "none": (lambda x: None, TypeError, "{} must be a tensor, got NoneType"),
    "integers": (lambda x: x.long(), TypeError, "{} must .*, got torch.int64"),
    "bools": (lambda x: x > 0, TypeError, "{} must .*, got torch.bool"),
    "complex": (lambda x: x.cfloat(), TypeError, "{} must .*, got torch.complex64"),
    "sparse": (lambda x: x.to_sparse(), TypeError, "{} must be dense, got a tensor of layout"),
    "nested": (
        lambda x: torch.nested.nested_tensor([x[0], x[1]]),
        TypeError,
        "{} must be dense, got a nested tensor",
    ),
    "elsewhere": (lambda x: x.to("meta"), ValueError, "{} must be on cpu like the layer, got meta"),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("case", WRONG_INPUTS)
@pytest.mark.parametrize("frozen", [False, True], ids=["trained", "frozen"])
@pytest.mark.parametrize("name", MAKERS)
def test_inputs_that_do_not_fit(name: str, frozen: bool, case: str) -> None:
    change, error, message = WRONG_INPUTS[case]
    layer, (_, inputs, arguments) = trained(name, frozen), MAKERS[name]
    for place, argument in enumerate(arguments):
        operands = [*inputs]
        operands[place] = change(inputs[place])
        with pytest.raises(error, match=message.format(argument)):
            layer(*operands)


WRONG = r"""
CORE(HEADS, HEADS[:, :3], HEADS[:, :3])
    -> ValueError: heads of keys must divide those of queries, got 3 and 4
CORE(HEADS, HEADS[..., :4], HEADS[..., :4]) -> ValueError: query must be \[B, H, N, D\]
CORE(HEADS, HEADS, HEADS, torch.ones(2, 4) > 0)
    -> ValueError: key_mask must be \[2, 5\], got \[2, 4\]
CORE(HEADS, HEADS, HEADS, [1]) -> TypeError: key_mask must be a tensor, got list
CORE(HEADS, HEADS, HEADS, allowed=torch.ones(5, 5))
    -> TypeError: allowed must be a bool tensor, got torch\.float32
CORE(HEADS, HEADS, HEADS, allowed=torch.ones(4, 5) > 0)
    -> ValueError: allowed must broadcast to \[2, 4, 5, 5\], got \[4, 5\]
BWTAAttention(activation="bool") -> ValueError: activation must be 'ternary' or 'sign'
BWTAAttention(dropout=1.0) -> ValueError: dropout must be in
BWTAAttention(scale=0.0) -> ValueError: scale must be positive and finite, got
BWTAAttention(scale=-1.0) -> ValueError: scale must be positive and finite, got
BWTAAttention(scale=float("nan")) -> ValueError: scale must be positive and finite, got
BWTAAttention(scale=float("inf")) -> ValueError: scale must be positive and finite, got
BWTASelfAttention(0, 4) -> ValueError: heads must divide hidden, got 4 and 0
BWTASelfAttention(-8, 4) -> ValueError: heads must divide hidden, got 4 and -8
BWTASelfAttention(32, 4, 3) -> ValueError: kv_heads must divide heads, got 3 and 4
BWTASelfAttention(32, 4.0) -> TypeError: heads must be an integer, got float
BWTASelfAttention(32, 4)([[0.0] * 32]) -> TypeError: x must be a tensor, got list
BWTASelfAttention(32, 4)(ROWS) -> ValueError: x must be \[B, N, 32\], got \[4, 33\]
BWTAMultiheadAttention(24, 5) -> ValueError: num_heads must divide embed_dim, got 5 and 24
MULTIHEAD(TOKENS, TOKENS[..., :20], TOKENS)
    -> ValueError: key must be \[2, 5, 24\] \(batch first\), got
MULTIHEAD(*[TOKENS] * 3, attn_mask=torch.full((5, 5), 0.5))
    -> ValueError: attn_mask must hold bools, or 0 and -inf
MULTIHEAD(*[TOKENS] * 3, attn_mask=torch.zeros(4, 5))
    -> ValueError: \[5, 5\] or \[6, 5, 5\], got \[4, 5\]
MULTIHEAD(*[TOKENS] * 3, attn_mask=torch.zeros(5, 5).long())
    -> TypeError: attn_mask must be a tensor of bools or floats, got torch\.int64
MULTIHEAD(*[TOKENS] * 3, key_padding_mask=torch.zeros(2, 4) > 0)
    -> ValueError: key_padding_mask must be \[2, 5\], got \[2, 4\]
MULTIHEAD(*[TOKENS] * 3, is_causal=True) -> ValueError: is_causal needs the attn_mask
MULTIHEAD(TOKENS, TOKENS[0], TOKENS[0]) -> ValueError: 2 or 3 dimensions alike
LINEAR(ROWS[:, 1:]) -> ValueError: input must be \[\*, 33\], got \[4, 32\]
setattr(LINEAR, "level", 0) -> ValueError: level must be at least 1
setattr(LINEAR, "level", 1.0) -> TypeError: level must be an integer
BWTALinear(3, 3, activation="int8") -> ValueError: kind must be one of
BWTALinear(3, 3)(torch.full((1, 3), float("nan"))) -> ValueError: x must be finite
BWTALinear(3, 3).eval()(torch.ones(1, 3)) -> ValueError: the scale is not set
ActivationQuantizer().initialize(torch.zeros(4)) -> ValueError: other than 0
ActivationQuantizer().frozen_scale("layer") -> ValueError: never set
ActivationQuantizer(level=3).frozen_scale("layer") -> ValueError: must have level 1, got 3
"""


def test_bad_arguments_are_named() -> None:
    names = {name.upper(): trained(name) for name in MAKERS}
    check_wrong_calls(WRONG, {**vars(bitgnn.nn), **globals(), **names})

"""BWTA attention: values against plain torch, masks, heads, gradients, bad input."""

import math

import pytest
import torch
from torch import Tensor, nn

import bitgnn
from bitgnn.nn import BWTAAttention, BWTAMultiheadAttention
from bitgnn.nn.attention.products import attended_keys, softmax_table
from bitgnn.ops.reference import ternary as reference
from bitgnn.quantize import ternary


def core(**options: object) -> BWTAAttention:
    torch.manual_seed(3)
    layer = BWTAAttention(**options)
    layer(*(torch.randn(2, 4, 20, 16) for _ in range(3)))
    return layer


def by_definition(layer: BWTAAttention, q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    """Row by row, as the contract has it, in python floats where sums matter."""
    sq, sk, sv, sp = (float(quantizer.scale.detach()) for quantizer in layer.children())
    tq, tk, tv = ((ternary(x, s) / s).round() for x, s in ((q, sq), (k, sk), (v, sv)))
    size = q.size(3)
    table = reference.softmax_table(sq * sk * (1 / math.sqrt(size)), 2 * size + 1)
    dot = tq @ tk.transpose(2, 3)
    bits = torch.zeros_like(dot)
    allowed = allowed.expand_as(dot)
    for place in torch.cartesian_prod(*(torch.arange(n) for n in dot.shape[:3])).tolist():
        row, seen = dot[tuple(place)], allowed[tuple(place)]
        if not seen.any():
            continue
        distance = (row[seen].max() - row).long()
        total = 0.0
        for t in range(2 * size + 1):
            total += table[t] * int(((distance == t) & seen).sum())
        for j in range(row.numel()):
            bits[(*place, j)] = bool(seen[j]) and table[distance[j]] >= 0.5 * sp * total
    return torch.tensor(sp * sv) * (bits @ tv)


@pytest.mark.parametrize(
    "names", [(), ("key_mask",), ("causal",), ("key_mask", "causal"), ("allowed",)]
)
def test_evaluation_is_the_exact_definition(names: tuple[str, ...]) -> None:
    layer = core().eval()
    q, k, v = torch.randn(2, 4, 7, 16), torch.randn(2, 4, 9, 16), torch.randn(2, 4, 9, 16)
    given = {"key_mask": torch.rand(2, 9) < 0.7, "allowed": torch.rand(2, 1, 7, 9) < 0.6}
    given["causal"] = torch.ones(7, 9, dtype=torch.bool).tril(2)
    allowed, options = torch.ones(2, 1, 7, 9, dtype=torch.bool), {}
    for name in names:
        mask = given[name]
        allowed &= mask[:, None, None] if name == "key_mask" else mask
        options[name] = True if name == "causal" else mask
    expected = by_definition(layer, q, k, v, allowed)
    assert torch.equal(layer(q, k, v, **options), expected)


def test_softmax_table_is_the_operators() -> None:
    for scale in (1e-9, 0.003, 0.1, 0.7, 12.0, 900.0):
        got = softmax_table(torch.tensor(scale, dtype=torch.float64), 300)
        assert got.tolist() == reference.softmax_table(scale, 300)
    assert softmax_table(torch.tensor(1.0, dtype=torch.float64), 0).numel() == 0


def test_ties_at_the_limit_count() -> None:
    # All scores equal: P = 1 / L, and the limit 0.5 s_P = 1 / L.
    dot = torch.zeros(1, 1, 3, 8)
    double = {"dtype": torch.float64}
    bits = attended_keys(dot, None, torch.tensor(0.3, **double), torch.tensor(0.25, **double), 4)
    assert bool((bits == 1).all())
    above = torch.tensor(math.nextafter(0.25, 1), **double)
    assert not attended_keys(dot, None, torch.tensor(0.3, **double), above, 4).any()


@pytest.mark.parametrize("level", [None, 1, 4])
@pytest.mark.parametrize("training", [True, False])
def test_hidden_rows_give_zeros(level: int | None, training: bool) -> None:
    layer = core(level=level).train(training)
    q, k, v = (torch.randn(2, 4, 5, 16, requires_grad=True) for _ in range(3))
    seen = torch.tensor([[True] * 5, [False] * 5])
    for asks in (False, True):
        out = layer(q, k, v, seen, return_probabilities=asks)
        out, probabilities = out if asks else (out, torch.zeros(2, 4, 5, 5))
        assert not out[1].any()
        assert out[0].any()
        assert not probabilities[1].any()
        grads = torch.autograd.grad(out.square().sum(), (q, k, v))
        assert all(grad.isfinite().all() and not grad[1].any() for grad in grads)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batch_first": True, "bias": False},
        {"add_bias_kv": True, "add_zero_attn": True},
        {"kdim": 12, "vdim": 20, "batch_first": True},
    ],
)
def test_multihead_is_torchs_in_floats_and_its_frozen_form_on_bits(
    options: dict[str, object],
) -> None:
    torch.manual_seed(0)
    plain = nn.MultiheadAttention(24, 3, **options)
    layer = BWTAMultiheadAttention(24, 3, level=None, **options)
    assert not layer.load_state_dict(plain.state_dict()).unexpected_keys
    q = torch.randn(5, 2, 24)
    k, v = torch.randn(7, 2, plain.kdim), torch.randn(7, 2, plain.vdim)
    if plain.batch_first:
        q, k, v = (x.transpose(0, 1) for x in (q, k, v))
    padding = torch.zeros(2, 7, dtype=torch.bool)
    padding[1, 4:] = True
    pairs = torch.rand(2 * 3, 5, 7) < 0.3
    pairs[..., 0] = False
    floats = torch.zeros(5, 7).masked_fill(pairs[0], -math.inf)
    cases = [
        {},
        {"key_padding_mask": padding, "attn_mask": pairs},
        {"key_padding_mask": padding, "need_weights": False},
        {"attn_mask": pairs[0], "average_attn_weights": False},
        {"attn_mask": floats, "need_weights": False},
    ]
    for arguments in cases:
        torch.testing.assert_close(layer(q, k, v, **arguments), plain(q, k, v, **arguments))
    alone = [x.select(0 if plain.batch_first else 1, 0) for x in (q, k, v)]
    torch.testing.assert_close(layer(*alone), plain(*alone))
    layer.level = 1
    layer(q, k, v)
    frozen = bitgnn.freeze(layer.eval())
    square = torch.randn(2, 7, 24) if plain.batch_first else torch.randn(7, 2, 24)
    causal = nn.Transformer.generate_square_subsequent_mask(7)
    hinted = {"attn_mask": causal, "is_causal": True, "need_weights": False}
    for query, arguments in (*((q, case) for case in cases), (square, hinted)):
        got, expected = (form(query, k, v, **arguments) for form in (frozen, layer))
        assert torch.equal(got[0], expected[0])
        assert (got[1] is None) == (expected[1] is None)
        assert got[1] is None or torch.equal(got[1], expected[1])

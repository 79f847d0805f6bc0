"""TernaryTensor and BooleanTensor: packing, values and checks."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from wrong_calls import check_wrong_calls

from bitgnn.bits import BooleanTensor, TernaryTensor

KINDS = (TernaryTensor, BooleanTensor)
NAN, INF = float("nan"), float("inf")


def emulated(x: torch.Tensor, scale: float, kind: type) -> torch.Tensor:
    """The definition, by division where that is exact: scales here are powers of two."""
    ratio = x.float() / scale
    values = (ratio >= 0.5).float()
    return values if kind is BooleanTensor else values - (ratio < -0.5).float()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("size", [0, 1, 31, 32, 33, 64, 65, 200])
def test_values(kind, dtype, size, device):
    x = (torch.randn(3, 5, size) * 8).round().div(8).to(dtype).to(device)
    rows = kind.from_float(x, 2.0).validate()
    assert rows.shape == x.shape
    assert torch.equal(rows.to_float(), 2.0 * emulated(x, 2.0, kind))
    assert torch.equal(rows.counts, (rows.to_float() != 0).sum(-1, dtype=torch.int32))
    words = (5, 2, -(-size // 32)) if kind is TernaryTensor else (5, -(-size // 32))
    assert rows.words.shape == (3, *words)
    assert rows.nbytes == 4 * (rows.words.numel() + 15 + 1)


def test_borders(device):
    x = torch.tensor([0.5, -0.5, 0.49999997, -0.50000006, 0.0, -0.0, NAN, INF, -INF])
    x = x.to(device)
    assert TernaryTensor.from_float(x, 1.0).to_float().tolist() == [1, 0, 0, -1, 0, 0, 0, 1, -1]
    assert BooleanTensor.from_float(x, 1.0).to_float().tolist() == [1, 0, 0, 0, 0, 0, 0, 1, 0]


def test_all_pairs_of_values_and_scales_of_half_precision(device):
    """Every finite float16, against the rule in float64, where nothing is rounded."""
    bits = torch.arange(-32768, 32768, dtype=torch.int32).to(torch.int16)
    x = bits.view(torch.float16).to(device)
    for scale in (1.0, 0.1, 3.3, 6e-8, 1e5):
        half = torch.tensor(scale).double() / 2
        found = TernaryTensor.from_float(x, scale)
        wide = x.double().cpu()
        expected = (wide >= half).int() - (wide < -half).int()
        found.scale = None
        assert torch.equal(found.to_float().int().cpu(), expected)


@given(seed=st.integers(0, 1000), length=st.integers(0, 70), features=st.integers(0, 70))
def test_columns_are_rows_of_the_transpose(seed, length, features):
    x = torch.randn(2, length, 3, features, generator=torch.Generator().manual_seed(seed))
    x = x.transpose(1, 2)
    columns = TernaryTensor.from_columns(x, 0.7).validate()
    assert columns.equal(TernaryTensor.from_float(x.transpose(-1, -2), 0.7))


@pytest.mark.parametrize("kind", KINDS)
def test_strides(kind, device):
    x = torch.randn(2, 5, 3, 4, 80, device=device)
    for view in (
        x.transpose(1, 2),
        x.permute(3, 1, 0, 2, 4),
        x[:, ::2, 1:],
        x[..., ::2],
        x.expand(3, 2, 5, 3, 4, 80),
        x.transpose(-1, -2),
        x[:, :1, :, :1].transpose(0, 3),
    ):
        assert kind.from_float(view, 1.0).equal(kind.from_float(view.contiguous(), 1.0))


def test_planes_are_views():
    rows = TernaryTensor.from_float(torch.randn(4, 40), 1.0)
    assert rows.pos.data_ptr() == rows.words.data_ptr()
    assert torch.equal(torch.stack([rows.pos, rows.neg], -2), rows.words)
    assert torch.equal(TernaryTensor(rows.words, 40).counts, rows.counts)


WORDS = torch.zeros(4, 2, 2, dtype=torch.int32)
PADDED = torch.full((4, 2, 2), -1, dtype=torch.int32)
ROWS = TernaryTensor(WORDS, 40)
X = torch.ones(4, 40)

WRONG = r"""
TernaryTensor(WORDS.long(), 40) -> TypeError: words must be an int32
TernaryTensor(WORDS, 65)
    -> ValueError: TernaryTensor: words must have shape \[\.\.\., 2, 3\] for size 65, got \[4, 2,
        2\]
BooleanTensor(WORDS, 65) -> ValueError: shape \[\.\.\., 3\] for
TernaryTensor(WORDS, "40") -> TypeError: size must be an int, got str
TernaryTensor(WORDS[..., :0], -1) -> ValueError: for size -1
TernaryTensor(WORDS, 40, torch.zeros(4))
    -> TypeError: counts must be an int32 tensor, got torch.float32 Tensor
TernaryTensor(WORDS, 40, torch.zeros(3, dtype=torch.int32))
    -> ValueError: counts must have shape \[4\] on cpu, got \[3\]
TernaryTensor(WORDS, 40, scale=torch.ones(4))
    -> ValueError: scale must have no dimensions, got shape \[4\]
TernaryTensor.from_float(X.double(), 1.0) -> TypeError: x must be float32
BooleanTensor.from_float([1.0], 1.0) -> TypeError: got list
TernaryTensor.from_float(X[0, 0], 1.0) -> ValueError: x must have 1 or more
TernaryTensor.from_columns(X[0], 1.0) -> ValueError: 2 or more dim
TernaryTensor.from_float(X, "1") -> TypeError: scale must be a number
TernaryTensor.from_float(X, True) -> TypeError: must be a number
TernaryTensor.from_float(X, torch.tensor(1.0).double())
    -> TypeError: scale must be a float32 tensor, got torch.float64
TernaryTensor(PADDED, 40).validate() -> ValueError: no value may be in both planes, got 8 words
BooleanTensor(PADDED[0], 40).validate() -> ValueError: padding bits must be 0, got 2 planes
TernaryTensor(WORDS, 40, torch.ones(4, dtype=torch.int32)).validate()
    -> ValueError: counts must be the set bits of each row
TernaryTensor.from_tensors({"words": WORDS})
    -> ValueError: tensors must hold \['size', 'counts'\], got \['words'\]
"""


def test_errors():
    check_wrong_calls(WRONG, globals())


@pytest.mark.parametrize("scale", [0.0, -1.0, NAN, INF, -INF, 1e39])
def test_scales_must_be_positive(scale):
    tensor = torch.tensor(scale)
    pack = torch.ops.bitgnn.pack_bool
    for kind in KINDS:
        for make, number in ((kind.from_float, scale), (kind.from_float, tensor), (pack, tensor)):
            with pytest.raises((RuntimeError, ValueError), match="positive and finite"):
                make(X, number)

"""Operators of looked-up products in training: hard numbers, many rows, clear errors."""

import math

import pytest
import torch
from looked_up_arguments import LOOKED_UP
from wrong_calls import check_wrong_calls

OPS = torch.ops.bitgnn
ONE = torch.tensor(1.0)
X = torch.ones(4, 40)
WORDS = OPS.pack(X)
HARD = (math.nan, math.inf, -math.inf)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("name", LOOKED_UP)
@pytest.mark.parametrize(("rows", "size"), [(1, 3000), (20_011, 33), (30_000, 7)])
def test_many_values(name, rows, size, device, sampler, assert_kernel_equals_reference):
    arguments = sampler(seed=rows).arguments(name, rows, size, 1, True)
    assert_kernel_equals_reference(name, arguments, device)


@pytest.mark.parametrize("bad", HARD)
def test_rows_that_are_not_finite_are_told(bad, device):
    x = torch.randn(6, 70)
    x[2, 69] = bad
    told = OPS.activation_bits(x.to(device), None, 0.0, 1.0)[2].cpu()
    assert told.isnan().nonzero().view(-1).tolist() == [2]
    assert told.nan_to_num().eq(0).all()
    signs = OPS.row_signs(torch.ones(6, 70, device=device), x.sum(1).to(device)).cpu()
    assert signs.isnan().all(1).nonzero().view(-1).tolist() == [2]
    assert signs.nan_to_num(1.0).eq(1).all()


def test_values_on_the_edges(device):
    x = torch.tensor([[-0.0, 0.0, 0.5, -0.5, math.nan, torch.finfo().max]], device=device)
    half = torch.tensor(0.5, device=device)
    assert OPS.row_signs(x, torch.zeros(1, device=device)).tolist() == [[1, 1, 1, -1, -1, 1]]
    passed = OPS.straight_through(torch.ones_like(x), x, 3.0, half)
    assert passed.tolist() == [[3, 3, 3, 3, 0, 0]]
    words, _, _, norm = OPS.activation_bits(x[:, :4].contiguous(), None, 0.5, 2.0)
    assert words.tolist() == [[4]]
    assert float(norm) == pytest.approx(math.sqrt(2))


@pytest.mark.parametrize(
    ("present", "weight", "late", "gain"),
    [
        ([0.0, 0.0, 0.0], 1.0, 1.0, 1.0),
        ([0.5, 0.8, 0.0], 0.0, 0.5, 1.6),
        ([0.0, 0.0, 0.0], 0.0, 0.0, 1.0),
        ([0.0, 0.5, 0.0], 0.0, 0.0, 20.0),
    ],
)
def test_gain_of_missing_bits(present, weight, late, gain, device):
    found = OPS.kept_share(WORDS.to(device), 40, torch.tensor(present).to(device), weight, 20.0)
    assert [float(number) for number in found] == pytest.approx([late, gain])


WRONG = r"""
OPS.fold_weight(X.half(), ONE, 1.0, True)
    -> RuntimeError|TypeError|ValueError: fold_weight: weight must .*[Ff]loat
OPS.fold_weight(X, X, 1.0, True) -> RuntimeError|TypeError|ValueError: fold_weight: unit must .*0
OPS.fold_weight(X, ONE, 1.0, True, X[0, :3])
    -> RuntimeError|TypeError|ValueError: fold_weight: offset must
OPS.fold_weight(X, ONE, 1.0, True, None, None, torch.ones(3))
    -> RuntimeError|TypeError|ValueError: fold_weight: log_gain must .*divides 4, got 3
OPS.activation_bits(X, X, 0.0, 1.0)
    -> RuntimeError|TypeError|ValueError: activation_bits: mask must be [Bb]ool
OPS.activation_bits(X, X[:2] > 0, 0.0, 1.0)
    -> RuntimeError|TypeError|ValueError: activation_bits: .*mask
OPS.kept_share(WORDS, 40, ONE, 1.0, 2.0)
    -> RuntimeError|TypeError|ValueError: kept_share: present must
OPS.kept_share(WORDS, 40, X[0, :3], 1.0, math.nan)
    -> RuntimeError|TypeError|ValueError: kept_share: most must be at least 1, got nan
OPS.unpack_pair(WORDS, WORDS[:2], 40) -> RuntimeError|TypeError|ValueError: unpack_pair: .*raised
OPS.row_signs(X, X[0]) -> RuntimeError|TypeError|ValueError: row_signs: total must
OPS.straight_through(X, X[:2], 1.0) -> RuntimeError|TypeError|ValueError: straight_through: x must
"""


def test_errors():
    check_wrong_calls(WRONG, globals())

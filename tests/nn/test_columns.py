"""Constant columns are named where the bits of features are looked up."""

import warnings

import pytest
import torch

from bitgnn.nn import GCNConv

EDGES = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])


def _dense(constant):
    x = torch.randn(30, 12, generator=torch.Generator().manual_seed(0))
    x[:, constant] = torch.arange(1.0, len(constant) + 1)
    return x


def _words(constant):
    x = (torch.rand(30, 12, generator=torch.Generator().manual_seed(0)) < 0.2).float()
    x[0], x[1] = 0.0, 1.0
    x[:, constant] = 0.0
    return x


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (_dense([3]), r"^GCNConv: x must vary .* value in all 30 rows of column 3, whose bits say"),
        (_dense([0, 4, 5]), r"in all 30 rows of columns 0, 4, 5, whose bits say nothing$"),
        (_dense([1, 2, 3, 4, 5, 6, 7]), r"in all 30 rows of columns 1, 2, 3, 4, 5, \.\.\., whose"),
        (_dense(list(range(12))), r"got 30 equal rows, whose bits tell no node from another$"),
        (_words(list(range(12))), r"got 30 equal rows, whose bits tell no node from another$"),
    ],
    ids=["one", "three", "many", "all", "pattern"],
)
def test_constant_columns_are_named_once(x, message):
    layer = GCNConv(12, 4, precision="bin")
    with pytest.warns(UserWarning, match=message) as caught:
        layer(x, EDGES)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer(x, EDGES)


@pytest.mark.parametrize(
    "x",
    [_dense([]), _words([]), _words([2, 3, 4]), _dense([0, 1])[:1]],
    ids=["dense", "words", "words that never occur", "one row"],
)
def test_what_is_usual_is_not_warned_of(x):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        GCNConv(12, 4, precision="bin")(x, EDGES[:, : len(x) // 8])

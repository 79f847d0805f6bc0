"""Seeded per-class splits and the choice among public ones."""

import pytest
import torch

from bitgnn.data import per_class_split
from bitgnn.data.splits import public_split


def test_equal_classes_and_nothing_twice():
    y = torch.arange(300) % 4
    y[::7] = -1
    train, val, test = per_class_split(y, 20, 30, seed=1)
    assert torch.bincount(y[train]).tolist() == [20] * 4
    assert torch.bincount(y[val]).tolist() == [30] * 4
    assert torch.equal(train.int() + val.int() + test.int(), (y >= 0).int())


def test_it_depends_on_the_seed_alone():
    y = torch.arange(300) % 4
    torch.manual_seed(5)
    first = per_class_split(y, seed=1)
    torch.manual_seed(6)
    again, other = per_class_split(y, seed=1), per_class_split(y, seed=2)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], other[0])


def test_a_class_that_does_not_occur_is_no_hindrance():
    y = torch.tensor([0, 0, 0, 5, 5, 5])
    train, val, test = per_class_split(y, 1, 1)
    assert torch.bincount(y[train]).tolist() == [1, 0, 0, 0, 0, 1]
    assert int(val.sum()) == int(test.sum()) == 2


@pytest.mark.parametrize(
    ("y", "numbers", "message"),
    [
        (torch.arange(100) % 2, (20, 30), "class 0 has 50 nodes, too few for train_per_class=20"),
        (torch.tensor([0, 0, 0, 1]), (1, 1), "class 1 has 1 nodes"),
        (torch.arange(100) % 2, (0, 30), "must be at least 1, got 0 and 30"),
        (torch.full((5,), -1), (1, 1), "no node has a label"),
        (torch.empty(0, dtype=torch.int64), (1, 1), "no node has a label"),
    ],
)
def test_refusals(y, numbers, message):
    with pytest.raises(ValueError, match=message):
        per_class_split(y, *numbers)


def test_public_splits():
    many, one = torch.rand(6, 3) > 0.5, torch.rand(6) > 0.5
    assert all(torch.equal(m, many[:, 2]) for m in public_split((many, many, many), 2))
    # As in WikiCS: several training splits, one test mask.
    train, val, test = public_split((many, many, one), None)
    assert torch.equal(train, many[:, 0])
    assert torch.equal(val, many[:, 0])
    assert torch.equal(test, one)
    for number in (3, -1):
        with pytest.raises(ValueError, match=f"from 0 to 2, got {number}"):
            public_split((many, many, one), number)

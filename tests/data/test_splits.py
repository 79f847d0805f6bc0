"""Seeded per-class splits, the choice among public ones, and the graph of digits."""

import pytest
import torch

from bitgnn.data import load_digits_graph, per_class_split
from bitgnn.data.splits import public_split

HUNDRED = torch.arange(100) % 2


def test_equal_classes_nothing_twice_and_the_seed_alone():
    y = torch.arange(300) % 4
    y[::7] = -1
    train, val, test = per_class_split(y, 20, 30, seed=1)
    assert torch.bincount(y[train]).tolist() == [20] * 4
    assert torch.bincount(y[val]).tolist() == [30] * 4
    assert torch.equal(train.int() + val.int() + test.int(), (y >= 0).int())
    torch.manual_seed(6)
    assert torch.equal(per_class_split(y, 20, 30, seed=1)[0], train)
    assert not torch.equal(per_class_split(y, 20, 30, seed=2)[0], train)


def test_a_class_that_does_not_occur_is_no_hindrance():
    y = torch.tensor([0, 0, 0, 5, 5, 5])
    train, val, test = per_class_split(y, 1, 1)
    assert torch.bincount(y[train]).tolist() == [1, 0, 0, 0, 0, 1]
    assert int(val.sum()) == int(test.sum()) == 2


@pytest.mark.parametrize(
    ("y", "numbers", "message"),
    [
        (HUNDRED, (20, 30), "class 0 has 50 nodes, too few for train_per_class=20"),
        (torch.tensor([0, 0, 0, 1]), (1, 1), "class 1 has 1 nodes"),
        (HUNDRED, (0, 30), "must be at least 1, got 0 and 30"),
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
    found = public_split((many, many, one), None)
    assert all(map(torch.equal, found, (many[:, 0], many[:, 0], one)))
    for number in (3, -1):
        with pytest.raises(ValueError, match=f"from 0 to 2, got {number}"):
            public_split((many, many, one), number)


def test_digits():
    data = load_digits_graph()
    assert data.x.shape == (1797, 61)
    assert (data.x.min(), data.x.max()) == (0, 1)
    assert torch.bincount(data.y[data.train_mask]).tolist() == [20] * 10
    assert data.val_mask.sum() == 300
    masks = torch.stack([data.train_mask, data.val_mask, data.test_mask])
    assert (masks.sum(0) == 1).all()
    edges = set(map(tuple, data.edge_index.t().tolist()))
    assert all((b, a) in edges and a != b for a, b in edges)
    assert torch.bincount(data.edge_index[1]).min() >= 8
    assert torch.equal(load_digits_graph().train_mask, data.train_mask)
    assert not torch.equal(load_digits_graph(seed=1).train_mask, data.train_mask)
    with pytest.raises(ValueError, match="leave none of 1797"):
        load_digits_graph(train_per_class=160)
    with pytest.raises(ValueError, match="all numbers must be at least 1"):
        load_digits_graph(num_neighbors=0)

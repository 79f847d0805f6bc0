"""Training, validation and test nodes: a public split, or a seeded one by classes or shares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

SHARES = (0.6, 0.2)
"""Of training and validation; the rest is test."""
MASKS = ("train_mask", "val_mask", "test_mask")

Split = int | Literal["random"] | None
"""Number of a public split, ``"random"`` for a seeded one, None for the first public one if any."""


def per_class_split(
    y: Tensor, train_per_class: int = 20, val_per_class: int = 30, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """Equally many training and equally many validation nodes of each class, the rest test.

    Source: Shchur et al., "Pitfalls of Graph Neural Network Evaluation", 2018.

    Args:
        y: ``[N]`` integer labels; nodes with a negative label are in no mask.
        train_per_class: training nodes of each class that occurs.
        val_per_class: validation nodes of each class that occurs.
        seed: the split depends only on it and on ``y``.

    Returns:
        Three boolean masks ``[N]`` without common nodes.

    Raises:
        ValueError: a number is below 1, there is no label, or a class is too small to leave a
            test node.
    """
    if min(train_per_class, val_per_class) < 1:
        raise ValueError(
            "per_class_split: train_per_class and val_per_class must be at least 1, "
            f"got {train_per_class} and {val_per_class}"
        )
    order = torch.randperm(y.numel(), generator=torch.Generator().manual_seed(seed))
    order = order[y[order] >= 0]
    if order.numel() == 0:
        raise ValueError("per_class_split: no node has a label")
    counts = torch.bincount(y[order])
    small = ((counts > 0) & (counts <= train_per_class + val_per_class)).nonzero().flatten()
    if small.numel() > 0:
        first = int(small[0])
        raise ValueError(
            f"per_class_split: class {first} has {int(counts[first])} nodes, too few for "
            f"train_per_class={train_per_class}, val_per_class={val_per_class} and a test node; "
            "choose smaller numbers"
        )
    # A node's place among those of its class, in the drawn order.
    by_class = order[torch.argsort(y[order], stable=True)]
    starts = torch.cumsum(counts, 0) - counts
    rank = torch.arange(by_class.numel()) - starts[y[by_class]]
    is_train = rank < train_per_class
    is_val = ~is_train & (rank < train_per_class + val_per_class)
    return tuple(  # type: ignore[return-value]
        torch.zeros(y.numel(), dtype=torch.bool).index_fill_(0, by_class[chosen], True)
        for chosen in (is_train, is_val, ~is_train & ~is_val)
    )


def public_split(masks: Sequence[Tensor], split: int | None) -> tuple[Tensor, ...]:
    """One split of three masks, each ``[N]`` or ``[N, splits]``; None is the first."""
    count = max(mask.size(1) if mask.dim() == 2 else 1 for mask in masks)
    number = 0 if split is None else split
    if not 0 <= number < count:
        raise ValueError(f"split must be 'random' or from 0 to {count - 1}, got {split!r}")
    # Some data sets have many training splits but one test mask.
    return tuple(mask[:, number] if mask.dim() == 2 else mask for mask in masks)


def share_split(labelled: Tensor, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """60, 20 and 20 per cent of the labelled nodes, three masks ``[N]``."""
    nodes = labelled.nonzero().flatten()
    order = nodes[torch.randperm(len(nodes), generator=torch.Generator().manual_seed(seed))]
    train, val = (round(share * len(nodes)) for share in SHARES)
    parts = order.split([train, val, len(nodes) - train - val])
    if any(part.numel() == 0 for part in parts):
        raise ValueError(f"{len(nodes)} nodes with a label are too few for a split")
    empty = torch.zeros_like(labelled)
    return tuple(empty.index_fill(0, part, True) for part in parts)  # type: ignore[return-value]

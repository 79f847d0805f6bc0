"""Names columns of features that are constant or not finite where their bits are looked up."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["check_finite_columns", "warn_of_constant_columns"]

MANY = 5
"""Columns that a message names at most."""


def check_finite_columns(owner: str, rows: Tensor) -> None:
    """Check features whose bits are looked up.

    Args:
        owner: name of the layer's class.
        rows: ``[N, K]`` features.

    Raises:
        ValueError: a value is NaN or infinite.
    """
    finite = torch.isfinite(rows)
    if not bool(finite.all()):
        columns = (~finite).any(0).nonzero().view(-1).tolist()
        raise ValueError(
            f"{owner}: x must be finite where its bits are looked up, got NaN or infinity "
            f"in columns {_named(columns)}"
        )


def warn_of_constant_columns(owner: str, rows: Tensor, few_are_usual: bool = False) -> None:
    """Warn of columns whose bits say nothing.

    Args:
        owner: name of the layer's class.
        rows: ``[N, K]`` features; a single row says nothing of its columns.
        few_are_usual: warn only where all columns are constant: of a bag of words there are always
            some that no document has.
    """
    if rows.size(0) <= 1:
        return
    columns = (rows == rows[0]).all(0).nonzero().view(-1).tolist()
    number, size = len(columns), rows.size(1)
    if number == 0 or (few_are_usual and number < size):
        return
    if number == size:
        found = f"got {rows.size(0)} equal rows, whose bits tell no node from another"
    else:
        found = f"got the same value in all {rows.size(0)} rows of column{'s' * (number > 1)} "
        found += f"{_named(columns)}, whose bits say nothing"
    warnings.warn(
        f"{owner}: x must vary where its bits are looked up, {found}", UserWarning, stacklevel=2
    )


def _named(columns: Sequence[int]) -> str:
    return ", ".join(map(str, columns[:MANY])) + (", ..." if len(columns) > MANY else "")

"""Says which columns of the features are constant where their bits are looked up."""

from __future__ import annotations

import warnings

from torch import Tensor

__all__ = ["MANY", "warn_of_constant_columns"]

MANY = 5
"""Columns that a message names at most."""


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
        more = ", ..." if number > MANY else ""
        named = ", ".join(map(str, columns[:MANY]))
        found = f"got the same value in all {rows.size(0)} rows of column{'s' * (number > 1)} "
        found += f"{named}{more}, whose bits say nothing"
    warnings.warn(
        f"{owner}: x must vary where its bits are looked up, {found}", UserWarning, stacklevel=2
    )

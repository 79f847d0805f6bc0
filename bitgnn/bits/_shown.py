"""The repr of packed tensors: kind, shape, bytes, device and the first values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from bitgnn.bits.rows import PackedRows

ROWS, COLUMNS = 3, 6
"""Values that are shown of a matrix."""


def described(packed: PackedRows) -> str:
    """Describe a packed tensor in one line, with its first values if they can be read."""
    shape = " x ".join(map(str, packed.shape))
    scale = "" if getattr(packed, "scale", None) is None else ", scaled"
    line = f"{packed.NAME}({shape}, {packed.nbytes} bytes{scale}, device={packed.device})"
    if type(packed._packed) is not Tensor or packed._packed.is_meta or 0 in packed.shape:
        return line
    return f"{line}\n{_corner(packed)}"


def _corner(packed: PackedRows) -> str:
    """The first values of the first rows."""
    head = packed[: ROWS + 1] if packed._has_rows() else packed
    while head.dim() > 2 and head[0]._has_rows():
        head = head[0][: ROWS + 1]
    values = head.to_float()
    while values.dim() > 2:
        values = values[0]
    rows = values.view(-1, values.size(-1))
    more = ", ..." if rows.size(1) > COLUMNS else ""
    lines = [
        "[" + ", ".join(f"{value:.4g}" for value in row[:COLUMNS].tolist()) + f"{more}]"
        for row in rows[:ROWS]
    ]
    return "\n".join(lines + ["..."] * (len(rows) > ROWS))

"""Results for people and machines: JSON, CSV and PNG; times, sizes and ratios as text."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bitgnn._files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TIME_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
BYTE_UNITS = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))


def write_json(path: str | Path, record: Any) -> None:
    """Writes ``record`` as JSON; a reader sees the old file or the new one, never half of one.

    Raises:
        OSError: The folder cannot be created or written; an existing file is left as it was.
        ValueError: ``record`` holds NaN or infinity, which JSON does not have.
    """
    path = Path(path)
    text = json.dumps(record, indent=1, allow_nan=False) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text.encode())


def csv_text(rows: Iterable[Sequence[Any]]) -> str:
    """Rows of cells as CSV, the header first."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def png(figure: Figure) -> bytes:
    """A figure as a PNG."""
    image = io.BytesIO()
    figure.savefig(image, format="png")
    return image.getvalue()


def open_frame(*panels: Axes) -> None:
    """Draws no line on top of and to the right of panels."""
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)


def format_seconds(seconds: float) -> str:
    """Three significant digits and a fitting unit: ``format_seconds(0.00123) == "1.23 ms"``."""
    size, unit = next((pair for pair in TIME_UNITS if seconds >= pair[0]), TIME_UNITS[-1])
    return f"{_three_digits(seconds / size)} {unit}"


def format_bytes(count: float) -> str:
    """Three significant digits with a binary unit: ``format_bytes(2048) == "2.00 KiB"``."""
    size, unit = next((pair for pair in BYTE_UNITS if count >= pair[0]), BYTE_UNITS[-1])
    return f"{count:.0f} B" if unit == "B" else f"{_three_digits(count / size)} {unit}"


def format_ratio(ratio: float) -> str:
    """A ratio with three significant digits: ``format_ratio(23.456) == "23.5×"``."""
    return f"{_three_digits(ratio)}×"


def _three_digits(value: float) -> str:
    for limit, digits in ((9.995, 2), (99.95, 1)):
        if abs(value) < limit:
            return f"{value:.{digits}f}"
    return f"{value:.0f}"

"""Results for people and machines: environment, JSON, CSV, PNG, times and sizes as text."""

from __future__ import annotations

import csv
import datetime
import io
import json
import os
import platform
import subprocess
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from bitgnn import _library
from bitgnn._files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PACKAGES = ("bitgnn", "torch", "torch-geometric", "torch-sparse", "numpy", "scipy")
# Results and the tables made from them do not make a measured tree "dirty".
GENERATED = (":!scripts/results", ":!README.md", ":!docs")
TIME_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
BYTE_UNITS = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))


def cpu_model() -> str:
    """The processor's name as the system gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def usable_cores() -> int:
    """Logical processors this process may run on."""
    return len(os.sched_getaffinity(0))


def package_version(name: str) -> str | None:
    """Installed version of a distribution, None when it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def environment(repository: Path | None = None) -> dict[str, Any]:
    """A JSON-ready record of machine, software and moment, without paths or the host's name.

    ``busy_percent`` is how busy all cores are with others' work, measured while this process
    sleeps for half a second; None without psutil (extra ``bench``). The commit of the measured code
    and whether it was changed (``dirty``) are those of ``repository``; the environment variable
    BITGNN_COMMIT goes before it, for trees copied without theirs. Git is not run without a
    repository: it obeys the settings of the folder it is in.
    """
    commit, changes = os.environ.get("BITGNN_COMMIT"), None
    if repository is not None and not commit:
        commit = _git(repository, "rev-parse", "HEAD")
        changes = _git(repository, "status", "--porcelain", "--", ".", *GENERATED)
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "cpu": cpu_model(),
        "cores": usable_cores(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "cuda": torch.version.cuda if torch.cuda.is_available() else None,
        "threads": torch.get_num_threads(),
        "busy_percent": _busy_percent(),
        "capability": _library.library_info().cpu_capability,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {name: package_version(name) for name in PACKAGES},
        "commit": commit,
        "dirty": None if changes is None else bool(changes),
    }


def _git(repository: Path, *arguments: str) -> str | None:
    # Settings of a repository may name programs to run.
    command = ["git", "-C", str(repository), "-c", "core.fsmonitor=false", *arguments]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return run.stdout.strip() if run.returncode == 0 else None


def _busy_percent() -> float | None:
    try:
        import psutil
    except ImportError:
        return None
    return float(psutil.cpu_percent(interval=0.5))


def write_json(path: str | Path, record: Any) -> None:
    """Write ``record`` as JSON, in a folder that is made where it is missing.

    A reader sees the old file or the new one. NaN and infinity, which JSON does not have, are a
    ``ValueError``.
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
    """Remove the top and right lines of panels."""
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

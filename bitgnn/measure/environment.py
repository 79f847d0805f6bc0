"""What a benchmark ran on: machine, versions, threads, commit; no paths, no host name."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from bitgnn import _library

PACKAGES = ("bitgnn", "torch", "torch-geometric", "torch-sparse", "numpy", "scipy")
# Results and the tables made from them do not make a measured tree "dirty".
GENERATED = (":!scripts/results", ":!README.md", ":!docs")


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
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def package_version(name: str) -> str | None:
    """Installed version of a distribution, None when it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


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


def environment(repository: Path | None = None) -> dict[str, Any]:
    """A JSON-ready record of the machine, the software and the moment.

    ``busy_percent`` is how busy all cores are with others' work, measured while this process
    sleeps for half a second; None without psutil (extra ``bench``).

    Args:
        repository: git repository of the measured code, for its commit and whether it was changed
            (``dirty``). The environment variable BITGNN_COMMIT goes before it, for trees copied
            without their repository. Git is not run without a repository: it obeys the settings of
            the folder it is in.
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

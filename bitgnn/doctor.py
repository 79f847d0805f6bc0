"""A report on versions, build, hardware and what is missing, fit to paste into a bug report."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from bitgnn import BitAdjacency, BitTensor, __version__, _library
from bitgnn.measure.report import cpu_model, package_version, usable_cores
from bitgnn.ops import bmm, bspmm

PACKAGE = Path(__file__).resolve().parent
REQUIRED = (
    "torch", "torch-geometric", "numpy", "scipy", "safetensors", "typer", "rich", "pydantic",
    "PyYAML", "matplotlib", "scikit-learn",
)  # fmt: skip
PROBLEM = "PROBLEM"
SPARSE = "pip install --no-build-isolation 'bitgnn[sparse]'"
OPTIONAL = {
    "pyg-lib": "temporal and weighted sampling; a wheel for the installed torch is at "
    "https://data.pyg.org/whl",
    "torch-sparse": f"SparseTensor input, GraphSAINT's random walks; {SPARSE}",
    "ogb": "ogbn data sets; pip install 'bitgnn[ogb]'",
}


def facts() -> dict[str, Any]:
    """Versions, build, operators, hardware and optional packages by section; ``missing`` last.

    That is a list of what keeps bitgnn from working, or from working fast, each with its cure.
    Paths inside the package are given relative to it, so that they tell nothing of the machine's
    folders.
    """
    info = _library.library_info()
    variables = [f"{k}={v}" for k, v in sorted(os.environ.items()) if k.startswith("BITGNN_")]
    if torch.cuda.is_available():
        devices = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        cuda = f"{', '.join(devices)} (CUDA {torch.version.cuda})"
    elif torch.version.cuda is None:
        cuda = "none (this torch is built without CUDA)"
    else:
        cuda = f"none visible (torch is built for CUDA {torch.version.cuda})"
    sections: dict[str, dict[str, Any]] = {
        "versions": {
            "bitgnn": __version__,
            "python": platform.python_version(),
            **{name: package_version(name) or "not installed" for name in REQUIRED},
            "torch": _torch_version(),
            "os": f"{platform.system()} {platform.release()} {platform.machine()}",
        },
        "build": {
            "CPU library": info.cpu_library or "not loaded (reference kernels)",
            "CUDA library": info.cuda_library or "not loaded",
            "CPU capability in use": info.cpu_capability or "reference",
            "CPU capabilities": ", ".join(info.available_cpu_capabilities) or "reference",
            "environment": " ".join(variables) or "no BITGNN_* set",
        },
        "operators": _operators(info),
        "hardware": {
            "CPU": cpu_model(),
            "cores": usable_cores(),
            "torch threads": torch.get_num_threads(),
            "CUDA device": cuda,
        },
        "optional packages": {
            name: package_version(name) or f"not installed ({purpose})"
            for name, purpose in OPTIONAL.items()
        },
    }
    found: dict[str, Any] = {
        title: {name: _without_folders(str(value)) for name, value in entries.items()}
        for title, entries in sections.items()
    }
    return {**found, "missing": list(map(_without_folders, missing()))}


def is_well(found: dict[str, Any]) -> bool:
    """True if nothing is missing and every operator that was tried works."""
    return not found["missing"] and not any(
        value.startswith(PROBLEM) for value in found["operators"].values()
    )


def report(found: dict[str, Any] | None = None) -> str:
    """The whole report as text: one ``name: value`` a line, problems and their cures at the end."""
    sections = dict(facts() if found is None else found)
    problems = sections.pop("missing")
    lines = []
    for title, entries in sections.items():
        lines.append(f"{title}:")
        lines += [f"  {name}: {value}" for name, value in entries.items()]
    lines.append("missing:" if problems else "missing: nothing")
    return "\n".join([*lines, *(f"  - {problem}" for problem in problems)])


def _torch_version() -> str:
    newest = ".".join(map(str, _library.LAST_TORCH))
    note = f" (the newest one tested is {newest})" if _library.is_untested_torch() else ""
    return f"{torch.__version__}{note}"


def _without_folders(text: str) -> str:
    for folder, name in ((PACKAGE, "bitgnn"), (Path.home(), "~")):
        if folder != Path("/"):
            text = text.replace(str(folder), name)
    return text


def missing() -> list[str]:
    """List what keeps bitgnn from working, or from working fast, each with its cure."""
    problems = [
        f"{name} is not installed: pip install {name}"
        for name in REQUIRED
        if package_version(name) is None
    ]
    info = _library.library_info()
    if info.disabled:
        problems.append(f"{info.problem} Unset {_library.DISABLE_VARIABLE} to use them.")
    elif info.problem:
        problems.append(info.problem)
    return problems


def _operators(info: _library.LibraryInfo) -> dict[str, str]:
    """Try each compiled library in a process of its own, which may crash."""
    libraries = {"cpu": info.cpu_library}
    if torch.cuda.is_available():
        libraries["cuda"] = info.cuda_library
    return {
        f"{device} library": _tried(device) for device, library in libraries.items() if library
    } or {"compiled": "none loaded"}


def _tried(device: str) -> str:
    # This package and no other that lies in the working directory.
    code = f"import sys; sys.path[:0] = [{str(PACKAGE.parent)!r}]; import bitgnn.doctor as doctor; "
    code += f"doctor.run_trials({device!r})"
    command = [sys.executable, "-W", "ignore", "-c", code]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = run.stdout.splitlines()
    wrong = [line for line in lines if not line.endswith(": works")]
    if run.returncode == 0 and not wrong:
        names = [line.removesuffix(": works") for line in lines]
        return f"{', '.join(names[:-1])} and {names[-1]} work"
    if run.returncode < 0:
        return f"{PROBLEM}: the process died at {wrong[-1] if wrong else 'its start'}"
    last = run.stderr.strip().splitlines()[-1:] if run.returncode else []
    return f"{PROBLEM}: {'; '.join([*wrong, *last])}"


def run_trials(device: str) -> None:
    """Print each trial of a device's operators as it begins, and how it ended."""
    trials: dict[str, Callable[[torch.Tensor], bool]] = {
        "a product": _product,
        "an aggregation": _aggregation,
        "an error": _error,
    }
    if device == "cuda":
        trials["a captured graph"] = _graph
    for name, trial in trials.items():
        print(name, end="", flush=True)
        works = trial(torch.ones(3, 40, device=device))
        print(": works" if works else ": wrong result", flush=True)


def _product(x: torch.Tensor) -> bool:
    return bool((bmm.fbf(x, BitTensor.from_float(x), scale=False) == 40).all())


def _aggregation(x: torch.Tensor) -> bool:
    edges = torch.tensor([[0, 1, 2], [1, 1, 0]], device=x.device)
    adjacency = BitAdjacency.from_edge_index(edges, 3)
    sums = bspmm.bbf(BitTensor.from_float(x), adjacency, integer=True)
    return sums[:, 0].tolist() == [1, 2, 0]


def _error(x: torch.Tensor) -> bool:
    try:
        torch.ops.bitgnn.unpack(torch.zeros(1, 1, dtype=torch.int32, device=x.device), -1)
    except RuntimeError as error:
        return "got -1" in str(error)
    return False


def _graph(x: torch.Tensor) -> bool:
    weight = BitTensor.from_float(x)
    bmm.fbf(x, weight, scale=False)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = bmm.fbf(x, weight, scale=False)
    x.neg_()
    graph.replay()
    return bool((result == -40).all())


if __name__ == "__main__":
    print(report())

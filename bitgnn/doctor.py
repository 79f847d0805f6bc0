"""A report on versions, build, hardware and what is missing, fit to paste into a bug report."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import torch

from bitgnn import _library
from bitgnn.measure.environment import cpu_model, package_version, usable_cores

PACKAGE = Path(__file__).resolve().parent
REQUIRED = (
    "torch",
    "torch-geometric",
    "numpy",
    "scipy",
    "safetensors",
    "typer",
    "rich",
    "pydantic",
    "PyYAML",
    "matplotlib",
    "scikit-learn",
)
SPARSE = "pip install --no-build-isolation 'bitgnn[sparse]'"
OPTIONAL = {
    "pyg-lib": "temporal and weighted sampling; a wheel for the installed torch is at "
    "https://data.pyg.org/whl",
    "torch-sparse": f"SparseTensor input, GraphSAINT's random walks; {SPARSE}",
    "ogb": "ogbn data sets; pip install 'bitgnn[ogb]'",
}


def report() -> str:
    """The whole report as text: one ``name: value`` a line, problems and their cures at the end.

    Paths inside the package are given relative to it, so the text tells nothing of the machine's
    folders.
    """
    sections = {
        "versions": _versions(),
        "build": _build(),
        "operators": _operators(),
        "hardware": _hardware(),
        "optional packages": _optional(),
    }
    lines = []
    for title, entries in sections.items():
        lines.append(f"{title}:")
        lines += [f"  {name}: {value}" for name, value in entries.items()]
    problems = missing()
    lines.append("missing:" if problems else "missing: nothing")
    lines += [f"  - {problem}" for problem in problems]
    return _neutral("\n".join(lines))


def missing() -> list[str]:
    """What keeps bitgnn from working or from working fast, each with its cure; often empty."""
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


def _versions() -> dict[str, str]:
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    versions = {name: package_version(name) or "not installed" for name in REQUIRED}
    from bitgnn import __version__

    return {"bitgnn": __version__, "python": platform.python_version(), **versions, "os": system}


def _build() -> dict[str, str]:
    info = _library.library_info()
    variables = {k: v for k, v in sorted(os.environ.items()) if k.startswith("BITGNN_")}
    return {
        "CPU library": str(info.cpu_library or "not loaded (reference kernels)"),
        "CUDA library": str(info.cuda_library or "not loaded"),
        "CPU capability in use": info.cpu_capability or "reference",
        "CPU capabilities": ", ".join(info.available_cpu_capabilities) or "reference",
        "environment": " ".join(f"{k}={v}" for k, v in variables.items()) or "no BITGNN_* set",
    }


def _operators() -> dict[str, str]:
    """What works of each compiled library, tried in a process of its own: it may die."""
    info = _library.library_info()
    libraries = {"cpu": info.cpu_library}
    if torch.cuda.is_available():
        libraries["cuda"] = info.cuda_library
    return {
        f"{device} library": _tried(device) for device, library in libraries.items() if library
    } or {"compiled": "none loaded"}


def _tried(device: str) -> str:
    # This package and no other that lies in the working directory.
    code = f"import sys; sys.path[:0] = [{str(PACKAGE.parent)!r}]; import bitgnn._trial as trial; "
    code += f"trial.run_trials({device!r})"
    command = [sys.executable, "-W", "ignore", "-c", code]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = run.stdout.splitlines()
    wrong = [line for line in lines if not line.endswith(": works")]
    if run.returncode == 0 and not wrong:
        names = [line.removesuffix(": works") for line in lines]
        return f"{', '.join(names[:-1])} and {names[-1]} work"
    if run.returncode < 0:
        return f"PROBLEM: the process died at {wrong[-1] if wrong else 'its start'}"
    last = run.stderr.strip().splitlines()[-1:] if run.returncode else []
    return f"PROBLEM: {'; '.join([*wrong, *last])}"


def _hardware() -> dict[str, str]:
    if torch.cuda.is_available():
        devices = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        cuda = f"{', '.join(devices)} (CUDA {torch.version.cuda})"
    elif torch.version.cuda is None:
        cuda = "none (this torch is built without CUDA)"
    else:
        cuda = f"none visible (torch is built for CUDA {torch.version.cuda})"
    return {
        "CPU": cpu_model(),
        "cores": str(usable_cores()),
        "torch threads": str(torch.get_num_threads()),
        "CUDA device": cuda,
    }


def _optional() -> dict[str, str]:
    return {
        name: package_version(name) or f"not installed ({purpose})"
        for name, purpose in OPTIONAL.items()
    }


def _neutral(text: str) -> str:
    """``text`` without the folders that hold the package and the user's home."""
    for folder, name in ((PACKAGE, "bitgnn"), (Path.home(), "~")):
        if folder != Path("/"):
            text = text.replace(str(folder), name)
    return text


def main() -> None:
    """Prints the report: ``python -m bitgnn.doctor``."""
    print(report())


if __name__ == "__main__":
    main()

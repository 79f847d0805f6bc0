"""Ceilings of the GPU, measured by a separate program next to the benchmark."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import torch

SOURCE = Path(__file__).resolve().with_name("ceilings.cu")
HEADERS = SOURCE.parents[2] / "csrc"
DENSE_DEGREE = 100
"""Edges a node beyond which gathers from shared memory are taken for possible."""


class Ceilings:
    """Rates of the device by name, in units a second."""

    def __init__(self, entries: list[dict[str, Any]]) -> None:
        self.entries = entries
        self._rates = {entry["name"]: float(entry["rate"]) for entry in entries}

    @property
    def launch_seconds(self) -> float:
        """Seconds of an empty kernel inside a CUDA graph."""
        return 1.0 / self._rates["empty kernel in a graph"]

    @property
    def product_rate(self) -> float:
        """1-bit operations a second of the best tensor-core instruction."""
        return max(rate for name, rate in self._rates.items() if " b1 " in name)

    @property
    def shared_gather_rate(self) -> float:
        """Rows of 16 bytes a second from shared memory."""
        return self._rates["gather 16 bytes from shared memory"]

    def memory_seconds(self, read: float, written: float = 0.0) -> float:
        """Seconds to move bytes to and from the device's memory."""
        return read / self._rates["read"] + written / self._rates["write"]

    def gather_rate(self, row_bytes: float, table_bytes: float) -> float:
        """Random rows a second, by the measured row that is no narrower and the nearest table."""
        widths = sorted({int(n.split()[1]) for n in self._rates if n.startswith("gather")})
        width = next((w for w in widths if w >= row_bytes), widths[-1])
        prefix = f"gather {width} bytes from "
        tables = {
            float(name[len(prefix) :].split()[0]) * 1024: rate
            for name, rate in self._rates.items()
            if name.startswith(prefix) and name.endswith("KiB")
        }
        nearest = min(tables, key=lambda size: abs(size - table_bytes))
        return tables[nearest] * width / max(width, row_bytes)

    def gather_seconds(self, edges: int, nodes: int, row_bytes: float) -> float:
        """Least seconds to gather a row of a table of ``nodes`` rows for each edge.

        From shared memory in pieces of 16 bytes where a node has edges enough to pay for bringing
        the table there, else from the second-level cache.
        """
        cached = edges / self.gather_rate(row_bytes, nodes * row_bytes)
        if edges <= DENSE_DEGREE * nodes:
            return cached
        return min(edges * max(1.0, row_bytes / 16) / self.shared_gather_rate, cached)


def measure_ceilings(program: Path | None = None) -> Ceilings:
    """Runs the program, compiling it with nvcc unless a compiled one is given."""
    return Ceilings(output_of(SOURCE, program))


def output_of(source: Path, program: Path | None = None) -> Any:
    """What a program prints as JSON, compiled from its source unless it is given."""
    with tempfile.TemporaryDirectory() as folder:
        if program is None:
            program = Path(folder) / source.stem
            _compile(source, program)
        done = subprocess.run([str(program.resolve())], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"bench: {program} failed: {done.stderr.strip()}")
    return json.loads(done.stdout)


def _compile(source: Path, program: Path) -> None:
    """Compiles a measuring program for the GPU at hand."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        raise FileNotFoundError(
            f"bench: this needs nvcc on the PATH, or {source.name} compiled, by --ceilings"
        )
    major, minor = torch.cuda.get_device_capability()
    architecture = f"{major}{minor}{'a' if major >= 9 else ''}"
    command = [nvcc, "-std=c++17", "-O3", "-cudart", "static", "--expt-relaxed-constexpr"]
    command += [f"-I{HEADERS}", str(source), "-o", str(program)]
    command += [f"-gencode=arch=compute_{architecture},code=sm_{architecture}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"bench: compiling {source} failed: {done.stderr.strip()}")


def bit_ceiling(
    ceilings: Ceilings, nodes: int, edges: int, width: int, out_bytes: float
) -> tuple[float, str]:
    """Least seconds of an aggregation of packed rows, and what binds it.

    Indices of two bytes are read, results written, and a packed row gathered for each edge.
    """
    row_bytes = width / 8
    memory = ceilings.memory_seconds(2.0 * edges + nodes * 4.0, nodes * out_bytes)
    gather = ceilings.gather_seconds(edges, nodes, row_bytes)
    binds = "memory" if memory > gather else "gathers"
    return max(memory, gather) + ceilings.launch_seconds, binds

"""Rates of the machine itself, from ceilings.cpp, compiled on the spot for this very CPU."""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from torch import Tensor

SOURCE = Path(__file__).with_name("ceilings.cpp")
FLAGS = ("-O3", "-march=native", "-std=c++17", "-shared", "-fPIC", "-pthread")
TIMES = 16
# Operations of one round, by function; a product of two bits and its sum count as two.
ACCUMULATORS = 8
OPERATIONS = {
    "dependent_adds": 1,
    "xor_popcount_add": ACCUMULATORS * 512 * 2,
    "parity_popcount_add": ACCUMULATORS * 512 * 2,
    "fused_multiply_adds": ACCUMULATORS * 16 * 2,
}
GATHERS = {2: "gather_pairs", 4: "gather_rows", 8: "gather_half_lines", 16: "gather_lines"}
GATHERED_WORDS = tuple(GATHERS)
"""Words of the rows that can be gathered."""


class CeilingsError(RuntimeError):
    """The ceilings could not be compiled here; the message says why and what helps."""


def compiler() -> list[str]:
    """The C++ compiler's command: ``CXX``, Python's own, or ``c++``."""
    for command in (os.environ.get("CXX"), sysconfig.get_config_var("CXX"), "c++"):
        words = shlex.split(command or "")
        if words and shutil.which(words[0]):
            return words
    raise CeilingsError(
        "no C++ compiler found: install g++ or clang, or set CXX; the machine's own rates are "
        "measured by a small program compiled for it"
    )


@dataclass(frozen=True)
class Repeated:
    """A call that does its work ``times`` times, so that starting threads takes no visible part."""

    function: Callable[..., None]
    arguments: Sequence[Any]
    times: int
    held: tuple[Tensor, ...] = ()  # what the arguments point to

    def __call__(self) -> None:
        """Do the work."""
        self.function(*self.arguments)


class Ceilings:
    """The compiled functions of ceilings.cpp as calls without arguments, ready to be timed."""

    def __init__(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            library = Path(folder) / "ceilings.so"
            command = [*compiler(), *FLAGS, str(SOURCE), "-o", str(library)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                raise CeilingsError(f"{shlex.join(command)} failed: {done.stderr.strip()}")
            self._library = ctypes.CDLL(str(library))

    @property
    def vector_bits(self) -> int:
        """Bits of the vectors whose population counts one instruction takes; 0 without any.

        Without, only ``dependent_adds`` and the functions on memory exist.
        """
        return int(self._library.vector_bits())

    def operations(self, name: str, threads: int, rounds: int) -> Repeated:
        """``rounds`` of a function on each thread; :data:`OPERATIONS` says how many operations."""
        arguments = (ctypes.c_int(threads), ctypes.c_int64(rounds * TIMES))
        return Repeated(self._function(name), arguments, TIMES)

    @staticmethod
    def rounds(name: str, operations: float) -> int:
        """Rounds of a function that take so many operations, at least one."""
        return max(1, round(operations / OPERATIONS[name]))

    def write(self, threads: int, out: Tensor, *, stream: bool) -> Repeated:
        """Fill float32 ``out``, whole cache lines, through the caches or past them."""
        if out.data_ptr() % 64 or not out.is_contiguous():
            raise ValueError("bench.ceilings: out must be contiguous and aligned to 64 bytes")
        name = "stream_floats" if stream else "write_floats"
        return self._on_memory(name, threads, out.numel() // 16 * 16, out)

    def read(self, threads: int, x: Tensor) -> Repeated:
        """Read int32 ``x`` from beginning to end."""
        return self._on_memory("read_ints", threads, x.numel() // 64 * 64, x)

    def gather(self, threads: int, indices: Tensor, table: Tensor) -> Repeated:
        """Read the row of int32 ``table`` that each of int32 ``indices`` names.

        Rows hold as many words as one of :data:`GATHERED_WORDS` says; 16 are a cache line where
        ``table`` begins with one.
        """
        name = GATHERS[table.size(1)]
        return self._on_memory(name, threads, indices.numel() // 8 * 8, indices, table)

    def _on_memory(self, name: str, threads: int, count: int, *tensors: Tensor) -> Repeated:
        first, *rest = [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
        head = (ctypes.c_int(threads), ctypes.c_int64(TIMES), first, ctypes.c_int64(count))
        return Repeated(self._function(name), (*head, *rest), TIMES, tensors)

    def _function(self, name: str) -> Callable[..., None]:
        function = getattr(self._library, name)
        function.restype = None
        return cast(Callable[..., None], function)

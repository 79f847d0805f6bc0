"""Rates of the machine's memory, from ceilings.cpp, compiled on the spot for this very CPU."""

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
from typing import Any

from torch import Tensor

SOURCE = Path(__file__).with_name("ceilings.cpp")
FLAGS = ("-O3", "-march=native", "-std=c++17", "-shared", "-fPIC", "-pthread")
TIMES = 16


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

    def read(self, threads: int, x: Tensor) -> Repeated:
        """Read int32 ``x`` from beginning to end."""
        return self._on_memory("read_ints", threads, x.numel() // 64 * 64, x)

    def gather(self, threads: int, indices: Tensor, table: Tensor) -> Repeated:
        """Read the row of int32 ``table`` ``[N, 4]`` that each of int32 ``indices`` names."""
        return self._on_memory("gather_rows", threads, indices.numel() // 8 * 8, indices, table)

    def _on_memory(self, name: str, threads: int, count: int, *tensors: Tensor) -> Repeated:
        first, *rest = [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
        head = (ctypes.c_int(threads), ctypes.c_int64(TIMES), first, ctypes.c_int64(count))
        function = getattr(self._library, name)
        function.restype = None
        return Repeated(function, (*head, *rest), TIMES, tensors)

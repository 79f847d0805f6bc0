"""Forwards of large graphs by ranges of rows: wide results exist for one range at a time.

Behind a sum of packed neighbours every call is row by row up to the next sum. Such a run of calls
takes the packed rows of all nodes and the rows of the adjacency in a range, and keeps of its
results those alone that later calls read: packed rows, classes or scores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from bitgnn.bits.int8 import bytes_for
from bitgnn.bits.tensor import words_for
from bitgnn.inference.executable import Compiled
from bitgnn.inference.program import CALL, Call, Register

RANGE_BYTES = 1 << 28
"""Bytes of the results within a run for one range of rows."""
WHOLE_BYTES = 1 << 30
"""Bytes of them for all rows up to which these run at once, each call's kernels being fused."""
SUMS = ("bspmm_bbb", "bspmm_bbf", "bspmm_tbb", "bspmm_tbf")
"""Sums of integers, which no order of rows or edges changes."""
EXACT_ROWS = frozenset({
    "add_bbb", "add_bbf", "add_ffb", "bits_linear", "bmm_add", "bmm_add_iib", "bmm_bbb", "bmm_bbf",
    "bmm_iib", "bmm_iif", "bmm_tbb", "concat_bbb", "linear_ternary", "pack", "pack_int8",
    "pack_scaled", "pack_standardized", "pack_ternary", "unpack",
    "add", "bitwise_and", "bitwise_xor", "hardtanh", "leaky_relu", "maximum", "mul", "relu", "to",
    "gain", "divisor", "bias", "sign",
})  # fmt: skip
"""Calls that give a row of each row, the same whatever other rows there are. Float products of the
vendors' libraries are not among them, nor functions that vector units round in their own way."""
_LAST_DIM = {"argmax": 1, "log_softmax": 1, "softmax": 1, "cat": 1, "slice": 1, "unsqueeze": 1}
"""Calls that are row by row along the last dimension, and the place of the dimension."""
_IN_FRONT = ("bits_linear", "bmm_bbf", "pack", "pack_scaled")
"""Calls that may become one with a sum of the floats that they give."""
_BYTES: dict[str, Callable[[int], int]] = {
    "bits": lambda size: 4 * words_for(size), "codes": bytes_for, "scale": lambda size: 4,
    "planes": lambda size: 8 * words_for(size), "counts": lambda size: 4,
    "classes": lambda size: 8, "unused": lambda size: 0,
}  # fmt: skip


@dataclass(frozen=True)
class Run:
    """Calls that run together.

    Attributes:
        calls: in their order.
        inputs: registers that calls before have written.
        kept: registers that calls behind read, or that hold the result.
        row_bytes: bytes of a row of the other registers.
        is_free: whether ranges of rows give the same.
    """

    calls: tuple[Call, ...]
    inputs: tuple[int, ...]
    kept: tuple[int, ...]
    row_bytes: int
    is_free: bool

    @property
    def source(self) -> int | None:
        """Register of the packed rows that are summed over the graph."""
        return self.calls[0].inputs[0] if self.calls[0].kind in SUMS else None


def bytes_of_row(register: Register) -> int:
    """Bytes of a row of what a register holds."""
    return _BYTES.get(register.form, lambda size: 4 * size)(register.size or 1)


def runs_of(calls: Sequence[Call], registers: Sequence[Register], output: int) -> list[Run]:
    """The calls cut in front of every sum over a graph."""
    groups: list[tuple[list[Call], bool]] = []
    for place, call in enumerate(calls):
        if call.kind in SUMS and (call.graph or 0) >= 0:
            groups.append(([call], True))
        elif _is_row_wise(call):
            if not groups:
                groups.append(([], True))
            groups[-1][0].append(call)
        else:
            behind = {r for later in calls[place + 1 :] for r in later.inputs} | {output}
            group, read = [call], set(call.inputs)
            before = groups[-1][0] if groups else []
            while before and before[-1].kind in _IN_FRONT:
                if not set(before[-1].outputs) <= read - behind:
                    break
                group.insert(0, before.pop())
                read |= set(group[0].inputs)
            groups.append((group, False))
    runs: list[Run] = []
    later = {output}
    for group, is_free in reversed([g for g in groups if g[0]]):
        written = [r for call in group for r in call.outputs]
        kept = tuple(r for r in written if r in later)
        given = dict.fromkeys(r for call in group for r in call.inputs)
        inputs = tuple(r for r in given if r not in written)
        inner = sum(bytes_of_row(registers[r]) for r in written if r not in kept)
        runs.append(Run(tuple(group), inputs, kept, inner, is_free))
        later |= set(inputs)
    return runs[::-1]


def least_rows(runs: Sequence[Run], registers: Sequence[Register], output: int) -> int | None:
    """Rows below which all of them run at once, wherever the result goes; None without a graph."""
    if all(run.source is None for run in runs):
        return None  # batches may be of any size
    widest = [
        run.row_bytes + (output in run.kept) * bytes_of_row(registers[output])
        for run in runs
        if run.is_free
    ]
    return WHOLE_BYTES // max(1, *widest) + 1


def _is_row_wise(call: Call) -> bool:
    if call.operator == CALL or call.graph is not None:
        return False
    if call.kind not in _LAST_DIM:
        return call.kind in EXACT_ROWS
    place = _LAST_DIM[call.kind]
    return len(call.arguments) > place and call.arguments[place] in (-1, 1)


class RangedProgram:
    """A program whose runs take ranges of rows where their results are wide.

    Args:
        calls: the calls for features of one form.
        inputs: registers of the features.
        output: register of the result.
        registers: what registers hold.
        compile_: binds calls with their inputs, one result, and further registers to keep.
    """

    def __init__(
        self,
        calls: Sequence[Call],
        inputs: Sequence[int],
        output: int,
        registers: Sequence[Register],
        compile_: Callable[[Sequence[Call], Sequence[int], Sequence[int]], Compiled],
    ) -> None:
        self.runs = runs_of(calls, registers, output)
        self.inputs, self.output, self.registers = tuple(inputs), output, registers
        self._compile = compile_
        self._bound: dict[tuple[bool, ...], list[tuple[Run, bool, Compiled]]] = {}

    def run(
        self, given: Sequence[Tensor], graphs: Sequence[Any], out: Tensor | None = None
    ) -> Tensor | None:
        """The result, in ``out`` if there is one; None where all rows had better run at once."""
        rows = len(given[0])
        ranged = tuple(self._is_ranged(run, rows, graphs, out is not None) for run in self.runs)
        if not any(ranged):
            return None
        values: dict[int, Tensor] = dict(zip(self.inputs, given, strict=True))
        bound = self._bound_for(ranged)
        for place, (run, in_ranges, compiled) in enumerate(bound):
            if in_ranges:
                self._run_ranges(run, compiled, values, graphs, rows, out)
            else:
                held = [values[r] for r in run.inputs]
                executable = compiled.on(held[0], graphs)
                found = executable.values(held)
                executable.run(found, graphs)
                values.update((r, found[r]) for r in run.kept)
            read = {r for later, _, _ in bound[place + 1 :] for r in later.inputs} | {self.output}
            values = {r: value for r, value in values.items() if r in read}
            held = found = []  # what nothing reads any more is freed
        return values[self.output]

    def _is_ranged(self, run: Run, rows: int, graphs: Sequence[Any], given: bool) -> bool:
        inner = run.row_bytes
        if given and self.output in run.kept:
            inner += bytes_of_row(self.registers[self.output])
        if not run.is_free or rows * inner <= WHOLE_BYTES:
            return False
        if run.source is None:
            return True
        graph = graphs[run.calls[0].graph or 0]
        words = bytes_of_row(self.registers[run.source]) // 4
        return graph.value_bits is None and not graph.reads_slices(words)

    def _bound_for(self, ranged: tuple[bool, ...]) -> list[tuple[Run, bool, Compiled]]:
        if ranged not in self._bound:
            joined: list[tuple[Run, bool]] = []
            for run, in_ranges in zip(self.runs, ranged, strict=True):
                if joined and not in_ranges and not joined[-1][1]:
                    joined[-1] = self._joined(joined[-1][0], run), False
                else:
                    joined.append((run, in_ranges))
            self._bound[ranged] = [
                (run, in_ranges, self._compile(run.calls, run.inputs, run.kept))
                for run, in_ranges in joined
            ]
        return self._bound[ranged]

    def _joined(self, first: Run, second: Run) -> Run:
        """Two runs as one, which keeps what is read behind both."""
        later = {self.output}
        for run in self.runs[self.runs.index(second) + 1 :]:
            later |= set(run.inputs)
        inputs = dict.fromkeys((*first.inputs, *second.inputs))
        written = {r for call in first.calls for r in call.outputs}
        kept = tuple(r for r in (*first.kept, *second.kept) if r in later)
        inputs_of = tuple(r for r in inputs if r not in written)
        return Run((*first.calls, *second.calls), inputs_of, kept, 0, False)

    def _run_ranges(
        self,
        run: Run,
        compiled: Compiled,
        values: dict[int, Tensor],
        graphs: Sequence[Any],
        rows: int,
        out: Tensor | None,
    ) -> None:
        """Fill the registers that a run keeps, range by range."""
        width = run.row_bytes + sum(bytes_of_row(self.registers[r]) for r in run.kept)
        size = max(1, RANGE_BYTES // width)
        for part, graph in _ranges(rows, size, graphs, run):
            held = [values[r] if r == run.source else values[r][part] for r in run.inputs]
            executable = compiled.on(held[0], graph)
            found = executable.values(held)
            executable.run(found, graph)
            for register in run.kept:
                whole = values.get(register)
                if whole is None:
                    like = found[register]
                    whole = out if register == self.output else None
                    if whole is None:
                        whole = like.new_empty((rows, *like.shape[1:]))
                    values[register] = whole
                whole[part].copy_(found[register])


def _ranges(rows: int, size: int, graphs: Sequence[Any], run: Run) -> Any:
    """Slices of rows with the graphs of a run in them."""
    number = run.calls[0].graph
    if run.source is None or number is None:
        for start in range(0, rows, size):
            yield slice(start, min(start + size, rows)), ()
        return
    for part, adjacency in graphs[number].row_ranges(size):
        yield part, [adjacency if n == number else None for n in range(len(graphs))]


def shares_memory(out: Tensor, given: Sequence[Tensor]) -> bool:
    """Whether a tensor lies in the memory of others."""
    place = out.untyped_storage().data_ptr()
    return any(place == held.untyped_storage().data_ptr() for held in given)

"""A frozen program cut where rows of all ranks are gathered: stages that run on rows of their own.

Calls before an aggregation treat rows one by one, so that each rank runs them on its own rows; what
an aggregation reads of its neighbours is gathered first. A product of bits whose only reader sums
floats moves behind the exchange: its bits are fewer bytes than its results, and the fused operator
sums exact integers as in one process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from bitgnn.distributed.summed_products import SUMMED_PRODUCT
from bitgnn.inference.program import CALL, Call, Part, Ref
from bitgnn.inference.rewrites import is_linear_pair
from bitgnn.inference.row_ranges import EXACT_ROWS

OF_NEIGHBOURS = {
    **dict.fromkeys(
        (f"bspmm_{letters}" for letters in ("bbb", "bbf", "fbb", "fbf", "tbb", "tbf")), ("x",)
    ),
    "bspmm_slots": ("x",),
    "gat_bits": ("x", "source"),
    "gatv2_bits": ("x", "left"),
    "transformer_bits": ("x", "key"),
}
"""Arguments of aggregations that hold the neighbours' rows."""
OWN_PARTS = ("row_scale", "row_factor")
_ALONG_ROWS = ("log_softmax", "softmax", "argmax", "cat", "slice", "unsqueeze", "mean")
"""Operators whose ``dim`` must not be that of the nodes."""
ROW_WISE = {
    *EXACT_ROWS, *_ALONG_ROWS, "batch_norm", "contiguous", "elu", "gelu", "layer_norm", "linear",
    "normalize", "sigmoid", "silu", "standardize", "tanh",
}  # fmt: skip
"""Operators that treat nodes one by one."""


@dataclass
class Stage:
    """Calls that run between two exchanges, on the rows of a chunk.

    Attributes:
        calls: in their order; registers of gathered rows have the numbers of :func:`gathered`.
        gathers: registers of all ranks' rows that are read.
        reads: registers of the rank's own rows that earlier stages gave.
        sends: registers that later stages read from all ranks.
        keeps: registers that later stages read of the own rows, or the result.
    """

    calls: list[Call] = field(default_factory=list)
    gathers: list[int] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)
    sends: list[int] = field(default_factory=list)
    keeps: list[int] = field(default_factory=list)

    @property
    def gives(self) -> list[int]:
        """All registers that are read later."""
        return sorted({*self.sends, *self.keeps})


def gathered(register: int, size: int) -> int:
    """Number of the register, of ``size``, that holds all ranks' rows of another."""
    return size + register


def stages(
    calls: Sequence[Call],
    inputs: Sequence[int],
    output: int,
    size: int,
    without_columns: Collection[int],
    wide: Collection[str],
) -> list[Stage]:
    """Cut the calls of a program into stages.

    Args:
        calls: behind those that give the inputs.
        inputs: registers that are filled before.
        output: register of the result.
        size: number of registers.
        without_columns: graphs that have no column factors.
        wide: names of weights whose products are too wide to be summed.

    Raises:
        ValueError: a call does not treat nodes one by one, or reads more of the graph than its
            pattern and factors; the message names the layer.
    """
    readers = Counter(register for call in calls for register in call.inputs)
    readers[output] += 1
    writers = {register: call for call in calls for register in call.outputs}
    moved = {
        id(writer): writer
        for call in calls
        if call.kind == "bspmm_fbf" and (writer := writers.get(_x(call))) is not None
        if writer.kind == "bmm_bbf" and readers[_x(call)] == 1
    }
    calls = _in_slots(calls, readers, without_columns)
    level = dict.fromkeys(inputs, 0)
    found: list[Stage] = [Stage(reads=[*inputs])]
    for call in calls:
        _require_own_rows(call)
        if id(call) in moved:
            continue
        needed, placed = _with_neighbours(call, moved, writers, size, without_columns, wide)
        own = [r for one in placed for r in one.inputs if r < size and r in level]
        stage = max([0, *(level[r] for r in own), *(level[r] + 1 for r in needed)])
        found += [Stage() for _ in range(len(found), stage + 1)]
        found[stage].calls += placed
        _note(found, stage, needed, own, level)
        level.update(dict.fromkeys(call.outputs, stage))
    found[level[output]].keeps.append(output)
    return found


def _in_slots(
    calls: Sequence[Call], readers: Counter[int], without_columns: Collection[int]
) -> list[Call]:
    """The calls with sums in slots where one process fuses them with the maps around them."""
    made = list(calls)
    for place in range(len(made) - 2):
        group = made[place : place + 3]
        between = [register for call in group[:2] for register in call.outputs]
        if not is_linear_pair(group) or any(readers[register] > 1 for register in between):
            continue
        sums = group[1]
        if sums.graph in without_columns:
            named = sums.named
            given = [named.get(name) for name in ("x", "rowptr", "indices", "row", "bias")]
            made[place + 1] = replace(sums, operator="bitgnn::bspmm_slots", arguments=tuple(given))
    return made


def _note(
    found: list[Stage],
    stage: int,
    needed: Sequence[int],
    own: Sequence[int],
    level: dict[int, int],
) -> None:
    """Note what a stage reads of others."""
    here = found[stage]
    for register in needed:
        if register not in here.gathers:
            here.gathers.append(register)
        if register not in found[level[register]].sends:
            found[level[register]].sends.append(register)
    for register in own:
        if level[register] < stage and register not in here.reads:
            here.reads.append(register)
            if register not in found[level[register]].keeps:
                found[level[register]].keeps.append(register)


def _x(call: Call) -> int:
    named = call.named.get("x")
    return named.register if isinstance(named, Ref) else -1


def _with_neighbours(
    call: Call,
    moved: dict[int, Call],
    writers: dict[int, Call],
    size: int,
    without_columns: Collection[int],
    wide: Collection[str],
) -> tuple[list[int], list[Call]]:
    """Registers that a call needs of all ranks, and the calls that read these in their place."""
    if call.kind not in OF_NEIGHBOURS:
        return [], [call]
    product = writers.get(_x(call))
    if product is not None and id(product) in moved:
        needed = list(product.inputs)
        placed = _renamed(product, needed, size)
        weight = product.named["w"]
        is_plain = product.named.get("x_scale") is None and product.named.get("bias") is None
        if is_plain and weight.name in wide and call.graph in without_columns:
            return needed, [_summed_product(placed, call)]
        return needed, [placed, call]
    names = OF_NEIGHBOURS[call.kind]
    needed = [call.named[name].register for name in names]
    return needed, [_renamed(call, needed, size, names)]


def _renamed(
    call: Call, needed: Collection[int], size: int, names: Collection[str] | None = None
) -> Call:
    """A call whose arguments of these names are gathered rows."""
    arguments = tuple(
        Ref(gathered(value.register, size))
        if isinstance(value, Ref) and value.register in needed and (names is None or name in names)
        else value
        for name, value in call.named.items()
    )
    return replace(call, arguments=arguments)


def _summed_product(product: Call, sums: Call) -> Call:
    """The product of the summed bits in place of the sum of products."""
    given, named = product.named, sums.named
    whole = Part(named["rowptr"].graph, "whole")
    last = (given["w"], given.get("w_scale"), named.get("bias"))
    arguments = (given["x"], given["size"], whole, *last)
    return Call(SUMMED_PRODUCT, sums.layer, arguments, sums.outputs)


def _require_own_rows(call: Call) -> None:
    """Refuse a call that reads other nodes, but for an aggregation."""
    parts = [a for a in call.arguments if isinstance(a, Part)]
    if call.kind in OF_NEIGHBOURS:
        return
    dim = call.named.get("dim", 1)
    fits = call.operator != CALL and call.kind in ROW_WISE
    fits &= all(part.name in OWN_PARTS for part in parts)
    if call.kind == "batch_norm":
        fits &= not call.named["training"]
    if call.kind in _ALONG_ROWS:
        fits &= all(axis in (1, -1) for axis in (dim if isinstance(dim, list) else [dim]))
    if not fits:
        raise ValueError(
            f"parallelize: every part must treat nodes one by one or sum over the pattern of the "
            f"graph, but {call.layer or 'a part'!r} is {_what(call)}"
        )


def _what(call: Call) -> str:
    if call.operator == CALL:
        return "code of its own, whose rows may depend on other nodes"
    if any(isinstance(a, Part) and a.name == "values" for a in call.arguments):
        return f"{call.operator}, which reads weights of single edges"
    return call.operator

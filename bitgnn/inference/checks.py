"""Checks that a program can run: it is run once on meta tensors, by the operators' own fakes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bitgnn.bits import BitTensor
from bitgnn.bits.int8 import MOST, STEPS, bytes_for
from bitgnn.bits.tensor import words_for
from bitgnn.inference.operators import argument_names, may_be_named, overload
from bitgnn.inference.program import CALL, Buffer, Call, Part, Program, Ref, Register

RESULTS = ("floats", "classes")
"""What a model may hand out."""
ROWS = (5, 11)
"""Numbers of nodes that a program is run on: what belongs to nodes has as many rows with both."""
EDGES = 7
SIDE = 512
"""Height and width of the images that a program is run on."""
GROWTH = 256
"""Pixels by which calls may make these higher or wider."""
LARGEST_SIDE = 1 << 16
"""Largest number among those of windows."""
_PATTERN = ("rowptr", "indices", "row_scale", "col_scale", "row_factor")
_PARTS = {"pattern": _PATTERN, "values": ("rowptr", "indices", "values"), "edges": ("whole",)}
"""Parts of graphs by what these hold."""
_OF_GRAPHS = ("rowptr", "indices", "values", "row", "col")
"""Arguments that kernels trust, since graphs were checked when they were made."""
_DTYPES = {
    "bits": torch.int32, "codes": torch.int8, "scale": torch.float32, "classes": torch.int64,
    "image_bits": torch.int32, "pixels": torch.float32, "planes": torch.int32,
    "counts": torch.int32, "floats": torch.float32, "edges": torch.float32,
}  # fmt: skip
_WIDTHS = {"bits": words_for, "image_bits": words_for, "planes": words_for, "codes": bytes_for}
"""Last sizes of packed forms by their width."""
_IMAGES = 4


class Ends(NamedTuple):
    """Rows and columns of an adjacency: numbers of inputs, and of columns for each source."""

    destinations: int = 0
    sources: int = 0
    relations: int = 1


_OF_DAMAGE = (
    RuntimeError, TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError,
    ZeroDivisionError,
)  # fmt: skip
"""Errors of operators that are given anything."""
_PACKED = ("bits", "image_bits", "codes", "planes")
"""Forms whose last words may hold padding: the width is no property of the tensor."""


def check(
    program: Program,
    tensors: Mapping[str, Tensor],
    graphs: Sequence[str],
    own: int,
    shape: Callable[[int], tuple[int, ...]],
    ends: Sequence[Ends] = (),
) -> None:
    """Check that every call has what it needs, and gives what its registers hold.

    Args:
        program: the program.
        tensors: its buffers.
        graphs: what calls find in each adjacency: ``"pattern"``, ``"values"`` or ``"edges"``.
        own: number of functions of the user's own code.
        shape: that of so many features.
        ends: of each adjacency; all of the same nodes where there are none.

    Raises:
        ValueError: names the call at fault.
    """
    for number, call in enumerate(program.calls):
        if call.operator != CALL and not may_be_named(call.operator):
            raise ValueError(f"call {number}: unknown operator {call.operator!r}")
    used = {name for call in program.calls for name in call.tensors.values()}
    written = set(range(program.inputs))
    for number, call in enumerate(program.calls):
        try:
            _check_call(call, program, written, tensors, graphs, own)
        except _OF_DAMAGE as error:
            raise ValueError(f"call {number} ({call.kind}): {_message(error)}") from error
        written |= set(call.outputs)
    if program.output not in written or program.registers[program.output].form not in RESULTS:
        raise ValueError(f"register {program.output} of the result must hold floats or classes")
    if tensors.keys() - used:
        raise ValueError(f"unexpected tensors {sorted(tensors.keys() - used)}")
    for rows in ROWS if graphs else ROWS[:1]:
        _run(program, tensors, list(ends) or [Ends()] * len(graphs), shape(rows))


def _message(error: Exception) -> str:
    return repr(error) if isinstance(error, KeyError) else str(error)


def _check_call(
    call: Call,
    program: Program,
    written: set[int],
    tensors: Mapping[str, Tensor],
    graphs: Sequence[str],
    own: int,
) -> None:
    if call.operator == CALL:
        number = call.arguments[0] if call.arguments else None
        if type(number) is not int or not 0 <= number < own:
            raise ValueError(f"there is no own code {number}")
    for register in call.inputs:
        if register not in written:
            raise ValueError(f"register {register} is read before it is written")
    missing = sorted(set(call.tensors.values()) - tensors.keys())
    if missing:
        raise ValueError(f"tensors {missing} are missing")
    parts = [a for a in call.arguments if isinstance(a, Part)]
    for part in parts:
        fits = part.graph < len(graphs) and part.name in _PARTS[graphs[part.graph]]
        if not fits or part.graph != parts[0].graph:
            raise ValueError(f"{part} does not fit, graphs are {list(graphs)}")
    for value in call.arguments:
        numbers = value if isinstance(value, list) else []
        if any(isinstance(n, int) and abs(n) > LARGEST_SIDE for n in numbers):
            raise ValueError(f"numbers must be at most {LARGEST_SIDE}, got {value}")
    if call.operator == CALL:
        return
    if call.operator.startswith("bitgnn::"):
        _check_sizes(call, program, tensors)
    names = argument_names(call.operator)
    if len(call.arguments) > len(names) - (names[-1] == "trusted"):
        raise ValueError(f"it takes {names}, got {len(call.arguments)} arguments")
    for name, value in call.named.items():
        trusted = names[-1] == "trusted" and name in _OF_GRAPHS
        if trusted and not _is_of_graph(name, value, program):
            raise ValueError(f"{name} must be that of a graph, got {value}")
        if isinstance(value, Buffer) and (found := _VALUES.get((call.kind, name))):
            found(tensors[value.name], call, program)


def _check_sizes(call: Call, program: Program, tensors: Mapping[str, Tensor]) -> None:
    """Widths of packed operands and results, which words with padding do not tell."""
    named, registers = call.named, program.registers
    read = [registers[register] for register in call.inputs]
    size = named.get("size", named.get("channels"))
    sizes = [size, *[named.get("width", size)] * len(read)]
    for register, wanted in zip(read, sizes, strict=False):
        if register.form in _PACKED and wanted not in (None, register.size) and register.size:
            raise ValueError(f"inputs must have size {wanted}, got {register}")
    weight = named.get("w", named.get("weight"))
    if call.kind == "concat_bbb":
        size = named["a_size"] + named["b_size"]
    elif isinstance(weight, Buffer):
        size = tensors[weight.name].size(0)
    elif size is None and call.kind != "pack_patches" and read:
        size = read[0].size
    written = registers[call.outputs[0]]
    if written.form in _PACKED and None not in (size, written.size) and size != written.size:
        raise ValueError(f"it must write size {size}, got {written}")


def _is_of_graph(name: str, value: Any, program: Program) -> bool:
    if name in ("rowptr", "indices", "values"):
        return isinstance(value, Part) and value.name == name
    return value is None or isinstance(value, Part | Ref)


def _meta(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def _parts(rows: int, columns: int) -> dict[str, Tensor]:
    """Parts of a graph of so many destinations and sources."""
    vectors = {"row_scale": _meta(rows), "row_factor": _meta(rows), "col_scale": _meta(columns)}
    indices = _meta(EDGES, dtype=torch.int32)
    return {
        "rowptr": _meta(rows + 1, dtype=torch.int32), "indices": indices, "values": _meta(EDGES),
        **vectors,
    }  # fmt: skip


def _run(
    program: Program,
    tensors: Mapping[str, Tensor],
    ends: Sequence[Ends],
    shape: tuple[int, ...],
) -> None:
    """Run the program on meta tensors of this shape; 0 in it for a width that nothing tells.

    Each further type of nodes has a number of its own. Results of the user's own code are known by
    what their registers hold, or not at all: what is made of these is not looked at.
    """
    rows = shape[0]
    values: dict[int, Tensor | None] = {0: None if 0 in shape[1:] else _meta(*shape)}
    values |= {n: _rows(program.registers[n], rows + n) for n in range(1, program.inputs)}
    columns = [(rows + end.sources) * end.relations for end in ends]
    parts = [_parts(rows + e.destinations, n) for e, n in zip(ends, columns, strict=True)]
    held = {name: _meta(*t.shape, dtype=t.dtype) for name, t in tensors.items()}

    def value(argument: Any) -> Any:
        if isinstance(argument, list):
            return [value(part) for part in argument]
        if isinstance(argument, Ref):
            return values[argument.register]
        if isinstance(argument, Buffer):
            return held[argument.name]
        return parts[argument.graph][argument.name] if isinstance(argument, Part) else argument

    for number, call in enumerate(program.calls):
        registers = [program.registers[output] for output in call.outputs]
        is_known = all(values[register] is not None for register in call.inputs)
        try:
            if call.operator in ("float::flatten", "float::flatten_bits"):
                found: Sequence[Tensor | None] = [_rows(registers[0], rows)]  # of any image's size
            elif call.operator == CALL or not is_known:
                is_known = len(shape) != _IMAGES and program.inputs == 1
                found = [_rows(r, rows) if is_known else None for r in registers]
            else:
                of_nodes = [r for r in call.inputs if program.registers[r].form != "edges"]
                known = [len(values[r]) for r in of_nodes]  # type: ignore[arg-type]
                if call.graph is not None and not _are_rows_of(call, known, columns, ends, rows):
                    raise ValueError("sums over a graph must be of its nodes' rows")
                result = overload(call.operator)(*map(value, call.arguments))
                found = result if isinstance(result, tuple | list) else [result]
            if len(found) != len(registers):
                raise ValueError(f"registers {list(call.outputs)} cannot be written")
            for register, tensor in zip(registers, found, strict=True):
                if tensor is not None:
                    _check_result(register, tensor)
        except _OF_DAMAGE as error:
            raise ValueError(f"call {number} ({call.kind}): {_message(error)}") from error
        values.update(zip(call.outputs, found, strict=True))


def _are_rows_of(
    call: Call,
    found: Sequence[int],
    columns: Sequence[int],
    ends: Sequence[Ends],
    rows: int,
) -> bool:
    """Whether a call over a graph sums rows of its sources, and reads others of its destinations.

    Operators check the latter, which no index points into, themselves.
    """
    assert call.graph is not None
    known = columns[call.graph], rows + ends[call.graph].destinations
    return list(found[:1]) in ([], [known[0]]) and all(other in known for other in found)


def _rows(register: Register, rows: int) -> Tensor | None:
    """A register of rows without values; None where its width is not known."""
    form, size = register
    if size is None:
        return None
    rows = EDGES if form == "edges" else rows
    return _meta(rows, _WIDTHS.get(form, int)(size), dtype=_DTYPES[form])


def _check_result(register: Register, found: Tensor) -> None:
    """Refuse a result that is not what its register holds."""
    form, size = register
    if form == "unused":
        return
    dtype = found.dtype if form == "sums" else _DTYPES[form]
    fits = form != "sums" or dtype in (torch.int16, torch.int32)
    if form == "floats" and found.dim() == _IMAGES and size is not None:
        fits &= found.size(1) == size
    elif size is not None and form != "classes":
        fits &= size > 0 and found.size(-1) == _WIDTHS.get(form, int)(size)
    # A call may give integers or doubles where the user's own code does.
    if not fits or (found.dtype != dtype and form != "floats"):
        raise ValueError(f"it must write {register}, got {found.dtype} {list(found.shape)}")
    if found.dim() == _IMAGES:
        high, wide = found.shape[2:] if form == "floats" else found.shape[1:3]
        if max(high, wide) > SIDE + GROWTH:
            raise ValueError(f"images become more than {GROWTH} pixels larger")


def _weight(tensor: Tensor, call: Call, program: Program) -> None:
    BitTensor(tensor, call.named["size"]).validate()  # dtype, shape and clear padding


def _mask(tensor: Tensor, call: Call, program: Program) -> None:
    """A row of words whose set bits are channels."""
    size = program.registers[call.outputs[0]].size
    BitTensor(tensor.unsqueeze(0), size or 0).validate()


def _ternary(tensor: Tensor, call: Call, program: Program) -> None:
    if tensor.numel() != 1 or not (bool(tensor > 0) and bool(tensor.isfinite())):
        raise ValueError(f"scale must be positive and finite, got {tensor.tolist()}")


def _codes(tensor: Tensor, call: Call, program: Program) -> None:
    if bool((tensor == -MOST - 1).any()):
        raise ValueError(f"weight must lie in [-{MOST}, {MOST}]")
    if bool(tensor[:, call.named["size"] :].any()):
        raise ValueError("padding of weight must be 0")


def _centre(tensor: Tensor, call: Call, program: Program) -> None:
    if not bool(tensor.isfinite().all()):
        raise ValueError("centre must be finite")


def _inverse_step(tensor: Tensor, call: Call, program: Program) -> None:
    low, high = STEPS
    if not bool((((tensor >= low) & (tensor <= high)) | (tensor == 0)).all()):
        raise ValueError("inverse_step must be 0 or in [2^-126, 2^126]")


_VALUES: Mapping[tuple[str, str], Callable[[Tensor, Call, Program], None]] = {
    **{(f"bmm_{name}", "w"): _weight for name in ("bbb", "bbf", "add", "tbb")},
    ("linear_ternary", "w"): _weight,
    **{(f"bmm_{name}", "weight"): _codes for name in ("iif", "iib", "add_iib")},
    ("pack_int8", "centre"): _centre,
    ("pack_int8", "inverse_step"): _inverse_step,
    ("pack_ternary", "scale"): _ternary,
    ("bitwise_xor", "other"): _mask,
    ("pool_bits", "flip"): _mask,
    ("linear_ternary", "scale"): _ternary,
}
"""What values of buffers must be beyond their types and shapes, by operator and argument."""

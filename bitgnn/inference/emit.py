"""Writes a program call by call: what a network asks for, as calls of operators.

A part of a network is told by a name such as ``"bmm_bbb"``, the registers it reads, attributes and
named tensors. Files of format 4 and before hold these in place of calls, see :func:`of_steps`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace as Wanted
from typing import Any

import torch
from torch import Tensor

from bitgnn.bits.tensor import WORD_BITS, words_for
from bitgnn.inference.program import CALL, PACKING, Buffer, Call, Part, Program, Ref, Register
from bitgnn.inference.steps.floats import FUNCTIONS, OF_IMAGES

Result = Ref | Sequence[Ref]
EMIT: dict[str, Callable[[Emitter, Wanted], Result]] = {}
"""What writes the calls of a part, by its name."""


def emits(
    *names: str,
) -> Callable[[Callable[[Emitter, Wanted], Result]], Callable[[Emitter, Wanted], Result]]:
    """Make a function the one that writes the calls of these parts.

    It is given ``kind``, ``x`` (registers), ``a`` (attributes), ``buffers`` by name, ``t`` (one of
    them, or None), ``part`` (of the adjacency, by name) and ``graph``.
    """

    def enter(function: Any) -> Any:
        EMIT.update(dict.fromkeys(names, function))
        return function

    return enter


BEHIND = -1
"""Number of the graph that the user's own code reads, until that of the graphs is known."""


class Emitter:
    """A program being written: its calls, their registers and the tensors they read.

    Attributes:
        calls: in the order they run.
        registers: what each register holds; register 0 holds the features.
        tensors: buffers by name.
        sizes: widths of what the user's own code gives, by its number.
    """

    def __init__(self, in_channels: int | None, sizes: Sequence[int | None] = ()) -> None:
        self.calls: list[Call] = []
        self.registers = [Register("floats", in_channels or None)]
        self.tensors: dict[str, Tensor] = {}
        self.sizes = list(sizes)
        self._layer = ""

    def write(
        self,
        kind: str,
        layer: str,
        inputs: Sequence[int],
        attributes: Mapping[str, Any],
        tensors: Mapping[str, str],
        graph: int | None = None,
    ) -> tuple[int, ...]:
        """Write the calls of a part; registers of its results."""
        if kind not in EMIT:
            raise ValueError(f"unknown kind {kind!r}, known are {sorted(EMIT)}")
        self._layer = layer

        buffers = {name: Buffer(buffer) for name, buffer in tensors.items()}

        def part(name: str) -> Part:
            if graph is None:
                raise ValueError("adjacency None does not fit")
            return Part(graph, name)

        wanted = Wanted(
            kind=kind, x=[Ref(number) for number in inputs], a=attributes, buffers=buffers,
            t=buffers.get, part=part, graph=graph,
        )  # fmt: skip
        found = EMIT[kind](self, wanted)
        return (found.register,) if isinstance(found, Ref) else tuple(r.register for r in found)

    def op(self, operator: str, *arguments: Any, gives: Any) -> Any:
        """Write a call; the register of its result, or those of several."""
        name = operator if "::" in operator or operator == CALL else f"bitgnn::{operator}"
        several = gives if isinstance(gives, list) else [gives]
        first = len(self.registers)
        self.registers += several
        outputs = tuple(range(first, len(self.registers)))
        given = list(arguments)
        while given and given[-1] is None and name.startswith("bitgnn::"):
            given.pop()
        self.calls.append(Call(name, self._layer, tuple(given), outputs))
        found = [Ref(number) for number in outputs]
        return found if isinstance(gives, list) else found[0]

    def size(self, ref: Ref) -> int | None:
        """Features of what a register holds."""
        return self.registers[ref.register].size

    def reshape(self, buffer: Buffer, *shape: int) -> Buffer:
        """The buffer, in this shape from now on."""
        self.tensors[buffer.name] = self.tensors[buffer.name].view(*shape)
        return buffer

    def entry(self) -> int | None:
        """Length of the packing prefix; see :class:`~bitgnn.inference.program.Program`."""
        for place, call in enumerate(self.calls):
            if call.kind in PACKING:
                hidden = {0, *(r for before in self.calls[:place] for r in before.outputs)}
                behind = {r for after in self.calls[place + 1 :] for r in after.inputs}
                return None if hidden & behind else place + 1
            if call.graph is not None:
                return None
        return None

    def program(self, output: int, graphs: int = 0) -> Program:
        """All calls; those of the user's own code read what stands behind so many graphs."""
        for place, call in enumerate(self.calls):
            if call.graph == BEHIND:
                *given, part = call.arguments
                arguments = (*given, Part(graphs, part.name))
                self.calls[place] = replace(call, arguments=arguments)
        in_channels = self.registers[0].size or 0
        registers = tuple(self.registers)
        return Program(in_channels, tuple(self.calls), registers, output, self.entry())


def _bits(size: int | None) -> Register:
    return Register("bits", size)


def _floats(size: int | None) -> Register:
    return Register("floats", size)


def _form(to_bits: bool, size: int) -> Register:
    return _bits(size) if to_bits else _floats(size)


@emits("pack")
def _pack(e: Emitter, s: Wanted) -> Result:
    return e.op("pack", s.x[0], s.t("threshold"), gives=_bits(s.a["size"]))


@emits("pack_scaled")
def _pack_scaled(e: Emitter, s: Wanted) -> Result:
    given = [_bits(s.a["size"]), Register("scale", None)]
    return e.op("pack_scaled", s.x[0], s.t("threshold"), s.t("gain"), gives=given)


@emits("pack_standardized")
def _pack_standardized(e: Emitter, s: Wanted) -> Result:
    scaled: bool = s.a["scaled"]
    given = [_bits(s.a["size"]), Register("scale" if scaled else "unused", None)]
    found = e.op("pack_standardized", s.x[0], s.a["relu"], scaled, gives=given)
    return found if scaled else found[0]


@emits("unpack")
def _unpack(e: Emitter, s: Wanted) -> Result:
    return e.op("unpack", s.x[0], s.a["size"], gives=_floats(s.a["size"]))


@emits("flip", "flip_images")
def _flip(e: Emitter, s: Wanted) -> Result:
    """``mask`` holds one row of words whose set bits turn features round."""
    given = e.registers[s.x[0].register]
    return e.op("aten::bitwise_xor.Tensor", s.x[0], s.t("mask"), gives=given)


@emits("concat")
def _concat(e: Emitter, s: Wanted) -> Result:
    (found, *others), (size, *sizes) = s.x, s.a["sizes"]
    for other, more in zip(others, sizes, strict=True):
        found = e.op("concat_bbb", found, other, size, more, gives=_bits(size + more))
        size += more
    return found


@emits("add_bbb", "add_bbf", "add_ffb")
def _add(e: Emitter, s: Wanted) -> Result:
    size = s.a["size"]
    if s.kind == "add_bbf":
        return e.op("add_bbf", *s.x, size, gives=_floats(size))
    middle = [size, None, None] if s.kind == "add_bbb" else []
    return e.op(s.kind, *s.x, *middle, s.t("threshold"), gives=_bits(size))


@emits("add_fbb")
def _add_signs(e: Emitter, s: Wanted) -> Result:
    """Bits of floats plus a multiple of signs: the signs choose one of two thresholds."""
    (x, signs), bits = s.x, _bits(s.a["size"])
    above = e.op("pack", x, s.t("threshold"), gives=bits)
    below = e.op("pack", x, s.t("threshold_below"), gives=bits)
    either = e.op("aten::bitwise_xor.Tensor", below, above, gives=bits)
    chosen = e.op("aten::bitwise_and.Tensor", either, signs, gives=bits)
    return e.op("aten::bitwise_xor.Tensor", below, chosen, gives=bits)


@emits("bmm_bbb", "bmm_bbf")
def _product(e: Emitter, s: Wanted) -> Result:
    """Inputs: words, and their row scale if ``scaled``."""
    x, *scale = s.x
    given = [x, s.t("weight"), s.a["size"], *(scale or [None]), s.t("weight_scale")]
    if s.kind == "bmm_bbb":
        last = [None, s.t("threshold"), s.t("flip")]
        return e.op("bmm_bbb", *given, *last, gives=_bits(s.a["out"]))
    return e.op("bmm_bbf", *given, s.t("bias"), gives=_floats(s.a["out"]))


@emits("bmm_add", "bmm_add_bits")
def _product_and_sum(e: Emitter, s: Wanted) -> Result:
    """Inputs: words, their row scale if ``scaled``, and the addend."""
    x, *scale, addend = s.x
    to_bits = s.kind == "bmm_add_bits"
    return e.op(
        "bmm_add", x, s.t("weight"), addend, s.a["size"], *(scale or [None]), s.t("weight_scale"),
        s.t("bias"), s.t("threshold"), s.t("flip"), None, None, False, to_bits,
        gives=_form(to_bits, s.a["out"]),
    )  # fmt: skip


@emits("bits_linear")
def _bits_linear(e: Emitter, s: Wanted) -> Result:
    """Inputs: words, their row scale if ``scaled``, and the addend if ``adds``."""
    scale = s.x[1] if s.a["scaled"] else None
    addend = s.x[-1] if s.a["adds"] else None
    given = [s.x[0], s.t("digits"), s.t("step"), s.a["size"], scale, s.t("bias"), addend]
    return e.op("bits_linear", *given, gives=_floats(s.a["out"]))


@emits("pack_int8")
def _pack_int8(e: Emitter, s: Wanted) -> Result:
    """Codes of floats: ``clamp(rint((x - centre) * inverse_step), -127, 127)``."""
    given = [s.x[0], s.t("centre"), s.t("inverse_step")]
    return e.op("pack_int8", *given, gives=Register("codes", s.a["size"]))


@emits("bmm_iif", "bmm_iib", "bmm_add_iib")
def _int8_product(e: Emitter, s: Wanted) -> Result:
    """Inputs: codes, and an addend of a ``bmm_add_iib`` and perhaps of a ``bmm_iif``."""
    (codes, *addend), weight, size, out = s.x, s.t("weight"), s.a["size"], s.a["out"]
    if s.kind == "bmm_iib":
        last = [s.t("threshold"), s.t("flip")]
        return e.op("bmm_iib", codes, weight, size, *last, gives=_bits(out))
    scaled = [s.t("scale"), s.t("shift")]
    if s.kind == "bmm_iif":
        last = [*scaled, *addend]
        return e.op("bmm_iif", codes, weight, size, *last, gives=_floats(out))
    last = [*addend, size, *scaled, s.t("threshold")]
    return e.op("bmm_add_iib", codes, weight, *last, gives=_bits(out))


@emits(*(f"bspmm_{x}{y}{z}" for x in "bf" for y in "bf" for z in "bf"))
def _rows(e: Emitter, s: Wanted) -> Result:
    """One input; ``threshold`` where the output letter is B, else ``bias``."""
    size, (x, y, z) = s.a["size"], s.kind.removeprefix("bspmm_")
    pattern = [*[size] * (x == "b"), s.part("rowptr"), s.part("indices")]
    factors = [s.part("row_scale"), *[s.part("col_scale")] * (x == "f")]
    if y == "f":
        factors = [s.part("values"), *[None] * (x == "b")]
    last = s.t("threshold" if z == "b" else "bias")
    return e.op(s.kind, s.x[0], *pattern, *factors, last, gives=_form(z == "b", size))


@emits("bmm_tbf", "bmm_tbb")
def _ternary_product(e: Emitter, s: Wanted) -> Result:
    """Floats that are made ternary on the way in; weights packed."""
    size, out, scale = s.a["size"], s.a["out"], e.reshape(s.t("scale"), ())
    weight, w_scale = s.t("weight"), s.t("weight_scale")
    if s.kind == "bmm_tbf":
        given = [s.x[0], weight, size, scale, w_scale, s.t("bias")]
        return e.op("linear_ternary", *given, gives=_floats(out))
    planes = e.op("pack_ternary", s.x[0], scale, gives=_planes(size))
    last = [scale, w_scale, None, s.t("threshold"), s.t("flip")]
    return e.op("bmm_tbb", *planes, weight, size, *last, gives=_bits(out))


def _planes(size: int) -> list[Register]:
    """Both planes of ternary rows, and how many entries of each row are not 0."""
    return [Register("planes", size), Register("counts", None)]


@emits("pack_ternary")
def _pack_ternary(e: Emitter, s: Wanted) -> Result:
    scale = e.reshape(s.t("scale"), ())
    return e.op("pack_ternary", s.x[0], scale, gives=_planes(s.a["size"]))[0]


@emits("bspmm_tbf", "bspmm_tbb")
def _ternary_rows(e: Emitter, s: Wanted) -> Result:
    r"""``((row * scale) * t) + bias`` with the integers t = #{+1} - #{-1} of the neighbours."""
    size, to_bits = s.a["size"], s.kind == "bspmm_tbb"
    scale = e.reshape(s.t("scale"), ())
    row = e.op("aten::mul.Tensor", s.part("row_factor"), scale, gives=Register("scale", None))
    last = s.t("threshold" if to_bits else "bias")
    given = [s.x[0], size, s.part("rowptr"), s.part("indices"), row, last]
    return e.op(s.kind, *given, gives=_form(to_bits, size))


@emits(*FUNCTIONS, *OF_IMAGES)
def _function(e: Emitter, s: Wanted) -> Result:
    function = FUNCTIONS.get(s.kind) or OF_IMAGES[s.kind]
    arguments = function.arguments(s.buffers, s.a)
    return e.op(function.operator, s.x[0], *arguments, gives=e.registers[s.x[0].register])


@emits("linear")
def _linear(e: Emitter, s: Wanted) -> Result:
    last = [bias] if (bias := s.t("bias")) else []
    return e.op("aten::linear", s.x[0], s.t("weight"), *last, gives=_floats(s.a["out"]))


@emits("cat", "cat_channels")
def _cat(e: Emitter, s: Wanted) -> Result:
    sizes = [e.size(part) for part in s.x]
    size = None if None in sizes else sum(size or 0 for size in sizes)
    axis = -1 if s.kind == "cat" else 1
    return e.op("aten::cat", list(s.x), axis, gives=_floats(size))


@emits("add", "mul", "maximum")
def _joined(e: Emitter, s: Wanted) -> Result:
    name = s.kind if s.kind == "maximum" else f"{s.kind}.Tensor"
    first, second = s.x
    size = e.size(second) if e.size(first) is None else e.size(first)
    return e.op(f"aten::{name}", first, second, gives=_floats(size))


@emits("scale_rows")
def _scale_rows(e: Emitter, s: Wanted) -> Result:
    x, scale = s.x
    column = e.op("aten::unsqueeze", scale, 1, gives=_floats(1))
    return e.op("aten::mul.Tensor", column, x, gives=e.registers[x.register])


@emits("classes")
def _classes(e: Emitter, s: Wanted) -> Result:
    """int64 ``[N]``: the first of the largest scores of each node, or its first NaN."""
    return e.op("aten::argmax", s.x[0], -1, gives=Register("classes", e.size(s.x[0])))


@emits("call")
def _call(e: Emitter, s: Wanted) -> Result:
    """The user's own code, by its number; it may read everything that stands beside the graph."""
    graph = [] if s.graph is None else [s.part("whole")]
    given = [s.a["call"], *s.x, *graph]
    return e.op(CALL, *given, gives=_floats(e.sizes[s.a["call"]]))


def of_steps(
    description: Any, tensors: Mapping[str, Tensor], sizes: Sequence[int | None]
) -> tuple[Program, dict[str, Tensor]]:
    """The program of a description of format 4, and its tensors; ValueError if it is none.

    Each of its steps is a part under the names of :data:`EMIT`.
    """
    emitter = Emitter(description["in_channels"], sizes)
    emitter.tensors = dict(tensors)
    registers = {0: 0}
    names = ("inputs", "attributes", "tensors", "graph")
    for number, step in enumerate(description["steps"]):
        try:
            read, *rest = (step[name] for name in names)
            given = [registers[register] for register in read]
            found = emitter.write(step["kind"], step["layer"], given, *rest)
            registers.update(zip(step["outputs"], found, strict=True))
        except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
            raise ValueError(f"step {number} cannot be read: {error!r}") from error
    program = emitter.program(registers[description["output"]])
    if (program.entry is None) != (description["entry"] is None):
        raise ValueError("entry must be that of the packing step")
    return program, emitter.tensors

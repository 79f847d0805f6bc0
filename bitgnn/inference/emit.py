"""Writes a program call by call: parts of a network, by name, as calls of operators.

Files of format 4 and before hold parts in place of calls, see :func:`of_steps`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from torch import Tensor

from bitgnn.inference.functions import FUNCTIONS, OF_IMAGES
from bitgnn.inference.program import CALL, Buffer, Call, Part, Program, Ref, Register

_FIXED = "float::readable x input_step -> ="
_WINDOW = "stride padding dilation"
_TO_IMAGES = "aten::permute x [0,3,1,2] -> floats:out"
_BITS = "none none .threshold .flip .prepared"
_CONV = f"x .weight size {_WINDOW} groups"
PARTS: dict[str, str] = {
    "pack": "x .threshold -> bits:size",
    "pack_images": "x .threshold -> image_bits:size",
    "pack_scaled": "x .threshold .gain -> bits:size scale",
    "pack_int8": "x .centre .inverse_step -> codes:size",
    "pack_ternary": "x .scale -> planes:size _counts",
    "pack_patches": "aten::contiguous x -> =; "
    f"bitgnn::pack_patches x kernel {_WINDOW} .threshold -> image_bits:size",
    "unpack": "x size -> floats:size",
    "unpack_images": "float::unpack_images x size -> floats:size",
    "flip": "aten::bitwise_xor.Tensor x .mask -> =",
    "flip_images": "aten::bitwise_xor.Tensor x .mask -> =",
    "add_bbb": "x addend size none none .threshold -> bits:size",
    "add_bbf": "x addend size -> floats:size",
    "add_ffb": "x addend .threshold -> bits:size",
    "bmm_bbb": "x .weight size scale .weight_scale none .threshold .flip -> bits:out",
    "bmm_bbf": "x .weight size scale .weight_scale .bias -> floats:out",
    "bmm_add": "x .weight addend size scale .weight_scale .bias -> floats:out",
    "bmm_add_bits": "bitgnn::bmm_add x .weight addend size scale .weight_scale .bias .threshold "
    ".flip none none false true -> bits:out",
    "bits_linear": "x .digits .step size scale .bias addend -> floats:out",
    "bmm_iib": "x .weight size .threshold .flip -> bits:out",
    "bmm_iif": "x .weight size .scale .shift addend -> floats:out",
    "bmm_add_iib": "x .weight addend size .scale .shift .threshold -> bits:out",
    "bmm_tbf": "bitgnn::linear_ternary x .weight size .scale .weight_scale .bias -> floats:out",
    "bmm_tbb": "bitgnn::pack_ternary x .scale -> planes:size counts; "
    "bitgnn::bmm_tbb x x1 .weight size .scale .weight_scale none .threshold .flip -> bits:out",
    "bspmm_bbb": "x size @rowptr @indices @row_scale .threshold -> bits:size",
    "bspmm_bbf": "x size @rowptr @indices @row_scale .bias -> floats:size",
    "bspmm_fbb": "x @rowptr @indices @row_scale @col_scale .threshold -> bits:size",
    "bspmm_fbf": "x @rowptr @indices @row_scale @col_scale .bias -> floats:size",
    "bspmm_bfb": "x size @rowptr @indices @values none .threshold -> bits:size",
    "bspmm_bff": "x size @rowptr @indices @values none .bias -> floats:size",
    "bspmm_ffb": "x @rowptr @indices @values .threshold -> bits:size",
    "bspmm_fff": "x @rowptr @indices @values .bias -> floats:size",
    "bspmm_tbb": "aten::mul.Tensor @row_factor .scale -> scale; "
    "bitgnn::bspmm_tbb first size @rowptr @indices x .threshold -> bits:size",
    "bspmm_tbf": "aten::mul.Tensor @row_factor .scale -> scale; "
    "bitgnn::bspmm_tbf first size @rowptr @indices x .bias -> floats:size",
    "linear": "aten::linear x .weight .bias -> floats:out",
    "edge_scores": "aten::linear x .weight -> edges:out",
    "add": "aten::add.Tensor x addend -> =",
    "mul": "aten::mul.Tensor x addend -> =",
    "maximum": "aten::maximum x addend -> =",
    "relations": "aten::view x rows -> floats:out",
    "scale_rows": "aten::unsqueeze addend 1 -> floats:1; aten::mul.Tensor x first -> =",
    "classes": "aten::argmax x -1 -> classes=",
    "grey": "float::grey x -> floats:1",
    "local_binary_patterns": "float::local_binary_patterns x -> floats:3",
    "flatten": "float::flatten x size -> floats:size",
    "flatten_bits": "float::flatten_bits x channels pixels -> bits:size",
    "shortcut": "float::shortcut x stride out -> floats:out",
    "pad_images": "aten::constant_pad_nd x frame 0 -> image_bits:size",
    "pool_bits": "x kernel stride padding .flip -> image_bits:size",
    "sums_to_floats": "float::channels_first x -> floats=",
    "conv_bbb": f"{_CONV} {_BITS} -> image_bits:out",
    "conv_bbf": f"bitgnn::conv_bbf {_CONV} .weight_scale .bias false .prepared -> pixels:out; "
    f"{_TO_IMAGES}",
    "conv_fbb": f"{_FIXED}; bitgnn::conv_fbb x .weight input_step {_WINDOW} {_BITS} "
    "-> image_bits:out",
    "conv_fbf": f"{_FIXED}; bitgnn::conv_fbf x .weight input_step {_WINDOW} .weight_scale .bias "
    f"-> pixels:out; {_TO_IMAGES}",
    "linear_fbb": f"{_FIXED}; bitgnn::conv_fbb x .weight input_step {_WINDOW} {_BITS} "
    "-> image_bits:out; float::flatten_bits x out 1 -> bits:out",
    "linear_fbf": f"{_FIXED}; bitgnn::conv_fbf x .weight input_step {_WINDOW} .weight_scale .bias "
    "-> pixels:out; float::flatten x out -> floats:out",
    "patches_bbb": "bitgnn::conv_bbb x .weight size [1,1] [0,0,0,0] [1,1] 1 "
    f"{_BITS} -> image_bits:out",
}
"""The calls of each part, separated by semicolons: operator (else that of the part's name),
arguments and, behind an arrow, results.

``x`` is the first register that is read, or the result of the call before (``x1`` its second one),
``first`` always the former; ``scale`` and ``addend`` are registers behind it, where they are given;
``.name`` is a buffer, ``@name`` a part of the graph, anything else a constant or an attribute. A
result is a form with its size: an attribute, a number, or that of ``first`` behind ``=``. One that
begins with an underscore is not handed on.
"""
_CONSTANTS = {"none": None, "true": True, "false": False}


class Asked(NamedTuple):
    """A part of a network: name, registers, attributes, buffers, and the number of its graph."""

    kind: str
    x: list[Ref]
    a: Mapping[str, Any]
    buffers: Mapping[str, Buffer]
    graph: int | None


BEHIND = -1
"""Number of the graph that the user's own code reads, until that of the graphs is known."""
_OF_TERNARY = ("bmm_tbf", "bmm_tbb", "pack_ternary", "bspmm_tbf", "bspmm_tbb")


class Emitter:
    """A program being written: its calls, their registers and the tensors they read.

    Attributes:
        calls: in the order they run.
        inputs: number of registers that hold features, the first ones.
        registers: what each register holds.
        tensors: buffers by name.
        sizes: widths of what the user's own code gives, by its number.
    """

    def __init__(self, in_channels: Sequence[int | None], sizes: Sequence[int | None] = ()) -> None:
        self.calls: list[Call] = []
        self.inputs = len(in_channels)
        self.registers = [Register("floats", size or None) for size in in_channels]
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
        self._layer = " ".join(layer.split())  # on one line, as a program is written
        if kind in _OF_TERNARY:  # whose scale is one number
            self.tensors[tensors["scale"]] = self.tensors[tensors["scale"]].view(())
        buffers = {name: Buffer(buffer) for name, buffer in tensors.items()}
        asked = Asked(kind, [Ref(n) for n in inputs], attributes, buffers, graph)
        if kind not in PARTS and kind not in _OTHERS:
            raise ValueError(f"unknown kind {kind!r}, known are {sorted({*PARTS, *_OTHERS})}")
        found = self._calls_of(asked) if kind in PARTS else _OTHERS[kind](self, asked)
        return tuple(ref.register for ref in found)

    def op(self, operator: str, *arguments: Any, gives: Sequence[Register]) -> list[Ref]:
        """Write a call; the registers of its results."""
        first, given = len(self.registers), list(arguments)
        self.registers += gives
        outputs = tuple(range(first, len(self.registers)))
        while given and given[-1] is None and operator.startswith(("bitgnn::", "aten::linear")):
            given.pop()
        self.calls.append(Call(operator, self._layer, tuple(given), outputs))
        return [Ref(number) for number in outputs]

    def _calls_of(self, s: Asked) -> list[Ref]:
        """Write the calls of a row of :data:`PARTS`."""
        held = list(s.x[:1])
        for row in PARTS[s.kind].split(";"):
            left, _, right = row.partition(" -> ")
            words, results = left.split(), right.split()
            operator = words.pop(0) if "::" in words[0] else f"bitgnn::{s.kind}"
            given = [self._argument(word, s, held) for word in words]
            gives = [self._result(word.lstrip("_"), s) for word in results]
            held = self.op(operator, *given, gives=gives)
        return [ref for ref, word in zip(held, results, strict=True) if word[0] != "_"]

    def _argument(self, word: str, s: Asked, held: Sequence[Ref]) -> Any:
        is_scaled = bool(s.a.get("scaled"))
        match word:
            case "x" | "x1":
                return held[len(word) - 1]
            case "first":
                return s.x[0]
            case "scale":
                return s.x[1] if is_scaled else None
            case "addend":
                return s.x[-1] if len(s.x) > 1 + is_scaled else None
        if word in _CONSTANTS:
            return _CONSTANTS[word]
        if word[0] == ".":
            return s.buffers.get(word[1:])
        if word[0] == "@":
            if s.graph is None:
                raise ValueError("graph None does not fit")
            return Part(s.graph, word[1:])
        return ast.literal_eval(word) if word[0] in "[-0123456789" else s.a[word]

    def _result(self, word: str, s: Asked) -> Register:
        known = (self.registers[ref.register] for ref in s.x)
        form, _, size = word.partition(":")
        if word[-1] == "=":
            found = next((r for r in known if r.size is not None), Register("floats", None))
            return found._replace(form=word[:-1]) if word[:-1] else found  # type: ignore[arg-type]
        if size.isdigit():
            return Register(form, int(size))  # type: ignore[arg-type]
        return Register(form, s.a[size] if size else None)  # type: ignore[arg-type]

    def program(self, output: int, graphs: int = 0) -> Program:
        """All calls; those of the user's own code read what stands behind so many graphs."""
        for place, call in enumerate(self.calls):
            if call.graph == BEHIND:
                *given, part = call.arguments
                arguments = (*given, Part(graphs, part.name))
                self.calls[place] = replace(call, arguments=arguments)
        return Program(tuple(self.calls), tuple(self.registers), output, self.inputs)


def _standardized(e: Emitter, s: Asked) -> list[Ref]:
    scaled: bool = s.a["scaled"]
    gives = [Register("bits", s.a["size"]), Register("scale" if scaled else "unused", None)]
    found = e.op("bitgnn::pack_standardized", s.x[0], s.a["relu"], scaled, gives=gives)
    return found if scaled else found[:1]


def _concat(e: Emitter, s: Asked) -> list[Ref]:
    (found, *others), (size, *sizes) = s.x, s.a["sizes"]
    for other, more in zip(others, sizes, strict=True):
        gives = [Register("bits", size + more)]
        (found,) = e.op("bitgnn::concat_bbb", found, other, size, more, gives=gives)
        size += more
    return [found]


def _add_signs(e: Emitter, s: Asked) -> list[Ref]:
    """Bits of floats plus a multiple of signs: the signs choose one of two thresholds."""
    (x, signs), gives = s.x, [Register("bits", s.a["size"])]
    names = ("threshold", "threshold_below")
    above, below = (e.op("bitgnn::pack", x, s.buffers[n], gives=gives)[0] for n in names)
    (either,) = e.op("aten::bitwise_xor.Tensor", below, above, gives=gives)
    (chosen,) = e.op("aten::bitwise_and.Tensor", either, signs, gives=gives)
    return e.op("aten::bitwise_xor.Tensor", below, chosen, gives=gives)


def _function(e: Emitter, s: Asked) -> list[Ref]:
    function = FUNCTIONS.get(s.kind) or OF_IMAGES[s.kind]
    arguments = function.arguments(s.buffers, s.a)
    return e.op(function.operator, s.x[0], *arguments, gives=[e.registers[s.x[0].register]])


def _cat(e: Emitter, s: Asked) -> list[Ref]:
    sizes = [e.registers[part.register].size for part in s.x]
    size = None if None in sizes else sum(size or 0 for size in sizes)
    axis = -1 if s.kind == "cat" else 1
    return e.op("aten::cat", list(s.x), axis, gives=[Register("floats", size)])


def _float_conv(e: Emitter, s: Asked) -> list[Ref]:
    name = "conv2d.padding" if isinstance(s.a["padding"], str) else "conv2d"
    numbers = [s.a[name] for name in ("stride", "padding", "dilation", "groups")]
    given = [s.x[0], s.buffers.get("weight"), s.buffers.get("bias"), *numbers]
    return e.op(f"aten::{name}", *given, gives=[Register("floats", s.a["out"])])


def _conv_add(e: Emitter, s: Asked) -> list[Ref]:
    """Inputs: words and perhaps the sums that are added; writes the sums, their bits, or both."""
    kept = [s.a["sums"], s.a["bits"]]
    forms: Any = [
        name if k else "unused" for name, k in zip(("sums", "image_bits"), kept, strict=True)
    ]
    last = "addend addend_stride .threshold .flip wide sums bits .prepared"
    given = [e._argument(word, s, s.x) for word in f"{_CONV} {last}".split()]
    gives = [Register(form, s.a["out"]) for form in forms]
    found = e.op("bitgnn::conv_add", *given, gives=gives)
    return [ref for ref, k in zip(found, kept, strict=True) if k]


def _gat(e: Emitter, s: Asked) -> list[Ref]:
    """Inputs: bits of messages, which are those of the scores as well; terms of edges, perhaps."""
    heads, read = s.a["heads"], s.buffers.get
    given = [s.x[0], read("digits"), read("step"), s.a["size"], None, read("score_bias")]
    gives = [Register("floats", 2 * heads)]
    (scores,) = e.op("bitgnn::bits_linear", *given, gives=gives)
    gives = [Register("floats", heads)]
    cuts = ((0, heads), (heads, 2 * heads))
    ends = [e.op("aten::slice.Tensor", scores, 1, *cut, gives=gives)[0] for cut in cuts]
    edge = s.x[1] if len(s.x) > 1 else None
    return _attended(e, s, "gat_bits", *ends, s.a["negative_slope"], edge)


def _gat_of_edges(e: Emitter, s: Asked) -> list[Ref]:
    """Inputs: bits of messages, scores of edges."""
    return _attended(e, s, "gat_bits", None, None, 1.0, s.x[1])


def _gatv2(e: Emitter, s: Asked) -> list[Ref]:
    """Inputs: bits of messages, of projections of sources, and of those of destinations."""
    last = [s.buffers[name] for name in ("alone", "both", "step")]
    return _attended(e, s, "gatv2_bits", *s.x[1:], s.a["width"], *last)


def _transformer(e: Emitter, s: Asked) -> list[Ref]:
    """Inputs: bits of messages, floats of queries and of keys."""
    return _attended(e, s, "transformer_bits", *s.x[1:], s.a["width"], None)


def _attended(e: Emitter, s: Asked, operator: str, *middle: Any) -> list[Ref]:
    first = [e._argument(word, s, s.x) for word in ["x", "size", "heads", "@rowptr", "@indices"]]
    last = [s.buffers.get("bias"), s.buffers.get("threshold"), s.a["shared"], s.a["to_bits"]]
    columns = s.a["heads"] * s.a["size"] if s.a["shared"] else s.a["size"]
    gives = [Register("bits" if s.a["to_bits"] else "floats", columns)]
    return e.op(f"bitgnn::{operator}", *first, *middle, *last, gives=gives)


def _call(e: Emitter, s: Asked) -> list[Ref]:
    """The user's own code, by its number; it may read everything that stands beside the graph."""
    graph = [] if s.graph is None else [Part(s.graph, "whole")]
    gives = [Register(s.a.get("form", "floats"), e.sizes[s.a["call"]])]
    return e.op(CALL, s.a["call"], *s.x, *graph, gives=gives)


_OTHERS: Mapping[str, Callable[[Emitter, Asked], list[Ref]]] = {
    "pack_standardized": _standardized, "concat": _concat, "add_fbb": _add_signs, "cat": _cat,
    "cat_channels": _cat, "float_conv": _float_conv, "conv_add": _conv_add, "call": _call,
    "gat": _gat, "gat_of_edges": _gat_of_edges, "gatv2": _gatv2, "transformer": _transformer,
    **dict.fromkeys((*FUNCTIONS, *OF_IMAGES), _function),
}  # fmt: skip
"""Parts whose calls depend on more than a row can say."""


def of_steps(
    description: Any, tensors: Mapping[str, Tensor], sizes: Sequence[int | None]
) -> tuple[Program, dict[str, Tensor]]:
    """The program of a description of format 4, and its tensors; ValueError if it is none."""
    emitter = Emitter([description["in_channels"]], sizes)
    emitter.tensors = dict(tensors)
    registers, names = {0: 0}, ("attributes", "tensors", "graph")
    for number, step in enumerate(description["steps"]):
        try:
            given = [registers[register] for register in step["inputs"]]
            rest = [step[name] for name in names]
            found = emitter.write(step["kind"], step["layer"], given, *rest)
            registers.update(zip(step["outputs"], found, strict=True))
        except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
            raise ValueError(f"step {number} cannot be read: {error!r}") from error
    return emitter.program(registers[description["output"]]), emitter.tensors

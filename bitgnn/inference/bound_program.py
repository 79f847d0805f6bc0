"""A program with its buffers, bound to calls that follow the buffers from device to device."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from bitgnn._memory import memory_error
from bitgnn.bits import BitAdjacency, BitImages, BitTensor, Int8Tensor
from bitgnn.bits.int8 import bytes_for
from bitgnn.bits.int8 import inverse_step as inverse_of
from bitgnn.bits.tensor_version import Watch, counted
from bitgnn.inference.checks import Ends, check
from bitgnn.inference.executable import Compiled, Executable
from bitgnn.inference.frozen import Frozen, float_bytes_of
from bitgnn.inference.own_code.calls import FloatCall
from bitgnn.inference.program import CALL, Buffer, Call, Part, Program, Register
from bitgnn.inference.recording import CALLS_TO_RECORD, Recording, Recordings
from bitgnn.inference.row_ranges import RangedProgram, least_rows, runs_of, shares_memory
from bitgnn.inference.sparse_features import (
    FirstBits,
    PatternProduct,
    is_sparse,
    multiplied_entries,
    packed_entries,
    require_dense,
)

Packed = BitTensor | BitAdjacency | Int8Tensor
"""Packed node features: bits, the pattern of those that are set, or 8-bit rows."""

Features = Tensor | Packed
"""Node features: floats or packed ones."""

Inputs = Features | BitImages
"""What some frozen model takes: features, float images or packed ones."""

FeatureForm = Literal["floats", "packed"]
"""What a model takes: floats and their packed forms, or packed forms alone."""

LESS_MEMORY = (
    "give packed features, freeze(output='classes') or out= on the CPU for scores, "
    "prepare_graph(layout='csr'), or shard the graph (bitgnn.distributed)"
)
BOUND = (
    "_sources", "_from_floats", "_from_bits", "_from_pattern", "_from_product", "_pattern_product",
    "_pattern_source", "_recordings", "_own_rows", "_ranged",
)  # fmt: skip
"""What belongs to one object's own buffers: a copy makes its own."""


class BoundProgram(Frozen):
    """Base of :class:`~bitgnn.inference.FrozenModel`: checks a program and runs it.

    ``holds`` says what calls find in each graph: ``"pattern"``, ``"values"`` or ``"edges"``, and
    ``ends`` whose nodes are its rows and columns.
    """

    _pattern_source: Watch
    _pattern_product: PatternProduct

    times_bound = 0
    """How often calls were bound to buffers: another number means buffers in other places."""

    def __init__(
        self,
        program: Program,
        tensors: Mapping[str, Tensor],
        holds: Sequence[str],
        calls: Sequence[FloatCall],
        features: FeatureForm = "floats",
        ends: Sequence[Ends] = (),
    ) -> None:
        super().__init__()
        self.program = program
        for name, tensor in tensors.items():
            self.register_buffer(name, counted(tensor))
        self.calls: nn.ModuleList | None = nn.ModuleList(calls) if calls else None
        check(program, tensors, holds, len(calls), self._example_shape(), ends)
        self.registers: Sequence[Register] = program.registers
        self.in_channels = program.in_channels
        # Packed behind a float map, features have as many bits as that has outputs.
        self.packed_channels: int = program.in_channels
        if program.entry is not None:
            self.packed_channels = self._packed_size
        self.out_channels = self.registers[program.output].size
        self.set_features(features)
        self._bind()
        self.register_load_state_dict_post_hook(_bind_again)
        self.eval()

    def _example_shape(self) -> Callable[[int], tuple[int, ...]]:
        """Shape of so many features, on which the program is checked."""
        return lambda rows: (rows, self.program.in_channels)

    def set_features(self, features: FeatureForm) -> None:
        """Choose what the model takes: ``"packed"`` makes it refuse floats, if it can."""
        if features not in get_args(FeatureForm):
            raise ValueError(
                f"FrozenModel: features must be one of {list(get_args(FeatureForm))}, "
                f"got {features!r}"
            )
        if features == "packed" and self.program.entry is None:
            raise ValueError(
                f"FrozenModel: features must be 'floats', got 'packed', {self._why_floats()}"
            )
        self.features: FeatureForm = features

    def _compiled(
        self,
        calls: Sequence[Call],
        inputs: Sequence[int],
        output: int,
        fuses: bool = True,
        kept: Sequence[int] = (),
    ) -> Compiled:
        own: Any = () if self.calls is None else list(self.calls)
        size = len(self.registers)
        return Compiled(calls, inputs, output, size, self._tensors(), own, fuses, kept)

    def _bind(self) -> None:
        """Look everything up that the calls need; again whenever the buffers change place."""
        self.times_bound += 1
        calls, output, entry = self.program.calls, self.program.output, self.program.entry
        self._from_floats = self._compiled(calls, range(self.program.inputs), output)
        # Its own buffers first: one without any is where the code that it calls is.
        held = itertools.chain(self.buffers(False), self.parameters(), self.buffers())
        self._device = next((t.device for t in held), torch.device("cpu"))
        self._from_bits: Compiled | None = None
        self._from_pattern: Compiled | None = None
        self._from_product: Compiled | None = None
        sources = self._from_floats.sources
        self._own_rows: Int8Tensor | None = None
        if entry is not None:
            last = self._entry_call
            packed = [n for n in last.outputs if self.registers[n].form != "unused"]
            self._from_bits = self._compiled(calls[entry:], packed, output)
            sources += self._from_bits.sources
            if last.kind == "pack_int8":
                centre, inverse_step = self._read_by(last).values()
                self._own_rows = _no_rows(centre, inverse_step)
                sources += (centre, inverse_step)
        self._sources = Watch(sources, reads_bytes=True) if sources else None
        self._recordings = Recordings()
        self._ranged: dict[int, RangedProgram] = {}
        runs = runs_of(calls, self.registers, output)
        self._least_ranged = least_rows(runs, self.registers, output)

    @property
    def copies(self) -> list[Any]:
        """Copies of buffers: they tell of writes to these, or go along with packed features."""
        return [self._sources, self._own_rows, getattr(self, "_pattern_source", None)]

    def _watches(self, x: Inputs) -> list[Watch]:
        """Watches of the tensors that calls on features in the form of ``x`` were derived from."""
        pattern = [self._pattern_source] if isinstance(x, BitAdjacency) else []
        return pattern if self._sources is None else [self._sources, *pattern]

    def _run_recorded(self, x: Inputs, graph: Any, forward: Callable[..., Any]) -> Any:
        """``forward(x, graph)``, as one call once such inputs have come before."""
        if torch.compiler.is_compiling():
            return forward(x, graph)
        try:
            # What is no matrix is refused where it is read.
            rows = (getattr(x, "shape", None) or (0,))[0]
            if self.calls is not None or self._is_large(rows):
                return forward(x, graph)
            return self._recordings.run(x, graph, forward, self._watches)
        except (RuntimeError, MemoryError) as error:
            lack = memory_error("FrozenModel", error, LESS_MEMORY)
            if lack is None:
                raise
        raise lack

    def _is_large(self, rows: int) -> bool:
        """True if features have so many rows that ranges of them may be run."""
        least = self._least_ranged
        return least is not None and not torch._C._is_tracing() and rows >= least

    def recording_for(self, x: Inputs, graph: Any = None) -> Recording | None:
        """The recording of ``self(x, graph)``, made if need be; None where there can be none.

        It gives the whole of the result: scores of float64 features, say, are converted behind it.
        """
        for _ in range(CALLS_TO_RECORD):
            result = self(x, graph)
        found = self._recordings.find(x, graph)
        is_whole = found is not None and found.run(x).dtype == result.dtype
        return found if is_whole else None

    def float_bytes(self) -> dict[str, int]:
        """Bytes of what is not packed, by layer or module."""
        found: dict[str, int] = {}
        for call in self.program.calls:
            if call.operator == CALL:
                own = self.calls[call.arguments[0]]  # type: ignore[index]
                found[call.layer] = found.get(call.layer, 0) + sum(float_bytes_of(own).values())
            elif call.layer not in self.report.letters:
                size = sum(tensor.nbytes for tensor in self._read_by(call).values())
                found[call.layer] = found.get(call.layer, 0) + size
        return {name: size for name, size in found.items() if size}

    def _tensors(self) -> dict[str, Tensor]:
        return {name: tensor for name, tensor in self._buffers.items() if tensor is not None}

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> BoundProgram:
        found = fn(torch.empty(0)).dtype
        if found != torch.float32:
            raise TypeError(
                f"FrozenModel: its floats must stay torch.float32, got {found}; features of other "
                "types are taken as they are"
            )
        with torch.inference_mode(False):  # what is made there would not tell when it is written to
            super()._apply(fn, recurse)
        self._bind()
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        """Calls follow a buffer that is put in the place of another."""
        replaces = name in self.__dict__.get("_buffers", ())
        super().__setattr__(name, value)
        if replaces:
            self._bind()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in BOUND}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._bind()

    def _start(self, x: Inputs, graphs: Sequence[Any] = ()) -> tuple[Executable, list[Any], Any]:
        """The calls for features in this form, registers with these in, and graphs to read."""
        if x.device != self._device:
            raise ValueError(f"FrozenModel: x must be on {self._device}, got {x.device}")
        if x.__class__ is not Tensor or x.layout is not torch.strided:
            require_dense("FrozenModel", x)
        if self._is_stale():
            self._bind()
        compiled, given = self._compiled_for(x)
        if isinstance(x, BitAdjacency):
            graphs = (*graphs, x)
        executable = compiled.on(x, graphs)
        return executable, executable.values(given), graphs

    def _run_ranges(self, x: Inputs, graphs: Sequence[Any], out: Tensor | None) -> Any:
        """The result by ranges of rows, see :mod:`~bitgnn.inference.row_ranges`; None without."""
        if isinstance(x, BitAdjacency):
            return None
        compiled, given = self._compiled_for(x)
        if out is not None:
            width = self.registers[self.program.output].size
            dtypes = {"classes": torch.int64}
            dtype = dtypes.get(self.registers[self.program.output].form, torch.float32)
            shape = (len(given[0]), width) if dtype == torch.float32 else (len(given[0]),)
            if out.shape != shape or out.dtype != dtype or shares_memory(out, given):
                out = None
        program = self._ranged.get(id(compiled))
        if program is None:
            parts = compiled.calls, compiled.inputs, compiled.output, self.registers
            program = self._ranged[id(compiled)] = RangedProgram(*parts, self._compiled_run)
        return program.run(given, graphs, out)

    def _compiled_run(
        self, calls: Sequence[Call], inputs: Sequence[int], kept: Sequence[int]
    ) -> Compiled:
        return self._compiled(calls, inputs, kept[0], kept=kept)

    def _compiled_for(self, x: Inputs) -> tuple[Compiled, list[Any]]:
        """The calls for features in this form, and what they read of these."""
        if not isinstance(x, Packed | BitImages):
            if self.features == "packed":
                raise ValueError(
                    "FrozenModel: x must be the result of pack_features, got floats; the model "
                    "was frozen with features='packed'"
                )
            return self._from_floats, [x]
        compiled = self._from_bits
        if compiled is None:
            raise ValueError(f"FrozenModel: x must be floats, {self._why_floats()}")
        if isinstance(x, BitAdjacency):
            return self._pattern_compiled(), []
        if isinstance(x, FirstBits):
            return self._product_compiled(), [x.words]
        if isinstance(x, Int8Tensor) or self._own_rows is not None:
            return compiled, [self._codes_of(x)]
        if len(compiled.inputs) == 1:
            return compiled, [x.words]
        if x.scale is None:
            raise ValueError("FrozenModel: packed x must carry a row scale; use pack_features(x)")
        return compiled, [x.words, x.scale]

    def _bits_of_entries(self, name: str, x: Any, multiplies: bool = False) -> Any:
        """The bits of a sparse tensor where the model reads nothing else; else ``x`` itself.

        With ``multiplies`` those of the first product, where entries alone make it up.
        """
        if not is_sparse(x) or self.program.entry != 1:
            return x
        call, size = self._entry_call, self._packed_size
        if call.kind != "pack" or x.device != self._device:
            return x
        threshold = self._read_by(call).get("threshold")
        found: BitTensor | None = None
        if multiplies and x.device.type == "cpu" and self._takes_pattern:
            self._pattern_compiled()
            found = multiplied_entries(name, x, size, threshold, self._pattern_product)
        if found is None:
            found = packed_entries(name, x, size, threshold)
        return x if found is None else found

    def _codes_of(self, x: Inputs) -> Tensor:
        """The codes of 8-bit rows, which must be packed with the scales of this model."""
        if self._own_rows is None:
            raise ValueError(
                "FrozenModel: x must be floats or a BitTensor from pack_features, got an "
                "Int8Tensor; the features of this model enter as bits"
            )
        if not isinstance(x, Int8Tensor):
            raise ValueError(
                f"FrozenModel: x must be floats or an Int8Tensor from pack_features, got a "
                f"{type(x).__name__}; the features of this model enter as 8-bit rows"
            )
        x.check_fingerprint("FrozenModel", self._own_rows.fingerprint)
        return x.codes

    def _is_stale(self) -> bool:
        """True if something wrote to buffers that bound calls derived others from."""
        held = self._sources
        return held is not None and not torch.compiler.is_compiling() and not held.unchanged()

    def _pattern_compiled(self) -> Compiled:
        """The calls for the pattern of set bits, made anew once the weights were written to."""
        bound, is_compiling = self._from_pattern, torch.compiler.is_compiling()
        if bound is not None and (is_compiling or self._pattern_source.unchanged()):
            return bound
        if not self._takes_pattern:
            raise ValueError(
                "FrozenModel: x must be floats or a BitTensor, got the pattern of set bits, "
                "which only a first layer with bit output takes"
            )
        packing, first = self._entry_call, self.program.calls[self.program.entry or 0]
        read = [*self._read_by(packing).values(), *self._read_by(first).values()]
        self._pattern_source = Watch(read, reads_bytes=True)
        self._from_pattern = self._compiled(self._pattern_calls(), [], self.program.output)
        return self._from_pattern

    def _product_compiled(self) -> Compiled:
        """The calls behind the first product."""
        if self._from_product is None:
            first, *rest = self.program.calls[self.program.entry :]
            self._from_product = self._compiled(rest, first.outputs, self.program.output)
        return self._from_product

    @property
    def _entry_call(self) -> Call:
        """The call that packs the features, behind which only their bits or codes are used."""
        assert self.program.entry is not None
        return self.program.calls[self.program.entry - 1]

    @property
    def _packed_size(self) -> int:
        """Features of packed rows, or channels of packed images."""
        return self.registers[self._entry_call.outputs[0]].size or 0

    @property
    def _takes_pattern(self) -> bool:
        """True if the features can be the pattern of their set bits."""
        entry, calls = self.program.entry, self.program.calls
        if entry is None or self._entry_call.kind != "pack" or len(calls) == entry:
            return False
        first, (packed,) = calls[entry], self._entry_call.outputs
        compares = first.tensors.keys() <= {"w", "threshold", "flip"}
        is_plain = first.kind == "bmm_bbb" and compares
        return is_plain and not any(packed in call.inputs for call in calls[entry + 1 :])

    @property
    def _compares_sums(self) -> bool:
        """True if the first product compares its sums with thresholds other than 0."""
        return "threshold" in self.program.calls[self.program.entry or 0].tensors

    def _pattern_calls(self) -> list[Call]:
        """The calls behind the packing for the pattern of set bits, what they read in place.

        The first is an aggregation of weight columns over the pattern, behind all graphs.
        """
        first, *rest = self.program.calls[self.program.entry :]
        read = self._read_by(first)
        weight = BitTensor(read["w"], first.named["size"])
        x_threshold = self._read_by(self._entry_call).get("threshold")
        self._pattern_product = product = PatternProduct.of(
            weight, read.get("threshold"), read.get("flip"), x_threshold
        )
        self.register_buffer("pattern_columns", product.columns, persistent=False)
        self.register_buffer("pattern_bound", product.bound, persistent=False)
        pattern = [Part(-1, "rowptr"), Part(-1, "indices"), None, Buffer("pattern_bound")]
        arguments = (Buffer("pattern_columns"), weight.shape[0], *pattern)
        return [Call("bitgnn::bspmm_bbb", first.layer, arguments, first.outputs), *rest]

    def _read_by(self, call: Call) -> dict[str, Tensor]:
        return {name: self.get_buffer(buffer) for name, buffer in call.tensors.items()}

    def _why_floats(self) -> str:
        return "since not every part of this model looks at the same bits of them"


def _no_rows(centre: Tensor, inverse_step: Tensor) -> Int8Tensor:
    """An ``Int8Tensor`` without rows, whose scales are those of a packing call."""
    size = centre.size(0)
    codes = torch.empty(0, bytes_for(size), dtype=torch.int8, device=centre.device)
    # Copies: a model may be written to, the rows that it packed stay as they are.
    return Int8Tensor(codes, size, centre.clone(), inverse_of(inverse_step))


def _bind_again(module: BoundProgram, keys: Any) -> None:
    """Bind calls anew once a state was loaded into their buffers."""
    module._bind()

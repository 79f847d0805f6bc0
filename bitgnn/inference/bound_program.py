"""A program with its buffers, bound to calls that follow the buffers from device to device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from bitgnn.bits import BitAdjacency, BitImages, BitTensor, Int8Tensor
from bitgnn.bits.tensor_version import Watch, counted
from bitgnn.inference.frozen import Frozen, float_bytes_of
from bitgnn.inference.program import Executable, Program, compile_steps, runner_of
from bitgnn.inference.recording import CALLS_TO_RECORD, Recording, Recordings
from bitgnn.inference.sparse_features import is_sparse, packed_entries, require_dense
from bitgnn.inference.step import Register, Step, StepKind
from bitgnn.inference.steps import KINDS
from bitgnn.inference.steps.calls import FloatCall, call_kind
from bitgnn.inference.steps.int8 import PACK as PACK_INT8
from bitgnn.inference.steps.int8 import no_rows
from bitgnn.inference.steps.products import pattern_product, takes_pattern

Packed = BitTensor | BitAdjacency | Int8Tensor
"""Packed node features: bits, the pattern of those that are set, or 8-bit rows."""

Features = Tensor | Packed
"""Node features: floats or packed ones."""

Inputs = Features | BitImages
"""What some frozen model takes: features, float images or packed ones."""

FeatureForm = Literal["floats", "packed"]
"""What a model takes: floats and their packed forms, or packed forms alone."""

BOUND = (
    "_kinds", "_sources", "_from_floats", "_from_bits", "_from_pattern", "_pattern_source",
    "_recordings", "_own_rows",
)  # fmt: skip
"""What belongs to one object's own buffers: a copy makes its own."""


class BoundProgram(Frozen):
    """Base of :class:`~bitgnn.inference.FrozenModel`: checks a program and runs it.

    ``holds`` says what steps find in each graph: ``"pattern"``, ``"values"`` or ``"edges"``.
    """

    _pattern_source: Watch

    times_bound = 0
    """How often calls were bound to buffers: another number means buffers in other places."""

    def __init__(
        self,
        program: Program,
        tensors: Mapping[str, Tensor],
        holds: Sequence[str],
        calls: Sequence[FloatCall],
        features: FeatureForm = "floats",
    ) -> None:
        super().__init__()
        self.program = program
        for name, tensor in tensors.items():
            self.register_buffer(name, counted(tensor))
        self.calls: nn.ModuleList | None = nn.ModuleList(calls) if calls else None
        self.registers: dict[int, Register] = program.check(self._own_kinds(), tensors, holds)
        self.in_channels = program.in_channels
        # Packed behind a float map, features have as many bits as that has outputs.
        self.packed_channels: int = program.in_channels
        if program.entry is not None:
            self.packed_channels = self._entry_step.attributes["size"]
        self.out_channels = self.registers[program.output].size
        self.set_features(features)
        self._bind()
        self.register_load_state_dict_post_hook(_bind_again)
        self.eval()

    def _own_kinds(self) -> Mapping[str, StepKind]:
        if self.calls is None:
            return KINDS
        return {**KINDS, "call": call_kind(list(self.calls))}  # type: ignore[arg-type]

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

    def _bind(self) -> None:
        """Look everything up that the steps need; again whenever the buffers change place."""
        self.times_bound += 1
        tensors = self._tensors()
        steps, output, entry = self.program.steps, self.program.output, self.program.entry
        self._kinds = self._own_kinds()
        self._from_floats = compile_steps(steps, [0], output, self._kinds, tensors)
        self._device = next((t.device for t in tensors.values()), torch.device("cpu"))
        self._from_bits: Executable | None = None
        self._from_pattern: Executable | None = None
        sources = self._from_floats.sources
        self._own_rows: Int8Tensor | None = None
        if entry is not None:
            packed = self._entry_step.outputs
            self._from_bits = compile_steps(steps[entry:], packed, output, self._kinds, tensors)
            sources += self._from_bits.sources
            if self._entry_step.kind == PACK_INT8:
                scales = self._read_by(self._entry_step)
                self._own_rows = no_rows(**scales)
                sources += tuple(scales.values())
        self._sources = Watch(sources, reads_bytes=True) if sources else None
        self._recordings = Recordings()

    @property
    def copies(self) -> list[Any]:
        """Copies of buffers: they tell of writes to these, or go along with packed features."""
        return [self._sources, self._own_rows, getattr(self, "_pattern_source", None)]

    def _watches(self, x: Inputs) -> list[Watch]:
        """What calls on features in the form of ``x`` were made of beside the buffers."""
        pattern = [self._pattern_source] if isinstance(x, BitAdjacency) else []
        return pattern if self._sources is None else [self._sources, *pattern]

    def _run_recorded(self, x: Inputs, graph: Any, forward: Callable[[Any, Any], Any]) -> Any:
        """``forward(x, graph)``, as one call once such inputs have come before."""
        if torch.compiler.is_compiling() or self.calls is not None:
            return forward(x, graph)
        return self._recordings.run(x, graph, forward, self._watches)

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
        for step in self.program.steps:
            if step.kind == "call":
                call = self.calls[step.attributes["call"]]  # type: ignore[index]
                found[step.layer] = found.get(step.layer, 0) + sum(float_bytes_of(call).values())
            elif step.layer not in self.report.letters:
                held = (self._buffers[name] for name in step.tensors.values())
                size = sum(tensor.nbytes for tensor in held if tensor is not None)
                found[step.layer] = found.get(step.layer, 0) + size
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

    def _start(self, x: Inputs) -> tuple[Executable, list[Any]]:
        """The calls for features in this form, and their slots with the features filled in."""
        if x.device != self._device:
            raise ValueError(f"FrozenModel: x must be on {self._device}, got {x.device}")
        require_dense("FrozenModel", x)
        if self._is_stale():
            self._bind()
        given: list[Any]
        if not isinstance(x, Packed | BitImages):
            if self.features == "packed":
                raise ValueError(
                    "FrozenModel: x must be the result of pack_features, got floats; the model "
                    "was frozen with features='packed'"
                )
            executable, given = self._from_floats, [x]
        elif self._from_bits is None:
            raise ValueError(f"FrozenModel: x must be floats, {self._why_floats()}")
        elif isinstance(x, BitAdjacency):
            executable, given = self._pattern_executable(), [x]
        elif isinstance(x, Int8Tensor) or self._own_rows is not None:
            executable, given = self._from_bits, [self._codes_of(x)]
        else:
            executable, given = self._from_bits, [x.words]
            if executable.num_inputs > 1:
                if x.scale is None:
                    raise ValueError(
                        "FrozenModel: packed x must carry a row scale; use pack_features(x)"
                    )
                given.append(x.scale)
        return executable, given + [None] * (executable.num_slots - len(given))

    def _bits_of_entries(self, name: str, x: Any) -> Any:
        """The bits of a sparse tensor where the model reads nothing else; else ``x`` itself."""
        if not is_sparse(x) or self.program.entry != 1:
            return x
        step = self._entry_step
        if step.kind != "pack" or x.device != self._device:
            return x
        size, threshold = step.attributes["size"], self._read_by(step).get("threshold")
        words = packed_entries(name, x, size, threshold)
        return x if words is None else BitTensor._trusted(words, size)

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
        """Whether something wrote to buffers that bound calls derived others from."""
        if self._sources is None or torch.compiler.is_compiling():
            return False
        return not self._sources.unchanged()

    def _pattern_executable(self) -> Executable:
        """The calls for the pattern of set bits, made anew once the weights were written to."""
        bound, is_compiling = self._from_pattern, torch.compiler.is_compiling()
        if bound is not None and (is_compiling or self._pattern_source.unchanged()):
            return bound
        if not self._takes_pattern:
            raise ValueError(
                "FrozenModel: x must be floats or a BitTensor, got the pattern of set bits, "
                "which only a first layer with bit output takes"
            )
        first = self.program.steps[self.program.entry or 0]
        self._pattern_source = Watch(self._read_by(first).values(), reads_bytes=True)
        packed, output = self._entry_step.outputs, self.program.output
        steps = self._pattern_steps()
        self._from_pattern = compile_steps(steps, packed, output, self._kinds, self._tensors())
        return self._from_pattern

    @property
    def _entry_step(self) -> Step:
        """The step that packs the features, behind which only their bits or codes are used."""
        assert self.program.entry is not None
        return self.program.steps[self.program.entry - 1]

    @property
    def _takes_pattern(self) -> bool:
        """Whether the features can be the pattern of their set bits."""
        entry, steps = self.program.entry, self.program.steps
        if entry is None or self._entry_step.kind != "pack" or not takes_pattern(steps[entry]):
            return False
        (packed,) = self._entry_step.outputs
        return not any(packed in step.inputs for step in steps[entry + 1 :])

    def _pattern_steps(self) -> list[Step]:
        """The steps behind the packing for the pattern of set bits, what they read in place."""
        first, *rest = self.program.steps[self.program.entry :]
        first, buffers = pattern_product(first, self._read_by(first))
        for name, tensor in buffers.items():
            self.register_buffer(name, tensor, persistent=False)
        return [first, *rest]

    def _read_by(self, step: Step) -> dict[str, Tensor]:
        return {name: self.get_buffer(buffer) for name, buffer in step.tensors.items()}

    def _why_floats(self) -> str:
        return "since not every part of this model looks at the same bits of them"

    def _run_alone(
        self, step: Step, values: dict[int, Any], graphs: Sequence[Any]
    ) -> Callable[[], None]:
        """Run one step on ``values``, each written by one step only; a call that repeats it."""
        apply = self._kinds[step.kind].make(step, self._read_by(step))
        runner: Any = runner_of(apply, step.inputs, step.outputs, step.graph)
        call = partial(runner, values, graphs)
        call()
        return call


def _bind_again(module: BoundProgram, keys: Any) -> None:
    """What was derived from buffers is stale once a state is loaded into them."""
    module._bind()

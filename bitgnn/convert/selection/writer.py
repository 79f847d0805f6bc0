"""Writes a program step by step: registers, buffers, adjacencies and calls get their numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from bitgnn.inference.graph import GraphSpec
from bitgnn.inference.program import PACKING, Program
from bitgnn.inference.step import Step
from bitgnn.inference.steps.calls import FloatCall

__all__ = ["ProgramWriter"]

GRAPH_OF_CALLS = -1
"""Calls read the graph behind the adjacencies, whose number is known at the end."""


class ProgramWriter:
    """Collects the steps of a frozen model; register 0 holds the features.

    Attributes:
        specs: the adjacencies in use.
    """

    def __init__(self) -> None:
        self._steps: list[Step] = []
        self._tensors: dict[str, Tensor] = {}
        self.specs: list[GraphSpec] = []
        self._calls: list[FloatCall] = []
        self._next_register = 1

    def step(
        self,
        kind: str,
        layer: str,
        inputs: Sequence[int],
        attributes: Mapping[str, Any] | None = None,
        tensors: Mapping[str, Tensor | None] | None = None,
        graph: int | None = None,
    ) -> int:
        """Add a step with one result; its register. Tensors that are None are left out."""
        return self.steps_of(kind, layer, inputs, 1, attributes, tensors, graph)[0]

    def steps_of(
        self,
        kind: str,
        layer: str,
        inputs: Sequence[int],
        outputs: int,
        attributes: Mapping[str, Any] | None = None,
        tensors: Mapping[str, Tensor | None] | None = None,
        graph: int | None = None,
    ) -> list[int]:
        """Add a step with several results; their registers."""
        names = {}
        for name, tensor in (tensors or {}).items():
            if tensor is not None:
                names[name] = f"step{len(self._steps)}_{name}"
                self._tensors[names[name]] = tensor.contiguous()
        written = list(range(self._next_register, self._next_register + outputs))
        self._next_register += outputs
        self._steps.append(
            Step(kind, layer, tuple(inputs), tuple(written), attributes or {}, names, graph)
        )
        return written

    def call(self, call: FloatCall, layer: str, inputs: Sequence[int], needs_edges: bool) -> int:
        """Add a step that runs the user's own code; its register."""
        self._calls.append(call)
        graph = GRAPH_OF_CALLS if needs_edges else None
        return self.step("call", layer, inputs, {"call": len(self._calls) - 1}, None, graph)

    def graph(self, spec: GraphSpec) -> int:
        """The number of an adjacency; layers that make the same of the graph share one."""
        if spec not in self.specs:
            self.specs.append(spec)
        return self.specs.index(spec)

    def parts(
        self, in_channels: int, output: int
    ) -> tuple[Program, Mapping[str, Tensor], Sequence[FloatCall]]:
        """The program, its buffers by name, and the calls of its user's own code."""
        steps = tuple(
            replace(step, graph=len(self.specs)) if step.graph == GRAPH_OF_CALLS else step
            for step in self._steps
        )
        return Program(in_channels, steps, output, self._entry()), self._tensors, self._calls

    def _entry(self) -> int | None:
        """Length of the packing prefix; see :class:`~bitgnn.inference.program.Program`."""
        for place, step in enumerate(self._steps):
            if step.kind in PACKING:
                hidden = {0, *(r for before in self._steps[:place] for r in before.outputs)}
                behind = {r for after in self._steps[place + 1 :] for r in after.inputs}
                return None if hidden & behind else place + 1
            if step.graph is not None:
                return None
        return None

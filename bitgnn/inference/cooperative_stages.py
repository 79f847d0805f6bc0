"""Turns the steps of a frozen program into the stages that one kernel runs.

A stage makes packed rows, of the features or of sums over neighbours, and multiplies them by the
weights of a layer; the next stage sums the products up. The last stage's sums are the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from torch import Tensor

from bitgnn.inference.program import Program, Step

__all__ = ["Stage", "StagedProgram", "find_stages"]

SOURCES = ("floats", "words", "bits", "integers")
"""Where a stage's rows come from, as csrc/whole_model/cooperative.h numbers them."""

OUTPUTS = ("bits", "integers", "result")
"""What a stage gives, numbered likewise."""

MAX_STAGES = 8
MAX_FEATURES = 32767


@dataclass(frozen=True)
class Stage:
    """One stage.

    Attributes:
        source: one of :data:`SOURCES`.
        size: features that the source gives.
        output: one of :data:`OUTPUTS`.
        out: features of the product; 0 for the result.
        scaled: whether rows have a scale that the product's sums need.
        tensors: ``"threshold"`` and ``"gain"`` of what is binarised, ``"scale"`` and ``"bias"`` of
            sums of integers, ``"weight"``, and ``"product_scale"``, ``"product_threshold"`` and
            ``"product_flip"`` of a product's signs.
    """

    source: str
    size: int
    output: str = "result"
    out: int = 0
    scaled: bool = False
    tensors: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class StagedProgram:
    """All stages, and the graph they sum over.

    Attributes:
        stages: in order.
        graph: index of the adjacency.
    """

    stages: tuple[Stage, ...]
    graph: int


class _Reader:
    """Goes through a program's steps and says which of them has no stage."""

    def __init__(self, program: Program, first: int, tensors: Mapping[str, Tensor]) -> None:
        self.steps = program.steps
        self.position = first
        self.tensors = tensors

    @property
    def at_end(self) -> bool:
        return self.position == len(self.steps)

    def take(self, reads: Sequence[int], *kinds: str) -> Step:
        """The next step, which must be one of these kinds and read these registers."""
        if self.at_end:
            raise ValueError(
                f"CooperativeExecutor: the program must go on with {' or '.join(kinds)}, it ends "
                f"behind step {self.position - 1}"
            )
        step = self.steps[self.position]
        if step.kind not in kinds:
            raise self.refusal(f"only {' or '.join(kinds)} can stand here")
        if list(step.inputs) != list(reads):
            raise self.refusal("it reads more than the result of the step before")
        self.position += 1
        return step

    def peek(self) -> str:
        return "" if self.at_end else self.steps[self.position].kind

    def refusal(self, reason: str) -> ValueError:
        step = self.steps[self.position]
        return ValueError(
            f"CooperativeExecutor: step {self.position} ({step.kind} of {step.layer!r}) has no "
            f"stage: {reason}; take the executor 'cuda_graph'"
        )

    def own(self, step: Step) -> dict[str, Tensor]:
        return {name: self.tensors[buffer] for name, buffer in step.tensors.items()}


def find_stages(program: Program, tensors: Mapping[str, Tensor], packed: bool) -> StagedProgram:
    """Stages of a frozen program.

    Args:
        program: chains of a binarisation, a product and a sum over neighbours; the sums of bits are
            compared and packed, those of floats are the result or are packed again.
        tensors: buffers by name.
        packed: whether the features come packed.

    Returns:
        The stages. Tensors are those of the program.

    Raises:
        ValueError: a step has no stage; the message names it.
    """
    entry = program.entry
    if packed and entry is None:
        raise ValueError("CooperativeExecutor: x must be floats for this model")
    reader = _Reader(program, entry if packed and entry is not None else 0, tensors)
    if packed:
        assert entry is not None
        packing = program.steps[entry - 1]
        stage = Stage("words", packing.attributes["size"])
        registers = packing.outputs
    else:
        stage, registers = _binarise(reader, [0], "floats")
    stages: list[Stage] = []
    graphs: set[int | None] = set()
    while True:
        stage, product = _multiply(reader, stage, registers)
        stages.append(stage)
        sums = reader.take(product.outputs, "bspmm_bbb" if stage.output == "bits" else "bspmm_fbf")
        graphs.add(sums.graph)
        own = reader.own(sums)
        if stage.output == "bits":
            stage, registers = Stage("bits", stage.out, tensors=own), sums.outputs
            continue
        if "weight_scale" in reader.own(product):
            own["scale"] = reader.own(product)["weight_scale"]
        if reader.at_end and sums.outputs == (program.output,):
            stages.append(Stage("integers", stage.out, tensors=own))
            break
        stage, registers = _binarise(reader, sums.outputs, "integers", own)
    if len(stages) > MAX_STAGES:
        raise ValueError(
            f"CooperativeExecutor: the model must have at most {MAX_STAGES} stages, "
            f"got {len(stages)}"
        )
    if len(graphs) != 1:
        raise ValueError("CooperativeExecutor: all layers must share one adjacency")
    (graph,) = graphs
    assert graph is not None, "Program.check requires it"
    return StagedProgram(tuple(stages), graph)


def _binarise(
    reader: _Reader,
    reads: Sequence[int],
    source: str,
    tensors: Mapping[str, Tensor] | None = None,
) -> tuple[Stage, tuple[int, ...]]:
    """The stage that a packing step begins, and the registers of its words and their scale."""
    step = reader.take(reads, "pack", "pack_scaled")
    own = {**(tensors or {}), **reader.own(step)}
    return Stage(source, step.attributes["size"], tensors=own), step.outputs


def _multiply(reader: _Reader, stage: Stage, registers: Sequence[int]) -> tuple[Stage, Step]:
    """The stage with the product that follows, and the step of that."""
    scaled = False
    if not reader.at_end and reader.peek() in ("bmm_bbb", "bmm_bbf"):
        scaled = bool(reader.steps[reader.position].attributes["scaled"])
    reads = registers[: 1 + scaled]
    to_bits = reader.peek() == "bmm_bbb"
    if not reader.at_end and stage.size > MAX_FEATURES:
        raise reader.refusal(f"products of more than {MAX_FEATURES} features are too wide")
    step = reader.take(reads, "bmm_bbb", "bmm_bbf")
    own = reader.own(step)
    if "bias" in own:
        reader.position -= 1
        raise reader.refusal("it has a bias in front of a sum over neighbours")
    tensors = {**stage.tensors, "weight": own["weight"]}
    if to_bits:
        for name in ("weight_scale", "threshold", "flip"):
            if name in own:
                tensors["product_" + name.removeprefix("weight_")] = own[name]
    output = "bits" if to_bits else "integers"
    # A scale in front of a comparison with zero changes nothing.
    scaled = scaled and (not to_bits or "threshold" in own)
    done = replace(
        stage,
        output=output,
        out=step.attributes["out"],
        scaled=scaled,
        tensors=tensors,
    )
    return done, step

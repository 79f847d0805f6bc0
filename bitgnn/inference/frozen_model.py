"""FrozenModel: a trained binary network as a short list of operator calls on packed bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bitgnn.bits import BitAdjacency, BitImages, BitTensor, set_bits
from bitgnn.inference.bound_program import FeatureForm, Features, Inputs
from bitgnn.inference.bounds import check_program
from bitgnn.inference.called_program import CalledProgram
from bitgnn.inference.graph import GraphSpec
from bitgnn.inference.graph_program import Graph
from bitgnn.inference.own_call import PLAIN_CALL, OwnCall
from bitgnn.inference.program import Program, Runner, Step
from bitgnn.inference.report import FreezeReport
from bitgnn.inference.steps.calls import FloatCall
from bitgnn.inference.steps.known_calls import CALLS, describe_call, read_calls

__all__ = ["Features", "FrozenModel", "Graph"]


class FrozenModel(CalledProgram):
    """Inference form of a binary network: packed weights, thresholds instead of norm and sign.

    Made by :func:`bitgnn.freeze` or :func:`bitgnn.load`. It has no parameters and
    records no gradients; what it returns may feed a head that is trained.

    Args:
        program: the steps.
        tensors: what they read, by name.
        graphs: what becomes of the graph, one entry for each adjacency in use; empty for a
            network without a graph.
        report: what freezing did.
        calls: modules and functions outside of the known steps.
        features: ``"packed"`` for a model that refuses floats.
        own_call: how the trained model is called.

    Raises:
        ValueError: the program cannot run; the message names the step. Or packed features cannot
            do, since floats are needed behind the packing.
    """

    kind = "program"

    def __init__(
        self,
        program: Program,
        tensors: Mapping[str, Tensor],
        graphs: Sequence[GraphSpec],
        report: FreezeReport,
        calls: Sequence[FloatCall] = (),
        features: FeatureForm = "floats",
        own_call: OwnCall = PLAIN_CALL,
    ) -> None:
        super().__init__(program, tensors, graphs, calls, features, own_call)
        self.report = report

    @property
    def letters(self) -> tuple[str, ...]:
        """Operator letters of each layer, in order."""
        return tuple(self.report.letters.values())

    @torch.inference_mode()
    def pack_features(
        self, x: Tensor, check_finite: bool = False, layout: str = "auto"
    ) -> BitTensor | BitAdjacency:
        """Standardise, binarise and pack raw features once for many calls.

        Args:
            x: ``[N, in_channels]`` floats.
            check_finite: raise where ``x`` holds NaN or infinity.
            layout: ``"dense"`` for packed words; ``"sparse"`` for the pattern of set bits, which
                only models whose first product returns bits can use; ``"auto"`` for the smaller
                of those the model and the executor of its plan can use, which is also the faster.

        Returns:
            The bits, with the row scale if the model uses one, or their pattern.

        Raises:
            ValueError: the number of features does not fit, ``x`` is not finite, the layout is
                unknown or of no use to this model, or the model needs floats throughout.
        """
        if x.dim() != 2 or x.size(1) != self.in_channels:
            raise ValueError(
                f"FrozenModel.pack_features: x must be [N, {self.in_channels}], got {list(x.shape)}"
            )
        if check_finite and not bool(torch.isfinite(x).all()):
            raise ValueError("FrozenModel.pack_features: x must be finite, got NaN or infinity")
        if self.program.entry is None:
            raise ValueError(
                f"FrozenModel.pack_features: this model takes floats, {self._why_floats()}"
            )
        layouts = ("auto", "dense", "sparse") if self._takes_pattern else ("auto", "dense")
        if layout not in layouts:
            raise ValueError(
                f"FrozenModel.pack_features: layout must be one of {layouts} for this model, "
                f"got {layout!r}"
            )
        values: dict[int, Any] = {0: x}
        for step in self.program.steps[: self.program.entry]:
            self._run_alone(step, values, ())
        packed, *scale = (values[register] for register in self._entry_step.outputs)
        bits = BitTensor(packed, self._entry_step.attributes["size"], scale[0] if scale else None)
        if layout == "dense" or "sparse" not in layouts:
            return bits
        pattern = set_bits(bits)
        return pattern if layout == "sparse" or pattern.nbytes < bits.nbytes else bits

    def executor(self, name: str = "auto", **options: Any) -> Callable[..., Tensor]:
        """A way to run this model again and again, called as the model itself: ``(x, adjacency)``.

        Results are the same, bit for bit.

        Args:
            name: ``"eager"``, one operator after the other; ``"cuda_graph"``, all of them as one
                launch; ``"cooperative"``, one kernel for a whole small model; ``"auto"``, a CUDA
                graph for each shape of inputs on a GPU and eager elsewhere.
            options: of the executor, see :mod:`bitgnn.inference`.

        Raises:
            ValueError: there is no such executor, or the model is not for it.
        """
        # Executors build on this file.
        from bitgnn.inference.choice import make_executor

        return make_executor(self, name, **options)

    def groups(self, x: Features) -> tuple[tuple[Step, ...], ...]:
        """The steps that each call of a forward on features in this form does.

        Raises:
            ValueError: the model does not take ``x`` in this form.
        """
        return self._start(x)[0].groups

    @torch.inference_mode()
    def repeatable_calls(
        self, x: Features, adjacency: Graph | Any = None
    ) -> list[tuple[tuple[Step, ...], Callable[[], None]]]:
        """Run call by call as a forward does, and keep each one ready to be repeated alone.

        Args:
            x: features as in :meth:`forward`.
            adjacency: the graph as in :meth:`forward`.

        Returns:
            For each call of :meth:`groups`: the steps it does, and what does it once more on the
            same values; run that in inference mode.

        Raises:
            ValueError: as :meth:`forward`.
        """
        executable, values = self._start(x)
        graphs = self._adjacencies(adjacency, x.shape[0])
        found: list[tuple[tuple[Step, ...], Callable[[], None]]] = []
        for group, call in zip(executable.groups, executable.calls, strict=True):
            # The result may take the slot of a value that it is made of.
            found.append((group, partial(_on_copy, call, tuple(values), graphs)))
            call(values, graphs)
        return found

    @torch.inference_mode()
    def steps(
        self, x: Inputs, adjacency: Graph | Any = None
    ) -> list[tuple[Step, Callable[[], None], Any]]:
        """Run step by step and keep what each one did, to look into a model or to time it.

        Args:
            x: features as in :meth:`forward`; the steps of packing are left out for packed ones.
            adjacency: the graph as in :meth:`forward`.

        Returns:
            For each step: the step, a call that runs it once more alone, and its result: a
            ``BitTensor`` or ``BitImages`` where it holds bits, else the tensor.

        Raises:
            ValueError: as :meth:`forward`.
        """
        self._start(x)  # checks the form
        graphs = self._adjacencies(adjacency, x.shape[0])
        steps = self.program.steps
        values: dict[int, Any] = {0: x}
        if not isinstance(x, Tensor):
            packed = (x.words, x.scale) if isinstance(x, BitTensor | BitImages) else (x,)
            values = dict(zip(self._entry_step.outputs, packed, strict=False))
            steps = steps[self.program.entry :]
        if isinstance(x, BitAdjacency):
            steps = tuple(self._pattern_steps())
        found = []
        for step in steps:
            call = self._run_alone(step, values, graphs)
            register = step.outputs[0]
            form, size = self.registers[register]
            result = values[register]
            if form == "bits":
                assert size is not None
                result = BitTensor._trusted(result, size)
            elif form == "image_bits":
                assert size is not None
                result = BitImages(result, size)
            found.append((step, call, result))
        return found

    def description(self) -> dict[str, Any]:
        """Everything but the tensors, as plain values: what a checkpoint's JSON holds."""
        return {
            "program": self.program.description(),
            "graphs": [asdict(spec) for spec in self.graphs],
            "report": self.report.description(),
            "features": self.features,
            "call": self.own_call.description(),
            "calls": [describe_call(call) for call in self._calls],
        }

    @property
    def _calls(self) -> list[FloatCall]:
        return [] if self.calls is None else list(self.calls)  # type: ignore[arg-type]

    @classmethod
    def from_description(
        cls, description: Mapping[str, Any], tensors: Mapping[str, Tensor]
    ) -> FrozenModel:
        """The inverse of :meth:`description` and ``state_dict``.

        Raises:
            ValueError: an entry is missing or wrong, or a tensor is missing, left over or of the
                wrong shape or dtype.
        """
        graphs, calls = description["graphs"], description.get("calls", [])
        if not isinstance(graphs, list) or not isinstance(calls, list):
            raise ValueError("graphs and calls must be lists")
        own = {name: t for name, t in tensors.items() if not name.startswith(CALLS)}
        arguments = description.get("call")  # nor do older files hold these
        model = cls(
            Program.from_description(description["program"]),
            own,
            [GraphSpec.from_description(graph) for graph in graphs],
            FreezeReport.from_description(description["report"]),
            read_calls(calls, tensors),
            features=description.get("features", "floats"),  # older files take any
            own_call=PLAIN_CALL if arguments is None else OwnCall.from_description(arguments),
        )
        check_program(model.program, model.registers, own)
        return model

    def extra_repr(self) -> str:
        """Widths and what each step writes."""
        lines = [f"{self.in_channels}, {self.out_channels}"]
        for step in self.program.steps:
            form, size = self.registers[step.outputs[0]]
            lines.append(f"({step.layer}) {step.kind} -> {form}[{size}]")
        return "\n".join(lines)


def _on_copy(call: Runner, values: Sequence[Any], graphs: Sequence[Any]) -> None:
    call(list(values), graphs)

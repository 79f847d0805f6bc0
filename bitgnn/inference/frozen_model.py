"""FrozenModel: a trained binary network as a short list of operator calls on packed bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from bitgnn._memory import tells_of_memory
from bitgnn.bits import BitAdjacency, BitImages, BitTensor, Int8Tensor, set_bits
from bitgnn.inference.bound_program import FeatureForm, Features, Inputs, Packed
from bitgnn.inference.bounds import check_program
from bitgnn.inference.called_program import CalledProgram
from bitgnn.inference.costs import result_of
from bitgnn.inference.emit import of_steps
from bitgnn.inference.executable import Instruction, run_code
from bitgnn.inference.frozen import FreezeReport
from bitgnn.inference.graph import Graph, GraphSpec
from bitgnn.inference.own_call import PLAIN_CALL, OwnCall
from bitgnn.inference.program import Call, Program
from bitgnn.inference.sparse_features import is_sparse
from bitgnn.inference.steps.calls import CALLS, FloatCall, describe_call, read_calls

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Features", "FrozenModel", "Graph"]


class FrozenModel(CalledProgram):
    """Inference form of a binary network: packed weights, thresholds instead of norm and sign.

    Args:
        program: the calls.
        tensors: what they read, by name.
        graphs: what becomes of the graph, one entry for each adjacency in use; empty for a
            network without a graph.
        report: what freezing did.
        calls: modules and functions that no operator stands for.
        features: ``"packed"`` for a model that refuses floats.
        own_call: how the trained model is called.

    Raises:
        ValueError: the program cannot run; the message names the call. Or packed features cannot
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

    @tells_of_memory("FrozenModel.pack_features", "pack parts of x and join the results")
    @torch.inference_mode()
    def pack_features(self, x: Any, check_finite: bool = False, layout: str = "auto") -> Packed:
        """Pack raw features once for many calls, as bits or as 8-bit rows.

        Args:
            x: ``[N, in_channels]`` floats, dense or in a sparse tensor, whose entries alone are
                read where the model reads nothing but bits of ``x >= threshold``.
            check_finite: raise where ``x`` holds NaN or infinity.
            layout: ``"dense"`` for packed words; ``"sparse"`` for the pattern of set bits, which
                only models whose first product returns bits can use; ``"auto"`` for the smaller
                of those the model can use, which is also the faster.

        Returns:
            The bits, with the row scale if the model uses one, or their pattern; an ``Int8Tensor``
            where the features enter the model as 8-bit rows.

        Raises:
            TypeError: ``x`` is packed already.
            ValueError: the number of features does not fit, ``x`` is not finite, the layout is
                unknown or of no use to this model, or the model needs floats throughout.
        """
        name = "FrozenModel.pack_features"
        if isinstance(x, Packed):
            raise TypeError(f"{name}: x must be floats, got packed features")
        if x.dim() != 2 or x.size(1) != self.in_channels:
            raise ValueError(f"{name}: x must be [N, {self.in_channels}], got {list(x.shape)}")
        layouts = ("auto", "dense", "sparse") if self._takes_pattern else ("auto", "dense")
        packed, *scale = self._packed(name, x, check_finite)
        if layout not in layouts:
            raise ValueError(
                f"{name}: layout must be one of {layouts} for this model, got {layout!r}"
            )
        size = self._packed_size
        if self._own_rows is not None:
            _, *scales = self._own_rows._state()
            return Int8Tensor._made(packed, *scales)
        bits = BitTensor(packed, size, scale[0] if scale else None)
        if layout == "dense" or "sparse" not in layouts:
            return bits
        pattern = set_bits(bits)
        return pattern if layout == "sparse" or pattern.nbytes < bits.nbytes else bits

    def _packed(self, name: str, x: Tensor, check_finite: bool) -> list[Any]:
        """What the call that packs features writes of ``x``."""
        if self.program.entry is None:
            raise ValueError(f"{name}: this model takes floats, {self._why_floats()}")
        entries = x.to_sparse_coo().coalesce().values() if is_sparse(x) else x
        if check_finite and x.is_floating_point() and not bool(torch.isfinite(entries).all()):
            raise ValueError(f"{name}: x must be finite, got NaN or infinity")
        if is_sparse(x):
            bits = self._bits_of_entries(name, x)
            if isinstance(bits, BitTensor):
                return [bits.words]
            x = x.to_dense()
        calls = self.program.calls[: self.program.entry]
        packing = self._compiled(calls, [0], calls[-1].outputs[0], fuses=False).made[0]
        values = packing.values([x])
        run_code(packing.code, values, (), frees=False)
        kept = [n for n in calls[-1].outputs if self.registers[n].form != "unused"]
        return [values[register] for register in kept]

    def groups(self, x: Features) -> tuple[tuple[Call, ...], ...]:
        """The calls of the program that each call of a forward on features in this form does."""
        return tuple(group for group, _ in self._start(x)[0].units)

    @torch.inference_mode()
    def repeatable_calls(
        self, x: Features, adjacency: Graph | Any = None
    ) -> list[tuple[tuple[Call, ...], Callable[[], None]]]:
        """Run call by call as a forward does, and keep each one ready to be repeated alone.

        Args:
            x: features as in :meth:`forward`.
            adjacency: the graph as in :meth:`forward`.

        Returns:
            For each call of :meth:`groups`: the calls of the program it does, and what does it once
            more on the same values; run that in inference mode.
        """
        self._start(x)  # checks the form
        executable, values, graphs = self._start(x, self._adjacencies(adjacency, x.shape[0]))
        return [(group, _ready(code, values, graphs)) for group, code in executable.units]

    @torch.inference_mode()
    def steps(
        self, x: Inputs, adjacency: Graph | Any = None
    ) -> list[tuple[Call, Callable[[], None], Any]]:
        """Run the program call by call and keep what each one did, to look into it or to time it.

        Args:
            x: features as in :meth:`forward`; the calls of packing are left out for packed ones.
            adjacency: the graph as in :meth:`forward`.

        Returns:
            For each call: the call, what runs it once more alone, and its result: a ``BitTensor``
            or ``BitImages`` where it holds bits, else the tensor (of 8-bit rows the codes).
        """
        self._start(x)  # checks the form
        compiled, given = self._compiled_for(x)
        alone = self._compiled(compiled.calls, compiled.inputs, compiled.output, fuses=False)
        graphs = self._adjacencies(adjacency, x.shape[0])
        graphs = (*graphs, x) if isinstance(x, BitAdjacency) else graphs
        executable = alone.on(x, graphs)
        values, found = executable.values(given), []
        for (call,), code in executable.units:
            again = _ready(code, values, graphs)
            register = result_of(self, call)
            form, size = self.registers[register]
            result = values[register]
            if size is not None and form == "bits":
                result = BitTensor._trusted(result, size)
            elif size is not None and form == "image_bits":
                result = BitImages(result, size)
            found.append((call, again, result))
        return found

    def description(self) -> dict[str, Any]:
        """Everything but the tensors, as plain values: what a checkpoint's JSON holds."""
        calls = () if self.calls is None else self.calls
        return {
            "program": str(self.program),
            "report": self.report.description(),
            "features": self.features,
            **self._own_description(),
            "calls": [describe_call(call) for call in calls],  # type: ignore[arg-type]
        }

    def _own_description(self) -> dict[str, Any]:
        """What models of this type have beside the program."""
        return {
            "graphs": [asdict(spec) for spec in self.graphs],
            "call": self.own_call.description(),
        }

    @classmethod
    def from_description(
        cls,
        description: Mapping[str, Any],
        tensors: Mapping[str, Tensor],
        model: nn.Module | None = None,
    ) -> Self:
        """The inverse of :meth:`description` and ``state_dict``; whatever does not fit raises.

        ``model`` is one of the same architecture, for modules of the user's that steps call.
        """
        calls = description["calls"]
        if not isinstance(calls, list):
            raise ValueError("calls must be a list")
        own = {name: tensor for name, tensor in tensors.items() if not name.startswith(CALLS)}
        held, told = read_calls(calls, tensors, model), description["program"]
        if isinstance(told, Mapping) and "steps" in told:  # of format 4 and before
            program, own = of_steps(told, own, [call.size for call in held])
        else:
            program = Program.read(told)
        made = cls(
            program,
            own,
            report=FreezeReport.from_description(description["report"]),
            calls=held,
            features=description["features"],
            **cls._own_arguments(description),
        )
        check_program(made.program, own)
        return made

    @classmethod
    def _own_arguments(cls, description: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments of the constructor that :meth:`_own_description` tells of."""
        graphs = description["graphs"]
        if not isinstance(graphs, list):
            raise ValueError("graphs must be a list")
        return {
            "graphs": [GraphSpec.from_description(graph) for graph in graphs],
            "own_call": OwnCall.from_description(description["call"]),
        }

    def extra_repr(self) -> str:
        """Widths, packed layers and bytes, and the program."""
        head = f"{self.in_channels}, {self.out_channels}, {super().extra_repr()}"
        return f"{head}\n{self.program}"


def _ready(
    code: Sequence[Instruction], values: list[Any], graphs: Sequence[Any]
) -> Callable[[], None]:
    """Run instructions once; what runs them once more on the same values."""
    again = partial(run_code, code, values, graphs, frees=False)
    again()
    return again

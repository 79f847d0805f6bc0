"""parallelize: a frozen model over the rows of several ranks, with the results of one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, overload

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from bitgnn._capture import capturing
from bitgnn.bits import BitAdjacency, BitTensor, Int8Tensor
from bitgnn.distributed.places import Gathering, Places
from bitgnn.distributed.prepared import prepared
from bitgnn.distributed.sharding import ShardedAdjacency
from bitgnn.distributed.stages import Stage, gathered, stages
from bitgnn.distributed.summed_products import is_wide
from bitgnn.distributed.training import ShardedTraining
from bitgnn.inference import FrozenModel
from bitgnn.inference.executable import Compiled
from bitgnn.inference.own_call import as_features, as_given
from bitgnn.inference.program import CALL, Call, Ref

Progress = Callable[[int, int], None]
WARM_UPS = 2
"""Forwards before a capture: they build layouts, load kernels and meet the other ranks."""


@overload
def parallelize(  # type: ignore[overload-overlap]
    model: FrozenModel, mesh: DeviceMesh | None = None, *, capture: bool = False
) -> ParallelModel: ...


@overload
def parallelize(
    model: nn.Module, mesh: DeviceMesh | None = None, *, messages: torch.dtype = torch.bfloat16
) -> ShardedTraining: ...


def parallelize(
    model: nn.Module,
    mesh: DeviceMesh | None = None,
    *,
    capture: bool = False,
    messages: torch.dtype = torch.bfloat16,
) -> ParallelModel | ShardedTraining:
    """Run or train a model of nodes on graphs whose rows are spread over ranks.

    Each rank computes the rows of its own nodes. What an aggregation reads of the neighbours is
    packed words of all ranks, sent chunk by chunk, of a frozen model while the next chunk is
    computed.

    Args:
        model: a frozen model whose parts treat nodes one by one or sum over the pattern of a graph,
            such as those of :class:`~bitgnn.nn.GCNConv`, ``SAGEConv``, ``GraphConv``, ``GINConv``
            and linear layers; or one to train, of the first three, batch norms and what treats
            nodes one by one, see :class:`ShardedTraining`. It stays as it is, and moves to the
            mesh's kind of device; one to train takes the first rank's state.
        mesh: one-dimensional mesh of the ranks; None for the default group and the CPU.
        capture: on a GPU, run all of a forward, exchanges too, as one CUDA graph, which reads the
            features where they lie: calls on the same tensor and graph replay it, and overwrite
            the result of the call before. Only of a frozen model.
        messages: of a model to train: ``torch.bfloat16`` or ``torch.float32``, in which ranks
            exchange the gradients of their activations.

    Returns:
        The module, called as ``model(x, graph)``.

    Raises:
        TypeError: ``model`` is neither, or a frozen model without a program.
        ValueError: a part reads other nodes in another way, such as a pool, a norm over nodes or
            code of the user's own; the message names it.
    """
    if isinstance(model, FrozenModel):
        return ParallelModel(model, mesh, capture)
    is_packed = isinstance(model, nn.Module) and not any(True for _ in model.parameters())
    if not isinstance(model, nn.Module) or is_packed:
        raise TypeError(
            f"parallelize: model must be a FrozenModel, a program of operators, or a module to "
            f"train, got a {type(model).__name__}"
        )
    if capture:
        raise ValueError("parallelize: capture must be False for a model to train")
    return ShardedTraining(model, mesh, messages)


@dataclass
class _Step:
    """A stage with its calls bound."""

    stage: Stage
    compiled: Compiled


class ParallelModel(nn.Module):
    """A frozen model over sharded graphs; :func:`parallelize` makes it.

    Attributes:
        frozen: the model.
    """

    def __init__(self, frozen: FrozenModel, mesh: DeviceMesh | None, capture: bool) -> None:
        super().__init__()
        if mesh is not None:
            frozen = frozen.to(mesh.device_type)
        self.frozen, self.capture = frozen, capture
        self._bound: dict[Any, list[_Step]] = {}
        self._captured: _Captured | None = None
        self._cut(frozen._from_floats, ())  # says what cannot be
        self.eval()

    def train(self, mode: bool = True) -> ParallelModel:
        """Nothing: a frozen model stays in evaluation."""
        return super().train(False)

    @torch.no_grad()
    def forward(self, x: Any, graph: ShardedAdjacency, progress: Progress | None = None) -> Tensor:
        """The rank's rows of the result; all ranks call it together.

        Args:
            x: features of the rank's own nodes in any form that the frozen model takes but sparse
                ones: ``[rows, in_channels]`` floats, or what :meth:`FrozenModel.pack_features`
                gives.
            graph: from :func:`shard_graph`. One without factors gets those of each layer, once.
            progress: called with the number of chunks done and of all.

        Returns:
            ``[rows, out_channels]`` scores or int64 ``[rows]`` classes, equal to the bit to those
            of one process, but for products of floats that torch computes.

        Raises:
            TypeError: ``graph`` is no sharded graph, or ``x`` no features.
            ValueError: ``x`` has another number of rows or features, or lies on another device.
            ConnectionError: another rank has ended.
        """
        if not isinstance(graph, ShardedAdjacency):
            raise TypeError(
                f"parallelize: graph must come from shard_graph, got a {type(graph).__name__}"
            )
        if not self.capture or graph.device.type != "cuda":
            return self._run(x, graph, progress)
        held = self._captured
        if held is None or not held.serves(self.frozen, x, graph):
            self._captured = held = _Captured(self.frozen, x, graph, partial(self._run, x, graph))
        return held.replay()

    def _run(self, given: Any, graph: ShardedAdjacency, progress: Progress | None = None) -> Tensor:
        frozen = self.frozen
        if frozen._is_stale():
            frozen._bind()
        values, compiled = self._read(given, graph)
        widths = [frozen._packed_widths(number) for number in range(len(frozen.graphs))]
        graphs = prepared(graph, frozen.graphs, widths)
        without = tuple(n for n, made in enumerate(graphs[0]) if made.col_scale is None)
        key = frozen.times_bound, compiled is frozen._from_floats, without
        if key not in self._bound:
            self._bound = {k: v for k, v in self._bound.items() if k[0] == frozen.times_bound}
            self._bound[key] = self._cut(compiled, without)
        result = _forward(self._bound[key], values, graphs, graph.places, compiled.output, progress)
        found: Tensor = as_given(given, result)
        return found

    def _read(self, x: Any, graph: ShardedAdjacency) -> tuple[list[Tensor], Compiled]:
        """The registers' values made of features, and the calls that read these."""
        frozen, rows = self.frozen, graph.places.rows
        if isinstance(x, BitAdjacency) or (isinstance(x, Tensor) and x.layout != torch.strided):
            raise TypeError("parallelize: x must be dense or packed in words, got sparse features")
        x = as_features(x, frozen.in_channels, frozen._ready_types)
        is_packed = isinstance(x, BitTensor | Int8Tensor)
        size = frozen.packed_channels if is_packed else frozen.in_channels
        if tuple(x.shape) != (rows, size):
            raise ValueError(
                f"parallelize: x must be [{rows}, {size}], the rows of this rank, got "
                f"{list(x.shape)}"
            )
        if not x.device.type == graph.device.type == frozen._device.type:
            raise ValueError(
                f"parallelize: x, graph and model must be on one kind of device, got {x.device}, "
                f"{graph.device} and {frozen._device}"
            )
        compiled, values = frozen._compiled_for(x)
        return values, compiled

    def _cut(self, compiled: Compiled, without_columns: Sequence[int]) -> list[_Step]:
        """The stages of the calls, bound to the buffers."""
        tensors, size = self.frozen._tensors(), compiled.size
        wide = {name for name, tensor in tensors.items() if tensor.dim() == 2 and is_wide(tensor)}
        result, made = 2 * size, []
        for stage in stages(
            compiled.calls, compiled.inputs, compiled.output, size, without_columns, wide
        ):
            inputs = [*(gathered(register, size) for register in stage.gathers), *stage.reads]
            join = Call(CALL, "", (0, *map(Ref, stage.gives)), (result,))
            own: Any = [lambda values, graph: tuple(values)]
            calls = [*stage.calls, join]
            made.append(_Step(stage, Compiled(calls, inputs, result, result + 1, tensors, own)))
        return made


class _Rows(NamedTuple):
    """Rows of a chunk, in place of features whose number is asked for."""

    shape: tuple[int]


def _forward(
    steps: Sequence[_Step],
    values: Sequence[Tensor],
    graphs: Sequence[tuple[BitAdjacency, ...]],
    places: Places,
    output: int,
    progress: Progress | None,
) -> Tensor:
    """Run the stages one after the other, in each the chunks; the result's rows."""
    owns = [places.own(chunk) for chunk in range(places.chunks)]
    kept = {
        register: [value[own] for own in owns]
        for register, value in zip(steps[0].stage.reads, values, strict=True)
    }
    arriving: dict[int, Gathering] = {}
    found: Tensor | None = None
    for number, step in enumerate(steps):
        stage = step.stage
        everyone = [arriving[register].wait() for register in stage.gathers]
        arriving |= {register: Gathering(places) for register in stage.sends}
        given: dict[int, list[Tensor]] = {register: [] for register in stage.keeps}
        for chunk, own in enumerate(owns):
            rows = _Rows((own.stop - own.start,))
            executable = step.compiled.on(rows, graphs[chunk])
            read = [*everyone, *(kept[register][chunk] for register in stage.reads)]
            results = executable.run(executable.values(read), graphs[chunk])
            for register, result in zip(stage.gives, results, strict=True):
                if register in stage.sends:
                    arriving[register].send(chunk, result)
                if register == output:
                    found = _written(found, result, places, own)
                elif register in given:
                    given[register].append(result)
            if progress is not None:
                progress(number * len(owns) + chunk + 1, len(steps) * len(owns))
        kept |= given
        later = [other.stage for other in steps[number + 1 :]]
        for held in (kept, arriving):
            for register in list(held):
                if not any(register in (*one.reads, *one.gathers) for one in later):
                    del held[register]
    assert found is not None
    return found


def _written(found: Tensor | None, rows: Tensor, places: Places, own: slice) -> Tensor:
    """The result with the rows of a chunk in it."""
    if places.chunks == 1:
        return rows
    if found is None:
        found = rows.new_empty(places.rows, *rows.shape[1:])
    found[own] = rows
    return found


class _Captured:
    """A forward as one CUDA graph, with what it reads."""

    def __init__(
        self, frozen: FrozenModel, x: Any, graph: ShardedAdjacency, run: Callable[[], Tensor]
    ) -> None:
        self.x, self.sharded = x, graph
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UPS):
                run()
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()  # no exchange may be under way when the capture begins
        self.times_bound = frozen.times_bound
        self.graph = torch.cuda.CUDAGraph()
        with capturing(self.graph):
            self.result = run()

    def serves(self, frozen: FrozenModel, x: Any, graph: ShardedAdjacency) -> bool:
        """Whether a call reads the same tensors, unchanged where others were made of them."""
        is_same = x is self.x and graph is self.sharded
        return is_same and frozen.times_bound == self.times_bound and not frozen._is_stale()

    def replay(self) -> Tensor:
        """The result, which the next replay overwrites."""
        self.graph.replay()
        return self.result

"""Mini-batches through a frozen model: features gathered packed, copies beside computation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from bitgnn.bits import BitTensor, Int8Tensor, select_rows
from bitgnn.inference.bound_program import Features
from bitgnn.inference.frozen_model import FrozenModel, Graph


class Prediction(NamedTuple):
    """Scores of the seed nodes of a batch.

    Attributes:
        nodes: int64 ``[B]``, their numbers in the whole graph, on the device of the batch; None
            for batches that do not tell (no ``n_id``).
        result: ``[B, out_channels]`` float32, or int64 ``[B]`` classes, on the model's device.
    """

    nodes: Tensor | None
    result: Tensor


def stream(
    model: FrozenModel,
    batches: Iterable[Any],
    features: Features | None = None,
    *,
    progress: bool = False,
) -> Iterator[Prediction]:
    """Run a frozen model on one mini-batch after the other, as a loader gives them.

    The result of a batch is that of the model on the batch's subgraph, whatever comes before it.
    While a GPU computes one batch, the next one is sampled, copied and converted on a stream of its
    own, so a batch is asked for before the result of the one in front is handed out.

    Args:
        model: frozen model on any device.
        batches: a ``bitgnn.data.NeighborLoader``, or anything that gives ``Data``-like objects with
            ``edge_index`` (or ``adj_t``), with ``x`` or, for ``features``, ``n_id``; ``batch_size``
            tells how many nodes in front are seeds, and all are without it; ``edge_weight`` goes
            to the layers that were given one in training.
        features: features of the whole graph in place of the batches' own ``x``: the result of
            :meth:`FrozenModel.pack_features`, whose rows are gathered at a bit or a byte a
            feature, or floats. They may be on the model's device, which spares the copies, or on
            the CPU.
        progress: show a progress bar.

    Yields:
        The predictions, in the order of the batches.

    Raises:
        TypeError: ``model`` is not a frozen model.
        ValueError: a batch lacks what is needed, or what the model itself refuses. Results of the
            batches in front of it have been handed out by then.
    """
    if not isinstance(model, FrozenModel) or not model.is_program:
        raise TypeError(f"stream: model must be a FrozenModel, got {type(model).__name__}")
    if progress:
        from tqdm import tqdm  # PyG depends on it

        batches = tqdm(batches)
    return _results(model, batches, features)


def predict(
    model: FrozenModel,
    batches: Iterable[Any],
    features: Features | None = None,
    *,
    progress: bool = False,
) -> Prediction:
    """All results of :func:`stream` together, in the order of the batches.

    Arguments and errors are those of :func:`stream`; there must be at least one batch.
    """
    found = list(stream(model, batches, features, progress=progress))
    if not found:
        raise ValueError("predict: batches must give at least one batch, got none")
    told = [nodes for nodes, _ in found if nodes is not None]
    nodes = torch.cat(told) if len(told) == len(found) else None
    return Prediction(nodes, torch.cat([result for _, result in found]))


class _Ready(NamedTuple):
    """A batch on the model's device, and as it was given, where copies may still read."""

    x: Features
    graph: Graph | None
    nodes: Tensor | None
    seeds: int
    batch: Any


def _results(
    model: FrozenModel, batches: Iterable[Any], features: Features | None
) -> Iterator[Prediction]:
    feed = _Feed(model, features)
    source = iter(batches)
    try:
        ready = feed.load(source)
        while ready is not None:
            result = feed.computed(ready)
            upcoming = failure = None
            try:
                upcoming = feed.load(source)
            except Exception as error:  # raised behind the result that is there already
                failure = error
            yield Prediction(ready.nodes, result)
            if failure is not None:
                raise failure
            feed.release()
            ready = upcoming
    finally:
        feed.close()


class _Feed:
    """Makes batches ready for a model.

    The allocator gives memory that was made on the stream of copies back to that stream as soon as
    nothing holds it, so the copies wait for what reads a batch before it is let go
    (:meth:`release`). Memory that came with a batch may be any stream's.
    """

    def __init__(self, model: FrozenModel, features: Features | None) -> None:
        self.model = model
        self.features = features
        self.device = next((b.device for b in model.buffers()), torch.device("cpu"))
        self.copies: torch.cuda.Stream | None = None
        self.reader: torch.cuda.Event | None = None
        if self.device.type == "cuda":
            self.copies = _copying_stream(self.device)
            self.copies.wait_stream(self._current)

    @property
    def _current(self) -> torch.cuda.Stream:
        return torch.cuda.current_stream(self.device)

    def load(self, source: Iterator[Any]) -> _Ready | None:
        """The next batch, on its way to the device; None behind the last."""
        try:
            batch = next(source)
        except StopIteration:
            return None
        n_id = getattr(batch, "n_id", None)
        self._wait_for(batch)
        with torch.cuda.stream(self.copies) if self.copies is not None else nullcontext():
            x = self._features(batch, n_id)
            num_nodes = x.shape[0]
            seeds = getattr(batch, "batch_size", None)
            seeds = num_nodes if seeds is None else int(seeds)
            graph = self._graph(batch, num_nodes) if self.model.takes_graph else None
            nodes = None if n_id is None else n_id[:seeds]
            return _Ready(_mapped(x, self._copied), graph, nodes, seeds, batch)

    def computed(self, ready: _Ready) -> Tensor:
        """The model's result for the seeds of a batch, on the current stream."""
        if self.copies is not None:
            self._current.wait_stream(self.copies)
        result: Tensor = self.model(ready.x, ready.graph)[: ready.seeds]
        if self.copies is not None:
            self.reader = self._current.record_event()
        return result

    def release(self) -> None:
        """Let later copies write where the batch computed last lies: it may be let go now."""
        if self.copies is not None and self.reader is not None:
            self.copies.wait_event(self.reader)
            self.reader = None

    def close(self) -> None:
        """The same for everything that was loaded, copied and computed or not."""
        self.release()
        if self.copies is not None:
            self.copies.wait_stream(self._current)
            self._current.wait_stream(self.copies)

    def _wait_for(self, batch: Any) -> None:
        """Let copies wait for what computes a batch that is on a GPU already."""
        if self.copies is None:
            return
        for name in ("x", "n_id", "edge_index", "adj_t", "edge_weight"):
            part = getattr(batch, name, None)
            if isinstance(part, Tensor) and part.device.type == "cpu":
                continue
            if part is not None:
                self.copies.wait_stream(self._current)
            if isinstance(part, Tensor) and part.layout == torch.strided:
                # A loader's own stream would fill this memory again.
                part.record_stream(self.copies)
                part.record_stream(self._current)

    def _features(self, batch: Any, n_id: Tensor | None) -> Features:
        if self.features is None:
            x: Features | None = getattr(batch, "x", None)
            if x is None:
                raise ValueError("stream: batch must hold x where no features are given, got none")
            return x
        if n_id is None:
            raise ValueError(
                "stream: batch must hold n_id, its nodes in the whole graph, to gather from "
                "features, got none"
            )
        is_there = self.features.device.type == "cuda" and self.copies is not None
        rows = self._copied(n_id) if is_there else n_id.to(self.features.device)
        return gathered(self.features, rows)

    def _graph(self, batch: Any, num_nodes: int) -> Graph:
        edges = getattr(batch, "edge_index", None)
        if edges is None:
            edges = getattr(batch, "adj_t", None)
        if edges is None:
            raise ValueError("stream: batch must hold edge_index or adj_t, got neither")
        weight = getattr(batch, "edge_weight", None) if self.model.takes_edge_weight else None
        if self.copies is not None:  # a GPU sorts the edges faster than the CPU counts them
            is_plain = type(edges) is Tensor and edges.layout == torch.strided
            edges = self._copied(edges) if is_plain else edges.to(self.device)
            weight = None if weight is None else self._copied(weight)
        # Layouts beside CSR take longer to make than one forward saves.
        graph = self.model.prepare_graph(edges, num_nodes, weight, layout="csr")
        if self.copies is None:
            graph = _mapped(graph, self._copied)
        return graph

    def _copied(self, tensor: Tensor) -> Tensor:
        """The same on the model's device, copied beside what it computes."""
        if self.copies is None:
            return tensor.to(self.device)
        # Only page-locked memory is copied while the CPU goes on.
        pinned = tensor.pin_memory() if tensor.device.type == "cpu" else tensor
        return pinned.to(self.device, non_blocking=True)


@cache
def _copying_stream(device: torch.device) -> torch.cuda.Stream:
    """One for all calls: memory freed on a stream serves only that stream again."""
    return torch.cuda.Stream(device)


def gathered(features: Features, rows: Tensor) -> Features:
    """Rows of the whole graph's features."""
    if isinstance(features, Tensor | BitTensor | Int8Tensor):
        return features.index_select(0, rows)
    return select_rows(features, rows)


def _mapped(held: Any, move: Callable[[Tensor], Any]) -> Any:
    """The same with every tensor moved, one that occurs twice once."""
    moved: dict[int, Any] = {}

    def once(tensor: Tensor) -> Any:
        if id(tensor) not in moved:
            moved[id(tensor)] = move(tensor)
        return moved[id(tensor)]

    return pytree.tree_map_only(Tensor, once, held)

"""Further problems: whole graphs with labels, and links between nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.data.data import BaseData
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GAE
from torch_geometric.utils import negative_sampling

from bitgnn._checks import name_type
from bitgnn.distillation.calling import (
    DistillError,
    call,
    check_anew,
    check_graph,
    check_range,
    columns_of,
    moved,
)
from bitgnn.distillation.objectives import Links, objective_of
from bitgnn.distillation.problems import Part, Problem, Results, held_out, joined

BATCH = 64


class Graphs(Problem):
    """Graphs, each with a class, labels or values, in batches.

    ``loader`` gives batches of the training graphs, None shuffled ones of 64; ``validation`` is
    graphs, a loader of some, or a share of the training graphs.
    """

    def __init__(
        self,
        graphs: Sequence[BaseData],
        model: nn.Module,
        loader: Iterable[BaseData] | None,
        validation: Any,
        seed: int,
    ) -> None:
        self.device = next(model.parameters()).device
        if not len(graphs):
            raise DistillError("data must have a graph at least, got an empty list")
        kept = graphs = list(graphs)
        if len(graphs) == 1 and getattr(graphs[0], "train_mask", None) is not None:
            raise DistillError("data must be the graph itself, data[0], where nodes are learnt on")
        _check_graphs(graphs, graphs[0], "data")
        y = _labels_of(graphs, "data")
        if validation is None or isinstance(validation, float):
            train, val = held_out(torch.arange(len(graphs)), y, validation, seed, "validation")
            if loader is not None:
                raise DistillError(
                    "validation must be graphs or a loader of them where a loader is given, whose "
                    f"batches cannot be split, got {validation!r}"
                )
            kept = [graphs[i] for i in train.tolist()]
            validation = DataLoader([graphs[i] for i in val.tolist()], BATCH)
        else:
            check_anew(validation, "validation")
            if not hasattr(validation, "batch_size"):
                validation = list(validation)
                _check_graphs(validation, graphs[0], "validation")
                _labels_of(validation, "validation")
                validation = DataLoader(validation, BATCH)
        self.validation: Iterable[BaseData] = validation
        self.loader = loader if loader is not None else DataLoader(kept, BATCH, shuffle=True)
        self.example = moved(next(iter(DataLoader(kept, BATCH))), self.device)
        outputs = columns_of(model, self.example, min(len(kept), BATCH), "graphs")
        self.objective = objective_of(_labels_of(kept, "data").to(self.device), outputs)
        with torch.random.fork_rng(devices=[]):
            found = [self._labels(batch) for batch in self.validation]
        if not found:
            raise DistillError("validation must hold a graph at least, got none")
        self.objective.check(torch.cat(found), outputs, "validation")
        if loader is not None:
            check_anew(loader, "loader")
        self.steps = -(-len(kept) // BATCH) if loader is None else len(list(loader))

    def _labels(self, batch: BaseData) -> Tensor:
        return self.objective.form(batch.y, batch.num_graphs)

    def parts(self) -> Iterator[Part]:
        """Batches of training graphs."""
        batch = None
        for batch in self.loader:
            if not hasattr(batch, "num_graphs"):
                raise DistillError(f"loader must give batches of graphs, got {name_type(batch)}")
            batch = moved(batch, self.device)
            yield Part(batch, None, None, self._labels(batch))
        if batch is None:
            raise DistillError("loader must give a batch at least, got none")

    def results(self, model: nn.Module) -> Results:
        """Scores of the validation graphs."""
        batches = (moved(batch, self.device) for batch in self.validation)
        return {"val": joined((call(model, batch), self._labels(batch)) for batch in batches)}


def _check_graphs(graphs: Sequence[Any], like: BaseData, name: str) -> None:
    """Refuse items that are no graphs, or whose features differ from the first graph's."""
    for i, graph in enumerate(graphs):
        if not isinstance(graph, BaseData):
            raise DistillError(f"{name}[{i}] must be a graph, got {name_type(graph)}")
        check_graph(graph, f"{name}[{i}]")
        if graph.x.shape[1:] != like.x.shape[1:]:
            raise DistillError(
                f"{name}[{i}].x must be [N, {', '.join(map(str, like.x.shape[1:]))}] as that of "
                f"data[0], got {list(graph.x.shape)}"
            )


def _labels_of(graphs: Sequence[BaseData], name: str) -> Tensor:
    """Labels of graphs: ``[n]``, or ``[n, C]`` if each has several."""
    found: list[Tensor] = []
    for graph in graphs:
        if getattr(graph, "y", None) is None:
            raise DistillError(f"{name} must have y in every graph, got one without")
        found.append(torch.as_tensor(graph.y).view(1, -1))
        if found[-1].shape != found[0].shape:
            raise DistillError(
                f"{name} must have as many labels in every graph, got {found[0].numel()} and "
                f"{found[-1].numel()}"
            )
    y = torch.cat(found) if found else torch.zeros(0, 1)
    y = y.squeeze(1) if y.size(1) == 1 else y
    return y if y.is_floating_point() else y.long()


def has_links(data: Any) -> bool:
    """True if a graph's labels are pairs of nodes."""
    names = ("edge_label_index", "pos_edge_label_index")
    return any(getattr(data, name, None) is not None for name in names)


class LinkPairs(Problem):
    """Links of one graph, as ``torch_geometric.transforms.RandomLinkSplit`` makes them.

    Pairs of a training step are the graph's positive ones and as many drawn at random; a model's
    score of a pair is its ``decode`` or ``decoder`` before the sigmoid, or the inner product of
    what it gives for both nodes, by ``encode`` where it has one. ``validation`` is a graph with
    pairs, or a share of the training pairs.
    """

    steps = 1

    def __init__(self, data: Data, model: nn.Module, validation: Any, seed: int) -> None:
        self.device = next(model.parameters()).device
        check_graph(data)
        if getattr(data, "edge_index", None) is None:
            raise DistillError("data.edge_index is missing; links are learnt from a graph's edges")
        self.objective = Links()
        self.example = self.graph = self.val_graph = moved(data, self.device)
        self.positive, _ = _pairs(self.graph, "data")
        if isinstance(validation, BaseData):
            self.val_graph = moved(validation, self.device)
            positive, negative = _pairs(self.val_graph, "validation")
        elif validation is not None and not isinstance(validation, float):
            raise DistillError(
                "validation must be a graph with pairs, or a share of them, got "
                f"{name_type(validation)}"
            )
        else:
            rows = torch.arange(self.positive.size(1), device=self.device)
            train, val = held_out(rows, torch.ones_like(rows), validation, seed, "validation")
            positive, negative = self.positive[:, val], self.positive[:, :0]
            self.positive = self.positive[:, train]
        if negative.size(1) == 0:
            torch.manual_seed(seed)
            negative = self._drawn(positive)
        self.val_pairs = self._labelled(positive, negative)

    def _drawn(self, positive: Tensor) -> Tensor:
        """Sample as many non-edges as there are positive pairs."""
        graph: Any = self.graph
        return negative_sampling(graph.edge_index, graph.num_nodes, positive.size(1))

    def _labelled(self, positive: Tensor, negative: Tensor) -> tuple[Tensor, Tensor]:
        """``[2, P]`` pairs and their labels ``[P, 1]``."""
        pairs = torch.cat((positive, negative), dim=1)
        y = torch.zeros(pairs.size(1), 1, device=self.device)
        y[: positive.size(1)] = 1
        return pairs, y

    def parts(self) -> Iterator[Part]:
        """The graph with its positive pairs and equally many sampled ones."""
        pairs, y = self._labelled(self.positive, self._drawn(self.positive))
        yield Part(self.graph, None, None, y, pairs=pairs)

    def scores(self, model: nn.Module, part: Part) -> Tensor:
        """``[P, 1]`` scores of the pairs."""
        assert part.pairs is not None
        return _link_scores(model, part.data, part.pairs)

    def results(self, model: nn.Module) -> Results:
        """Scores of validation pairs."""
        pairs, y = self.val_pairs
        return {"val": (_link_scores(model, self.val_graph, pairs), y)}


def _link_scores(model: nn.Module, data: BaseData, pairs: Tensor) -> Tensor:
    z = call(getattr(model, "encode", model), data)
    if isinstance(model, GAE):
        found = model.decoder(z, pairs, sigmoid=False)
    elif hasattr(model, "decode"):
        decode: Any = model.decode
        found = decode(z, pairs)
    else:
        found = (z[pairs[0]] * z[pairs[1]]).sum(dim=-1)
    scores: Tensor = found.reshape(-1, 1)
    return scores


def _pairs(data: BaseData, name: str) -> tuple[Tensor, Tensor]:
    """Positive and negative pairs of a graph."""
    positive, negative, both = (
        getattr(data, f"{kind}edge_label_index", None) for kind in ("pos_", "neg_", "")
    )
    if positive is None and both is not None:
        label = getattr(data, "edge_label", None)
        if label is None:
            label = torch.ones(both.size(1), device=both.device)
        if label.shape != (both.size(1),):
            raise DistillError(
                f"{name}.edge_label must be [{both.size(1)}], one for each pair, got "
                f"{list(label.shape)}"
            )
        positive, negative = both[:, label > 0], both[:, label <= 0]
    if positive is None or positive.size(1) == 0:
        raise DistillError(
            f"{name} must have positive pairs in edge_label_index or pos_edge_label_index "
            "(torch_geometric.transforms.RandomLinkSplit makes them), got none"
        )
    negative = positive[:, :0] if negative is None else negative
    for pairs in (positive, negative):
        check_range(pairs, data.num_nodes, f"{name}.edge_label_index must be nodes")
    return positive, negative

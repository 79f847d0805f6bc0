"""The problems beside nodes: whole graphs with labels, and links between nodes."""

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
from bitgnn.distillation.calling import call, moved
from bitgnn.distillation.checks import (
    check_anew,
    check_graph,
    check_targets,
    columns_of,
    labels_of,
)
from bitgnn.distillation.errors import DistillError
from bitgnn.distillation.objectives import Links, objective_of
from bitgnn.distillation.problems import HELD_OUT, Part, Problem, held_out

__all__ = ["Graphs", "LinkPairs", "has_links"]

BATCH = 64


class Graphs(Problem):
    """Graphs, each with a class, labels or values, in batches.

    Args:
        graphs: the training graphs.
        model: takes a batch.
        loader: batches of the training graphs; None makes shuffled ones of 64.
        validation: graphs, a loader of some, or a share of the training graphs.
        seed: of the share.

    Raises:
        DistillError: labels are missing, or nothing can be learnt from them.
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
        graphs = list(graphs)
        if len(graphs) == 1 and getattr(graphs[0], "train_mask", None) is not None:
            raise DistillError("data must be the graph itself, data[0], where nodes are learnt on")
        _check_graphs(graphs, graphs[0], "data")
        y = labels_of(graphs)
        if validation is None or isinstance(validation, float):
            share = HELD_OUT if validation is None else validation
            rows = torch.arange(len(graphs))
            classes = y.squeeze(1) if y.size(1) == 1 else y
            train, val = held_out(rows, classes, share, seed, "validation")
            if loader is not None:
                raise DistillError(
                    "validation must be graphs or a loader of them where a loader is given, whose "
                    f"batches cannot be split, got {validation!r}"
                )
            kept = [graphs[i] for i in train.tolist()]
            self.validation: Iterable[BaseData] = DataLoader(
                [graphs[i] for i in val.tolist()], BATCH
            )
        else:
            kept = graphs
            self.validation = _batches(validation, graphs[0])
        self.loader = loader if loader is not None else DataLoader(kept, BATCH, shuffle=True)
        self.example = moved(next(iter(DataLoader(kept, BATCH))), self.device)
        outputs = columns_of(model, self.example, min(len(kept), BATCH), "graphs")
        labels = labels_of(kept).to(self.device)
        flat = labels.squeeze(1) if labels.size(1) == 1 else labels
        self.objective = objective_of(flat, outputs)
        with torch.random.fork_rng(devices=[]):
            found = [self._labels(batch, batch.num_graphs) for batch in self.validation]
        if not found:
            raise DistillError("validation must hold a graph at least, got none")
        check_targets(torch.cat(found), self.objective, outputs, "validation")
        if loader is not None:
            check_anew(loader, "loader")
        self.steps = -(-len(kept) // BATCH) if loader is None else len(list(loader))

    def _labels(self, batch: BaseData, count: int) -> Tensor:
        y: Tensor = batch.y.view(count, -1)
        if self.objective.metric == "accuracy":
            return y.squeeze(1).long()
        return y.to(torch.get_default_dtype())

    def parts(self) -> Iterator[Part]:
        """Batches of training graphs."""
        is_empty = True
        for given in self.loader:
            is_empty = False
            if not hasattr(given, "num_graphs"):
                raise DistillError(f"loader must give batches of graphs, got {name_type(given)}")
            batch = moved(given, self.device)
            count: int = batch.num_graphs
            yield Part(batch, None, None, self._labels(batch, count))
        if is_empty:
            raise DistillError("loader must give a batch at least, got none")

    def results(self, model: nn.Module) -> dict[str, tuple[Tensor, Tensor]]:
        """Scores of the validation graphs."""
        scores, labels = [], []
        for given in self.validation:
            batch = moved(given, self.device)
            scores.append(call(model, batch))
            labels.append(self._labels(batch, batch.num_graphs))
        return {"val": (torch.cat(scores), torch.cat(labels))}


def _check_graphs(graphs: Sequence[Any], like: BaseData, name: str) -> None:
    """Refuse what is no graph, or has other features than the first one."""
    for i, graph in enumerate(graphs):
        if not isinstance(graph, BaseData):
            raise DistillError(f"{name}[{i}] must be a graph, got {name_type(graph)}")
        check_graph(graph, f"{name}[{i}]")
        if graph.x.shape[1:] != like.x.shape[1:]:
            raise DistillError(
                f"{name}[{i}].x must be [N, {', '.join(map(str, like.x.shape[1:]))}] as that of "
                f"data[0], got {list(graph.x.shape)}"
            )


def _batches(validation: Any, like: BaseData) -> Iterable[BaseData]:
    """A loader as it is, or batches of graphs."""
    check_anew(validation, "validation")
    if hasattr(validation, "batch_size") or isinstance(validation, DataLoader):
        return validation
    graphs = list(validation)
    _check_graphs(graphs, like, "validation")
    if graphs:
        labels_of(graphs, "validation")
    return DataLoader(graphs, BATCH)


def has_links(data: Any) -> bool:
    """Whether a graph names pairs of nodes as labels."""
    names = ("edge_label_index", "pos_edge_label_index")
    return any(getattr(data, name, None) is not None for name in names)


class LinkPairs(Problem):
    """Links of one graph, as ``torch_geometric.transforms.RandomLinkSplit`` makes them.

    Pairs of a training step are the graph's positive ones and as many drawn at random; a model's
    score of a pair is its ``decode`` or ``decoder`` before the sigmoid, or the inner product of
    what it gives for both nodes.

    Args:
        data: training graph with ``edge_label_index`` or ``pos_edge_label_index``.
        model: gives ``[N, D]`` for nodes, by ``encode`` where it has one.
        validation: graph with pairs of both kinds, as ``data``; None or a share holds out some of
            the training pairs.
        seed: of the share.

    Raises:
        DistillError: pairs are missing or out of range.
    """

    def __init__(self, data: Data, model: nn.Module, validation: Any, seed: int) -> None:
        self.device = next(model.parameters()).device
        check_graph(data)
        if getattr(data, "edge_index", None) is None:
            raise DistillError("data.edge_index is missing; links are learnt from a graph's edges")
        self.objective = Links()
        self.example = self.graph = moved(data, self.device)
        positive, _ = _pairs(self.graph, "data")
        if isinstance(validation, BaseData):
            self.val_graph = moved(validation, self.device)
            self.val_positive, self.val_negative = _pairs(self.val_graph, "validation")
        elif validation is not None and not isinstance(validation, float):
            raise DistillError(
                "validation must be a graph with pairs, or a share of them, got "
                f"{name_type(validation)}"
            )
        else:
            share = HELD_OUT if validation is None else validation
            rows = torch.arange(positive.size(1), device=self.device)
            ones = torch.ones(rows.numel(), dtype=torch.int64)
            train, val = held_out(rows, ones, share, seed, "validation")
            self.val_graph = self.graph
            self.val_positive, self.val_negative = positive[:, val], positive[:, :0]
            positive = positive[:, train]
        if self.val_negative.size(1) == 0:
            torch.manual_seed(seed)
            self.val_negative = self._draw(self.val_positive.size(1))
        self.positive = positive
        self.steps = 1

    def _draw(self, count: int) -> Tensor:
        return negative_sampling(self.graph.edge_index, self.graph.num_nodes, count)

    def parts(self) -> Iterator[Part]:
        """The graph with its positive pairs and as many drawn ones."""
        negative = self._draw(self.positive.size(1))
        pairs = torch.cat((self.positive, negative), dim=1)
        y = torch.zeros(pairs.size(1), 1, device=self.device)
        y[: self.positive.size(1)] = 1
        yield Part(self.graph, None, None, y, pairs=pairs)

    def scores(self, model: nn.Module, part: Part) -> Tensor:
        """``[P, 1]`` scores of the pairs."""
        assert part.pairs is not None
        return _link_scores(model, part.data, part.pairs)

    def results(self, model: nn.Module) -> dict[str, tuple[Tensor, Tensor]]:
        """Scores of validation pairs."""
        pairs = torch.cat((self.val_positive, self.val_negative), dim=1)
        y = torch.zeros(pairs.size(1), 1, device=self.device)
        y[: self.val_positive.size(1)] = 1
        return {"val": (_link_scores(model, self.val_graph, pairs), y)}


def _link_scores(model: nn.Module, data: BaseData, pairs: Tensor) -> Tensor:
    encode = getattr(model, "encode", model)
    z = call(encode, data)
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
    positive = getattr(data, "pos_edge_label_index", None)
    negative = getattr(data, "neg_edge_label_index", None)
    both = getattr(data, "edge_label_index", None)
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
        if pairs.numel() and not 0 <= int(pairs.min()) <= int(pairs.max()) < data.num_nodes:
            raise DistillError(
                f"{name}.edge_label_index must be nodes 0 to {data.num_nodes - 1}, got "
                f"{int(pairs.min())} to {int(pairs.max())}"
            )
    return positive, negative

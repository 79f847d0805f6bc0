"""What is learnt on: nodes of a graph, graphs, or links, as parts that one step takes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.data.data import BaseData

from bitgnn._checks import name_type
from bitgnn._interpreter import warn
from bitgnn.distillation.calling import Inputs, call, moved
from bitgnn.distillation.checks import (
    check_anew,
    check_graph,
    check_targets,
    columns_of,
    length_of,
    rows_of,
)
from bitgnn.distillation.errors import DistillError
from bitgnn.distillation.objectives import Objective, objective_of
from bitgnn.distillation.targets import smoothed

__all__ = ["HELD_OUT", "Nodes", "Part", "Problem", "held_out"]

HELD_OUT = 0.2
"""Share of the training labels that serve for validation where there are none."""
LEAST_WEIGHT = 0.3
"""Of the teacher of nodes, and of their models' dropout, however many nodes are labelled."""


@dataclass(frozen=True)
class Part:
    """What one step sees.

    Attributes:
        data: graph or batch as models take it, on the device.
        rows: of the scores that the teacher is asked for; None for all.
        labelled: rows of the scores that have a training label; None for all.
        y: their labels.
        nodes: numbers of ``rows`` in the whole graph, where the teacher's scores of it serve.
        pairs: ``[2, P]`` nodes whose link is scored.
    """

    data: Any
    rows: Tensor | None
    labelled: Tensor | None
    y: Tensor
    nodes: Tensor | None = None
    pairs: Tensor | None = None


class Problem(ABC):
    """Data with labels, and how a model is scored on it.

    Attributes:
        objective: loss and metric.
        example: a graph or batch that a model can be tried on, on the device.
        device: where all of it is.
        steps: parts of an epoch.
        keeps_weights: whether a student starts from the teacher's weights, not from fresh ones.
        repeats: whether each epoch sees the same tensors.
        teacher_options: what is special about the recipe of the teacher.
        student_options: the same of the student.
    """

    keeps_weights: ClassVar[bool] = False
    repeats: bool = False
    teacher_options: Mapping[str, Any] = {}
    student_options: Mapping[str, Any] = {}

    objective: Objective
    example: Inputs
    device: torch.device
    steps: int

    @abstractmethod
    def parts(self) -> Iterator[Part]:
        """The parts of an epoch."""

    def scores(self, model: nn.Module, part: Part) -> Tensor:
        """``[n, C]`` scores of a part's rows."""
        return call(model, part.data)

    @abstractmethod
    def results(self, model: nn.Module) -> dict[str, tuple[Tensor, Tensor]]:
        """Scores and labels of ``val`` and, where there are some, ``test``, in evaluation."""

    def overfit(self, model: nn.Module) -> tuple[float, int] | None:
        """Score of the training rows less that of the validation rows, and how many train.

        None where training rows are drawn anew or too many to look at.
        """
        del model
        return None

    def wanted(self, teacher: nn.Module, sharpen: float, smooth: bool) -> tuple[Tensor | None, str]:
        """What the teacher asks of all rows at once, and how it was smoothed.

        None where each part asks the teacher itself.
        """
        del teacher, sharpen, smooth
        return None, "none"


def held_out(rows: Tensor, y: Tensor, share: float, seed: int, what: str) -> tuple[Tensor, Tensor]:
    """Training and validation rows from training rows alone; a warning says so.

    Args:
        rows: indices of training rows.
        y: labels of all rows; of classes each gives its share.
        share: for validation.
        seed: of the draw.
        what: is missing, for the warning.

    Raises:
        DistillError: there are too few, or the share is none.
    """
    if not 0 < share < 1:
        raise DistillError(f"validation must be a share between 0 and 1, got {share:g}")
    generator = torch.Generator().manual_seed(seed)
    order = rows.cpu()[torch.randperm(rows.numel(), generator=generator)]
    if not y.is_floating_point() and y.dim() == 1:
        # The first of each class in a row, then the second, and so on, so that all have a share.
        classes = y.cpu()[order]
        rank = torch.zeros_like(order)
        for label in classes.unique():
            mine = (classes == label).nonzero().flatten()
            rank[mine] = torch.arange(mine.numel())
        order = order[rank.argsort(stable=True)]
    count = round(share * order.numel())
    if not 0 < count < order.numel():
        raise DistillError(
            f"{what} is missing and {order.numel()} training labels are too few to take some of "
            "them; pass validation="
        )
    warn(
        f"distill: {what} is missing; {count} of {order.numel()} training labels, drawn at random, "
        "are held out in its place"
    )
    return order[count:].to(rows.device), order[:count].to(rows.device)


class Nodes(Problem):
    """Nodes of one graph, each with a class, with labels of its own, or with values.

    The teacher's weight is the share of nodes without a training label: few labels say less than
    the teacher, and where there are many, it is not needed.

    Args:
        data: the graph, with ``x``, ``y``, ``train_mask`` and what the forward takes.
        model: for its number of scores.
        loader: batches of the graph (``bitgnn.data.NeighborLoader``, PyG's); None is the whole.
        validation: mask or indices of validation nodes, or a share of the training nodes; None is
            ``val_mask``.
        seed: of the share.

    Raises:
        DistillError: something is missing, of another length, or nothing can be learnt from it.
    """

    def __init__(
        self,
        data: Data,
        model: nn.Module,
        loader: Iterable[BaseData] | None,
        validation: Tensor | float | None,
        seed: int,
    ) -> None:
        self.device = next(model.parameters()).device
        check_graph(data)
        count = data.x.size(0)
        if getattr(data, "train_mask", None) is None:
            raise DistillError(
                "data.train_mask is missing; it names the nodes whose labels are for training "
                "(torch_geometric.transforms.RandomNodeSplit makes one)"
            )
        y = getattr(data, "y", None)
        if not isinstance(y, Tensor) or y.dim() == 0 or y.size(0) != count:
            got = "nothing" if y is None else type(y).__name__
            got = str(list(y.shape)) if isinstance(y, Tensor) else got
            raise DistillError(f"data.y must have a row for each of {count} nodes, got {got}")
        train = rows_of(data.train_mask, count, "data.train_mask", self.device)
        self.example = self.graph = moved(data, self.device)
        outputs = columns_of(model, self.graph, count, "nodes")
        y = y.to(self.device)
        y = y if y.is_floating_point() else y.long()
        if y.dim() == 2 and y.size(1) == 1 and not y.is_floating_point():
            y = y.squeeze(1)
        self.objective = objective_of(y[train], outputs)
        if self.objective.metric == "R²":
            y = y.view(count, -1).to(torch.get_default_dtype())
        elif y.dim() == 2:
            y = y.to(torch.get_default_dtype())
        self.y = y
        val_mask = getattr(data, "val_mask", None)
        if isinstance(validation, Tensor) or (validation is None and val_mask is not None):
            given = val_mask if validation is None else validation
            name = "data.val_mask" if validation is None else "validation"
            val = rows_of(given, count, name, self.device)
            if bool(torch.isin(val, train).any()):
                raise DistillError(f"{name} must have no training node, got some of train_mask")
        else:
            share = HELD_OUT if validation is None else validation
            train, val = held_out(train, y, share, seed, "data.val_mask")
        self.train, self.val = train, val
        test_mask = getattr(data, "test_mask", None)
        has_test = test_mask is not None and bool(test_mask.any())
        self.test = rows_of(test_mask, count, "data.test_mask", self.device) if has_test else None
        for name, rows in (("validation", self.val), ("data.test_mask", self.test)):
            if rows is not None:
                check_targets(y[rows], self.objective, outputs, name)
        if loader is not None:
            check_anew(loader, "loader")
        self.loader, self.repeats = loader, loader is None
        self.is_train = torch.zeros(count, dtype=torch.bool, device=self.device)
        self.is_train[train] = True
        unlabelled = max(LEAST_WEIGHT, 1 - train.numel() / count)
        self.student_options = {"teacher_weight": unlabelled}
        self.steps = 1 if loader is None else length_of(loader)

    def parts(self) -> Iterator[Part]:
        """The graph, or the loader's batches that have a training node."""
        if self.loader is None:
            yield Part(self.graph, None, self.train, self.y[self.train])
            return
        is_empty = True
        for batch in self.loader:
            is_empty = False
            self._check_batch(batch)
            nodes = getattr(batch, "n_id", None)
            size = getattr(batch, "batch_size", None)
            seeds = batch.x.size(0) if size is None else size
            batch = moved(batch, self.device)
            if nodes is not None:
                nodes = nodes[:seeds].to(self.device)
                labelled = self.is_train[nodes].nonzero().flatten()
                y = self.y[nodes[labelled]]
            else:
                labelled = batch.train_mask[:seeds].nonzero().flatten()
                y = batch.y[labelled]
                if self.y.dtype.is_floating_point:
                    y = y.view(labelled.numel(), -1)
                y = y.to(self.y.dtype)
            if seeds:
                rows = torch.arange(seeds, device=self.device)
                yield Part(batch, rows, labelled, y, nodes)
        if is_empty:
            raise DistillError("loader must give a batch at least, got none")

    def _check_batch(self, batch: Any) -> None:
        """Refuse a batch that is no part of the graph."""
        if not isinstance(batch, BaseData) or getattr(batch, "x", None) is None:
            raise DistillError(
                f"loader must give parts of the graph, with x, got {name_type(batch)}"
            )
        if all(getattr(batch, name, None) is None for name in ("n_id", "train_mask")):
            raise DistillError(f"loader must give n_id or train_mask in each batch, got {batch}")

    def results(self, model: nn.Module) -> dict[str, tuple[Tensor, Tensor]]:
        """Scores of the whole graph's validation and test nodes."""
        scores = call(model, self.graph)
        found = {"val": (scores[self.val], self.y[self.val])}
        if self.test is not None:
            found["test"] = scores[self.test], self.y[self.test]
        return found

    @torch.no_grad()
    def overfit(self, model: nn.Module) -> tuple[float, int]:
        """Score of the training nodes less that of the validation nodes, and how many train."""
        scores, score = call(model, self.graph), self.objective.score
        train, val = (score(scores[rows], self.y[rows]) for rows in (self.train, self.val))
        return float(train - val), self.train.numel()

    @torch.no_grad()
    def wanted(self, teacher: nn.Module, sharpen: float, smooth: bool) -> tuple[Tensor | None, str]:
        """The teacher's answer on the whole graph, smoothed if it is about classes."""
        scores = call(teacher, self.graph)
        edge_index = getattr(self.graph, "edge_index", None)
        if self.objective.metric != "accuracy" or edge_index is None or not smooth:
            return self.objective.wanted(scores, sharpen), "none"
        logs = torch.log_softmax(scores.float(), dim=-1)
        logs, smoothing = smoothed(logs, edge_index, self.y, self.train, self.val)
        return self.objective.wanted(logs, sharpen), str(smoothing)

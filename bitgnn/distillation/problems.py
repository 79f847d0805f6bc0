"""Training data as parts that one step takes; nodes of a graph, the first kind of problem."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils.data import DistributedSampler
from torch_geometric.data import Data
from torch_geometric.data.data import BaseData

from bitgnn._checks import name_type
from bitgnn._interpreter import warn
from bitgnn.distillation.calling import (
    DistillError,
    Inputs,
    call,
    check_anew,
    check_graph,
    check_range,
    columns_of,
    length_of,
    moved,
)
from bitgnn.distillation.objectives import Objective, objective_of, smoothed

HELD_OUT = 0.2
"""Share of the training labels that serve for validation where there are none."""
LEAST_WEIGHT = 0.3
"""Of the teacher of nodes, and of their models' dropout, however many nodes are labelled."""
Results = dict[str, tuple[Tensor, Tensor]]
"""Scores and labels of ``val`` and, where there are some, ``test``."""


@dataclass(frozen=True)
class Part:
    """Data of one step: a graph or batch as models take it, on the device.

    ``rows`` are those of the scores that the teacher is asked for, ``labelled`` those with a
    training label, which is in ``y``; None is all. ``nodes`` are the numbers of ``rows`` in the
    whole graph, where the teacher's scores of it serve; ``pairs`` ``[2, P]`` whose link is scored.
    """

    data: Any
    rows: Tensor | None
    labelled: Tensor | None
    y: Tensor
    nodes: Tensor | None = None
    pairs: Tensor | None = None


class Problem(ABC):
    """Data with labels, and the score of a model on it."""

    keeps_weights: ClassVar[bool] = False
    """True if a student starts from the teacher's weights, not from fresh ones."""
    repeats: bool = False
    """True if each epoch sees the same tensors."""
    sampler: DistributedSampler[Any] | None = None
    """Sampler that deals the parts to several ranks."""
    teacher_options: Mapping[str, Any] = {}
    student_options: Mapping[str, Any] = {}
    """Options that differ from the default recipes."""

    objective: Objective
    example: Inputs
    """A graph or batch that a model can be tried on, on the device."""
    device: torch.device
    steps: int
    """Parts of an epoch."""

    @abstractmethod
    def parts(self) -> Iterator[Part]:
        """The parts of an epoch."""

    def scores(self, model: nn.Module, part: Part) -> Tensor:
        """``[n, C]`` scores of a part's rows."""
        return call(model, part.data)

    @abstractmethod
    def results(self, model: nn.Module) -> Results:
        """Scores and labels of validation and test rows, in evaluation."""

    def overfit(self, model: nn.Module) -> tuple[float, int] | None:
        """Training score minus validation score, and the number of training rows.

        None where training rows are drawn anew or too many to look at.
        """
        del model
        return None

    def wanted(self, teacher: nn.Module, sharpen: float, smooth: bool) -> tuple[Tensor | None, str]:
        """The teacher's targets for all rows, and the smoothing applied to them.

        None where each part asks the teacher itself.
        """
        del teacher, sharpen, smooth
        return None, "none"


def held_out(
    rows: Tensor, y: Tensor, share: float | None, seed: int, what: str
) -> tuple[Tensor, Tensor]:
    """Split training rows into training and validation, with a warning.

    Of classes in ``y``, the labels of all rows, each gives its share; ``what`` is missing.
    """
    share = HELD_OUT if share is None else share
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


def rows_of(value: Any, count: int, name: str, device: torch.device) -> Tensor:
    """Indices of a bool mask ``[count]``; int64 indices stay."""
    if not isinstance(value, Tensor):
        raise DistillError(f"{name} must be a mask or indices, got {type(value).__name__}")
    rows = value
    if value.dtype == torch.bool:
        if value.shape != (count,):
            raise DistillError(
                f"{name} must be bool [{count}], got {list(value.shape)}; of several splits "
                "choose one"
            )
        rows = value.nonzero().flatten()
    elif value.dtype != torch.int64 or value.dim() != 1:
        raise DistillError(
            f"{name} must be bool or int64 of one dimension, got {value.dtype} {list(value.shape)}"
        )
    check_range(rows, count, f"{name} must be indices in")
    if rows.numel() == 0:
        raise DistillError(f"{name} is empty")
    return rows.to(device)


def joined(batches: Iterable[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Scores and labels of all batches."""
    scores, labels = zip(*batches, strict=True)
    return torch.cat(scores), torch.cat(labels)


class Nodes(Problem):
    """Nodes of one graph, each with a class, with labels of its own, or with values.

    The teacher's weight is the share of nodes without a training label: few labels say less than
    the teacher, and where there are many, it is not needed. ``loader`` gives batches of the graph;
    ``validation`` is a mask, indices, or a share of the training nodes, None ``val_mask``.
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
        self.objective = objective_of(y[train], outputs)
        self.y = y = self.objective.form(y, count)
        val_mask = getattr(data, "val_mask", None)
        if isinstance(validation, Tensor) or (validation is None and val_mask is not None):
            given = val_mask if validation is None else validation
            name = "data.val_mask" if validation is None else "validation"
            val = rows_of(given, count, name, self.device)
            if bool(torch.isin(val, train).any()):
                raise DistillError(f"{name} must have no training node, got some of train_mask")
        else:
            train, val = held_out(train, y, validation, seed, "data.val_mask")
        self.train, self.val = train, val
        test_mask = getattr(data, "test_mask", None)
        has_test = test_mask is not None and bool(test_mask.any())
        self.test = rows_of(test_mask, count, "data.test_mask", self.device) if has_test else None
        for name, rows in (("validation", self.val), ("data.test_mask", self.test)):
            if rows is not None:
                self.objective.check(y[rows], outputs, name)
        if loader is not None:
            check_anew(loader, "loader")
        self.loader, self.repeats = loader, loader is None
        self.is_train = torch.zeros(count, dtype=torch.bool, device=self.device)
        self.is_train[train] = True
        unlabelled = max(LEAST_WEIGHT, 1 - train.numel() / count)
        self.student_options = {"teacher_weight": unlabelled}
        self.steps = 1 if loader is None else length_of(loader)

    def parts(self) -> Iterator[Part]:
        """The graph, or the loader's batches."""
        if self.loader is None:
            yield Part(self.graph, None, self.train, self.y[self.train])
            return
        batch = None
        for batch in self.loader:
            yield from self._part(batch)
        if batch is None:
            raise DistillError("loader must give a batch at least, got none")

    def _part(self, batch: Any) -> Iterator[Part]:
        """The batch, or None if it is empty."""
        if not isinstance(batch, BaseData) or getattr(batch, "x", None) is None:
            raise DistillError(
                f"loader must give parts of the graph, with x, got {name_type(batch)}"
            )
        nodes, mask = (getattr(batch, name, None) for name in ("n_id", "train_mask"))
        if nodes is None and mask is None:
            raise DistillError(f"loader must give n_id or train_mask in each batch, got {batch}")
        size = getattr(batch, "batch_size", None)
        seeds = batch.x.size(0) if size is None else size
        if not seeds:
            return
        batch = moved(batch, self.device)
        if nodes is not None:
            nodes = nodes[:seeds].to(self.device)
            labelled = self.is_train[nodes].nonzero().flatten()
            y = self.y[nodes[labelled]]
        else:
            labelled = batch.train_mask[:seeds].nonzero().flatten()
            y = self.objective.form(batch.y, batch.y.size(0))[labelled]
        yield Part(batch, torch.arange(seeds, device=self.device), labelled, y, nodes)

    def results(self, model: nn.Module) -> Results:
        """Scores of the whole graph's validation and test nodes."""
        scores = call(model, self.graph)
        parts = {"val": self.val, "test": self.test}
        return {n: (scores[rows], self.y[rows]) for n, rows in parts.items() if rows is not None}

    @torch.no_grad()
    def overfit(self, model: nn.Module) -> tuple[float, int]:
        """Training score minus validation score, and the number of training nodes."""
        scores, score = call(model, self.graph), self.objective.score
        train, val = (score(scores[rows], self.y[rows]) for rows in (self.train, self.val))
        return float(train - val), self.train.numel()

    @torch.no_grad()
    def wanted(self, teacher: nn.Module, sharpen: float, smooth: bool) -> tuple[Tensor | None, str]:
        """The teacher's scores on the whole graph, smoothed if they are of classes."""
        scores = call(teacher, self.graph)
        edge_index = getattr(self.graph, "edge_index", None)
        if self.objective.metric != "accuracy" or edge_index is None or not smooth:
            return self.objective.wanted(scores, sharpen), "none"
        logs = torch.log_softmax(scores.float(), dim=-1)
        logs, smoothing = smoothed(logs, edge_index, self.y, self.train, self.val)
        return self.objective.wanted(logs, sharpen), str(smoothing)

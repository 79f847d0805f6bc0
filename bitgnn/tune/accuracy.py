"""Accuracy of letters on validation nodes, without training, measured once for equal results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bitgnn.convert import Plan
from bitgnn.convert.network.trace import evaluating
from bitgnn.tune.space import Space
from bitgnn.tune.workload import Workload


@dataclass(frozen=True)
class Score:
    """Scores of a model as shares or areas under the curve.

    Attributes:
        validation: of the validation nodes, by which plans are chosen.
        test: of the test nodes, to be reported only; None without a test mask.
    """

    validation: float
    test: float | None = None


@torch.no_grad()
def logits_of(model: nn.Module, x: Tensor, graph: Any) -> Tensor:
    """``[N, C]`` logits of a model in evaluation mode, which is left in its own."""
    with evaluating(model):
        logits: Tensor = model(x, graph)
    return logits


def score_logits(workload: Workload, logits: Tensor) -> Score:
    """Scores of ``[N, C]`` logits."""
    masks = [mask for mask in (workload.val_mask, workload.test_mask) if _has_nodes(mask)]
    scores = workload.metric_of(*masks)(logits).tolist()  # type: ignore[arg-type]
    return Score(*scores)


class Accuracy:
    """Scores plans with the weights the model has.

    Plans with equal :meth:`Space.values_key` are frozen and run once, and share a score.

    Args:
        space: of the plans.
    """

    def __init__(self, space: Space) -> None:
        self.space = space
        self._known: dict[str, Score] = {}

    def of(self, plan: Plan) -> Score:
        """The score of a plan.

        Raises:
            ValueError: the plan does not fit the model.
        """
        key = self.space.values_key(plan.letters, plan.order)
        if key not in self._known:
            self._known[key] = self._measure(Plan(plan.letters, plan.order))
        return self._known[key]

    def _measure(self, plan: Plan) -> Score:
        return score_logits(self.space.workload, self.space.candidates.make(plan).kernels())


def _has_nodes(mask: Tensor | None) -> bool:
    return mask is not None and bool(mask.any())

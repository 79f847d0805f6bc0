"""Other weights for plans that were measured: time that a search has left goes into training."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from torch import nn

from bitgnn.convert import Plan
from bitgnn.convert.in_letters import own_letters
from bitgnn.tune.accuracy import Score, score_logits
from bitgnn.tune.budget import Budget
from bitgnn.tune.candidate import Candidates
from bitgnn.tune.result import TuneResult, choose
from bitgnn.tune.workload import Workload

__all__ = ["improved"]


def improved(
    result: TuneResult,
    workload: Workload,
    trained: Iterable[tuple[str, nn.Module]],
    budget: Budget,
) -> TuneResult:
    """The result with the best weights of each measured plan.

    Latency and memory of a plan do not depend on its weights, so that nothing is timed again.

    Args:
        result: of a search.
        workload: what was searched.
        trained: a title and other weights of the same model, one after the other.
        budget: for the time that it took in all.

    Returns:
        A result with the plan chosen anew; ``own`` is the best score of a model by itself.
    """
    points = list(result.points)
    models: dict[int, nn.Module] = {}
    titles: list[str] = []
    own = result.own
    for title, model in trained:
        titles.append(title)
        scores = _Scores(replace(workload, model=model))
        own = max(own, scores.of(Plan(own_letters(model))).validation)
        for place, point in enumerate(result.points):
            if point.plan is None or point.epochs:
                continue
            score = scores.of(point.plan)
            if score.validation > points[place].score.validation:
                points[place] = replace(point, name=f"{point.name}, {title}", score=score)
                models[place] = model
    if not titles:
        return result
    best = choose(points, result.constraints, result.reference, result.objective)
    place = next(place for place, point in enumerate(points) if point is best)
    remark = (
        f"The remaining time went into {len(titles)} more training run"
        f"{'s' if len(titles) > 1 else ''} ({', '.join(titles)}); each plan uses the weights that "
        "score best on the validation nodes."
    )
    return replace(
        result,
        recommended=best,
        model=models.get(place, result.model),
        points=tuple(points),
        own=own,
        seconds=budget.spent,
        remarks=(*result.remarks, remark),
    )


class _Scores:
    """Scores of plans with one model, each asked once."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._candidates = Candidates(workload)
        self._known: dict[Plan, Score] = {}

    def of(self, plan: Plan) -> Score:
        values = Plan(plan.letters, plan.order)
        if values not in self._known:
            logits = self._candidates.make(values).kernels()
            self._known[values] = score_logits(self._workload, logits)
        return self._known[values]

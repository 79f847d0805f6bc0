"""Other weights for plans that were measured: time that a search has left goes into training."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from torch import nn

from bitgnn.tune.accuracy import Accuracy
from bitgnn.tune.budget import Budget
from bitgnn.tune.result import TuneResult, choose
from bitgnn.tune.space import Space
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
        accuracy = Accuracy(Space.from_workload(replace(workload, model=model)))
        own = max(own, accuracy.own.validation)
        for place, point in enumerate(result.points):
            if point.plan is None or point.epochs:
                continue
            score = accuracy.of(point.plan)
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

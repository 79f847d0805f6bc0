"""Why a plan is recommended, or which limits no plan keeps, in sentences."""

from __future__ import annotations

from bitgnn.measure.report import format_bytes, format_seconds
from bitgnn.tune.objective import Measures
from bitgnn.tune.reference import AS_GIVEN
from bitgnn.tune.result import Point, TuneResult

__all__ = ["reasons_for"]

LEAST_POINTS = 0.005
"""Differences of accuracy below this are none."""
POOR_POINTS = 5.0
"""A model that loses so much to fp32 was trained too little, whatever the limits are."""


def reasons_for(result: TuneResult) -> tuple[str, ...]:
    """Why the recommended plan, in sentences; the first one says whether limits are missed.

    Args:
        result: of a search.
    """
    best = result.recommended
    assert best.plan is not None
    found = best.measures
    facts = (
        f"{format_seconds(found.latency)} per forward pass, {format_bytes(found.memory)}, "
        f"{100 * found.accuracy:.2f}% on the validation nodes, {_change(result, found.accuracy)}"
    )
    if result.missed is None:
        limits = " and ".join(map(str, result.constraints)) or "no limits"
        lines = [
            f"Take {best.plan.describe()}.",
            f"It has the best {result.objective} of {result.measured} measured plans under "
            f"{limits}: {facts}.",
        ]
    else:
        lines = [
            f"No plan is recommended: {result.missed}.",
            f"The plan nearest to the limits is {best.plan.describe()}: {facts}.",
        ]
    if result.doubt is not None and not result.meets(best):
        lines.append(f"Accuracies are lower than they can be: {result.doubt}.")
    lines += _poor(result)
    if best.gpu_seconds is not None:
        lines.append(
            f"Of the {format_seconds(found.latency)} from a call until its result is there the GPU "
            f"works {format_seconds(best.gpu_seconds)}; the rest is the host's, which launches and "
            "waits."
        )
    if best.epochs:
        lines.append(f"Its weights were fine-tuned for {best.epochs} epochs in these letters.")
    if result.missed is None:
        lines += [f"{_against(found, point)}." for point in result.points if point.plan is None]
        lines += _next_best(result)
    lines += result.remarks
    share = result.measured / max(result.space, 1)
    lines.append(
        f"{result.measured} of {result.space} plans were measured in turns ({share:.0%}), "
        f"{len(result.trials)} timed briefly, in {result.seconds:.0f} s."
    )
    if not result.complete:
        lines.append("The time was up before everything was looked at; more may find better.")
    if result.noise:
        lines.append(f"{result.noise[0].upper()}{result.noise[1:]}.")
    return tuple(lines)


def _change(result: TuneResult, accuracy: float) -> str:
    """An accuracy beside the one that the loss is counted from."""
    drop = 100 * (result.reference - accuracy)
    change = f"{drop:.2f} points below" if drop > 0 else f"{-drop:.2f} points above"
    change = "the same as" if abs(drop) < LEAST_POINTS else change
    score = "" if abs(drop) < LEAST_POINTS else f" ({100 * result.reference:.2f}%)"
    return f"{change} {result.counted_from}{score}"


def _poor(result: TuneResult) -> list[str]:
    """A word on a model that no plan can make good."""
    drop = 100 * (result.reference - result.own)
    if result.counted_from == AS_GIVEN or drop < POOR_POINTS:
        return []
    return [
        f"The model itself has only {100 * result.own:.2f}% on the validation nodes, "
        f"{drop:.2f} points less than {result.counted_from}: train it longer before tuning, or use "
        "finetune to train the finalists."
    ]


def _against(found: Measures, point: Point) -> str:
    """The recommended plan beside a baseline."""
    other = point.measures
    points = 100 * (found.accuracy - other.accuracy)
    return (
        f"Beside {point.name}: {other.latency / found.latency:.2f} times as fast, "
        f"{other.memory / found.memory:.2f} times less memory, {points:+.2f} points of accuracy"
    )


def _next_best(result: TuneResult) -> list[str]:
    """Which faster or smaller plan was passed over, and why."""
    best = result.recommended.measures.rank(result.objective)
    passed = [
        point
        for point in result.points
        if point.plan is not None
        and point.measures.rank(result.objective) < best
        and not result.meets(point)
    ]
    if not passed:
        return []
    point = min(passed, key=lambda p: p.measures.rank(result.objective))
    assert point.plan is not None
    missed = [
        f"{limit.what} {limit.show(limit.value(point.measures, result.reference))}"
        for limit in result.constraints
        if not limit.is_met(point.measures, result.reference)
    ]
    return [
        f"Passed over: {point.plan.describe()} with {format_seconds(point.timing.median)}, "
        f"for it misses a limit ({', '.join(missed)})."
    ]

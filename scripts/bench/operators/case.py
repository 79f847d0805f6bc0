"""One operator against its baselines and the machine's ceilings, and checks of results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from bench.cases import Contender, Goal, Record, WrongResultError, fastest, same_call, time_in_turns
from bench.report import format_reached
from bitgnn.bits import BitAdjacency, BitTensor
from bitgnn.measure.timing import Clock
from bitgnn.ops import bmm, bspmm

SEED = 0
OURS = "ours"


@dataclass(frozen=True)
class OperatorCase:
    """One comparison of an operator.

    Attributes:
        group: heading it belongs to, such as ``"BMM"``.
        name: what is measured, with its shape.
        ours: the function under test.
        baselines: name to function; the fastest one is what the ratio is taken against.
        target: on the CPU, ratio to reach, None where none is set.
        goal: on CUDA, figure to reach, None where none is set.
        work: operations, bytes or edges of one call, for a rate.
        unit: of ``work``.
        ceiling_seconds: what the measured ceilings of the device allow at best.
        binds: which ceiling that is.
        check: whether the result under test is right; run once before timing.
        details: anything else worth keeping with the numbers.
    """

    group: str
    name: str
    ours: Callable[[], Any]
    baselines: Mapping[str, Callable[[], Any]]
    target: float | None = None
    goal: Goal | None = None
    work: float | None = None
    unit: str = ""
    ceiling_seconds: float | None = None
    binds: str = ""
    check: Callable[[], bool] | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    def run(self, clock: Clock, repeats: int) -> Record:
        """Checks and times the operator and its baselines."""
        if self.check is not None and not self.check():
            raise WrongResultError(f"{self.name} gives a wrong result")
        calls = {OURS: self.ours, **self.baselines}
        contenders = [Contender(name, name == OURS, same_call(fn)) for name, fn in calls.items()]
        for contender in contenders:
            contender.prepare(clock)
        time_in_turns(contenders, clock, repeats)
        for contender in contenders:
            if contender.failure is not None:
                raise RuntimeError(f"{contender.name}: {contender.failure}")
        times = {contender.name: contender.times["timing"] for contender in contenders}
        seconds, best = times[OURS].median, fastest(contenders, ours=False)
        record = {
            "checked": self.check is not None,
            "ratio": None if best is None else times[best.name].median / seconds,
            "best_baseline": None if best is None else best.name,
            "ours": times.pop(OURS).to_dict(),
            "baselines": {name: timing.to_dict() for name, timing in times.items()},
            **self.details,
        }
        if clock.device == "cpu":
            return {**record, "target": self.target}
        rate = None if self.work is None else self.work / seconds
        goal, ceiling, reached = self.goal, self.ceiling_seconds, None
        if goal is not None:
            peer = goal.baseline or record["best_baseline"]
            peer_seconds = times[peer].median if peer in times else None
            reached = goal.reached(seconds, peer_seconds, rate=rate)
        return {
            **record,
            "goal": None if goal is None else vars(goal),
            "reached": reached,
            "rate": rate,
            "unit": self.unit,
            "ceiling_seconds": ceiling,
            "ceiling_fraction": None if ceiling is None else ceiling / seconds,
            "binds": self.binds,
            "in_graph": {contender.name: contender.in_graph for contender in contenders},
        }


def describe(record: Mapping[str, Any]) -> str:
    """One line of a record for the terminal."""
    parts = [f"{record['group']}: {record['name']}: {record['ours']['median'] * 1e6:.2f} us"]
    if record["best_baseline"] is not None:
        parts.append(f"{record['ratio']:.2f}x {record['best_baseline']}")
    if record.get("target") is not None:
        parts.append(f"target {record['target']:g}")
    if record.get("ceiling_fraction") is not None:
        parts.append(f"{record['ceiling_fraction']:.0%} of the ceiling")
    if record.get("reached") is not None:
        parts.append(f"{format_reached(record['reached'])} of the goal")
    noisy = any(t["noisy"] for t in [record["ours"], *record["baselines"].values()])
    return ", ".join(parts) + (" [noisy]" if noisy else "")


def packs_right(x: Tensor) -> bool:
    """True if bits are the signs of ``x``."""
    return torch.equal(BitTensor.from_float(x).to_float() > 0, x >= 0)


def multiplies_right(x: Tensor, w: BitTensor) -> bool:
    """True if BMM.FBB gives the signs of the product of signs."""
    product = torch.where(x >= 0, 1.0, -1.0) @ w.to_float().t()
    return torch.equal(bmm.fbb(x, w).to_float() > 0, product >= 0)


def pattern_sums(adjacency: BitAdjacency, x: Tensor) -> Tensor:
    """Sums of neighbours' rows without the factors; of integers they are exact."""
    ones = torch.ones(adjacency.nnz, device=x.device, dtype=x.dtype)
    pattern = torch.sparse_csr_tensor(
        adjacency.rowptr, adjacency.indices, ones, adjacency.shape, check_invariants=False
    )
    return pattern @ x


def aggregates_right(adjacency: BitAdjacency, bits: BitTensor) -> bool:
    """True if BSpMM.BBB and BBF give the sums of signs, exact in float32."""
    sums = pattern_sums(adjacency, bits.to_float())
    assert adjacency.row_scale is not None
    return torch.equal(bspmm.bbb(bits, adjacency).to_float() > 0, sums >= 0) and torch.equal(
        bspmm.bbf(bits, adjacency), adjacency.row_scale[:, None] * sums
    )


def thresholds_right(adjacency: BitAdjacency, bits: BitTensor, threshold: Tensor) -> bool:
    """True if BSpMM.BBB compares the scaled sums of signs with a threshold for each feature."""
    assert adjacency.row_scale is not None
    sums = adjacency.row_scale[:, None] * pattern_sums(adjacency, bits.to_float())
    found = bspmm.bbb(bits, adjacency, threshold=threshold)
    return torch.equal(found.to_float() > 0, sums >= threshold)

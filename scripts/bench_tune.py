"""Holds the tuner's choices against recordings of every plan: JSON and chart in scripts/results."""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from bench.command import RESULTS, parse, record
from bench.tables.tuner import tuner_table
from bench.tuner.chart import estimates_chart
from bench.tuner.predictor import Regret, choices, forwards_of, train
from bench.tuner.recording import Recording, graph_of
from bitgnn.convert import Plan
from bitgnn.measure.report import write_json
from bitgnn.measure.timing import Timing
from bitgnn.tune.accuracy import Score
from bitgnn.tune.search import FINAL_ROUNDS, Search
from bitgnn.tune.study import Trial, letters_key

NAME = "tuner"


@dataclass(frozen=True)
class Repeats:
    """What a search sees of a recorded plan, and what it is judged by.

    Attributes:
        seen: what it sees of a plan that it measures.
        final: what it sees beside these of finalists, which are measured once more.
        truth: what it never sees; nothing of plans that cannot be the best.
    """

    seen: tuple[float, ...]
    final: tuple[float, ...]
    truth: tuple[float, ...]

    @classmethod
    def of(cls, entries: Sequence[Mapping[str, Any]]) -> list[Repeats]:
        """Of each recorded plan.

        Where the fastest plans were measured once more, every other repeat of that is the truth;
        else every other repeat of all. A single one is seen and the truth.
        """
        first = [tuple(entry["timing"]["seconds"]) for entry in entries]
        again = [tuple((entry.get("again") or {"seconds": ()})["seconds"]) for entry in entries]
        if any(again):
            halves = ((more[1::2], more[::2]) for more in again)
            return [cls(f, *half) for f, half in zip(first, halves, strict=True)]
        return [cls(taken[::2], (), taken[1::2] or taken) for taken in first]


class _Replay(Search):
    """A search whose measurements are read from a recording.

    It sees a part of the repeats alone, see :class:`Repeats`, so that what it chooses is judged by
    repeats that it has not seen: a plan that was lucky in those that it sees is not the best by
    definition.
    """

    def __init__(self, entries: Sequence[Mapping[str, Any]], device: str) -> None:
        nothing: Any = SimpleNamespace(workload=SimpleNamespace(device=torch.device(device)))
        nothing.news = lambda: ({}, [])
        super().__init__(nothing, nothing, nothing, nothing)
        self.repeats: dict[Plan, Repeats] = {}
        for entry, repeats in zip(entries, Repeats.of(entries), strict=True):
            plan = Plan.from_dict(entry["plan"])
            self.repeats[plan] = repeats
            trial = Trial(plan, Score(0.0), entry["memory"]["peak"], entry["estimate"])
            self.chains.setdefault(letters_key(plan.letters), []).append(trial)

    @property
    def num_plans(self) -> int:
        """Plans recorded."""
        return len(self.repeats)

    @property
    def reference(self) -> float:
        """All recorded plans count as equally accurate: their weights are random."""
        return 0.0

    def _measure(
        self, batch: Sequence[Trial], rounds: int, others: Sequence[Callable[[], Any]] = ()
    ) -> list[Timing]:
        for trial in batch:
            repeats = self.repeats[trial.plan]
            seen = repeats.seen + repeats.final if rounds == FINAL_ROUNDS else repeats.seen
            self._put(replace(trial, timing=Timing(seen)))
        return []


def replay(entries: Sequence[Mapping[str, Any]], device: str) -> tuple[Plan, int]:
    """What a search for the least latency chooses, measuring a fifth of the plans at most.

    Returns:
        The plan, and how many were measured.
    """
    search = _Replay(entries, device)
    search.measure()
    search.final([])
    # Plans without a second measurement were slower in the first one, perhaps in better times.
    best = min(search.measured, key=lambda t: (not search.repeats[t.plan].final, t.latency))
    return best.plan, len(search.measured)


def judge(key: str, recorded: Mapping[str, Mapping[str, Any]], device: str) -> dict[str, Any]:
    """Figures of one recorded graph.

    Returns:
        Latency of the best plan and of the one chosen in repeats that the search has not seen
        (where the one chosen has none, it is as far from the best as in those that were seen), the
        fewest of these that a plan has, what a GPU works in the one chosen, the share measured, the
        median error of estimates, the share of pairs in the right order, the share of timings that
        spread by more than a quarter, and what the predictor's choices take beside the best ways.
    """
    content = recorded[key]
    entries = content["plans"]
    plans = [Plan.from_dict(entry["plan"]) for entry in entries]
    repeats = dict(zip(plans, Repeats.of(entries), strict=True))
    latency = {p: statistics.median(found.truth) for p, found in repeats.items() if found.truth}
    chosen, measured = replay(entries, device)
    best = min(latency.values())
    if chosen not in latency:
        seen = {plan: statistics.median(found.seen) for plan, found in repeats.items()}
        latency[chosen] = best * seen[chosen] / min(seen.values())
    errors = [abs(e["estimate"] / e["timing"]["median"] - 1) for e in entries]
    work = next(e["calls"] for e, plan in zip(entries, plans, strict=True) if plan == chosen)
    result = {
        "key": key,
        "name": content["name"],
        "plans": len(entries),
        "repeats": min(len(found.truth) for found in repeats.values() if found.truth),
        "space": content["plans_in_space"],
        "measured": measured,
        "share": measured / len(entries),
        "best": best,
        "chosen": latency[chosen],
        "gpu": sum(seconds for _, seconds in work) if device == "cuda" else None,
        "ratio": latency[chosen] / best,
        "plan": chosen.to_dict(),
        "error": statistics.median(errors),
        "order": _in_order([(e["estimate"], e["timing"]["median"]) for e in entries]),
        "noisy": statistics.fmean(entry["timing"]["noisy"] for entry in entries),
        "environment": content["environment"],
        "predictor": None,
    }
    others = {name: held for name, held in recorded.items() if graph_of(name) != graph_of(key)}
    if others:
        regret = Regret.of(choices(train(forwards_of(others)), forwards_of({key: content})))
        result["predictor"] = {"mean": regret.mean, "worst": regret.worst}
    return result


def _in_order(pairs: Sequence[tuple[float, float]]) -> float:
    """Share of pairs of plans whose estimates have the order of their measurements."""
    right = total = 0
    for (one, first), (other, second) in itertools.combinations(pairs, 2):
        if first != second:
            total += 1
            right += (one < other) == (first < second)
    return right / total if total else 1.0


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--recordings", type=Path, default=RESULTS, help="folder of tune_*.json")


def main(argv: Sequence[str] | None = None) -> int:
    """Judges the tuner on recordings; the exit status is 1 where there are none."""
    arguments = parse(
        "Holds the tuner's choices against recordings of every plan.",
        NAME,
        argv,
        extend=_options,
    )
    found = 0
    for device in ("cpu", "cuda"):
        path = arguments.recordings / f"tune_{device}.json"
        if not path.exists():
            print(f"{path}: not there; scripts/train_predictor.py record {device} makes it")
            continue
        graphs = Recording(path).graphs
        results = [judge(key, graphs, device) for key in graphs]
        content = record(NAME, arguments, device=device, results=results)
        output = arguments.output.with_name(f"{arguments.output.stem}_{device}.json")
        write_json(output, content)
        estimates_chart(output.with_suffix(".png"), list(graphs.values()), results)
        print(f"{tuner_table([json.loads(output.read_text())])}\nwritten: {output} and its .png")
        found += 1
    return 0 if found else 1


if __name__ == "__main__":
    raise SystemExit(main())

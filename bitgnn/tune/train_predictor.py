"""Trains the predictor on recordings, and tells how far its choices are from the best ways.

For each way to run a forward, a ridge regression of the logarithm of its latency beside that of the
usual way on logarithms of statistics. Graphs are few, so what counts is how it does on a graph that
it has not seen: each is left out in turn, and the ridge that does best there is taken.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bitgnn._files import write_atomically
from bitgnn.inference.predictor import FILE, STATISTICS, Predictor, Way, logarithms
from bitgnn.tune.recording import Recording

__all__ = [
    "Forward",
    "Regret",
    "best_ridge",
    "choices",
    "forwards_of",
    "held_out",
    "train",
    "train_predictor_main",
    "write_predictor",
]

RESULTS = Path("scripts") / "results"
RIDGES = (0.1, 1.0, 10.0, 100.0, 1000.0)
USUAL = {"cpu": Way("csr", None, "eager"), "cuda": Way("csr", None, "cuda_graph")}


@dataclass(frozen=True)
class Forward:
    """A forward on some graph with every way it was run.

    Attributes:
        graph: key of the graph.
        statistics: of :func:`~bitgnn.inference.predictor.describe_forward`.
        seconds: median latency of each way.
    """

    graph: str
    statistics: Mapping[str, float]
    seconds: Mapping[Way, float]


@dataclass(frozen=True)
class Regret:
    """Latency of choices as multiples of the best ways'.

    Attributes:
        mean: over all forwards, each graph counting alike.
        worst: of any forward.
        by_graph: mean of each graph.
    """

    mean: float
    worst: float
    by_graph: Mapping[str, float]

    @classmethod
    def of(cls, ratios: Iterable[tuple[str, float]]) -> Regret:
        """From the graph and the multiple of each choice."""
        by_graph: dict[str, list[float]] = defaultdict(list)
        for graph, ratio in ratios:
            by_graph[graph].append(ratio)
        means = {graph: statistics.fmean(found) for graph, found in by_graph.items()}
        worst = max(max(found) for found in by_graph.values())
        return cls(statistics.fmean(means.values()), worst, means)


def forwards_of(recorded: Mapping[str, Mapping[str, Any]]) -> list[Forward]:
    """The forwards of recorded graphs: plans that differ in how they are run alone are one.

    Args:
        recorded: graphs of a :class:`~bitgnn.tune.recording.Recording`.
    """
    found = []
    for key, content in recorded.items():
        groups: dict[str, list[Any]] = defaultdict(list)
        for entry in content["plans"]:
            plan = entry["plan"]
            same = [plan[name] for name in ("letters", "order", "features")]
            groups[json.dumps(same, sort_keys=True)].append(entry)
        for entries in groups.values():
            seconds = {
                Way(e["plan"]["layout"], e["plan"]["method"], e["plan"]["executor"]): (
                    e["timing"]["median"]
                )
                for e in entries
            }
            found.append(Forward(key, entries[0]["statistics"], seconds))
    return found


def train(forwards: Sequence[Forward], usual: Way, ridge: float) -> Predictor:
    """Fit every way that was recorded.

    Args:
        forwards: what to learn from; those without the usual way are left out.
        usual: the way that others are compared with.
        ridge: weight of squared weights, the constant's aside, in standard deviations of inputs.

    Raises:
        ValueError: none has the usual way.
    """
    used = [forward for forward in forwards if usual in forward.seconds]
    if not used:
        raise ValueError(f"train_predictor: no forward was recorded with {usual}")
    inputs = np.array([logarithms(forward.statistics) for forward in used])
    scale = inputs.std(0)
    scale[scale < 1e-9] = np.inf  # what never changes says nothing
    center = inputs.mean(0)
    ways = dict.fromkeys(way for forward in used for way in forward.seconds if way != usual)
    weights = {}
    for way in ways:
        rows = [n for n, forward in enumerate(used) if way in forward.seconds]
        target = np.array([np.log(used[n].seconds[way] / used[n].seconds[usual]) for n in rows])
        standard = (inputs[rows] - center) / scale
        mean = target.mean()
        gram = standard.T @ standard + ridge * np.eye(standard.shape[1])
        slopes = np.linalg.solve(gram, standard.T @ (target - mean)) / scale
        slopes[0] += mean - float(slopes @ center)
        weights[way] = tuple(float(value) for value in slopes)
    low, high = (tuple(map(float, bound)) for bound in (inputs.min(0), inputs.max(0)))
    return Predictor(usual, weights, low, high)


def choices(predictor: Predictor, forwards: Iterable[Forward]) -> list[tuple[str, float]]:
    """Graph and multiple of the best latency for what the predictor chooses."""
    found = []
    for forward in forwards:
        way = predictor.best(forward.statistics, forward.seconds)
        found.append((forward.graph, forward.seconds[way] / min(forward.seconds.values())))
    return found


def held_out(forwards: Sequence[Forward], usual: Way, ridge: float) -> Regret:
    """How the predictor does on graphs it has not seen: each is left out of training in turn.

    Raises:
        ValueError: there are fewer than two graphs.
    """
    graphs = sorted({forward.graph for forward in forwards})
    if len(graphs) < 2:
        raise ValueError(f"train_predictor: needs two graphs at least, got {graphs}")
    ratios = []
    for graph in graphs:
        seen = [forward for forward in forwards if forward.graph != graph]
        unseen = [forward for forward in forwards if forward.graph == graph]
        ratios += choices(train(seen, usual, ridge), unseen)
    return Regret.of(ratios)


def best_ridge(forwards: Sequence[Forward], usual: Way) -> tuple[float, Regret]:
    """The ridge that does best on graphs left out, and how it does there."""
    found = {ridge: held_out(forwards, usual, ridge) for ridge in RIDGES}
    ridge = min(found, key=lambda value: found[value].mean)
    return ridge, found[ridge]


def write_predictor(
    path: Path, recordings: Mapping[str, Mapping[str, Mapping[str, Any]]]
) -> dict[str, Regret]:
    """Train on recordings of several kinds of devices and write the predictor's file.

    Args:
        path: of the JSON file.
        recordings: recorded graphs by kind of device; what the file says of others stays.

    Returns:
        How each does on graphs left out of its training.

    Raises:
        ValueError: a recording holds fewer than two graphs.
    """
    devices = json.loads(path.read_text())["devices"] if path.exists() else {}
    regrets = {}
    for device, recorded in recordings.items():
        forwards, usual = forwards_of(recorded), USUAL[device]
        ridge, regret = best_ridge(forwards, usual)
        devices[device] = {
            **train(forwards, usual, ridge).description(),
            "ridge": ridge,
            "graphs": [content["name"] for content in recorded.values()],
            "forwards": len(forwards),
            "held_out": {"mean": regret.mean, "worst": regret.worst},
        }
        regrets[device] = regret
    document = {"inputs": ["constant", *STATISTICS], "devices": devices}
    write_atomically(path, (json.dumps(document, indent=1) + "\n").encode())
    return regrets


def train_predictor_main(argv: Sequence[str] | None = None) -> int:
    """The command behind ``scripts/train_predictor.py``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of tune_*.json")
    parser.add_argument("--output", type=Path, default=FILE, help="the predictor's file")
    arguments = parser.parse_args(argv)
    recordings = {}
    for device in USUAL:
        path = arguments.results / f"tune_{device}.json"
        if path.exists():
            recordings[device] = Recording(path).graphs
        else:
            print(f"{path}: not there, {device} is left out")
    if not recordings:
        print(f"nothing to train on in {arguments.results}")
        return 1
    for device, regret in write_predictor(arguments.output, recordings).items():
        print(f"{device}, graphs left out of training: {regret.mean:.3f} times the best latency")
        print(f"  on average, {regret.worst:.2f} times at worst")
        for graph, mean in regret.by_graph.items():
            print(f"  {graph}: {mean:.3f}")
    return 0

"""Trains the predictor on recordings, and tells how far its choices are from the best ways.

One least squares fit of all latencies, each error counted relative to its latency, with weights of
at least 0: what does not depend on the way a forward is run shares weights between ways, so that it
does not blur what does. Graphs are few, so that the fit is judged on graphs it has not seen: each
is left out in turn, with every model that was recorded on it.
"""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import nnls

from bench.tuner.recording import graph_of
from bitgnn._files import write_atomically
from bitgnn.inference.predictor import OWN, SHARED, Predictor, Way


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
    """The forwards of recorded graphs: plans that differ in how they are run alone are one."""
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
            found.append(Forward(graph_of(key), entries[0]["statistics"], seconds))
    return found


def train(forwards: Sequence[Forward]) -> Predictor:
    """Fit every way that was recorded."""
    if not forwards:
        raise ValueError("train_predictor: no forwards to learn from")
    ways = list(dict.fromkeys(way for forward in forwards for way in forward.seconds))
    place = {way: len(SHARED) + n * len(OWN) for n, way in enumerate(ways)}
    rows = []
    for forward in forwards:
        shared, own = ([forward.statistics[name] for name in part] for part in (SHARED, OWN))
        for way, seconds in forward.seconds.items():
            row = np.zeros(len(SHARED) + len(ways) * len(OWN))
            row[: len(SHARED)] = shared
            row[place[way] : place[way] + len(OWN)] = own
            rows.append(row / seconds)
    matrix = np.array(rows)
    scale = matrix.max(0)  # columns differ by many orders of magnitude
    scale[scale == 0] = 1.0
    weights = nnls(matrix / scale, np.ones(len(rows)))[0] / scale
    own_weights = {
        way: tuple(map(float, weights[start : start + len(OWN)])) for way, start in place.items()
    }
    return Predictor(tuple(map(float, weights[: len(SHARED)])), own_weights)


def choices(predictor: Predictor, forwards: Iterable[Forward]) -> list[tuple[str, float]]:
    """Graph and multiple of the best latency for what the predictor chooses."""
    found = []
    for forward in forwards:
        way = predictor.choose(forward.statistics, forward.seconds)
        found.append((forward.graph, forward.seconds[way] / min(forward.seconds.values())))
    return found


def held_out(forwards: Sequence[Forward]) -> Regret:
    """How the predictor does on graphs it has not seen: each is left out of training in turn."""
    graphs = sorted({forward.graph for forward in forwards})
    if len(graphs) < 2:
        raise ValueError(f"train_predictor: needs two graphs at least, got {graphs}")
    ratios = []
    for graph in graphs:
        seen = [forward for forward in forwards if forward.graph != graph]
        unseen = [forward for forward in forwards if forward.graph == graph]
        ratios += choices(train(seen), unseen)
    return Regret.of(ratios)


def write_predictor(
    path: Path, recordings: Mapping[str, Mapping[str, Mapping[str, Any]]]
) -> dict[str, Regret]:
    """Train on recordings of several kinds of devices and write the predictor's file.

    Returns:
        How each does on graphs left out of its training.
    """
    devices = json.loads(path.read_text())["devices"] if path.exists() else {}
    regrets = {}
    for device, recorded in recordings.items():
        forwards = forwards_of(recorded)
        regret = held_out(forwards)
        devices[device] = {
            **train(forwards).description(),
            "graphs": [content["name"] for content in recorded.values()],
            "forwards": len(forwards),
            "held_out": {"mean": regret.mean, "worst": regret.worst},
        }
        regrets[device] = regret
    document = {"shared": SHARED, "own": OWN, "devices": devices}
    write_atomically(path, (json.dumps(document, indent=1) + "\n").encode())
    return regrets

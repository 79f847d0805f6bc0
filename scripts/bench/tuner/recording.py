"""Records the latency of every plan of a workload, or of a fair sample, to learn from and judge by.

A recording is the truth that estimates, the predictor and the tuner's choice are held against. One
JSON file holds several graphs, each with one or more models; each is written when it is done, and
none is measured twice.
"""

from __future__ import annotations

import gc
import json
import random
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from bitgnn._files import write_atomically
from bitgnn.convert.plan import ModelShape, Plan
from bitgnn.inference.predictor import describe_forward, graphs_of
from bitgnn.measure.environment import environment
from bitgnn.measure.timing import Timing
from bitgnn.tune.candidate import Candidate, Candidates
from bitgnn.tune.cost_model import CostModel
from bitgnn.tune.measure import measure_in_turns, noise
from bitgnn.tune.space import Space
from bitgnn.tune.timings import TimingCache
from bitgnn.tune.workload import Workload

BENCHMARK = "bitgnn tune"
FORMAT = 1
ROUNDS = 10
NEAR, FAR, LEAST_AGAIN = 1.3, 2.0, 16
"""Plans of at most so many times the least latency are measured once more, and up to so many times
where there are fewer than that: which of them is best must not be chance."""
AGAIN_ROUNDS, AGAIN_SHARE = 20, 0.25
"""Of the second measurement: rounds at most, and share of the time of the first one."""
REASON_LENGTH = 200


def key_of(graph: str, model: str) -> str:
    """Key of a graph with a model in a recording."""
    return f"{graph}/{model}"


def graph_of(key: str) -> str:
    """The graph that a key of :func:`key_of` is of."""
    return key.partition("/")[0]


def space_sample(
    space: Space, most: int, seed: int = 0, first: Iterable[Mapping[str, str]] = ()
) -> list[Plan]:
    """Plans of some letter chains, each with every way to run it."""
    begin = [dict(letters) for letters in first]
    chains = [letters for letters in space.chains if letters not in begin]
    random.Random(seed).shuffle(chains)
    chains = [*begin, *chains]
    chosen: list[Plan] = []
    for letters in chains:
        if len(chosen) >= most:
            break
        chosen += space.plans(letters)
    return chosen


class Recording:
    """A file of recordings, by :func:`key_of` a graph and a model."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.graphs: dict[str, dict[str, Any]] = {}
        if self.path.exists():
            content = json.loads(self.path.read_text())
            if (
                not isinstance(content, dict)
                or content.get("benchmark") != BENCHMARK
                or content.get("format") != FORMAT
            ):
                raise ValueError(f"{self.path} is no recording of this version")
            self.graphs = content["graphs"]

    @property
    def graph_keys(self) -> list[str]:
        """Keys of the graphs, each once."""
        return sorted({graph_of(key) for key in self.graphs})

    def __contains__(self, key: str) -> bool:
        return key in self.graphs

    def add(self, key: str, content: dict[str, Any]) -> None:
        """Add a graph with a model and write the file, whole or not at all."""
        self.graphs[key] = content
        self._write()

    def merge(self, others: Iterable[Recording]) -> None:
        """Take what other recordings hold, in place of what is here, and write the file.

        Recordings of several processes of one machine become one; those of different machines
        must not, as nothing tells their latencies apart.
        """
        found = {key: content for other in others for key, content in other.graphs.items()}
        together = {**self.graphs, **found}
        machines = {_machine(content): key for key, content in together.items()}
        if len(machines) > 1:
            raise ValueError(f"{self.path}: recordings are of several machines: {machines}")
        self.graphs = together
        self._write()

    def _write(self) -> None:
        document = {"benchmark": BENCHMARK, "format": FORMAT, "graphs": self.graphs}
        write_atomically(self.path, (json.dumps(document) + "\n").encode())


def _machine(content: Mapping[str, Any]) -> tuple[Any, ...]:
    environment = content["environment"]
    return environment["cpu"], environment["threads"]


@dataclass(frozen=True)
class Size:
    """How much to measure.

    Attributes:
        seconds: about how long whole forwards are measured, a quarter of it more for the fastest
            ones; the first round of each is always done.
        rounds: repeats of each plan at most, beside those of the fastest ones.
    """

    seconds: float = 60.0
    rounds: int = ROUNDS


def record(
    recording: Recording,
    key: str,
    name: str,
    workload: Workload,
    plans: Sequence[Plan],
    size: Size,
    *,
    space: Space | None = None,
    progress: Callable[[str], Any] = lambda text: None,
) -> dict[str, Any]:
    """Measure plans on one workload and add the result to a recording, unless it is there.

    Returns:
        What the recording holds: the machine, the graph, and for each plan every repeat, its
        operator calls with their own times, and the estimate that these add up to.
    """
    if key in recording:
        progress(f"{name}: recorded already")
        return recording.graphs[key]
    begin = time.perf_counter()
    maker = Candidates(workload)
    candidates, failed = _ready(maker, plans)
    progress(f"{name}: {len(candidates)} of {len(plans)} plans run, timing their calls")
    costs = CostModel(TimingCache(None, workload.device), workload.device)
    costs.prepare(candidates)
    estimates = [costs.estimate(candidate) for candidate in candidates]
    progress(f"{name}: {costs.num_timed} calls timed, measuring whole forwards")
    runs = [candidate.run for candidate in candidates]
    timings = measure_in_turns(runs, workload.device, rounds=size.rounds, seconds=size.seconds)
    again = _measure_again(runs, timings, workload.device, AGAIN_SHARE * size.seconds)
    measured = [
        {
            "plan": _described(candidate.plan),
            "statistics": _statistics(candidate),
            "timing": timing.to_dict(),
            "again": None if more is None else more.to_dict(),
            "calls": [[part.name, part.seconds] for part in estimate.parts],
            "estimate": estimate.seconds,
            "base": costs.base(candidate),
            "memory": candidate.memory.to_dict(),
        }
        for candidate, timing, more, estimate in zip(
            candidates, timings, again, estimates, strict=True
        )
    ]
    content = {
        "name": name,
        "environment": environment(),
        "model": str(ModelShape.of(workload.model)),
        "nodes": workload.num_nodes,
        "features": workload.x.size(1),
        "plans_in_space": len(plans) if space is None else _extrapolated(plans, space),
        "noise": noise(timings),
        "seconds": time.perf_counter() - begin,
        "plans": measured,
        "failed": failed,
    }
    recording.add(key, content)
    progress(f"{name}: done in {content['seconds']:.0f} s")
    del candidates, runs
    gc.collect()
    return content


def _measure_again(
    runs: Sequence[Callable[[], Any]],
    timings: Sequence[Timing],
    device: torch.device,
    seconds: float,
) -> list[Timing | None]:
    """Another timing of the runs that are nearly as fast as the fastest one, None of the others.

    It stands beside the first one: the machine may have another pace by now.
    """
    medians = [timing.median for timing in timings]
    fastest = sorted(range(len(runs)), key=medians.__getitem__)
    near = [
        place
        for rank, place in enumerate(fastest)
        if medians[place] <= (FAR if rank < LEAST_AGAIN else NEAR) * medians[fastest[0]]
    ]
    found: list[Timing | None] = [None] * len(runs)
    again = [runs[place] for place in near]
    more = measure_in_turns(again, device, rounds=AGAIN_ROUNDS, seconds=seconds)
    for place, timing in zip(near, more, strict=True):
        found[place] = timing
    return found


def _ready(
    maker: Candidates, plans: Sequence[Plan]
) -> tuple[list[Candidate], list[dict[str, Any]]]:
    """Plans that run, and the others with the reason."""
    found, failed = [], []
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="prepare_graph: layout 'frdc'")
        for plan in plans:
            try:
                candidate = maker.make(plan)
                candidate.run()
            except (RuntimeError, ValueError) as error:
                reason = f"{type(error).__name__}: {str(error).splitlines()[0]}"[:REASON_LENGTH]
                failed.append({"plan": _described(plan), "reason": reason})
            else:
                found.append(candidate)
    return found, failed


def _statistics(candidate: Candidate) -> dict[str, float]:
    """What the predictor goes by."""
    packed = candidate.plan.features == "packed"
    graphs = graphs_of(candidate.graph)
    return describe_forward(candidate.frozen, packed, candidate.x.shape[0], graphs)


def _extrapolated(plans: Sequence[Plan], space: Space) -> int:
    """About how many plans there are: every chain counts as those that were taken."""
    chains = len({tuple(sorted(plan.letters.items())) for plan in plans})
    return round(space.num_chains * len(plans) / chains) if chains else 0


def _described(plan: Plan) -> dict[str, Any]:
    """The plan without the shape of the model, which all plans of a recording share."""
    return replace(plan, model=None).to_dict()

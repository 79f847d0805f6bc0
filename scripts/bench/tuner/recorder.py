"""Records the benchmark graphs with each model: what the predictor learns from and is judged by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bench.tasks import MODELS, untrained_model
from bench.tuner.graphs import GRAPHS, load_graph, untrained_workload
from bench.tuner.recording import Recording, Size, key_of, record, space_sample
from bitgnn.convert.in_letters import own_letters
from bitgnn.data import DataError
from bitgnn.tune.space import Space

TOO_LARGE: Mapping[str, tuple[str, ...]] = {"cpu": ("reddit",), "cuda": ()}
"""Graphs that are not recorded on a kind of device unless they are named."""
FORMS = ("bin", "full")
"""Presets whose letters every sample begins with."""
PLANS: Mapping[str, Mapping[str, int]] = {
    "cpu": {"cora": 720, "cs": 120, "cornell5": 90, "flickr": 64, "reddit_eighth": 24},
    "cuda": {"cora": 400, "pubmed": 300, "reddit_eighth": 160, "reddit": 70, "cs": 160},
}
"""Plans of a GCN on graphs where forwards take long, or that are looked at further."""
MOST_PLANS = {"cpu": 330, "cuda": 220}
"""Plans of a GCN on the other graphs."""
OTHER_MODELS = 0.4
"""Share of these plans for each other model."""


@dataclass(frozen=True)
class Recorder:
    """Records graphs and models that a recording lacks.

    Attributes:
        path: of the recording.
        device: ``"cpu"`` or ``"cuda"``.
        size: how long to measure a graph with a model.
        plans: of each, about; None for :data:`PLANS`.
        root: data folder, see :func:`bitgnn.data.load`.
        structures: graphs whose structure alone is at hand, see
            :func:`~bench.tuner.graphs.load_graph`.
        progress: gets a line now and then.
    """

    path: Path
    device: str
    size: Size
    plans: int | None = None
    root: Path | None = None
    structures: Path | None = None
    progress: Callable[[str], Any] = print

    def run(self, graphs: Sequence[str] | None = None, models: Iterable[str] = MODELS) -> None:
        """Record what is missing, graph by graph; graphs that cannot be read are named."""
        recording = Recording(self.path)
        chosen = [key for key in GRAPHS if key not in TOO_LARGE[self.device]]
        for graph in chosen if graphs is None else graphs:
            missing = [kind for kind in models if key_of(graph, kind) not in recording]
            if missing:
                self._record(recording, graph, missing)

    def _record(self, recording: Recording, graph: str, models: Sequence[str]) -> None:
        try:
            task = load_graph(graph, self.device, self.root, self.structures)
        except (DataError, OSError) as error:
            self.progress(f"{graph}: left out, {error}")
            return
        for kind in models:
            workload = untrained_workload(task, kind)
            space = Space.from_workload(workload)
            first = [own_letters(untrained_model(task, kind, form)) for form in FORMS]
            plans = space_sample(space, self._most(graph, kind), first=first)
            name = task.name if kind == MODELS[0] else f"{task.name}, {kind}"
            key = key_of(graph, kind)
            record(
                recording, key, name, workload, plans, self.size,
                space=space, progress=self.progress,
            )  # fmt: skip
            del workload, space
            if self.device == "cuda":
                torch.cuda.empty_cache()

    def _most(self, graph: str, kind: str) -> int:
        most = self.plans or PLANS[self.device].get(graph, MOST_PLANS[self.device])
        return most if self.plans or kind == MODELS[0] else round(OTHER_MODELS * most)

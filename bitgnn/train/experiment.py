"""Trains a float model and its binary forms over several seeds, and checks what is frozen."""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.utils import to_torch_csr_tensor

from bitgnn.data import DataError, load
from bitgnn.distillation import Distilled
from bitgnn.distillation.named import NamedModel, distilled
from bitgnn.measure.report import cpu_model
from bitgnn.train.config import FLOAT_FORM, ExperimentConfig

TOLERANCE = 1e-3
"""Share of nodes that may get another class: floats that a sign is taken of are summed in another
order where a model standardises them itself."""
RUNS_FOLDER = "runs"


class MismatchError(RuntimeError):
    """A frozen model decides otherwise than the model it was made from."""


@dataclass(frozen=True)
class Run:
    """One finished training.

    Attributes:
        form: ``fp32``, or name of a binary form.
        seed: random seed.
        metric: name of the scores.
        test_score: of the test nodes, as a share; None where there are none.
        val_score: of the validation nodes.
        epochs: epochs trained.
        seconds: time of these epochs.
        differing: nodes to which the frozen model gives another class; 0 of the float model.
        machine: processor and torch version that the command ran on.
    """

    form: str
    seed: int
    metric: str
    test_score: float | None
    val_score: float
    epochs: int
    seconds: float
    differing: int
    machine: str

    @property
    def score(self) -> float:
        """Of the test nodes, or of the validation nodes where there are none."""
        return self.val_score if self.test_score is None else self.test_score


class Forms:
    """Finished runs in their order, and of each form the model of the best validation score."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self._best: dict[str, tuple[Run, nn.Module]] = {}

    def add(self, run: Run, model: nn.Module) -> None:
        """Add a run and its model: the float one, or the frozen one."""
        self.runs.append(run)
        if run.form not in self._best or run.val_score > self._best[run.form][0].val_score:
            self._best[run.form] = run, model

    def best(self, form: str) -> tuple[Run, Any]:
        """A form's run with the best validation score, and its model."""
        return self._best[form]

    def of(self, form: str) -> tuple[Run, ...]:
        """All runs of a form."""
        return tuple(run for run in self.runs if run.form == form)


class GraphSource:
    """Graphs of an experiment's runs; the last one is kept.

    Args:
        config: the experiment.
        data_root: folder of the data sets; None takes ``BITGNN_DATA``, else ``./data``.
    """

    def __init__(
        self, config: ExperimentConfig, data_root: str | os.PathLike[str] | None = None
    ) -> None:
        self.config = config
        self.data_root = data_root
        self._last: tuple[Any, Data] | None = None

    def check(self) -> Data:
        """The graph of the first seed, behind that of the last, before any work is done.

        Where the split depends on the seed, there may be fewer splits than seeds.
        """
        self(self.config.seeds - 1)
        return self(0)

    def __call__(self, seed: int) -> Data:
        """The graph of the run with this seed."""
        dataset = self.config.dataset
        split, split_seed = key = dataset.of_run(seed)
        if self._last is None or self._last[0] != key:
            try:
                data = load(
                    dataset.name, self.data_root, features=dataset.features, split=split,
                    seed=split_seed,
                )  # fmt: skip
            except ValueError as error:
                raise DataError(f"dataset: {error}") from error
            self._last = key, data
        return self._last[1]


def train_all(
    config: ExperimentConfig,
    graphs: Callable[[int], Data],
    output: Path,
    device: torch.device,
    say: Callable[[str], None] = lambda line: None,
) -> Forms:
    """Train a float model and its binary forms with every seed, freeze and check them.

    Args:
        config: the experiment.
        graphs: gives the graph of a seed, such as :class:`GraphSource`.
        output: folder of checkpoints and logs; what it holds already is not trained again, so that
            the same call goes on where it was stopped.
        device: to train on.
        say: takes a line about each run.

    Raises:
        DistillError: the graph or a form cannot be learnt.
        LoaderError: a loader's library is missing.
        MismatchError: a frozen model gives another class than the trained one to more nodes than
            rounding explains.
    """
    found = Forms()
    for seed in range(config.seeds):
        for run, model in _seed_runs(config, graphs(seed), seed, output / RUNS_FOLDER, device):
            found.add(run, model)
            say(
                f"{config.dataset.title} {run.form}, seed {seed + 1} of {config.seeds}: "
                f"{100 * run.score:.1f} in {run.epochs} epochs"
            )
    return found


def _seed_runs(
    config: ExperimentConfig, data: Data, seed: int, folder: Path, device: torch.device
) -> Iterator[tuple[Run, nn.Module]]:
    """The float model, then its binary forms; the first form's distillation trains the teacher."""
    named = NamedModel(config.model, config.hidden, config.layers)
    model, is_trained = named.make(data, seed, device), named.is_trained
    loader, whole = None, data
    if config.loader is not None:
        loader, whole = config.loader.batches(data), sparse(data)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_model()
    machine = f"{name}, torch {torch.__version__}"
    for number, (form, what) in enumerate(config.forms.items()):
        result = distilled(
            model, whole, config.precision(form), widen=what.widen, loader=loader,
            epochs=config.epochs, seed=seed, log=folder / f"{form}-{seed}", trained=is_trained,
        )  # fmt: skip
        if number == 0:
            model, is_trained, scores = result.teacher, True, result.teacher_scores
            about = len(result.teacher_history), result.teacher_seconds, 0, machine
            yield Run(FLOAT_FORM, seed, result.metric, scores.test, scores.val, *about), model
        differing = _differing(result, f"{config.name}, form {form}, seed {seed}")
        scores, about = result.scores, (len(result.history), result.seconds, differing, machine)
        yield Run(form, seed, result.metric, scores.test, scores.val, *about), result.frozen


def sparse(data: Data) -> Data:
    """A graph whose edges are a sparse matrix, whose products need no memory for messages.

    Where steps see parts, the whole, on which is validated, may be far larger than what fits one.
    """
    found, size = copy.copy(data), (data.x.size(0), data.x.size(0))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse", category=UserWarning)
        # Rows are destinations.
        found.edge_index = to_torch_csr_tensor(data.edge_index.flip(0), size=size)
    return found


@torch.no_grad()
def _differing(result: Distilled, title: str) -> int:
    """Nodes to which the frozen model gives another class than the trained one."""
    graph: Any = result.example
    expected = result.model(graph.x, graph.edge_index).argmax(1)
    differing = int((result.frozen(graph.x, graph.edge_index).argmax(1) != expected).sum())
    if differing > TOLERANCE * len(expected):
        raise MismatchError(
            f"{title}: the frozen model gives another class than the trained one to {differing} of "
            f"{len(expected)} nodes"
        )
    return differing

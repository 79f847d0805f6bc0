"""Freezes trained forms, checks them against training, and measures them beside PyG."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from bitgnn.bench.pyg import PyGGCN, graph_forms
from bitgnn.bench.timing import Timing, compare
from bitgnn.convert import freeze
from bitgnn.inference import FrozenGCN, MemoryUse, frozen_memory, pyg_memory
from bitgnn.train.config import ExperimentConfig, Form
from bitgnn.train.experiment import model_input, restore_model
from bitgnn.train.store import Run, RunStore

__all__ = ["FormResult", "MismatchError", "evaluate"]

LOGIT_TOLERANCE = 1e-4
BINARY_FORMS: tuple[Form, ...] = ("full", "bin")


class MismatchError(RuntimeError):
    """A frozen model decides otherwise than the model it was made from."""


@dataclass(frozen=True)
class FormResult:
    """What one form achieves.

    Attributes:
        form: precision.
        runs: its trainings.
        memory: bytes of a forward pass from features as stored.
        timings: seconds of a forward pass by way of calling it.
        frozen: the packed model of the run with the lowest validation loss; None for fp32.
    """

    form: Form
    runs: tuple[Run, ...]
    memory: MemoryUse
    timings: dict[str, Timing]
    frozen: FrozenGCN | None

    @property
    def mean(self) -> float:
        """Mean test accuracy over the seeds, in per cent."""
        return 100 * statistics.mean(run.test_accuracy for run in self.runs)

    @property
    def std(self) -> float:
        """Sample standard deviation of the test accuracy, in points; 0 for a single run."""
        accuracies = [100 * run.test_accuracy for run in self.runs]
        return statistics.stdev(accuracies) if len(accuracies) > 1 else 0.0

    @property
    def fastest(self) -> tuple[str, Timing]:
        """The fastest way of calling it."""
        return min(self.timings.items(), key=lambda item: item[1].median)


def evaluate(
    config: ExperimentConfig, data: Data, store: RunStore, runs: Sequence[Run], repeats: int = 15
) -> list[FormResult]:
    """Freeze every binary run, check it, and measure one model of each form in the same minutes.

    Args:
        config: the experiment.
        data: its graph.
        store: where the trained states are.
        runs: finished runs.
        repeats: timed rounds over all contenders.

    Returns:
        One result a form, in training order.

    Raises:
        MismatchError: a frozen model and its trained one differ in a class or by more than 1e-4
            in a logit.
    """
    frozen = {form: _freeze_all(config, form, data, store, runs) for form in BINARY_FORMS}
    best = {run.form: run for run in sorted(runs, key=lambda run: -run.val_loss)}
    calls: dict[tuple[Form, str], Callable[[], Any]] = {}
    memory: dict[Form, MemoryUse] = {}
    for form, run in best.items():
        if form == "fp32":
            state = _state(store, run)
            x = model_input(config.forms[form], data)
            for way, call in _pyg_calls(state, config.num_layers, x, data).items():
                calls[form, way] = call
            num_edges = data.edge_index.size(1) + data.x.size(0)
            pyg = _pyg_model(state, config.num_layers)
            ways = (pyg_memory(pyg, x, num_edges, way) for way in ("edge_index", "csr"))
            memory[form] = min(ways, key=lambda use: use.peak)
        else:
            model = frozen[form][run.seed]
            graph = model.prepare_graph(data.edge_index, data.x.size(0))
            packed = model.pack_features(data.x)
            calls[form, "packed features"] = partial(model, packed, graph)
            calls[form, "float features"] = partial(model, data.x, graph)
            memory[form] = frozen_memory(model, packed, graph)
    # Keys of the mapping keep the contenders interleaved, so that load meets all of them alike.
    timings = compare(
        {f"{form}\0{way}": call for (form, way), call in calls.items()}, repeats=repeats
    )
    return [
        FormResult(
            form,
            tuple(run for run in runs if run.form == form),
            memory[form],
            {way: timings[f"{f}\0{way}"] for f, way in calls if f == form},
            frozen[form][best[form].seed] if form in BINARY_FORMS else None,
        )
        for form, _ in config.ordered_forms()
    ]


def _state(store: RunStore, run: Run) -> dict[str, Tensor]:
    kept = store.load(run.form, run.seed)
    assert kept is not None  # the run was just trained or read
    return kept[1]


@torch.no_grad()
def _freeze_all(
    config: ExperimentConfig, form: Form, data: Data, store: RunStore, runs: Sequence[Run]
) -> dict[int, FrozenGCN]:
    """Frozen models by seed, each of them checked on every node."""
    models = {}
    for run in (run for run in runs if run.form == form):
        trained = restore_model(config, form, data, _state(store, run))
        model = freeze(trained)
        x = model_input(config.forms[form], data)
        expected = trained(x, data.edge_index)
        found = model(x, data.edge_index)
        difference = float((found - expected).abs().max())
        if difference > LOGIT_TOLERANCE or not torch.equal(found.argmax(1), expected.argmax(1)):
            raise MismatchError(
                f"{form}, seed {run.seed}: the frozen model differs from the trained one "
                f"(largest difference of a logit {difference:.3g})"
            )
        models[run.seed] = model
    return models


def _pyg_model(state: dict[str, Tensor], num_layers: int) -> PyGGCN:
    """Plain PyG layers with the trained weights."""
    weights = [state[f"convs.{i}.lin.weight"] for i in range(num_layers)]
    sizes = [weights[0].size(1), *(weight.size(0) for weight in weights)]
    model = PyGGCN(sizes, input_norm="norm.running_mean" in state)
    model.load_state_dict(state)
    return model


def _pyg_calls(
    state: dict[str, Tensor], num_layers: int, x: Tensor, data: Data
) -> dict[str, Callable[[], Any]]:
    """PyG's forward for each form of the graph that is installed, caches filled."""
    calls: dict[str, Callable[[], Any]] = {}
    for way, graph in graph_forms(data.edge_index, x.size(0)).items():
        call = torch.inference_mode()(partial(_pyg_model(state, num_layers), x, graph))
        call()
        calls[way] = call
    return calls

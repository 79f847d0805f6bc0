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

from bitgnn.convert import freeze
from bitgnn.inference import FrozenModel, MemoryUse, frozen_memory, pyg_memory
from bitgnn.measure.pyg import PyGGCN, graph_forms
from bitgnn.measure.timing import Timing, compare
from bitgnn.train.build import model_input, restore_model
from bitgnn.train.config import ExperimentConfig
from bitgnn.train.run import kept_state
from bitgnn.train.store import Run, RunStore

LOGIT_TOLERANCE = 1e-4
FLOAT_BYTES = 4
# PyG gathers a row for each edge of an edge index; beyond this only fused products are timed.
MESSAGE_LIMIT = 8 * 2**30


class MismatchError(RuntimeError):
    """A frozen model decides otherwise than the model it was made from."""


@dataclass(frozen=True)
class FormResult:
    """What one form achieves.

    Attributes:
        form: name of the form.
        runs: its trainings.
        memory: bytes of a forward pass from features as stored; None for floats where PyG's are
            not counted.
        timings: seconds of a forward pass by way of calling it.
        frozen: the packed model of the run with the lowest validation loss; None for floats.
    """

    form: str
    runs: tuple[Run, ...]
    memory: MemoryUse | None
    timings: dict[str, Timing]
    frozen: FrozenModel | None

    @property
    def mean(self) -> float:
        """Mean test score over the seeds, in per cent."""
        return 100 * statistics.mean(run.test_score for run in self.runs)

    @property
    def std(self) -> float:
        """Sample standard deviation of the test score, in points; 0 for a single run."""
        scores = [100 * run.test_score for run in self.runs]
        return statistics.stdev(scores) if len(scores) > 1 else 0.0

    @property
    def fastest(self) -> tuple[str, Timing]:
        """The fastest way of calling it."""
        return min(self.timings.items(), key=lambda item: item[1].median)


def evaluate(
    config: ExperimentConfig,
    graphs: Callable[[int], Data],
    store: RunStore,
    runs: Sequence[Run],
    repeats: int = 15,
) -> list[FormResult]:
    """Freeze every binary run, check it, and measure one model of each form in the same minutes.

    Args:
        config: the experiment.
        graphs: gives the graph of a seed.
        store: where the trained states are.
        runs: finished runs.
        repeats: timed rounds over all contenders.

    Returns:
        One result a form, in training order.

    Raises:
        MismatchError: a frozen model and its trained one differ in a class or by more than 1e-4
            in a logit.
    """
    frozen = {
        (run.form, run.seed): freeze_checked(config, run, graphs(run.seed), store)[0]
        for run in runs
        if config.is_binary(run.form)
    }
    best = {run.form: run for run in sorted(runs, key=lambda run: -run.val_loss)}
    calls: dict[tuple[str, str], Callable[[], Any]] = {}
    memory: dict[str, MemoryUse | None] = {}
    for form, run in best.items():
        data = graphs(run.seed)
        if config.is_binary(form):
            ways, memory[form] = _frozen_calls(frozen[form, run.seed], data, config, form)
        else:
            state = kept_state(store, form, run.seed)[1]
            ways, memory[form] = _float_calls(config, form, data, state)
        calls.update({(form, way): call for way, call in ways.items()})
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
            frozen.get((form, best[form].seed)),
        )
        for form in config.forms
    ]


@torch.no_grad()
def freeze_checked(
    config: ExperimentConfig, run: Run, data: Data, store: RunStore
) -> tuple[FrozenModel, float]:
    """Freeze a trained model and compare it with the trained one on every node.

    Args:
        config: the experiment.
        run: a finished run of a binary form.
        data: its graph.
        store: where its trained state is.

    Returns:
        The frozen model and the largest difference of a logit.

    Raises:
        MismatchError: they differ in a class or by more than 1e-4 in a logit.
    """
    state = kept_state(store, run.form, run.seed)[1]
    trained = restore_model(config, run.form, data, state)
    frozen = freeze(trained)
    x = model_input(config.forms[run.form], data.x)
    expected = trained(x, data.edge_index)
    found = frozen(x, data.edge_index)
    difference = float((found - expected).abs().max())
    same = torch.equal(found.argmax(1), expected.argmax(1))
    if not (same and difference <= LOGIT_TOLERANCE):
        raise MismatchError(
            f"{config.name}, form {run.form}, seed {run.seed}: the frozen model differs from the "
            f"trained one (largest difference of a logit {difference:.3g})"
        )
    return frozen, difference


def _frozen_calls(
    frozen: FrozenModel, data: Data, config: ExperimentConfig, form: str
) -> tuple[dict[str, Callable[[], Any]], MemoryUse | None]:
    """Forwards of a frozen model: features packed before, and features as floats."""
    x = model_input(config.forms[form], data.x)
    graph = frozen.prepare_graph(data.edge_index, data.x.size(0))
    calls: dict[str, Callable[[], Any]] = {"float features": partial(frozen, x, graph)}
    if frozen.program.entry is None:  # nothing in front of the first layer can be packed before
        return calls, frozen_memory(frozen, x, graph)
    packed = frozen.pack_features(x)
    calls["packed features"] = partial(frozen, packed, graph)
    return calls, frozen_memory(frozen, packed, graph)


def _float_calls(
    config: ExperimentConfig, form: str, data: Data, state: dict[str, Tensor]
) -> tuple[dict[str, Callable[[], Any]], MemoryUse | None]:
    """PyG's forward for each form of the graph that is installed, caches filled."""
    x = model_input(config.forms[form], data.x)
    calls: dict[str, Callable[[], Any]] = {}
    is_plain = config.model == "gcn" and not config.inductive
    messages = FLOAT_BYTES * data.edge_index.size(1) * max(x.size(1), config.hidden_channels)
    for way, graph in graph_forms(data.edge_index, x.size(0)).items():
        if way == "edge_index" and messages > MESSAGE_LIMIT:
            continue
        model = (
            _pyg_gcn(state, config.num_layers)
            if is_plain
            else restore_model(config, form, data, state)
        )
        calls[way] = torch.inference_mode()(partial(model, x, graph))
        calls[way]()
    if not is_plain:
        return calls, None
    num_edges = data.edge_index.size(1) + x.size(0)
    pyg = _pyg_gcn(state, config.num_layers)
    uses = (pyg_memory(pyg, x, num_edges, way) for way in ("edge_index", "csr"))
    return calls, min(uses, key=lambda use: use.peak)


def _pyg_gcn(state: dict[str, Tensor], num_layers: int) -> PyGGCN:
    """Plain PyG layers with the trained weights."""
    weights = [state[f"convs.{i}.lin.weight"] for i in range(num_layers)]
    sizes = [weights[0].size(1), *(weight.size(0) for weight in weights)]
    model = PyGGCN(sizes, input_norm="norm.running_mean" in state)
    model.load_state_dict(state)
    return model

"""Measures the best model of each form beside the float one in PyG."""

from __future__ import annotations

import copy
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

from bitgnn.inference import FrozenModel, MemoryUse, frozen_memory, pyg_memory
from bitgnn.measure.pyg import graph_forms
from bitgnn.measure.timing import Timing, compare
from bitgnn.train.config import FLOAT_FORM, ExperimentConfig
from bitgnn.train.experiment import Forms, Run

__all__ = ["FormResult", "measured"]

FLOAT_BYTES = 4
# PyG gathers a row for each edge of an edge index; beyond this only fused products are timed.
MESSAGE_LIMIT = 8 * 2**30
FLOAT_FEATURES = "float features"


@dataclass(frozen=True)
class FormResult:
    """What one form achieves.

    Attributes:
        form: name of the form.
        runs: its trainings.
        memory: bytes of a forward pass from features as stored; None for floats where PyG's are
            not counted.
        timings: seconds of a forward pass by way of calling it.
        frozen: the packed model of the run with the best validation score; None for floats.
    """

    form: str
    runs: tuple[Run, ...]
    memory: MemoryUse | None
    timings: dict[str, Timing]
    frozen: Any

    @property
    def mean(self) -> float:
        """Mean score over the seeds, in per cent."""
        return 100 * statistics.mean(run.score for run in self.runs)

    @property
    def std(self) -> float:
        """Sample standard deviation of the score, in points; 0 for a single run."""
        scores = [100 * run.score for run in self.runs]
        return statistics.stdev(scores) if len(scores) > 1 else 0.0

    @property
    def fastest(self) -> tuple[str, Timing]:
        """The fastest way of calling it."""
        return min(self.timings.items(), key=lambda item: item[1].median)


Calls = dict[str, Callable[[], Any]]


def measured(
    config: ExperimentConfig, data: Data, forms: Forms, repeats: int = 15
) -> list[FormResult]:
    """Measure one model of each form on the CPU, in the same minutes.

    Args:
        config: the experiment.
        data: graph of the first seed.
        forms: finished runs with their models.
        repeats: timed rounds over all contenders.

    Returns:
        One result a form, the float one first.
    """
    names = (FLOAT_FORM, *config.forms)
    models = {form: copy.deepcopy(forms.best(form)[1]).cpu() for form in names}
    calls: dict[str, Calls] = {}
    memory: dict[str, MemoryUse | None] = {}
    for form, model in models.items():
        calls_of = _float_calls if form == FLOAT_FORM else _frozen_calls
        calls[form], memory[form] = calls_of(model, data)
    # Contenders are interleaved, so that load meets all of them alike.
    every = {(form, way): call for form in names for way, call in calls[form].items()}
    timings = compare(
        {f"{form}\0{way}": call for (form, way), call in every.items()}, repeats=repeats
    )
    return [
        FormResult(
            form,
            forms.of(form),
            memory[form],
            {way: timings[f"{form}\0{way}"] for way in calls[form]},
            None if form == FLOAT_FORM else models[form],
        )
        for form in names
    ]


def _frozen_calls(frozen: Any, data: Data) -> tuple[Calls, MemoryUse | None]:
    """Forwards of a frozen model: features packed before, and features as floats."""
    if not isinstance(frozen, FrozenModel):  # packed layer by layer, around the model's own forward
        return {FLOAT_FEATURES: partial(frozen, data.x, data.edge_index)}, None
    graph = frozen.prepare_graph(data.edge_index, data.x.size(0))
    calls: Calls = {FLOAT_FEATURES: partial(frozen, data.x, graph)}
    if frozen.program.entry is None:  # nothing in front of the first layer can be packed before
        return calls, frozen_memory(frozen, data.x, graph)
    packed = frozen.pack_features(data.x)
    calls["packed features"] = partial(frozen, packed, graph)
    return calls, frozen_memory(frozen, packed, graph)


def _float_calls(model: nn.Module, data: Data) -> tuple[Calls, MemoryUse | None]:
    """The float model's forward for each form of the graph that is installed, caches filled."""
    sizes = [parameter.size(-1) for parameter in model.parameters() if parameter.dim() > 1]
    messages = FLOAT_BYTES * data.edge_index.size(1) * max([data.x.size(1), *sizes])
    calls: Calls = {}
    for way, graph in graph_forms(data.edge_index, data.x.size(0)).items():
        if way == "edge_index" and messages > MESSAGE_LIMIT:
            continue
        own = copy.deepcopy(model)
        for layer in own.modules():
            if isinstance(layer, GCNConv):
                layer.cached = True
        calls[way] = torch.inference_mode()(partial(own, data.x, graph))
        calls[way]()
    if not any(isinstance(layer, GCNConv) for layer in model.modules()):
        return calls, None
    num_edges = data.edge_index.size(1) + data.x.size(0)
    uses = (pyg_memory(model, data.x, num_edges, way) for way in ("edge_index", "csr"))
    return calls, min(uses, key=lambda use: use.peak)

"""What plans are set against: PyG's own float layers, and Bi-GCN emulated in floats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch_geometric.nn
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import to_torch_csr_tensor

from bitgnn.convert.letters import with_letters
from bitgnn.convert.plan import ModelShape, tunable_layers
from bitgnn.measure.memory import cuda_peak_allocation, peak_allocation, stored_bytes
from bitgnn.measure.pyg import graph_forms
from bitgnn.measure.timing import Clock
from bitgnn.nn.precision import PRESETS
from bitgnn.tune.accuracy import Score, logits_of, score_logits
from bitgnn.tune.workload import Workload

__all__ = ["BI_GCN", "PYG", "Baseline", "baselines", "in_floats"]

PYG, BI_GCN = "PyG fp32", "Bi-GCN emulated"
LETTERS = {PYG: PRESETS["fp32"], BI_GCN: "FBF+FFF"}
MESSAGE_LIMIT = 2 * 2**30
"""Bytes of messages beyond which graphs are not given as an edge index, unless it is the only
form."""
FLOAT_BYTES = 4
LINEAR_LETTERS = 3


@dataclass(frozen=True)
class Baseline:
    """A model that is not frozen, in the form of the graph that is fastest for it.

    Attributes:
        family: ``PYG`` or ``BI_GCN``.
        form: of the graph.
        run: one forward.
        score: of its logits.
        memory: bytes of weights, features and graph, and of the allocator's peak on top.
    """

    family: str
    form: str
    run: Callable[[], Tensor]
    score: Score
    memory: float

    @property
    def name(self) -> str:
        """Family and form."""
        return f"{self.family} ({self.form})"


def baselines(workload: Workload, trained: Mapping[str, nn.Module] | None = None) -> list[Baseline]:
    """Both baselines of a workload.

    Args:
        workload: model and data.
        trained: models that were trained for this by family; where one is missing, the workload's
            own weights are taken in floats, or with binary products alone.

    Raises:
        ValueError: an unknown family, or a model that cannot have these letters.
    """
    given = dict(trained or {})
    unknown = sorted(set(given) - set(LETTERS))
    if unknown:
        raise ValueError(f"tune: baselines must be of {list(LETTERS)}, got {unknown}")
    return [
        _fastest(workload, family, _in_letters(given.get(family, workload.model), letters))
        for family, letters in LETTERS.items()
    ]


def in_floats(model: nn.Module) -> nn.Module:
    """A copy of a model in PyG's arithmetic, with the same weights."""
    return _in_letters(model, LETTERS[PYG])


def _in_letters(model: nn.Module, letters: str) -> nn.Module:
    wanted = {
        name: letters if isinstance(layer, MessagePassing) else letters[:LINEAR_LETTERS]
        for name, layer in tunable_layers(model).items()
    }
    return with_letters(model, wanted)


def _fastest(workload: Workload, family: str, model: nn.Module) -> Baseline:
    """The form of the graph whose second forward takes least time."""
    model = model.to(workload.device).eval()
    clock = Clock(workload.device.type)
    found = []
    for form, graph in _forms(workload).items():
        _forget_graphs(model)
        run = partial(logits_of, model, workload.x, graph)
        run()
        found.append((clock.elapsed(run), form, graph))
    _, form, graph = min(found, key=lambda entry: entry[0])
    _forget_graphs(model)
    run = partial(logits_of, model, workload.x, graph)
    score = score_logits(workload, run())
    peak = cuda_peak_allocation if workload.x.is_cuda else peak_allocation
    memory = stored_bytes(model, workload.x, graph) + peak(run)
    return Baseline(family, form, run, score, float(memory))


def _forms(workload: Workload) -> dict[str, Any]:
    graph, nodes = workload.edge_index, workload.num_nodes
    if not isinstance(graph, Tensor) or graph.layout != torch.strided:
        return {"as given": graph}
    if workload.edge_weight is not None:
        csr = to_torch_csr_tensor(graph.flip(0), workload.edge_weight, (nodes, nodes))
        return {"torch CSR": csr}
    forms = graph_forms(graph, nodes)
    shapes = ModelShape.of(workload.model).layers
    widest = max(max(shape.in_channels, shape.out_channels) for shape in shapes)
    if graph.size(1) * widest * FLOAT_BYTES > MESSAGE_LIMIT:
        forms.pop("edge_index")
    return forms


def _forget_graphs(model: nn.Module) -> None:
    """PyG's layers normalise once, as they do where a user has them keep it."""
    for layer in model.modules():
        if isinstance(layer, torch_geometric.nn.GCNConv):
            layer.cached = layer.normalize
            layer._cached_edge_index = layer._cached_adj_t = None

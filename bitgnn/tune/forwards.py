"""Forwards made ready to be timed: of frozen candidates and of the float model, with scores."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv

from bitgnn.convert import freeze
from bitgnn.distillation.calling import arguments_of, scores_in
from bitgnn.distillation.problems import Nodes
from bitgnn.inference import FrozenModel, capture
from bitgnn.inference.memory import measured_memory
from bitgnn.measure.memory import cuda_peak_allocation, peak_allocation, stored_bytes
from bitgnn.measure.pyg import graph_forms


@dataclass(frozen=True)
class Forward:
    """A call without arguments, and what it gives and needs.

    Attributes:
        run: one forward on the whole graph, from prepared inputs.
        score: of the validation nodes.
        test: of the test nodes; None without any.
        memory: bytes of weights, features and graph, and of the allocator's peak on top.
    """

    run: Callable[[], Tensor]
    score: float
    test: float | None
    memory: int


def frozen(model: nn.Module) -> Any:
    """A distilled model frozen; it is scored in this form, so that nothing is refused."""
    with warnings.catch_warnings():
        # Parts in full precision are what the candidate asks for.
        warnings.filterwarnings("ignore", message="freeze: parts", category=UserWarning)
        return freeze(model, check=False)


def frozen_forward(model: nn.Module, problem: Nodes) -> Forward:
    """The forward of a distilled model, frozen, on prepared graph and packed features."""
    made, example = frozen(model), problem.graph
    args, named = arguments_of(model, example)
    graph = _graph(example)
    is_plain = len(args) == 1 + bool(getattr(made, "takes_graph", False)) and args[0] is example.x
    is_program = isinstance(made, FrozenModel) and made.is_program
    if not is_program or not is_plain or named.keys() - {"edge_weight"}:
        return _forward(made, args, named, problem)
    x = example.x if made.program.entry is None else made.pack_features(example.x)
    if made.takes_graph:
        weight = named.get("edge_weight") if made.takes_edge_weight else None
        graph = made.prepare_graph(graph, problem.y.size(0), weight)
    else:
        graph = None
    memory = measured_memory(made, x, graph).peak
    run = capture(made, x, graph)
    return Forward(run, *_scores(run(), problem), memory)


def float_forwards(model: nn.Module, problem: Nodes) -> dict[str, Forward]:
    """The forwards of a float model, by each form of graph that it takes.

    Forms are the one given and, of an edge index without weights, PyG's others. GCNConv caches the
    normalised graph.
    """
    args, named = arguments_of(model, problem.graph)
    graph = _graph(problem.graph)
    forms = {"as given": graph}
    if isinstance(graph, Tensor) and graph.layout == torch.strided and not named:
        forms = graph_forms(graph, problem.y.size(0))
    found: dict[str, Forward] = {}
    for name, form in forms.items():
        own = copy.deepcopy(model).eval()
        for layer in own.modules():
            if isinstance(layer, GCNConv):
                layer.cached = layer.normalize
                layer._cached_edge_index = layer._cached_adj_t = None
        given = [form if value is graph else value for value in args]
        try:
            found[name] = _forward(own, given, named, problem)
        except Exception:  # a model of one's own may take edge indices alone
            if form is graph:
                raise
    return found


def _graph(data: Any) -> Any:
    graph = getattr(data, "edge_index", None)
    return getattr(data, "adj_t", None) if graph is None else graph


def _forward(model: Any, args: list[Any], named: dict[str, Any], problem: Nodes) -> Forward:
    @torch.no_grad()
    def run() -> Tensor:
        return scores_in(model(*args, **named))

    scores = _scores(run(), problem)
    peak = cuda_peak_allocation if problem.device.type == "cuda" else peak_allocation
    return Forward(run, *scores, stored_bytes(model, args, named) + peak(run))


def _scores(found: Tensor, problem: Nodes) -> tuple[float, float | None]:
    """Scores of the validation and the test nodes."""

    def of(rows: Tensor) -> float:
        return float(problem.objective.score(found[rows], problem.y[rows]))

    return of(problem.val), None if problem.test is None else of(problem.test)

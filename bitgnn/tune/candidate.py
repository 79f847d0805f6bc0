"""Candidates: plans made ready to run on a workload, sharing frozen models and prepared graphs."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bitgnn.convert import freeze
from bitgnn.convert.plan import ModelShape, Plan
from bitgnn.inference import FrozenModel
from bitgnn.inference.frozen_model import Features, Graph
from bitgnn.inference.memory import MemoryUse, frozen_memory

if TYPE_CHECKING:
    from bitgnn.tune.workload import Workload

__all__ = ["Candidate", "Candidates"]

MOST_GRAPHS = 24
MOST_MODELS = 256
"""Prepared graphs and frozen models that are kept; those used longest ago go first."""


@dataclass(frozen=True)
class Candidate:
    """A plan with everything a forward needs.

    Attributes:
        plan: the plan.
        frozen: the model frozen with it.
        x: features in the form the plan asks for.
        graph: the prepared graph.
    """

    plan: Plan
    frozen: FrozenModel
    x: Features
    graph: Graph | None

    @cached_property
    def run(self) -> Callable[[], Tensor]:
        """One forward as the model is run without a word on how."""
        # Without the candidate itself in the call, its memory is given back with its last user.
        return partial(self.frozen.executor(), self.x, self.graph)

    @property
    def kernels(self) -> Callable[[], Tensor]:
        """One forward that a CUDA graph can hold."""
        return partial(self.frozen, self.x, self.graph)

    @property
    def memory(self) -> MemoryUse:
        """Bytes of a forward by purpose."""
        return frozen_memory(self.frozen, self.x, self.graph)


class Candidates:
    """Makes candidates of plans.

    Args:
        workload: model and data.
    """

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self._shape = ModelShape.of(workload.model)
        self._models: OrderedDict[Any, FrozenModel] = OrderedDict()
        self._graphs: OrderedDict[Any, Graph] = OrderedDict()
        self._features: list[tuple[Any, list[Tensor], Features]] = []

    def make(self, plan: Plan) -> Candidate:
        """A plan ready to run.

        Raises:
            ValueError: the plan does not fit the model.
        """
        frozen = self.frozen(plan)
        x = self._packed(frozen) if plan.features == "packed" else self.workload.x
        return Candidate(plan, frozen, x, self._graph(frozen))

    def frozen(self, plan: Plan) -> FrozenModel:
        """The model frozen with a plan; plans that differ in the form of features share one.

        Raises:
            ValueError: the plan does not fit the model.
        """
        if plan.model is not None and plan.model != self._shape:
            plan.check_model(self.workload.model)  # says what it is for
        key = (tuple(plan.letters.items()), tuple(plan.order.items()))

        def make() -> FrozenModel:
            with warnings.catch_warnings():
                # What stays in full precision is what the letters of most plans ask for.
                warnings.filterwarnings("ignore", message="freeze: parts", category=UserWarning)
                return freeze(self.workload.model, Plan(plan.letters, plan.order), check=False)

        made: FrozenModel = _kept(self._models, key, make, MOST_MODELS)
        return made

    def _packed(self, frozen: FrozenModel) -> Features:
        """Packed features; models that pack them alike share them."""
        steps = frozen.program.steps[: frozen.program.entry]
        tensors = [frozen.get_buffer(name) for step in steps for name in step.tensors.values()]
        form = [(step.kind, dict(step.attributes), sorted(step.tensors)) for step in steps]
        key = (frozen._takes_pattern, form)
        for known, read, packed in self._features:
            if known == key and all(map(torch.equal, read, tensors)):
                return packed
        packed = frozen.pack_features(self.workload.x)
        self._features.append((key, tensors, packed))
        return packed

    def _graph(self, frozen: FrozenModel) -> Graph | None:
        if not frozen.takes_graph:
            return None
        workload = self.workload
        weight = workload.edge_weight if frozen.takes_edge_weight else None
        widths = tuple(tuple(frozen._packed_widths(n)) for n in range(len(frozen.graphs)))
        own = None if frozen.calls is None else id(frozen)  # its graph holds the edges themselves
        key = (frozen.graphs, widths, weight is None, own)

        def make() -> Graph:
            return frozen.prepare_graph(workload.edge_index, workload.num_nodes, weight)

        return _kept(self._graphs, key, make, MOST_GRAPHS)


def _kept(store: OrderedDict[Any, Any], key: Any, make: Callable[[], Any], most: int) -> Any:
    """What is stored under a key, made where it is not."""
    if key not in store:
        store[key] = make()
    store.move_to_end(key)
    while len(store) > most:
        store.popitem(last=False)
    return store[key]

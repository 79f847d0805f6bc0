"""Space: all plans that a model allows, in a fixed order, made ready and scored."""

from __future__ import annotations

import itertools
import json
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from bitgnn.convert import ModelShape, Plan, freeze
from bitgnn.convert.plan import Order
from bitgnn.inference import FrozenModel
from bitgnn.inference.frozen_model import Features, Graph
from bitgnn.inference.memory import MeasuredMemory, measured_memory
from bitgnn.tune.letters import LetterChoices, Pins, pinned_choices
from bitgnn.tune.workload import Score, Workload

MOST_GRAPHS = 24
MOST_MODELS = 256
"""Prepared graphs and frozen models that are kept; those used longest ago go first."""
ORDERS: tuple[Order, ...] = ("transform_first", "aggregate_first")
CHOICES: dict[str, tuple[str, ...]] = {"features": ("floats", "packed"), "order": ORDERS}
"""What ``allow`` may restrict, and every value there is."""
MOST_ORDERED = 4
"""Up to so many layers every combination of their orders is in the space."""


@dataclass(frozen=True)
class Candidate:
    """A frozen model with the inputs of a forward, features in the plan's form."""

    frozen: FrozenModel
    x: Features
    graph: Graph | None

    @cached_property
    def run(self) -> Callable[[], Tensor]:
        """One forward in the default way."""
        # Without the candidate itself in the call, its memory is given back with its last user.
        return partial(self.frozen.executor(), self.x, self.graph)

    @property
    def kernels(self) -> Callable[[], Tensor]:
        """One forward that a CUDA graph can hold."""
        return partial(self.frozen, self.x, self.graph)

    @property
    def memory(self) -> MeasuredMemory:
        """Bytes of a forward by purpose."""
        return measured_memory(self.frozen, self.x, self.graph)


def _kept(store: OrderedDict[Any, Any], key: Any, make: Callable[[], Any], most: int) -> Any:
    """Value stored under a key, made if there is none."""
    if key not in store:
        store[key] = make()
    store.move_to_end(key)
    while len(store) > most:
        store.popitem(last=False)
    return store[key]


class Space:
    """Letters of every layer, orders of float maps, and forms of the features.

    Letter choices cost nothing to go through. What a choice can be combined with is asked of the
    frozen model itself, once for each choice: some milliseconds for a small model.

    Args:
        workload: model, graph and device.
        choices: of letters.
        allow: values that plans may have, by name.
    """

    def __init__(
        self, workload: Workload, choices: LetterChoices, allow: Mapping[str, Sequence[str]]
    ) -> None:
        self.workload = workload
        self.choices = choices
        self.allow = {name: tuple(values) for name, values in allow.items()}
        self.shape = ModelShape.of(workload.model)
        self._facts: dict[str, tuple[Mapping[str, Order], list[Any]]] = {}
        self._models: OrderedDict[Any, FrozenModel] = OrderedDict()
        self._graphs: OrderedDict[Any, Graph] = OrderedDict()
        self._features: list[tuple[Any, list[Tensor], Features]] = []

    @classmethod
    def from_workload(
        cls,
        workload: Workload,
        pins: Pins | None = None,
        allow: Mapping[str, Sequence[str]] | None = None,
    ) -> Space:
        """The space of a workload.

        Args:
            workload: model, graph and device.
            pins: letters that are settled, see :func:`bitgnn.tune.letters.pin_patterns`.
            allow: values to choose from, by ``"features"`` or ``"order"``; everything else is left
                out.

        Raises:
            ValueError: there is nothing to tune, a pin or an allowed value does not exist, or the
                pins leave nothing that fits together.
        """
        choices = pinned_choices(workload.model, pins)
        for name, values in (allow or {}).items():
            unknown = sorted(set(values) - set(CHOICES.get(name, ())))
            if name not in CHOICES or unknown or not values:
                raise ValueError(
                    f"tune: allow must name some of {CHOICES}, got {name!r}: {list(values)}"
                )
        return cls(workload, choices, allow or {})

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the tunable layers in the order of the dataflow."""
        return tuple(rule.name for rule in self.choices.rules)

    @property
    def num_choices(self) -> int:
        """Number of letter choices, counted without making them."""
        return len(self.choices)

    def options(self, layer: str, chosen: Mapping[str, str]) -> tuple[str, ...]:
        """Letters that a layer may have after those chosen for earlier layers.

        Asked layer by layer in the order of :attr:`layers`, this makes any choice of the space.
        """
        return self.choices.options(self.layers.index(layer), chosen)

    def plans(self, letters: Mapping[str, str]) -> list[Plan]:
        """Every plan of a choice of letters.

        Raises:
            ValueError: the letters are no choice of this space.
        """
        native, forms = self._known(letters)
        return [
            Plan(dict(letters), order, form, self.shape)
            for order in self._orders(native)
            for form in forms
        ]

    def values_key(self, letters: Mapping[str, str], order: Mapping[str, str] | None = None) -> str:
        """A text that is equal for plans with exactly equal results.

        The form of the features never changes a bit; letters do, and the order of float maps
        changes their rounding.

        Args:
            letters: of every layer.
            order: as in a plan; what it leaves open is as freezing chooses.
        """
        settled = {**self._known(letters)[0], **(order or {})}
        return json.dumps([dict(sorted(letters.items())), dict(sorted(settled.items()))])

    def __iter__(self) -> Iterator[Plan]:
        for letters in self.choices:
            yield from self.plans(letters)

    def _orders(self, native: Mapping[str, Order]) -> list[dict[str, Order]]:
        """All orders of few layers, else freezing's choice and its one-layer variations."""
        allowed: list[Order] = [order for order in ORDERS if order in self._allowed("order")]
        if len(native) <= MOST_ORDERED:
            combined = itertools.product(allowed, repeat=len(native))
            return [dict(zip(native, order, strict=True)) for order in combined]
        known = [{**native, name: order} for name in native for order in allowed]
        known = [dict(native), *known, *(dict.fromkeys(native, order) for order in allowed)]
        fitting = [order for order in known if set(order.values()) <= set(allowed)]
        return [order for place, order in enumerate(fitting) if order not in fitting[:place]]

    def _allowed(self, name: str) -> tuple[str, ...]:
        return self.allow.get(name, CHOICES[name])

    def _known(self, letters: Mapping[str, str]) -> tuple[Mapping[str, Order], list[Any]]:
        """Freezing's order of each layer that has a choice, and the forms of features."""
        if letters not in self.choices:
            raise ValueError(f"tune: letters {dict(letters)} are no choice of this space")
        key = " ".join(letters[name] for name in self.layers)
        if key not in self._facts:
            frozen = self.frozen(Plan(dict(letters)))
            forms = ["floats"] if frozen.program.entry is None else ["floats", "packed"]
            orders: Any = dict(frozen.report.orders)
            self._facts[key] = orders, [form for form in forms if form in self._allowed("features")]
        return self._facts[key]

    def make(self, plan: Plan) -> Candidate:
        """A plan ready to run."""
        frozen = self.frozen(plan)
        x = self._packed(frozen) if plan.features == "packed" else self.workload.x
        return Candidate(frozen, x, self._graph(frozen))

    def frozen(self, plan: Plan) -> FrozenModel:
        """The model frozen with a plan; plans that differ in the form of features share one."""
        if plan.model is not None and plan.model != self.shape:
            plan.check_model(self.workload.model)  # says what it is for

        def make() -> FrozenModel:
            with warnings.catch_warnings():
                # What stays in full precision is what the letters of most plans ask for.
                warnings.filterwarnings("ignore", message="freeze: parts", category=UserWarning)
                return freeze(self.workload.model, Plan(plan.letters, plan.order), check=False)

        key = (tuple(plan.letters.items()), tuple(plan.order.items()))
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
        graph, nodes = self.workload.edge_index, self.workload.num_nodes
        weight = self.workload.edge_weight if frozen.takes_edge_weight else None
        widths = tuple(tuple(frozen._packed_widths(n)) for n in range(len(frozen.graphs)))
        own = None if frozen.calls is None else id(frozen)  # its graph holds the edges themselves
        key = (frozen.graphs, widths, weight is None, own)
        make = partial(frozen.prepare_graph, graph, nodes, weight)
        return _kept(self._graphs, key, make, MOST_GRAPHS)


class Accuracy:
    """Scores plans with the weights the model has, without training.

    Plans with equal :meth:`Space.values_key` are frozen and run once, and share a score.

    Args:
        space: of the plans.
    """

    def __init__(self, space: Space) -> None:
        self.space = space
        self._known: dict[str, Score] = {}

    def of(self, plan: Plan) -> Score:
        """The score of a plan.

        Raises:
            ValueError: the plan does not fit the model.
        """
        key = self.space.values_key(plan.letters, plan.order)
        if key not in self._known:
            self._known[key] = self._measure(Plan(plan.letters, plan.order))
        return self._known[key]

    @torch.no_grad()
    def _measure(self, plan: Plan) -> Score:
        return self.space.workload.scores(self.space.make(plan).kernels())

"""Space: every plan that a model, a graph and a device allow, in a fixed order."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bitgnn.bits import BitAdjacency
from bitgnn.bits.layouts import FRDC_METHODS
from bitgnn.convert import ModelShape, Plan
from bitgnn.convert.plan import Order
from bitgnn.inference import FrozenModel, PreparedGraph
from bitgnn.tune.candidate import Candidates
from bitgnn.tune.chains import Chains
from bitgnn.tune.pins import Pins, pinned_chains
from bitgnn.tune.workload import Workload

__all__ = ["Execution", "Space"]

ORDERS: tuple[Order, ...] = ("transform_first", "aggregate_first")
CHOICES: dict[str, tuple[str, ...]] = {
    "features": ("floats", "packed"),
    "layout": ("csr", "sliced", "blocked", "frdc"),
    "method": FRDC_METHODS,
    "executor": ("eager", "cuda_graph", "cooperative"),
    "order": ORDERS,
}
"""What ``allow`` may restrict, and every value there is."""

MOST_ORDERED = 4
"""Up to so many layers every combination of their orders is in the space."""

GPU_LAYOUTS = ("sliced",)
"""Made for a GPU's shared memory; a CPU reads them too, but gains nothing."""


@dataclass(frozen=True)
class Execution:
    """How letters are run; none of it changes a bit of the results, order aside.

    Attributes:
        layout: of patterns.
        method: on FRDC tiles; None for other layouts.
        executor: by name.
        features: in which form they are given.
        order: which float map comes first, by layer; it changes the rounding of floats.
    """

    layout: str = "csr"
    method: str | None = None
    executor: str = "eager"
    features: str = "floats"
    order: Mapping[str, Order] = field(default_factory=dict)

    def __hash__(self) -> int:
        order = frozenset(self.order.items())
        return hash((self.layout, self.method, self.executor, self.features, order))


@dataclass(frozen=True)
class _Facts:
    """What freezing with some letters tells.

    Attributes:
        orders: the order of each layer that has a choice, where a plan leaves it open.
        features: forms of the features.
        runs: layout, method and executor that go together.
    """

    orders: Mapping[str, Order]
    features: tuple[str, ...]
    runs: tuple[tuple[str, str | None, str], ...]


class Space:
    """Letters of every layer, orders of float maps, and ways to run them.

    Letter chains cost nothing to go through. What a chain can be run with is asked of the frozen
    model itself, once for each chain and kept: some milliseconds for a small model.

    Args:
        workload: model, graph and device.
        chains: of letters.
        candidates: where models frozen here are kept for others to use.
        allow: values that executions may have, by name.
    """

    def __init__(
        self,
        workload: Workload,
        chains: Chains,
        candidates: Candidates,
        allow: Mapping[str, Sequence[str]],
    ) -> None:
        self.workload = workload
        self.chains = chains
        self.candidates = candidates
        self.allow = {name: tuple(values) for name, values in allow.items()}
        self.shape = ModelShape.of(workload.model)
        self._facts: dict[tuple[str, ...], _Facts] = {}
        self._tiles: dict[Any, bool] = {}

    @classmethod
    def from_workload(
        cls,
        workload: Workload,
        pins: Pins | None = None,
        allow: Mapping[str, Sequence[str]] | None = None,
        candidates: Candidates | None = None,
    ) -> Space:
        """The space of a workload.

        Args:
            workload: model, graph and device.
            pins: letters that are settled, see :func:`bitgnn.tune.pins.pin_patterns`.
            allow: values to choose from, by ``"features"``, ``"layout"``, ``"method"``,
                ``"executor"`` or ``"order"``; everything else is left out.
            candidates: where frozen models are kept; None for new ones.

        Raises:
            ValueError: there is nothing to tune, a pin or an allowed value does not exist, or the
                pins leave nothing that fits together.
        """
        chains = pinned_chains(workload.model, pins)
        for name, values in (allow or {}).items():
            unknown = sorted(set(values) - set(CHOICES.get(name, ())))
            if name not in CHOICES or unknown or not values:
                raise ValueError(
                    f"tune: allow must name some of {CHOICES}, got {name!r}: {list(values)}"
                )
        return cls(workload, chains, candidates or Candidates(workload), allow or {})

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the tunable layers in the order in which data pass them."""
        return tuple(rule.name for rule in self.chains.rules)

    @property
    def num_chains(self) -> int:
        """Number of letter chains, counted without making them."""
        return len(self.chains)

    def options(self, layer: str, chosen: Mapping[str, str]) -> tuple[str, ...]:
        """Letters that a layer may have behind those chosen for the layers in front of it.

        Asked layer by layer in the order of :attr:`layers`, this makes any chain of the space.
        """
        return self.chains.options(self.layers.index(layer), chosen)

    def executions(self, letters: Mapping[str, str]) -> list[Execution]:
        """Ways to run a chain of letters on this graph and device.

        Raises:
            ValueError: the letters are no chain of this space.
        """
        facts = self._known(letters)
        return [
            Execution(layout, method, executor, features, order)
            for order in self._orders(facts.orders)
            for features in facts.features
            for layout, method, executor in facts.runs
        ]

    def plan(self, letters: Mapping[str, str], execution: Execution) -> Plan:
        """The plan of a chain of letters and a way to run it."""
        return Plan(
            dict(letters),
            dict(execution.order),
            execution.features,  # type: ignore[arg-type]
            execution.layout,
            execution.method,
            execution.executor,
            self.shape,
        )

    def plans(self, letters: Mapping[str, str]) -> list[Plan]:
        """Every plan of a chain of letters."""
        return [self.plan(letters, execution) for execution in self.executions(letters)]

    def values_key(self, letters: Mapping[str, str], order: Mapping[str, str] | None = None) -> str:
        """A text that is equal for plans with exactly equal results.

        Layout, method, executor and the form of the features never change a bit; letters do, and
        the order of float maps changes their rounding.

        Args:
            letters: of every layer.
            order: as in a plan; what it leaves open is as freezing chooses.
        """
        settled = {**self._known(letters).orders, **(order or {})}
        return json.dumps([dict(sorted(letters.items())), dict(sorted(settled.items()))])

    def __iter__(self) -> Iterator[Plan]:
        for letters in self.chains:
            yield from self.plans(letters)

    def __len__(self) -> int:
        """Number of plans; every chain is frozen once for it."""
        return sum(len(self.executions(letters)) for letters in self.chains)

    def __contains__(self, plan: object) -> bool:
        return (
            isinstance(plan, Plan)
            and plan.letters in self.chains
            and plan in self.plans(plan.letters)
        )

    def describe(self) -> str:
        """The space in words."""
        lines = [f"{self.shape} on {self.workload.device}"]
        for rule in self.chains.rules:
            pin = self.chains.patterns.get(rule.name)
            count = f"pinned to {pin}" if pin else "free"
            source = f"reads {', '.join(rule.sources)}" if rule.sources else "reads floats"
            lines.append(f"{rule.name}: letters {count}, {source}")
        lines.append(f"{self.num_chains} letter chains")
        lines += [f"{name}: only {', '.join(values)}" for name, values in self.allow.items()]
        return "\n".join(lines)

    def _orders(self, native: Mapping[str, Order]) -> list[dict[str, Order]]:
        """Orders to choose from; of many layers freezing's own choice, and with one changed."""
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

    def _known(self, letters: Mapping[str, str]) -> _Facts:
        if letters not in self.chains:
            raise ValueError(f"tune: letters {dict(letters)} are no chain of this space")
        key = tuple(letters[name] for name in self.layers)
        if key not in self._facts:
            self._facts[key] = self._ask(self.candidates.frozen(Plan(dict(letters))))
        return self._facts[key]

    def _ask(self, frozen: FrozenModel) -> _Facts:
        forms = ["floats"] if frozen.program.entry is None else ["floats", "packed"]
        features = tuple(form for form in forms if form in self._allowed("features"))
        executors = self._executors(frozen)
        runs = [
            (layout, method, executor)
            for layout, method in self._layouts(frozen)
            for executor in executors
            if executor != "cooperative" or layout == "csr"
        ]
        orders: Mapping[str, Any] = frozen.report.orders
        return _Facts(dict(orders), features, tuple(runs))

    def _layouts(self, frozen: FrozenModel) -> list[tuple[str, str | None]]:
        found: list[tuple[str, str | None]] = []
        is_gpu = self.workload.device.type == "cuda"
        for layout in frozen.useful_layouts():
            if layout not in self._allowed("layout") or (layout in GPU_LAYOUTS and not is_gpu):
                continue
            if layout != "frdc":
                found.append((layout, None))
            elif self._fits_tiles(frozen):
                found += [(layout, method) for method in self._allowed("method")]
        return found

    def _executors(self, frozen: FrozenModel) -> list[str]:
        """Executors that take the model; on a CPU there is one."""
        if self.workload.device.type != "cuda":
            return [name for name in ("eager",) if name in self._allowed("executor")]
        found = []
        for name in self._allowed("executor"):
            try:
                frozen.executor(name)
            except ValueError:
                continue
            found.append(name)
        return found

    def _fits_tiles(self, frozen: FrozenModel) -> bool:
        """Whether no edge of the graph occurs twice, which tiles cannot hold."""
        if frozen.graphs not in self._tiles:
            weight = self.workload.edge_weight if frozen.takes_edge_weight else None
            graph = frozen.prepare_graph(
                self.workload.edge_index, self.workload.num_nodes, weight, layout="csr"
            )
            parts = graph.adjacencies if isinstance(graph, PreparedGraph) else (graph,)
            patterns = [part for part in parts if isinstance(part, BitAdjacency)]
            self._tiles[frozen.graphs] = all(part.frdc() is not None for part in patterns)
        return self._tiles[frozen.graphs]

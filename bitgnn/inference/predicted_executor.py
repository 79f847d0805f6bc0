"""The executor that is expected to be fastest, untimed: what a model without a plan runs with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from bitgnn.bits import BitAdjacency, BlockedAdjacency
from bitgnn.bits.layouts import FRDC_METHODS
from bitgnn.inference.choice import AutoExecutor
from bitgnn.inference.predicted_layout import USUAL_EXECUTOR
from bitgnn.inference.predictor import Way, describe_forward, graphs_of, predictor_for

__all__ = ["PredictedExecutor"]


class PredictedExecutor(AutoExecutor):
    """Takes the executor that is expected to be fastest for each shape of inputs, without timing.

    Where it does not take the model or the inputs, the next one does. The rest is as
    :class:`~bitgnn.inference.choice.AutoExecutor` has it, ``seconds`` being what was expected.
    """

    def _pick(self, x: Any, adjacency: Any) -> str:
        self.eager(x, adjacency)  # what the model itself refuses is raised
        self.seconds = self._expected(x, adjacency)
        self.left_out = {}
        for name in self.seconds:
            try:
                self._executor(name)(x, adjacency)
            except (RuntimeError, TypeError, ValueError) as error:
                self.left_out[name] = f"{type(error).__name__}: {error}"
            else:
                return name
        return "eager"

    def _expected(self, x: Any, adjacency: Any) -> dict[str, float]:
        """Latency of each candidate in the order to try; numbers where nothing was learned."""
        predictor = predictor_for(x.device.type)
        names = sorted(self.candidates, key=lambda name: name != USUAL_EXECUTOR[x.device.type])
        if predictor is None:
            return {name: float(number) for number, name in enumerate(names)}
        graphs = graphs_of(adjacency)
        packed = not isinstance(x, Tensor)
        statistics = describe_forward(self.model, packed, x.shape[0], graphs)
        layout = self._layout(graphs)
        method = FRDC_METHODS[-1] if layout == "frdc" else None
        ways = predictor.order(statistics, [Way(layout, method, name) for name in names])
        return {way.executor: predictor.seconds(statistics, way) for way in ways}

    def _layout(self, graphs: Sequence[Any]) -> str:
        """The layout that packed rows are aggregated in, CSR where they all are."""
        for number, graph in enumerate(graphs):
            if isinstance(graph, BitAdjacency | BlockedAdjacency):
                if isinstance(graph, BlockedAdjacency):
                    return "blocked"
                widths = self.model._packed_widths(number)
                planned = {graph.planned_layout(words) for words in widths} - {"csr"}
                if planned:
                    return min(planned)
        return "csr"

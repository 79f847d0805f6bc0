"""Which float map of a layer comes first, that of the features or that of the graph.

``A (x W)`` and ``(A x) W`` are the same up to the rounding of floats. Where no sign behind it could
notice, freezing takes the order with less work, and a plan may force either.
"""

from __future__ import annotations

from collections.abc import Mapping

from bitgnn.convert.network.fold_linear import become, binarised, fold_linear_maps, readers_of
from bitgnn.convert.network.values import Network, Value, is_unit, ordered

__all__ = ["settle_orders"]

TRANSFORM, AGGREGATE = "transform_first", "aggregate_first"


def settle_orders(network: Network, order: Mapping[str, str], fold: bool) -> None:
    """Bring float maps into the order a plan names, elsewhere into that with less work.

    Args:
        network: as lowered; its values change in place, ``folded`` and ``orders`` tell how.
        order: ``"transform_first"`` or ``"aggregate_first"`` by layer.
        fold: compose and exchange maps where the plan says nothing.

    Raises:
        ValueError: a layer of ``order`` has no choice.
    """
    before = _find_orders(network)
    unknown = sorted(order.keys() - before.keys())
    if unknown:
        raise ValueError(
            f"freeze: plan orders {unknown}, but only float maps that no sign follows may change "
            f"places; with these letters those of {sorted(before)}"
        )
    for layer, wanted in order.items():
        first, value = before[layer]
        if first != wanted:
            _exchange(value)
            network.folded[layer] = (
                "aggregates in front of its map"
                if wanted == AGGREGATE
                else "aggregates behind its map"
            )
    if fold:
        network.folded.update(fold_linear_maps(network, fixed=order))
    after = _find_orders(network)
    network.orders = {layer: after[layer][0] for layer in before if layer in after}


def _find_orders(network: Network) -> dict[str, tuple[str, Value]]:
    """Layers that may do either first: what they do, and the value behind both maps."""
    scores = network.scores
    assert scores is not None
    fixed, readers = binarised(scores), readers_of(scores)
    found: dict[str, tuple[str, Value]] = {}
    for value in ordered(scores):
        if value.kind not in ("aggregate", "linear") or value in fixed:
            continue
        (inner,) = value.inputs
        if {value.kind, inner.kind} != {"aggregate", "linear"} or readers[inner] > 1:
            continue
        # A constant inside of an aggregation would be summed over the neighbours.
        if inner.layer != value.layer or "bias" in inner.tensors:
            continue
        (source,) = inner.inputs
        if source.size is not None and not is_unit(source):
            found[value.layer] = (TRANSFORM if inner.kind == "linear" else AGGREGATE, value)
    return found


def _exchange(value: Value) -> None:
    """Let the two maps of a layer change places."""
    (inner,) = value.inputs
    (source,) = inner.inputs
    tensors, layer = {**inner.tensors, **value.tensors}, value.layer
    if inner.kind == "linear":
        sums = Value("aggregate", layer, (source,), source.size, spec=value.spec)
        become(value, Value("linear", layer, (sums,), value.size, tensors=tensors))
    else:
        weight = {"weight": tensors.pop("weight")}
        mapped = Value("linear", layer, (source,), value.size, tensors=weight)
        spec = inner.spec
        become(value, Value("aggregate", layer, (mapped,), value.size, tensors=tensors, spec=spec))

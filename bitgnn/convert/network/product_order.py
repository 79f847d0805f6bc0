"""Order of a layer's two products: features times weights first, or the aggregation first.

``A (x W)`` and ``(A x) W`` are the same up to the rounding of floats. Where no sign behind it could
notice, freezing takes the order with less work, and a plan may force either.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from bitgnn.convert.network.fold_linear import binarised, fold_linear_maps, readers_of, replace_with
from bitgnn.convert.network.values import ROWS, Network, Value, is_unit, ordered

TRANSFORM, AGGREGATE = "transform_first", "aggregate_first"
_ENDS = ("softmax", "log_softmax")


def settle_orders(network: Network, order: Mapping[str, str], fold: bool) -> None:
    """Bring float maps into the order a plan names, elsewhere into that with less work.

    Args:
        network: as lowered; its values change in place, ``folded`` and ``orders`` tell how.
        order: ``"transform_first"`` or ``"aggregate_first"`` by layer.
        fold: compose and exchange maps where the plan says nothing; of images, take a batch norm
            behind the last layer into its scale and bias.

    Raises:
        ValueError: a layer of ``order`` has no choice.
    """
    if network.of_images:
        if fold:
            _fold_last_norm(network)
        return
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
        replace_with(value, Value("linear", layer, (sums,), value.size, tensors=tensors))
    else:
        weight = {"weight": tensors.pop("weight")}
        mapped = Value("linear", layer, (source,), value.size, tensors=weight)
        spec = inner.spec
        replace_with(
            value, Value("aggregate", layer, (mapped,), value.size, tensors=tensors, spec=spec)
        )


def _fold_last_norm(network: Network) -> None:
    """A batch norm between the last linear map and the scores becomes its scale and bias.

    In front of signs this would not do: rounding could turn one round.
    """
    scores = network.scores
    assert scores is not None
    end = scores
    while end.kind == "classes" or (end.kind == "function" and end.name in _ENDS):
        (end,) = end.inputs
    if end.name != "batch_norm" or end.rank != ROWS:
        return
    (product,) = end.inputs
    if product.kind != "product" or product.rank != ROWS or readers_of(scores)[product] > 1:
        return
    gain, shift = _affine(end)
    scale, bias = product.tensors.get("scale"), product.tensors.get("bias")
    tensors = {
        "weight": product.tensors["weight"],
        "scale": gain if scale is None else scale * gain,
        "bias": shift if bias is None else bias * gain + shift,
    }
    network.folded[product.layer] = f"takes the batch norm {end.layer} into its scale and bias"
    replace_with(
        end,
        Value(
            "product", product.layer, product.inputs, product.size, "", product.attributes,
            tensors, rank=ROWS,
        ),
    )  # fmt: skip
    end.layer = product.layer
    assert end in ordered(scores)


def _affine(norm: Value) -> tuple[Tensor, Tensor]:
    """Gain and shift of a batch norm in float32, as PyTorch's CPU code makes them."""
    tensors = norm.tensors
    gain = 1 / torch.sqrt(tensors["var"] + norm.attributes["eps"])
    if "weight" in tensors:
        gain = gain * tensors["weight"]
    shift = -tensors["mean"] * gain
    return gain, shift + tensors["bias"] if "bias" in tensors else shift

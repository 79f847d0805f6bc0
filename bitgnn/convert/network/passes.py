"""Passes over a network before packing: the order of float maps, and the output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, get_args

import torch

from bitgnn.convert.network.folding import (
    BINARY_KINDS,
    IN_FRONT,
    binarised,
    exchanged,
    fold_linear_maps,
    norm_affine,
    replace_with,
)
from bitgnn.convert.network.functions import NORMALISATIONS, classes_of
from bitgnn.convert.network.values import ROWS, Network, Value, is_unit, ordered, readers_of
from bitgnn.inference.own_code.calls import RESULTS, FloatCall, Input, unsaved
from bitgnn.nn import BinaryLinear
from bitgnn.nn.binary_product import BinaryProduct

Output = Literal["log_softmax", "softmax", "classes"]
"""Outputs that a frozen model can give in place of its own scores."""

BEHIND_SIGNS = "it comes behind the last sign"
"""Beginning of the reasons of float steps that cannot become bits."""

TRANSFORM, AGGREGATE = "transform_first", "aggregate_first"


def settle_orders(network: Network, order: Mapping[str, str], fold: bool) -> None:
    """Put float maps into the order that a plan names, else into the one with less work.

    ``order`` is ``"transform_first"`` or ``"aggregate_first"`` by layer. With ``fold``, maps are
    composed and exchanged where the plan says nothing; of images, a batch norm behind the last
    layer goes into its scale and bias. The network's values change in place.

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
            replace_with(value, exchanged(value))
            what = IN_FRONT if wanted == AGGREGATE else "aggregates behind its map"
            network.folded[layer] = what
    if fold:
        network.folded.update(fold_linear_maps(network, fixed=order))
    after = _find_orders(network)
    network.orders = {layer: after[layer][0] for layer in before if layer in after}


def _find_orders(network: Network) -> dict[str, tuple[str, Value]]:
    """Layers that may map or aggregate first: the present order, and the value after both."""
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


def _fold_last_norm(network: Network) -> None:
    """A batch norm between the last linear map and the scores becomes its scale and bias.

    In front of signs this would not do: rounding could turn one round.
    """
    scores = end = network.scores
    assert scores is not None
    assert end is not None
    while end.kind == "classes" or (end.kind == "function" and end.name in NORMALISATIONS):
        (end,) = end.inputs
    if end.name != "batch_norm" or end.rank != ROWS:
        return
    (product,) = end.inputs
    if product.kind != "product" or product.rank != ROWS or readers_of(scores)[product] > 1:
        return
    gain, shift = norm_affine(end, torch.float32)
    scale, bias = product.tensors.get("scale"), product.tensors.get("bias")
    network.folded[product.layer] = f"takes the batch norm {end.layer} into its scale and bias"
    tensors = {
        "weight": product.tensors["weight"],
        "scale": gain if scale is None else scale * gain,
        "bias": shift if bias is None else bias * gain + shift,
    }
    replace_with(end, replace(product, tensors=tensors))
    end.layer = product.layer


def set_output(network: Network, output: Output | None) -> None:
    """Set the output of a network; None keeps the forward's own.

    Raises:
        ValueError: there is no such output, or the forward already returns classes.
    """
    if output not in (None, *get_args(Output)):
        raise ValueError(
            f"freeze: output must be None or one of {list(get_args(Output))}, got {output!r}"
        )
    scores = network.scores
    assert scores is not None
    if scores.layer == RESULTS and output is not None:
        raise ValueError(
            f"freeze: output must be None, got {output!r}: the forward returns several tensors"
        )
    if scores.kind == "classes" and output not in (None, "classes"):
        raise ValueError(
            f"freeze: output must be None or 'classes', got {output!r}: the forward returns classes"
        )
    if output == "classes" and scores.kind != "classes":
        scores = classes_of(output, scores)
    elif output in NORMALISATIONS:
        # The other one in its place holds the same probabilities.
        while scores.name != output and scores.kind == "function" and scores.name in NORMALISATIONS:
            (scores,) = scores.inputs
        if scores.name != output:
            scores = Value("function", output, (scores,), scores.size, output)
    network.scores = scores
    _keep_own_code(network, scores)


def _keep_own_code(network: Network, scores: Value) -> None:
    """Keep the user's code for largest features and for classes with further readers."""
    values = ordered(scores)
    for source in (source for value in values for source in value.inputs):
        if source.kind == "classes":
            source.kind = "call"
            source.call = FloatCall(source.layer, torch.argmax, (Input(0), -1), {}, None)
    for value in values:
        of_edges = value.attributes.get("form") == "edges"
        if value.call is not None and value.layer != RESULTS and not of_edges:
            reason = f"it runs as its own code (no step reads it){unsaved(value.call)}"
            network.calls.setdefault(value.layer, reason)
    in_front: set[Value] = set()  # of a sign that depends on it
    for value in reversed(values):
        if value in in_front or value.name == "sign" or _reads_signs(value):
            in_front.update(value.inputs)
    for value in values:
        reason = network.calls.get(value.layer, "")
        is_behind = value.kind == "call" and value not in in_front and not _reads_signs(value)
        if is_behind and reason and "save() cannot" not in reason:
            network.calls[value.layer] = f"{BEHIND_SIGNS}: {reason}"


def _reads_signs(value: Value) -> bool:
    """True if a value reads signs or codes, as binary layers that run as their own code do."""
    if value.call is None:
        return value.kind in BINARY_KINDS
    module: Any = value.call.function
    if isinstance(module, BinaryProduct):
        return not module.letters.is_float
    return isinstance(module, BinaryLinear)

"""The end of a network: class scores, probabilities, their logarithms, or the classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import torch

from bitgnn.convert.network.values import Network, Unsupported, Value, ordered
from bitgnn.inference.steps.calls import RESULTS, FloatCall, Input
from bitgnn.inference.steps.known_calls import unsaved
from bitgnn.nn import BinaryLinear
from bitgnn.nn.binary_product import BinaryProduct

Output = Literal["log_softmax", "softmax", "classes"]
"""Outputs that a frozen model can give in place of its own scores."""

LAST_DIMENSIONS = (-1, 1)
"""Names of the feature dimension of a matrix ``[N, size]`` in a forward."""

BEHIND_SIGNS = "it comes behind the last sign"
"""Beginning of the reasons of float steps that cannot become bits."""

_SIGN_READERS = ("product", "ternary_product", "ternary_aggregate")
_NORMALISATIONS = ("softmax", "log_softmax")


class RowMaximum(NamedTuple):
    """Result of ``max(dim=-1)``: the largest feature of each node and its place."""

    values: Value
    indices: Value

    @classmethod
    def of(cls, name: str, value: Value) -> RowMaximum:
        """The two values."""
        largest = FloatCall(name, torch.amax, (Input(0), -1), {}, None)
        return cls(Value("call", name, (value,), call=largest), classes_of(name, value))


def part_of(name: str, x: Any, part: Any) -> Any:
    """One of the two results of ``max``, by its place or name."""
    is_plain = isinstance(part, int | str) and part in (0, 1, -1, -2, *RowMaximum._fields)
    if not isinstance(x, RowMaximum) or not is_plain:
        raise Unsupported("frozen models know no such function")
    return x[part] if isinstance(part, int) else getattr(x, part)


def classes_of(name: str, value: Value) -> Value:
    """Index of the largest feature of each node.

    Softmax, its logarithm and a positive factor keep the order of the features and are left out;
    so features that only their rounding makes equal stay apart.
    """
    while value.kind == "function" and (
        value.name in _NORMALISATIONS or (value.name == "scale" and value.attributes["factor"] > 0)
    ):
        (value,) = value.inputs
    return Value("classes", name, (value,))


def set_output(network: Network, output: Output | None) -> None:
    """Give a network the end that is asked for.

    Args:
        network: as traced; its scores change.
        output: None keeps what the forward returns.

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
    elif output in _NORMALISATIONS:
        scores = _normalised(scores, output)
    network.scores = scores
    _keep_own_code(network, scores)


def _normalised(scores: Value, output: str) -> Value:
    """Softmax or its logarithm; in place of the other one, which holds the same probabilities."""
    while scores.kind == "function" and scores.name in _NORMALISATIONS:
        if scores.name == output:
            return scores
        (scores,) = scores.inputs
    return Value("function", output, (scores,), scores.size, output)


def _keep_own_code(network: Network, scores: Value) -> None:
    """Largest features, and classes that something reads, are computed as the user does it."""
    values = ordered(scores)
    for source in (source for value in values for source in value.inputs):
        if source.kind == "classes":
            source.kind = "call"
            source.call = FloatCall(source.layer, torch.argmax, (Input(0), -1), {}, None)
    for value in values:
        if value.kind == "call" and value.call is not None and value.layer != RESULTS:
            reason = f"it runs as its own code (no step reads it){unsaved(value.call)}"
            network.calls.setdefault(value.layer, reason)
    in_front = _in_front_of_signs(values)
    for value in values:
        if value.kind != "call" or value in in_front or _reads_signs(value):
            continue
        if value.layer in network.calls:
            reason = network.calls[value.layer]
            if "save() cannot" not in reason:
                network.calls[value.layer] = f"{BEHIND_SIGNS}: {reason}"


def _in_front_of_signs(values: Sequence[Value]) -> set[Value]:
    """Values that a sign behind them depends on."""
    found: set[Value] = set()
    for value in reversed(values):
        if value in found or value.name == "sign" or _reads_signs(value):
            found.update(value.inputs)
    return found


def _reads_signs(value: Value) -> bool:
    """Whether a product takes signs; so do binary layers that run as their own code."""
    if value.call is None:
        return value.kind in _SIGN_READERS
    module: Any = value.call.function
    if isinstance(module, BinaryProduct):
        return not module.letters.is_float
    return isinstance(module, BinaryLinear)

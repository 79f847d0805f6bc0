"""Precision of each layer of a model, from a preset, letters, or one entry a layer."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from bitgnn.nn import LayerPrecision
from bitgnn.nn.precision import NORM_OPTIONS, PRODUCT_OPTIONS, model_letters

__all__ = ["Precision", "describe_precision", "layer_precisions"]

Precision = str | LayerPrecision | Sequence[str | LayerPrecision]
"""Values of ``precision=`` of a model: one name, letters or object, or one of them a layer."""

SEPARATOR = ","


def layer_precisions(
    precision: Precision,
    num_layers: int,
    options: Mapping[str, Any] | None = None,
    *,
    owner: str = "model",
    gives_scores: bool = True,
) -> tuple[LayerPrecision, ...]:
    """Letters and options of every layer of a model.

    * ``"fp32"`` and ``"full"``: the layers' preset of that name everywhere.
    * ``"bin"``: bits from layer to layer, ``FBB+BBB``, then ``BBB+BBB``, last ``BBF+FBF``, since
      class scores need floats. One layer alone has no such boundary and is ``FBF+FBF``.
    * letters ``"xyz+xyz"`` or a ``LayerPrecision``: the same for every layer.
    * a sequence, or names and letters joined by commas: one entry a layer.

    Args:
        precision: one of these.
        num_layers: number of layers, at least 1.
        options: fields of ``LayerPrecision`` other than the letters. ``surrogate``,
            ``weight_gradient`` and ``hardtanh`` go to every layer with a binary dense product,
            ``hidden_norm`` to those that aggregate bits or ternary values, ``output_norm`` to the
            binary layers in front of another layer.
        owner: the model's name, for messages.
        gives_scores: the last layer's output are the class scores, so that it must be floats.

    Returns:
        One ``LayerPrecision`` a layer.

    Raises:
        TypeError: an unknown option, or an entry that is neither a string nor a
            ``LayerPrecision``.
        ValueError: unknown names or letters, a wrong number of entries, class scores that
            would be bits, or fewer than one layer.
    """
    if num_layers < 1:
        raise ValueError(f"{owner}: num_layers must be at least 1, got {num_layers}")
    unknown = sorted(set(options or {}) - {*NORM_OPTIONS, *PRODUCT_OPTIONS})
    if unknown:
        raise TypeError(
            f"{owner}: unknown options {unknown}, known are {[*NORM_OPTIONS, *PRODUCT_OPTIONS]}"
        )
    entries = _entries(precision, num_layers)
    if len(entries) != num_layers:
        raise ValueError(
            f"{owner}: precision must have one entry for each of {num_layers} layers, "
            f"got {len(entries)}"
        )
    layers = [LayerPrecision.parse(entry) for entry in entries]
    if gives_scores and layers[-1].bspmm[2] == "B":
        raise ValueError(
            f"{owner}: the last layer must return floats, since class scores are no signs, "
            f"got precision {str(layers[-1])!r}"
        )
    return tuple(
        _with_options(layer, options or {}, is_last=i == num_layers - 1)
        for i, layer in enumerate(layers)
    )


def _entries(precision: Precision, num_layers: int) -> list[str | LayerPrecision]:
    if isinstance(precision, str) and SEPARATOR in precision:
        return [entry.strip() for entry in precision.split(SEPARATOR)]
    if isinstance(precision, Sequence) and not isinstance(precision, str):
        return list(precision)
    return model_letters(precision, num_layers)


def _with_options(
    layer: LayerPrecision, options: Mapping[str, Any], *, is_last: bool
) -> LayerPrecision:
    """``layer`` with the options that concern it; a float layer keeps PyG's arithmetic."""
    changes = {name: value for name, value in options.items() if name in PRODUCT_OPTIONS}
    if (layer.bmm[2] == "B" or layer.sums_ternary) and "hidden_norm" in options:
        changes["hidden_norm"] = options["hidden_norm"]
    if not is_last and "output_norm" in options:
        changes["output_norm"] = options["output_norm"]
    return layer if layer.is_float_linear else dataclasses.replace(layer, **changes)


def describe_precision(precision: Precision) -> str:
    """``precision`` as one string that :func:`layer_precisions` reads back, options aside."""
    if isinstance(precision, str | LayerPrecision):
        return str(precision)
    return ", ".join(str(entry) for entry in precision)

"""Base of the models: the precision of each layer, copies in another one, input checks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, fx, nn

from bitgnn.nn import LayerPrecision
from bitgnn.nn.float_inputs import unpacked
from bitgnn.nn.precision import NORM_OPTIONS, PRODUCT_OPTIONS, model_letters

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


Model = TypeVar("Model", bound="NodeModel")
NO_ARGUMENTS = ("self", "__class__", "layer_options")
"""Locals of a constructor that are none of its named arguments."""


class NodeModel(nn.Module):
    """Base of the models for node classification.

    Args:
        given: the constructor's ``locals()``. :meth:`with_precision` builds copies from its
            arguments; ``in_channels``, ``hidden_channels``, ``out_channels``, ``precision`` and
            ``dropout`` are among them.
        num_layers: number of graph layers.
        layer_options: see :func:`~bitgnn.models.base.layer_precisions`.
        gives_scores: the output of the last layer of ``convs`` are the class scores.

    Attributes:
        precision: name or letters of the precision, as one string.
        precisions: letters and options of each layer.
        gives_scores: the last layer's output are the class scores.
        convs: the graph layers.

    Raises:
        TypeError: an unknown layer option.
        ValueError: an impossible precision, a size below 1 or ``dropout`` outside [0, 1).
    """

    convs: nn.ModuleList

    def __init__(
        self,
        given: Mapping[str, Any],
        num_layers: int,
        layer_options: dict[str, Any],
        gives_scores: bool = True,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        arguments = {key: value for key, value in given.items() if key not in NO_ARGUMENTS}
        for size in ("in_channels", "hidden_channels", "out_channels"):
            if arguments[size] < 1:
                raise ValueError(f"{name}: {size} must be at least 1, got {arguments[size]}")
        if not 0.0 <= arguments["dropout"] < 1.0:
            raise ValueError(f"{name}: dropout must be in [0, 1), got {arguments['dropout']}")
        precision: Precision = arguments["precision"]
        self.precisions: tuple[LayerPrecision, ...] = layer_precisions(
            precision, num_layers, layer_options, owner=name, gives_scores=gives_scores
        )
        self.precision = describe_precision(precision)
        self.in_channels: int = arguments["in_channels"]
        self.hidden_channels: int = arguments["hidden_channels"]
        self.out_channels: int = arguments["out_channels"]
        self.dropout: float = arguments["dropout"]
        self.num_layers = num_layers
        self.gives_scores = gives_scores
        self._arguments = {**arguments, **layer_options}

    def with_precision(self: Model, precision: Precision) -> Model:
        """A copy with the same weights, biases and statistics in another precision.

        Norms inside the layers exist only where there is a sign behind them: those that the copy
        lacks are dropped, those that are new start afresh.

        Args:
            precision: see :func:`~bitgnn.models.base.layer_precisions`.

        Raises:
            ValueError: impossible precision.
        """
        copy = type(self)(**{**self._arguments, "precision": precision})
        parameter = next(self.parameters())
        copy.to(parameter.device, parameter.dtype)
        copy.load_state_dict(self.state_dict(), strict=False)
        return copy.train(self.training)

    def reset_parameters(self) -> None:
        """Draw all weights anew and forget statistics of norms and cached graphs."""
        for child in self.children():
            for module in child if isinstance(child, nn.ModuleList) else [child]:
                reset: Any = getattr(module, "reset_parameters", None)
                if reset is not None:
                    reset()

    def _features(self, x: Any) -> Any:
        """Features as floats; refuses a wrong kind or shape, of which a trace has neither."""
        x = unpacked(x)
        if isinstance(x, fx.Proxy):
            return x
        name = type(self).__name__
        if not isinstance(x, Tensor) or x.dim() != 2 or x.size(1) != self.in_channels:
            got = list(x.shape) if isinstance(x, Tensor) else type(x).__name__
            raise ValueError(f"{name}: x must be [N, {self.in_channels}], got {got}")
        if not x.is_floating_point():
            raise ValueError(f"{name}: x must be a floating-point tensor, got {x.dtype}")
        return x

    def _refuse_edge_weight(self, edge_weight: Any) -> None:
        """A mean over neighbours weighs them alike."""
        if isinstance(edge_weight, torch.Tensor):
            raise ValueError(
                f"{type(self).__name__}: edge_weight must be None, since the mean over neighbours "
                f"takes no weights, got a tensor {list(edge_weight.shape)}"
            )

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.in_channels}, {self.hidden_channels}, "
            f"{self.out_channels}, num_layers={self.num_layers}, precision={self.precision!r})"
        )

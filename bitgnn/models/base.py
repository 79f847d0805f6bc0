"""Base of the models: the precision of each layer, copies in another one, input checks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from torch import Tensor, fx, nn

from bitgnn.nn import LayerPrecision
from bitgnn.nn.inputs.float_inputs import float_features, unpacked
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
      class scores need floats. A single layer has no such boundary and is ``FBF+FBF``.
    * letters ``"xyz+xyz"`` or a ``LayerPrecision``: the same for every layer.
    * a sequence, or names and letters joined by commas: one entry a layer.

    ``options`` are fields of ``LayerPrecision`` other than the letters: ``surrogate``,
    ``weight_gradient`` and ``hardtanh`` go to every layer with a binary dense product,
    ``hidden_norm`` to those that aggregate bits or ternary values, ``output_norm`` to the binary
    layers before another layer. With ``gives_scores`` the last layer has to return floats.

    Raises:
        TypeError: an unknown option, or an entry that is neither a string nor a
            ``LayerPrecision``.
        ValueError: unknown names or letters, a wrong number of entries, class scores that
            would be bits, or fewer than one layer.
    """
    if num_layers < 1:
        raise ValueError(f"{owner}: num_layers must be at least 1, got {num_layers}")
    given, known = options or {}, [*NORM_OPTIONS, *PRODUCT_OPTIONS]
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise TypeError(f"{owner}: unknown options {unknown}, known are {known}")
    entries: Sequence[str | LayerPrecision]
    if isinstance(precision, str) and SEPARATOR in precision:
        entries = [entry.strip() for entry in precision.split(SEPARATOR)]
    elif isinstance(precision, Sequence) and not isinstance(precision, str):
        entries = precision
    else:
        entries = model_letters(precision, num_layers)
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
    for i, layer in enumerate(layers):
        changes = {name: value for name, value in given.items() if name in PRODUCT_OPTIONS}
        if (layer.bmm[2] == "B" or layer.sum_letter.level) and "hidden_norm" in given:
            changes["hidden_norm"] = given["hidden_norm"]
        if i < num_layers - 1 and "output_norm" in given:
            changes["output_norm"] = given["output_norm"]
        if not layer.is_float_linear:  # a float layer keeps PyG's arithmetic
            layers[i] = dataclasses.replace(layer, **changes)
    return tuple(layers)


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

    A subclass hands its ``locals()`` to the constructor, from which :meth:`with_precision` makes
    copies, adds its layers as ``convs`` and says in ``_scores`` how they are called.
    ``precision`` is the name or letters as one string, ``precisions`` has those of each layer.
    """

    convs: nn.ModuleList
    takes_edge_weights = True

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

    def forward(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """Class scores of each node.

        Args:
            x: ``[N, in_channels]`` floats, packed or not.
            edge_index: graph in any form the layers take.
            edge_weight: ``[E]`` float weights of an edge index; None for a mean over
                neighbours, which weighs them alike.

        Returns:
            ``[N, out_channels]`` float logits.

        Raises:
            TypeError: ``x`` holds no floats.
            ValueError: the number of features is not ``in_channels``, the graph does not fit, or a
                mean over neighbours is given edge weights.
        """
        x = self._features(x)
        if not self.takes_edge_weights and isinstance(edge_weight, Tensor):
            raise ValueError(
                f"{type(self).__name__}: edge_weight must be None, since the mean over neighbours "
                f"takes no weights, got a tensor {list(edge_weight.shape)}"
            )
        return self._scores(x, edge_index, edge_weight)

    def _features(self, x: Any) -> Any:
        """Check features and return them as floats; a trace skips the checks."""
        x = unpacked(x)
        if isinstance(x, fx.Proxy):
            return x
        name = type(self).__name__
        if not isinstance(x, Tensor) or x.dim() != 2 or x.size(1) != self.in_channels:
            got = list(x.shape) if isinstance(x, Tensor) else type(x).__name__
            raise ValueError(f"{name}: x must be [N, {self.in_channels}], got {got}")
        return float_features(name, x)

    def _scores(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None) -> Tensor:
        raise NotImplementedError

    def with_precision(self: Model, precision: Precision) -> Model:
        """A copy with the same weights, biases and statistics in another precision.

        Norms inside the layers exist only where there is a sign after them: those that the copy
        lacks are dropped, those that are new start afresh.
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

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.in_channels}, {self.hidden_channels}, "
            f"{self.out_channels}, num_layers={self.num_layers}, precision={self.precision!r})"
        )

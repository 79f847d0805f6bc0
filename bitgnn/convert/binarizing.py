"""What binarize() is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from bitgnn.convert.images.swapping import INPUT_STEP, LastLayer
from bitgnn.nn import LayerPrecision
from bitgnn.quantize.fixed import check_step

__all__ = ["Activation", "BinarizeConfig", "Precision"]

Precision = str | LayerPrecision
Activation = Literal["keep", "drop", "hardtanh"]


@dataclass(frozen=True)
class BinarizeConfig:
    """What :func:`binarize` does.

    Raises:
        TypeError: ``layers``, ``skip`` or ``options`` is of another type.
        ValueError: a value is none that the attribute can have, or two of them contradict.

    Attributes:
        precision: ``"full"`` or ``"bin"`` for the model as a whole, or letters for every layer.
        layers: precision of single layers by module name; they win over ``precision``. A linear
            layer named here becomes binary whatever ``linear`` says.
        skip: module names to leave alone; a string is one name.
        dropout: dropout of the swapped layers, after the sign.
        linear: swap linear layers outside of graph layers too; they return floats.
        activation: what becomes of the activation functions of PyG's ready-made models and of
            ReLU modules in front of a sign, and in networks of images of calls of ReLU there:
            ``"keep"``, ``"drop"`` or ``"hardtanh"``; None drops them in networks of images and
            keeps them elsewhere.
        options: further fields of :class:`bitgnn.nn.LayerPrecision` for every swapped graph layer,
            such as ``{"output_norm": "batch"}``.
        input_step: in networks of images, the fixed-point step of the layers that read the input,
            a power of two; None binarises it as well.
        scale: in networks of images, multiply by the mean magnitude of each output's weights;
            without it residual sums stay integers where no norm stands in front of them.
        last: in networks of images, what becomes of the linear layer at the end: ``"binary"``,
            ``"norm"`` for a binary one with a batch norm behind, or ``"keep"``.
    """

    precision: Precision = "bin"
    layers: Mapping[str, Precision] = field(default_factory=dict)
    skip: Sequence[str] = ()
    dropout: float = 0.0
    linear: bool = False
    activation: Activation | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    input_step: float | None = INPUT_STEP
    scale: bool = True
    last: LastLayer = "binary"

    def __post_init__(self) -> None:
        self._check_names()
        if self.activation is not None and self.activation not in get_args(Activation):
            raise ValueError(
                f"BinarizeConfig: activation must be one of {get_args(Activation)}, "
                f"got {self.activation!r}"
            )
        if self.last not in get_args(LastLayer):
            raise ValueError(
                f"BinarizeConfig: last must be one of {get_args(LastLayer)}, got {self.last!r}"
            )
        if self.input_step is not None:
            check_step("BinarizeConfig", self.input_step)
        if not (isinstance(self.dropout, int | float) and 0.0 <= self.dropout < 1.0):
            raise ValueError(f"BinarizeConfig: dropout must be in [0, 1), got {self.dropout!r}")
        if LayerPrecision.parse(self.precision).is_float and not self.layers:
            raise ValueError(
                f"BinarizeConfig: precision must be a binary one where layers names none, got "
                f"{self.precision!r}, which leaves everything in floats"
            )

    def _check_names(self) -> None:
        """Check and spell out what is given by name."""
        if isinstance(self.skip, str):
            object.__setattr__(self, "skip", (self.skip,))
        if not (isinstance(self.skip, Iterable) and all(isinstance(n, str) for n in self.skip)):
            raise TypeError(f"BinarizeConfig: skip must be module names, got {self.skip!r}")
        object.__setattr__(self, "skip", tuple(self.skip))
        for name in ("layers", "options"):
            given = getattr(self, name)
            if not isinstance(given, Mapping):
                wanted = "precisions by module name" if name == "layers" else "values by field"
                hint = " (shares and names alone are of scheme 'bwta')" if name == "layers" else ""
                raise TypeError(f"BinarizeConfig: {name} must map {wanted}, got {given!r}{hint}")
        both = sorted(set(self.skip) & self.layers.keys())
        if both:
            raise ValueError(f"BinarizeConfig: {both} must be in layers or in skip, not in both")
        known = [f.name for f in fields(LayerPrecision) if f.name not in ("bmm", "bspmm")]
        unknown = sorted(self.options.keys() - set(known))
        if unknown:
            raise ValueError(
                f"BinarizeConfig: options must be among {known} of LayerPrecision, got {unknown}"
            )

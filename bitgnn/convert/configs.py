"""Configurations of binarize(), one for each scheme: graph layers, networks of images, BWTA."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, get_args

from torch import Tensor, nn

from bitgnn._checks import name_type
from bitgnn.nn import LayerPrecision
from bitgnn.nn.bwta_linear import Kind
from bitgnn.quantize.fixed import check_step

if TYPE_CHECKING:
    from typing_extensions import Self

NAMED = ("bin", "full")
"""Precisions by name, whose form follows the layer's role."""

Precision = str | LayerPrecision
Activation = Literal["keep", "drop", "hardtanh"]
FirstLayer = Literal["auto", "binary", "keep"]
LastLayer = Literal["auto", "binary", "norm", "keep"]
Batch = Tensor | tuple[Any, ...] | Mapping[str, Any]
Calibration = Batch | list[Batch] | Callable[[nn.Module], Any]
QuantizedActivation = Kind | Literal["auto"]


class Config:
    """Base of the configurations, which refuses unknown fields and checks names and choices."""

    skip: Sequence[str]

    def __new__(cls, *args: Any, **given: Any) -> Self:
        """Refuse what is no field."""
        known = [field.name for field in fields(cls)]  # type: ignore[arg-type]
        unknown = [name for name in given if name not in known]
        if unknown:
            kinds: list[Any] = [LayerPrecision, *Config.__subclasses__()]
            others = {field.name: kind.__name__ for kind in kinds for field in fields(kind)}
            got = [f"{n} (a field of {others[n]})" if n in others else n for n in unknown]
            raise TypeError(f"{cls.__name__}: fields are {', '.join(known)}, got {', '.join(got)}")
        return super().__new__(cls)

    def __post_init__(self) -> None:
        names = (self.skip,) if isinstance(self.skip, str) else self.skip
        if not _are_names(names):
            raise TypeError(f"{type(self).__name__}: skip must be module names, got {self.skip!r}")
        object.__setattr__(self, "skip", tuple(names))

    def _check_choice(self, name: str, choices: tuple[object, ...]) -> None:
        value = getattr(self, name)
        if value not in choices:
            raise ValueError(
                f"{type(self).__name__}: {name} must be one of {choices}, got {value!r}"
            )


@dataclass(frozen=True)
class GraphConfig(Config):
    """Configuration of :func:`bitgnn.binarize` for graph layers and, where asked, linear ones.

    Attributes:
        precision: ``"bin"`` or ``"full"``, whose form follows each layer's place in the model, or
            letters for every layer: a string such as ``"FBB+BBF"``, or a
            :class:`bitgnn.nn.LayerPrecision` with norms, surrogate gradient and the like.
        layers: precision of single layers by module name; they win over ``precision``. A linear
            layer named here becomes binary whatever ``linear`` says.
        skip: module names to leave alone; a string is one name.
        dropout: dropout of the swapped layers, after the sign.
        linear: which linear layers become binary: True is all, False is none. None is, with a
            precision by name, those of at least 16 inputs and 2 outputs; outside of graph layers
            one whose result no other layer reads, such as a head, keeps its floats.
        activation: what becomes of the activation functions of PyG's ready-made models and of
            ReLU modules in front of a sign: ``"keep"``, ``"drop"`` or ``"hardtanh"``. Calls of
            ReLU in the code of a forward stay.

    Raises:
        TypeError: there is no such field, or ``layers`` or ``skip`` is of another type.
        ValueError: a value is none that the field can have, or two of them contradict.
    """

    precision: Precision = "bin"
    layers: Mapping[str, Precision] = field(default_factory=dict)
    skip: Sequence[str] = ()
    dropout: float = 0.0
    linear: bool | None = None
    activation: Activation = "keep"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_choice("linear", (None, False, True))
        self._check_choice("activation", get_args(Activation))
        if not isinstance(self.layers, Mapping):
            raise TypeError(
                f"GraphConfig: layers must map precisions by module name, got {self.layers!r}"
            )
        both = sorted(set(self.skip) & self.layers.keys())
        if both:
            raise ValueError(f"GraphConfig: {both} must be in layers or in skip, not in both")
        if not (isinstance(self.dropout, int | float) and 0.0 <= self.dropout < 1.0):
            raise ValueError(f"GraphConfig: dropout must be in [0, 1), got {self.dropout!r}")
        if LayerPrecision.parse(self.precision).is_float and not self.layers:
            raise ValueError(
                "GraphConfig: precision must be a binary one where layers names none, got "
                f"{self.precision!r}, which leaves everything in floats"
            )


@dataclass(frozen=True)
class ImageConfig(Config):
    """Configuration of :func:`bitgnn.binarize` for convolutional and fully connected networks.

    Attributes:
        skip: module names to leave alone; a string is one name.
        activation: what becomes of ReLU modules before a sign: ``"drop"``, ``"hardtanh"`` or
            ``"keep"``. A ReLU that the forward calls as a function gets a batch norm behind it,
            unless this is ``"keep"``.
        input_step: the fixed-point step of binary layers that read the input, a power of two; None
            binarises it as well. The default reaches from -8 to 8 in 16 bits.
        scale: multiply by the mean magnitude of each output's weights; without it residual sums
            stay integers where no norm stands in front of them.
        first: what becomes of layers that read the input: ``"binary"``, ``"keep"`` for floats, or
            ``"auto"``: each stays in floats where it holds at most a tenth of the network's
            weights, as convolutions of three channels do. With ``input_step`` None ``"auto"`` is
            ``"binary"``. Source: Rastegari et al., "XNOR-Net", ECCV 2016 (both ends in floats).
        last: what becomes of the linear layer at the end: ``"binary"``, ``"norm"`` for a binary one
            with a batch norm behind, ``"keep"`` or ``"auto"``.

    Raises:
        TypeError: there is no such field, or ``skip`` is of another type.
        ValueError: a value is none that the field can have.
    """

    skip: Sequence[str] = ()
    activation: Activation = "drop"
    input_step: float | None = 2.0**-12
    scale: bool = True
    first: FirstLayer = "auto"
    last: LastLayer = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_choice("activation", get_args(Activation))
        self._check_choice("first", get_args(FirstLayer))
        self._check_choice("last", get_args(LastLayer))
        if self.input_step is not None:
            check_step("ImageConfig", self.input_step)


@dataclass(frozen=True)
class BWTAConfig(Config):
    """Choice of linear layers and attention that become BWTA (binary weights, ternary activations).

    Attributes:
        layers: share of the linear layers, in (0, 1]: those whose output changes least on the
            calibration data; or names of modules; None for all that are eligible. First and last
            layers (linear layers outside of any ModuleList, where the model has one), embeddings
            and norms stay in full precision unless named.
        calibration: a batch (a tensor, arguments as a tuple, keyword arguments as a mapping), a
            list of batches, or a function that runs the model on data; needed for a share below 1.
            Scales of activations start from its first batch, else from the first one of training.
        skip: module names to leave alone; a string is one name.
        attention: quantise the products inside of attention modules of transformers, too; None
            does so where ``layers`` is None. (torch's ``MultiheadAttention`` goes as a whole.)
        activation: kind of the activations of linear layers: ``"ternary"``, ``"bool"``,
            ``"sign"``, or ``"auto"``: bool where calibration sees no negative value.
        level: of the activations, where training starts.
        relative: rank by the error relative to the output's power, not by the mean square error.

    Raises:
        TypeError: there is no such field, ``layers`` is neither a share nor names, or ``skip``
            is of another type.
        ValueError: a share is outside of (0, 1] or, below 1, comes without calibration, there are
            no names, or a field has none of its values.
    """

    layers: float | Sequence[str] | None = None
    calibration: Calibration | None = None
    skip: Sequence[str] = ()
    attention: bool | None = None
    activation: QuantizedActivation = "auto"
    level: int = 1
    relative: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_choice("activation", ("auto", *get_args(Kind)))
        layers = self.layers
        if isinstance(layers, int | float) and not isinstance(layers, bool):
            if not 0 < layers <= 1:
                raise ValueError(
                    f"BWTAConfig: a share of layers must be in (0, 1], got {float(layers)}"
                )
            if layers < 1 and self.calibration is None:
                raise ValueError(
                    f"BWTAConfig: calibration must be data, by which a share of {layers} of the "
                    "layers is chosen, got None"
                )
        elif layers is not None and (isinstance(layers, str) or not _are_names(layers)):
            raise TypeError(f"BWTAConfig: layers must be a share or names, got {name_type(layers)}")
        elif layers is not None and not self.names:
            raise ValueError("BWTAConfig: layers must name at least one layer, got none")

    @property
    def names(self) -> tuple[str, ...] | None:
        """The layers by name; None where a share or all of them are asked for."""
        return None if isinstance(self.layers, int | float | None) else tuple(self.layers)


def _are_names(value: object) -> bool:
    return isinstance(value, Collection) and all(isinstance(name, str) for name in value)

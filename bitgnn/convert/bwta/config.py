"""What binarize(scheme="bwta") is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from torch import Tensor, nn

from bitgnn._checks import check_type, check_value, name_type
from bitgnn.nn.activation_quantizer import Kind

__all__ = ["BWTAConfig", "Batch", "Calibration", "calibration_runs"]

Batch = Tensor | tuple[Any, ...] | Mapping[str, Any]
Calibration = Batch | list[Batch] | Callable[[nn.Module], Any]
Activation = Kind | Literal["auto"]


@dataclass(frozen=True)
class BWTAConfig:
    """Which layers become BWTA, and how.

    Attributes:
        layers: share of the linear layers, in (0, 1]: those whose output changes least on the
            calibration data; or names of modules; None for all that are eligible. First and last
            layers (linear layers outside of any ModuleList, where the model has one), embeddings
            and norms stay in full precision unless named.
        calibration: a batch (a tensor, arguments as a tuple, keyword arguments as a mapping), a
            list of batches, or a function that runs the model on data; needed for a share below 1.
            Scales of activations start from its first batch, else from the first one of training.
        skip: module names to leave alone.
        attention: quantise the products inside of attention modules of transformers, too; None
            does so where ``layers`` is None. (torch's ``MultiheadAttention`` goes as a whole.)
        activation: kind of the activations of linear layers: ``"ternary"``, ``"bool"``,
            ``"sign"``, or ``"auto"``: bool where calibration sees no negative value.
        level: of the activations, where training starts.
        relative: rank by the error relative to the output's power, not by the mean square error.

    Raises:
        TypeError: ``layers`` is neither a share nor names, or ``skip`` is no sequence of names.
        ValueError: a share is outside of (0, 1] or, below 1, comes without calibration, there are
            no names, or an option has none of its values.
    """

    layers: float | Sequence[str] | None = None
    calibration: Calibration | None = None
    skip: Sequence[str] = ()
    attention: bool | None = None
    activation: Activation = "auto"
    level: int = 1
    relative: bool = False
    names: tuple[str, ...] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        choices = ("auto", *get_args(Kind))
        check_value(
            self.activation in choices,
            lambda: f"BWTAConfig: activation must be one of {choices}, got {self.activation!r}",
        )
        check_type(
            _are_names(self.skip),
            lambda: f"BWTAConfig: skip must be a sequence of names, got {name_type(self.skip)}",
        )
        if self.layers is None:
            return
        if isinstance(self.layers, int | float) and not isinstance(self.layers, bool):
            share = float(self.layers)
            check_value(
                0 < share <= 1,
                lambda: f"BWTAConfig: a share of layers must be in (0, 1], got {share}",
            )
            check_value(
                share == 1 or self.calibration is not None,
                lambda: (
                    f"BWTAConfig: calibration must be data, by which a share of {share} of the "
                    f"layers is chosen, got None"
                ),
            )
            return
        check_type(
            _are_names(self.layers),
            lambda: f"BWTAConfig: layers must be a share or names, got {name_type(self.layers)}",
        )
        check_value(
            len(self.layers) > 0,  # type: ignore[arg-type]
            lambda: "BWTAConfig: layers must name at least one layer, got none",
        )
        object.__setattr__(self, "names", tuple(self.layers))  # type: ignore[arg-type]


def _are_names(value: object) -> bool:
    return (
        isinstance(value, Sequence)
        and not isinstance(value, str)
        and all(isinstance(name, str) for name in value)
    )


def calibration_runs(calibration: Calibration) -> list[Callable[[nn.Module], Any]]:
    """Functions that run a model on the calibration data, one a batch.

    Args:
        calibration: see :class:`BWTAConfig`.

    Raises:
        TypeError: it is none of its forms.
        ValueError: it holds no batch.
    """
    if callable(calibration) and not isinstance(calibration, Tensor):
        return [calibration]
    if isinstance(calibration, list):
        check_value(len(calibration) > 0, lambda: "calibration: the list of batches is empty")
        return [run for batch in calibration for run in calibration_runs(batch)]
    if isinstance(calibration, Tensor):
        return [lambda model: model(calibration)]
    if isinstance(calibration, tuple):
        return [lambda model: model(*calibration)]
    check_type(
        isinstance(calibration, Mapping),
        lambda: (
            "calibration must be a tensor, a tuple or mapping of arguments, a list of those, or a "
            f"function of the model, got {name_type(calibration)}"
        ),
    )
    return [lambda model: model(**calibration)]

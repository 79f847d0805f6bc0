"""Modules that can become BWTA, and the error that this causes in their output."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from bitgnn._checks import name_type
from bitgnn.convert.configs import Calibration
from bitgnn.convert.walker import outermost
from bitgnn.inference.bwta.architecture import leave_fast_paths, multihead_options
from bitgnn.nn import BWTALinear, BWTAMultiheadAttention
from bitgnn.nn.bwta_linear import Kind
from bitgnn.nn.multistage import activation_quantizers

BWTA = (BWTALinear, BWTAMultiheadAttention)


def candidates(model: nn.Module) -> dict[str, nn.Module]:
    """Linear and multi-head attention modules by name, those inside of others left out."""
    return outermost(
        model,
        lambda module: (
            isinstance(module, nn.MultiheadAttention | BWTALinear) or type(module) is nn.Linear
        ),
    )


def bwta_form(module: Any, activation: Kind, level: int | None) -> nn.Module:
    """A BWTA layer that shares a module's parameters; its scales are not set."""
    new: nn.Module
    kind: Kind
    if isinstance(module, nn.MultiheadAttention):
        kind = "sign" if activation == "sign" else "ternary"
        if isinstance(module, BWTAMultiheadAttention):
            kind = module.attention.activation
        new = BWTAMultiheadAttention(
            **multihead_options(module), device="meta", activation=kind, level=level
        )
    else:
        kind = module.activation if isinstance(module, BWTALinear) else activation
        sizes = module.in_features, module.out_features
        new = BWTALinear(*sizes, module.bias is not None, "meta", activation=kind, level=level)
    own = module.state_dict(keep_vars=True)
    new.load_state_dict(own, strict=False, assign=True)
    for quantizer in activation_quantizers(new).values():
        quantizer.scale = nn.Parameter(
            torch.empty((), device=next(iter(own.values())).device, dtype=torch.float32)
        )
        quantizer.reset_parameters()
    return new.train(module.training)


def start_scales(model: nn.Module) -> None:
    """Let quantisers without a scale take it, in evaluation, from their next input."""
    for quantizer in activation_quantizers(model).values():
        quantizer.train(not (quantizer.is_set or quantizer.level is None))


def calibration_runs(calibration: Calibration) -> list[Callable[[nn.Module], Any]]:
    """Functions that run a model on the calibration data, one a batch.

    Raises:
        TypeError: it has none of the forms that :class:`bitgnn.BWTAConfig` knows.
        ValueError: it holds no batch.
    """
    if callable(calibration) and not isinstance(calibration, Tensor):
        return [calibration]
    if isinstance(calibration, list):
        if not calibration:
            raise ValueError("calibration: the list of batches is empty")
        return [run for batch in calibration for run in calibration_runs(batch)]
    if isinstance(calibration, Tensor):
        return [lambda model: model(calibration)]
    if isinstance(calibration, tuple):
        return [lambda model: model(*calibration)]
    if not isinstance(calibration, Mapping):
        raise TypeError(
            "calibration must be a tensor, a tuple or mapping of arguments, a list of those, or a "
            f"function of the model, got {name_type(calibration)}"
        )
    return [lambda model: model(**calibration)]


class Measured:
    """Forward hook that runs a layer's BWTA form on the same input and sums over all batches.

    The sums are of squared differences between outputs in BWTA and in floats, of squared outputs
    in floats, and of their number; ``negative`` says whether an input was below 0.
    """

    def __init__(self, name: str, activation: Kind) -> None:
        self.name, self.activation = name, activation
        self.error, self.power, self.count = 0.0, 0.0, 0
        self.negative = False

    def __call__(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> None:
        """Called behind the layer's forward."""
        x = args[0] if args else next(iter(kwargs.values()))
        self._check_finite("input", x)
        form = bwta_form(module, self.activation, 1).eval()
        start_scales(form)
        got, wanted = (
            (y[0] if isinstance(y, tuple) else y).double() for y in (form(*args, **kwargs), output)
        )
        self._check_finite("output", wanted)
        self.error += float((got - wanted).square().sum())
        self.power += float(wanted.square().sum())
        self.count += wanted.numel()
        self.negative |= bool((x < 0).any())

    def _check_finite(self, what: str, x: Tensor) -> None:
        if not x.isfinite().all():
            raise ValueError(f"output_errors: the {what} of {self.name} holds NaN or infinity")

    def result(self, relative: bool) -> float:
        """Mean square error, or its ratio to the mean square output."""
        if relative:
            return self.error / self.power if self.power > 0 else float(self.error > 0)
        return self.error / max(self.count, 1)


def output_errors(
    model: nn.Module,
    calibration: Calibration,
    names: Iterable[str] | None = None,
    relative: bool = False,
) -> dict[str, float]:
    """Mean square error of each layer's output when it alone is BWTA.

    The model runs in full precision (layers that are BWTA already at level None), in evaluation;
    beside each layer its BWTA form sees the same input, with the scale its activations start from.

    Source: the layer selection of Ding et al., "BWTA: Accurate and Efficient Binarized Transformer
    by Algorithm-Hardware Co-design".

    Args:
        model: unchanged.
        calibration: a batch, a list of batches, or a function that runs the model; see
            :class:`bitgnn.BWTAConfig`.
        names: of the layers; None for all linear and multi-head attention modules.
        relative: divide by the mean square output.

    Returns:
        Error by module name, the smallest first.

    Raises:
        ValueError: there are no such layers, calibration never reaches one, or a layer's input or
            output is not finite.
    """
    measured = measure_layers(model, calibration, names)
    errors = {name: result.result(relative) for name, result in measured.items()}
    return dict(sorted(errors.items(), key=lambda item: item[1]))


@torch.no_grad()
def measure_layers(
    model: nn.Module,
    calibration: Calibration,
    names: Iterable[str] | None = None,
    activation: Kind = "ternary",
) -> dict[str, Measured]:
    """Sums behind :func:`output_errors`, with linear layers of that ``activation``."""
    runs = calibration_runs(calibration)
    # Hooks, levels and the mode of a model in use stay as they are.
    model = copy.deepcopy(model).eval()
    leave_fast_paths(model)
    known = candidates(model)
    chosen = list(known) if names is None else list(names)
    if not chosen or not set(chosen) <= known.keys():
        raise ValueError(
            f"output_errors: layers must be some of {sorted(known)}, got {sorted(chosen)}"
        )
    for module in known.values():
        if isinstance(module, BWTA):
            module.level = None
    measured = {name: Measured(name, activation) for name in chosen}
    for name, result in measured.items():
        known[name].register_forward_hook(result, with_kwargs=True)
    for run in runs:
        run(model)
    unseen = [name for name, result in measured.items() if not result.count]
    if unseen:
        raise ValueError(f"output_errors: calibration never reaches {unseen}")
    return measured

"""Modules of a model that can become BWTA, and the error in their output if they do."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from bitgnn._checks import check_type, check_value, name_type
from bitgnn.convert.configs import Calibration
from bitgnn.convert.walker import outermost
from bitgnn.inference.bwta.architecture import leave_fast_paths, multihead_options
from bitgnn.nn import ActivationQuantizer, BWTALinear, BWTAMultiheadAttention
from bitgnn.nn.activation_quantizer import Kind


def is_bwta(module: nn.Module) -> bool:
    """Whether a module is a BWTA form already."""
    return isinstance(module, BWTALinear | BWTAMultiheadAttention)


def candidates(model: nn.Module) -> dict[str, nn.Module]:
    """Linear and multi-head attention modules by name, those inside of others left out."""
    return outermost(
        model,
        lambda module: (
            isinstance(module, nn.MultiheadAttention | BWTALinear) or type(module) is nn.Linear
        ),
    )


def eligible(model: nn.Module) -> tuple[dict[str, nn.Module], dict[str, str]]:
    """Candidates that are neither first nor last layers, and why the others are not.

    In a model with a ModuleList the layers inside of one are; else all but the first and the last,
    or, behind an embedding, all but the last.
    """
    known = candidates(model)
    lists = [f"{n}." for n, m in model.named_modules() if isinstance(m, nn.ModuleList)]
    body = {name for name in known if name.startswith(tuple(lists))} if lists else set()
    if not body:
        names = list(known)
        embeds = any(isinstance(m, nn.Embedding) for m in model.modules())
        body = set(names[:-1] if embeds else names[1:-1])
    reasons = {
        name: "a first or last layer stays in full precision unless named"
        for name in known
        if name not in body
    }
    return {name: module for name, module in known.items() if name in body}, reasons


def bwta_form(module: Any, activation: Kind, level: int | None) -> nn.Module:
    """The BWTA form of a module: itself at that level if it is one, else :func:`new_form`."""
    if not is_bwta(module):
        return new_form(module, activation, level)
    module.level = level
    return module


def new_form(module: Any, activation: Kind, level: int | None) -> nn.Module:
    """A BWTA layer with a module's own parameters, not copies of them, and scales not set."""
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
    _take_parameters(new, module)
    return new.train(module.training)


def start_scales(model: nn.Module) -> list[ActivationQuantizer]:
    """Let quantisers whose scale is not set take it from what they see next; those quantisers.

    The caller puts them back into evaluation.
    """
    fresh = [
        module
        for module in model.modules()
        if isinstance(module, ActivationQuantizer)
        and not module.is_set
        and module.level is not None
    ]
    for quantizer in fresh:
        quantizer.train()
    return fresh


def _take_parameters(new: nn.Module, old: nn.Module) -> None:
    """Share an old module's parameters; scales start anew."""
    own = dict(old.named_parameters())
    device = next(iter(own.values())).device
    scales = {id(m.scale) for m in new.modules() if isinstance(m, ActivationQuantizer)}
    for name, parameter in list(new.named_parameters()):
        parent, _, last = name.rpartition(".")
        taken = (
            nn.Parameter(torch.zeros((), device=device)) if id(parameter) in scales else own[name]
        )
        setattr(new.get_submodule(parent), last, taken)


def calibration_runs(calibration: Calibration) -> list[Callable[[nn.Module], Any]]:
    """Functions that run a model on the calibration data, one a batch.

    Args:
        calibration: see :class:`bitgnn.BWTAConfig`.

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


class Measured:
    """Sums over the calibration batches of one layer.

    Attributes:
        error: of squared differences between outputs in BWTA and in floats.
        power: of squared outputs in floats.
        count: of outputs.
        negative: whether an input was below 0.
    """

    def __init__(self) -> None:
        self.error, self.power, self.count = 0.0, 0.0, 0
        self.negative = False

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
    """Sums behind the errors of :func:`output_errors`.

    Args:
        model: unchanged.
        calibration: see there.
        names: see there.
        activation: of linear layers.

    Raises:
        ValueError: see there.
    """
    runs = calibration_runs(calibration)
    # Hooks, levels and the mode of a model in use stay as they are.
    model = copy.deepcopy(model).eval()
    leave_fast_paths(model)
    known = candidates(model)
    chosen = list(known) if names is None else list(names)
    check_value(
        bool(chosen) and set(chosen) <= known.keys(),
        lambda: f"output_errors: layers must be some of {sorted(known)}, got {sorted(chosen)}",
    )
    for module in known.values():
        if is_bwta(module):
            module.level = None  # type: ignore[assignment]
    measured = {name: Measured() for name in chosen}
    for name in chosen:
        hook = _Compare(name, measured[name], activation)
        known[name].register_forward_hook(hook, with_kwargs=True)
    for run in runs:
        run(model)
    unseen = [name for name, result in measured.items() if not result.count]
    check_value(not unseen, lambda: f"output_errors: calibration never reaches {unseen}")
    return measured


class _Compare:
    """Forward hook that runs a layer's BWTA form on the same input."""

    def __init__(self, name: str, measured: Measured, activation: Kind) -> None:
        self.name = name
        self.measured = measured
        self.activation = activation

    def __call__(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> None:
        x = args[0] if args else next(iter(kwargs.values()))
        self.check_finite("input", x)
        form = new_form(module, self.activation, 1).eval()
        start_scales(form)
        got, wanted = (
            (y[0] if isinstance(y, tuple) else y).double() for y in (form(*args, **kwargs), output)
        )
        self.check_finite("output", wanted)
        self.measured.error += float((got - wanted).square().sum())
        self.measured.power += float(wanted.square().sum())
        self.measured.count += wanted.numel()
        self.measured.negative |= bool((x < 0).any())

    def check_finite(self, what: str, x: Tensor) -> None:
        """Refuse values that errors cannot be ranked by."""
        check_value(
            bool(x.isfinite().all()),
            lambda: f"output_errors: the {what} of {self.name} holds NaN or infinity",
        )

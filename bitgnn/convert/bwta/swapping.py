"""Linear and attention layers of a model swapped for BWTA ones."""

from __future__ import annotations

import copy

import torch
from torch import nn

from bitgnn._checks import check_value
from bitgnn.convert.bwta.layers import (
    Measured,
    bwta_form,
    calibration_runs,
    candidates,
    eligible,
    measure_layers,
    start_scales,
)
from bitgnn.convert.configs import BWTAConfig
from bitgnn.convert.reporting import BinarizeReport
from bitgnn.convert.walker import put_everywhere
from bitgnn.inference.bwta.architecture import leave_fast_paths
from bitgnn.nn import BWTAAttention
from bitgnn.nn.activation_quantizer import Kind
from bitgnn.nn.attention.pretrained import add_attention, is_pretrained


def binarize_bwta(model: nn.Module, config: BWTAConfig) -> tuple[nn.Module, BinarizeReport]:
    """A copy of ``model`` with BWTA layers in the place of linear and attention ones.

    Args:
        model: any module tree; unchanged.
        config: which layers.

    Returns:
        The copy and the report.

    Raises:
        ValueError: there is nothing to replace, a name is no layer, heads do not divide, or
            calibration fails.
    """
    known = candidates(model)
    body, left = eligible(model)
    unknown = sorted({*(config.names or ()), *config.skip} - dict(model.named_modules()).keys())
    check_value(
        not unknown,
        lambda: f"binarize: the model has no modules {unknown}; its layers are {sorted(known)}",
    )
    others = sorted(set(config.names or ()) - known.keys())
    check_value(
        not others,
        lambda: f"binarize: {others} are neither Linear nor MultiheadAttention modules",
    )
    within = body if config.names is None else {name: known[name] for name in config.names}
    within = {name: m for name, m in within.items() if name not in config.skip}
    attention = config.layers is None if config.attention is None else config.attention
    check_value(
        bool(within),
        lambda: (
            f"binarize: {type(model).__name__} has no layer to replace: no Linear or "
            f"MultiheadAttention between its first and last layers"
            + (f"; {sorted(known)} can be named" if known else "")
        ),
    )
    measured = _measured(model, config, list(within))
    chosen, unchosen = _chosen(list(within), measured, config)
    result = copy.deepcopy(model)
    for name in chosen:
        module = result.get_submodule(name)
        form = bwta_form(module, _kind(name, measured, config), config.level)
        result = put_everywhere(result, module, form)
    swapped = {name: _text(name, measured, config) for name in chosen}
    swapped |= _swap_attention(result, config) if attention else {}
    leave_fast_paths(result)
    if config.calibration is not None:
        _start(result, config)
    left = {name: why for name, why in left.items() if name not in swapped}
    left |= dict.fromkeys(config.skip, "named in skip") | unchosen
    return result, BinarizeReport(swapped, left, ())


def _measured(model: nn.Module, config: BWTAConfig, names: list[str]) -> dict[str, Measured]:
    if config.calibration is None:
        return {}
    # Kinds are not known before; ternary is right for what has both signs.
    kind: Kind = "ternary" if config.activation == "auto" else config.activation
    return measure_layers(model, config.calibration, names, kind)


def _chosen(
    names: list[str], measured: dict[str, Measured], config: BWTAConfig
) -> tuple[list[str], dict[str, str]]:
    """The layers to replace, in the model's order, and why the others are not."""
    if config.layers in (None, 1) or config.names is not None:
        return names, {}
    assert isinstance(config.layers, int | float)
    count = round(config.layers * len(names))
    check_value(
        count > 0,
        lambda: f"binarize: a share of {config.layers} of {len(names)} layers is none of them",
    )
    errors = {name: measured[name].result(config.relative) for name in names}
    best = sorted(names, key=errors.__getitem__)[:count]
    rest = {
        name: f"output error {errors[name]:.4g} is not among the {count} smallest"
        for name in names
        if name not in best
    }
    return [name for name in names if name in best], rest


def _kind(name: str, measured: dict[str, Measured], config: BWTAConfig) -> Kind:
    if config.activation != "auto":
        return config.activation
    return "bool" if name in measured and not measured[name].negative else "ternary"


def _text(name: str, measured: dict[str, Measured], config: BWTAConfig) -> str:
    kind = f"BWTA, {_kind(name, measured, config)} activations"
    if name not in measured:
        return kind
    return f"{kind}, output error {measured[name].result(config.relative):.4g}"


def _swap_attention(model: nn.Module, config: BWTAConfig) -> dict[str, str]:
    """Quantise attention between its projections; what was done by name."""
    done = {}
    for name, module in model.named_modules():
        if isinstance(module, BWTAAttention) and module.level is None and name not in config.skip:
            module.level = config.level
            done[name] = "BWTA attention"
    if is_pretrained(model):
        sign = config.activation == "sign"
        names = add_attention(model, tuple(config.skip), config.level, sign)
        done |= dict.fromkeys(names, "BWTA attention")
    return done


@torch.no_grad()
def _start(model: nn.Module, config: BWTAConfig) -> None:
    """Scales of activations from the first calibration batch, every layer seeing BWTA's inputs."""
    assert config.calibration is not None
    modes = {module: module.training for module in model.modules()}
    model.eval()
    start_scales(model)
    calibration_runs(config.calibration)[0](model)
    for module, mode in modes.items():
        module.training = mode

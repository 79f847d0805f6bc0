"""freeze() of models with BWTA layers: packed forms in the places of trained ones."""

from __future__ import annotations

from typing import Any

from torch import nn

from bitgnn._checks import check_value
from bitgnn.convert.walker import outermost
from bitgnn.inference.bwta import (
    FrozenBWTA,
    FrozenBWTALinear,
    FrozenBWTAMultiheadAttention,
)
from bitgnn.inference.bwta.architecture import float_form, leave_fast_paths
from bitgnn.inference.bwta.sign_attention import frozen_attention
from bitgnn.inference.frozen_layers import copy_with
from bitgnn.inference.report import FreezeReport
from bitgnn.nn import BWTAAttention, BWTALinear, BWTAMultiheadAttention

__all__ = ["freeze_bwta", "has_bwta"]

TRAINED = (BWTALinear, BWTAAttention, BWTAMultiheadAttention)


def has_bwta(model: nn.Module) -> bool:
    """Whether a model has BWTA layers, at whatever level."""
    return any(isinstance(module, TRAINED) for module in model.modules())


def freeze_bwta(model: nn.Module) -> FrozenBWTA:
    """Pack a model's BWTA layers; the rest stays as it is, in floats.

    Layers at level None become torch's own.

    Args:
        model: trained; unchanged.

    Returns:
        The frozen model, whose ``model`` is a copy of ``model`` with the packed layers.

    Raises:
        ValueError: every BWTA layer is at level None, or one cannot be packed (its level is above
            1, its scale not set or not positive, its weights are not finite); the message names it.
    """
    letters: dict[str, str] = {}
    floats: dict[str, str] = {}
    replaced: dict[str, nn.Module] = {}
    for name, module in outermost(model, lambda module: isinstance(module, TRAINED)).items():
        level: Any = module.level
        if level is None:
            floats[name] = "at level None"
            replaced[name] = float_form(module)
        else:
            replaced[name] = _frozen_form(name or type(module).__name__, module)
            letters[name] = "BWTA" if isinstance(module, BWTALinear) else "BWTA attention"
    check_value(
        bool(letters),
        lambda: f"freeze: every BWTA layer of {type(model).__name__} is at level None",
    )
    frozen = copy_with(model, replaced)
    leave_fast_paths(frozen)
    return FrozenBWTA(frozen, FreezeReport(letters=letters, floats=floats))


def _frozen_form(name: str, module: nn.Module) -> nn.Module:
    if isinstance(module, BWTAMultiheadAttention):
        return FrozenBWTAMultiheadAttention.from_layer(name, module)
    if isinstance(module, BWTALinear):
        return FrozenBWTALinear.from_layer(name, module)
    assert isinstance(module, BWTAAttention)
    return frozen_attention(name, module)

"""freeze() and summary() of models with BWTA layers."""

from __future__ import annotations

from typing import Any

from torch import nn

from bitgnn._checks import check_value
from bitgnn.convert.summary_table import LayerSummary, Summary
from bitgnn.convert.walker import is_inside, outermost
from bitgnn.inference.bwta import (
    FrozenBWTAAttention,
    FrozenBWTALinear,
    FrozenBWTAMultiheadAttention,
)
from bitgnn.inference.bwta.architecture import float_form, frozen_layers, leave_fast_paths
from bitgnn.inference.bwta.attention import frozen_attention
from bitgnn.inference.frozen import FreezeReport
from bitgnn.inference.frozen_layers import FrozenBWTA, copy_with
from bitgnn.nn import BWTAAttention, BWTALinear, BWTAMultiheadAttention

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


FLOAT_BITS, TERNARY_BITS, FLOAT_BYTES = 32, 2, 4
PRODUCTS = ("query_proj", "key_proj", "value_proj", "out_proj")


def summarise_bwta(model: nn.Module, data: Any) -> Summary:
    """Bits and bytes of the layers of a model with BWTA layers, as frozen.

    Raises:
        ValueError: there is data, or a trained model cannot be frozen.
    """
    check_value(
        data is None,
        lambda: "summary: data must be None for a model of BWTA layers, which is not timed",
    )
    frozen = model if isinstance(model, FrozenBWTA) else freeze_bwta(model)
    packed = frozen_layers(frozen.model)
    rows: list[LayerSummary] = []
    on_bits = whole = 0
    for name, module in frozen.model.named_modules():
        if is_inside(name, packed):
            continue
        if name in packed:
            weights = _weights(module)
            on_bits, whole = on_bits + weights, whole + weights
            rows.append(_packed_row(name, module, weights))
            continue
        own = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
        size = sum(tensor.nbytes for tensor in own)
        if not size:
            continue
        is_product = isinstance(module, nn.Linear)
        whole += module.weight.numel() if is_product else 0
        bits = FLOAT_BITS if is_product else None
        share = 0.0 if is_product else None
        rows.append(
            LayerSummary(name, "", bits, bits, None, FLOAT_BITS, size, size, share, None, None)
        )
    notes = ["1-bit ops: share of the linear layers' products; attention's own come beside"]
    if not isinstance(model, FrozenBWTA):
        notes.append("bits and packed bytes are those of the frozen form")
    notes += [f"{name}: full precision, {why}" for name, why in frozen.report.floats.items()]
    share = on_bits / whole if whole else None
    return Summary(type(frozen.model).__name__, tuple(rows), share, None, tuple(notes))


def _packed_row(name: str, module: nn.Module, weights: int) -> LayerSummary:
    activation: int | None = TERNARY_BITS
    if isinstance(module, FrozenBWTALinear) and module.activation in ("bool", "sign"):
        activation = 1
    is_attention = isinstance(module, FrozenBWTAAttention)
    held = sum(tensor.nbytes for tensor in module.state_dict().values())
    biases = sum(
        tensor.nbytes for key, tensor in module.state_dict().items() if key.endswith("bias")
    )
    return LayerSummary(
        name,
        "BWTA attention" if is_attention else "BWTA",
        activation,
        None if is_attention else 1,
        None if isinstance(module, FrozenBWTALinear) else TERNARY_BITS,
        FLOAT_BITS,
        FLOAT_BYTES * weights + biases,
        held,
        1.0,
        None,
        None,
    )


def _weights(module: nn.Module) -> int:
    """Weights of a packed layer's products."""
    if isinstance(module, FrozenBWTALinear):
        return module.in_features * module.out_features
    if isinstance(module, FrozenBWTAMultiheadAttention):
        return sum(_weights(getattr(module, name)) for name in PRODUCTS)
    return 0

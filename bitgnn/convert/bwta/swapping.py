"""Swaps float layers for BWTA layers and these for packed ones; their summary."""

from __future__ import annotations

import copy
import logging
from typing import Any

import torch
from torch import nn

from bitgnn.convert.bwta.bitnet import with_plain_linear
from bitgnn.convert.bwta.errors import (
    BWTA,
    Measured,
    bwta_form,
    calibration_runs,
    candidates,
    measure_layers,
    start_scales,
)
from bitgnn.convert.configs import BWTAConfig
from bitgnn.convert.handlers import TRAINED, FreezeOptions, handles
from bitgnn.convert.reporting import BinarizeReport
from bitgnn.convert.summary_table import LayerSummary, Summary
from bitgnn.convert.walker import is_inside, outermost, put_everywhere
from bitgnn.inference.bwta import (
    FrozenBWTAAttention,
    FrozenBWTALinear,
    FrozenBWTAMultiheadAttention,
)
from bitgnn.inference.bwta.architecture import float_form, frozen_layers, leave_fast_paths
from bitgnn.inference.bwta.attention import PROJECTIONS
from bitgnn.inference.frozen import FreezeReport
from bitgnn.inference.frozen_model import FrozenModel
from bitgnn.inference.own_code.structure import copy_with
from bitgnn.nn import BWTAAttention, BWTALinear, BWTAMultiheadAttention
from bitgnn.nn.attention.pretrained import add_attention, is_pretrained
from bitgnn.nn.bwta_linear import Kind

_log = logging.getLogger("bitgnn.convert.freezing")

FORMS: dict[Any, Any] = {
    BWTALinear: FrozenBWTALinear,
    BWTAAttention: FrozenBWTAAttention,
    BWTAMultiheadAttention: FrozenBWTAMultiheadAttention,
}
"""Packed forms of trained layers."""
FLOAT_BITS, TERNARY_BITS, FLOAT_BYTES = 32, 2, 4


@handles("binarize", BWTAConfig)
def binarize_bwta(model: nn.Module, config: BWTAConfig) -> tuple[nn.Module, BinarizeReport]:
    """A copy of ``model`` with BWTA layers in place of linear and attention layers.

    The report on what was replaced comes with it; the model stays unchanged.

    Raises:
        ValueError: there is nothing to replace, a name is no layer, heads do not divide, or
            calibration fails.
    """
    model = with_plain_linear(model)
    known = list(candidates(model))
    body = _body(model, known)
    names = _wanted(model, config, known, body)
    measured: dict[str, Measured] = {}
    if config.calibration is not None:
        # Kinds are not known before; ternary is right for what has both signs.
        first: Kind = "ternary" if config.activation == "auto" else config.activation
        measured = measure_layers(model, config.calibration, names, first)
    unchosen = _of_larger_error(names, measured, config)
    result = copy.deepcopy(model)
    swapped: dict[str, str] = {}
    for name in (name for name in names if name not in unchosen):
        kind: Kind = "ternary" if config.activation == "auto" else config.activation
        if config.activation == "auto" and measured and not measured[name].negative:
            kind = "bool"
        module = result.get_submodule(name)
        if isinstance(module, BWTA):
            module.level = config.level
        else:
            result = put_everywhere(result, module, bwta_form(module, kind, config.level))
        swapped[name] = f"BWTA, {kind} activations"
        if measured:
            swapped[name] += f", output error {measured[name].result(config.relative):.4g}"
    if config.layers is None if config.attention is None else config.attention:
        swapped |= _swap_attention(result, config)
    leave_fast_paths(result)
    if config.calibration is not None:
        # Every layer sees BWTA's inputs here.
        modes = {module: module.training for module in result.modules()}
        start_scales(result.eval())
        with torch.no_grad():
            calibration_runs(config.calibration)[0](result)
        for module, mode in modes.items():
            module.training = mode
    ends = [name for name in known if name not in body and name not in swapped]
    left = dict.fromkeys(ends, "a first or last layer stays in full precision unless named")
    left |= dict.fromkeys(config.skip, "named in skip") | unchosen
    return result, BinarizeReport(swapped, left, ())


def _body(model: nn.Module, known: list[str]) -> list[str]:
    """Candidates that are neither first nor last layers.

    In a model with a ModuleList the layers inside of one are; else all but the first and the last,
    or, behind an embedding, all but the last.
    """
    lists = tuple(f"{n}." for n, m in model.named_modules() if isinstance(m, nn.ModuleList))
    body = [name for name in known if name.startswith(lists)]
    embeds = any(isinstance(m, nn.Embedding) for m in model.modules())
    return body or (known[:-1] if embeds else known[1:-1])


def _wanted(model: nn.Module, config: BWTAConfig, known: list[str], body: list[str]) -> list[str]:
    """Names of the layers to choose from; a ValueError if there are none."""
    unknown = sorted({*(config.names or ()), *config.skip} - dict(model.named_modules()).keys())
    if unknown:
        raise ValueError(
            f"binarize: the model has no modules {unknown}; its layers are {sorted(known)}"
        )
    others = sorted(set(config.names or ()) - set(known))
    if others:
        raise ValueError(f"binarize: {others} are neither Linear nor MultiheadAttention modules")
    names = [name for name in config.names or body if name not in config.skip]
    if not names:
        raise ValueError(
            f"binarize: {type(model).__name__} has no layer to replace: no Linear or "
            f"MultiheadAttention between its first and last layers"
            + (f"; {sorted(known)} can be named" if known else "")
        )
    return names


def _of_larger_error(
    names: list[str], measured: dict[str, Measured], config: BWTAConfig
) -> dict[str, str]:
    """The layers that a share leaves out, and why."""
    if config.layers in (None, 1) or config.names is not None:
        return {}
    assert isinstance(config.layers, int | float)
    count = round(config.layers * len(names))
    if count == 0:
        raise ValueError(
            f"binarize: a share of {config.layers} of {len(names)} layers is none of them"
        )
    errors = {name: measured[name].result(config.relative) for name in names}
    best = sorted(names, key=errors.__getitem__)[:count]
    return {
        name: f"output error {errors[name]:.4g} is not among the {count} smallest"
        for name in names
        if name not in best
    }


def _swap_attention(model: nn.Module, config: BWTAConfig) -> dict[str, str]:
    """Quantise attention between its projections; return the changes by name."""
    done = []
    for name, module in model.named_modules():
        if isinstance(module, BWTAAttention) and module.level is None and name not in config.skip:
            module.level = config.level
            done.append(name)
    if is_pretrained(model):
        sign = config.activation == "sign"
        done += add_attention(model, tuple(config.skip), config.level, sign)
    return dict.fromkeys(done, "BWTA attention")


@handles("freeze", BWTAConfig)
def freeze_bwta(model: nn.Module, options: FreezeOptions | None = None) -> FrozenModel:
    """A copy of a trained model with packed BWTA layers; the rest stays as it is, in floats.

    Layers at level None become torch's own.

    Raises:
        ValueError: there are options, every BWTA layer is at level None, or one cannot be packed
            (its level is above 1, its scale not set or not positive, its weights are not finite);
            the message names it.
    """
    given = () if options is None else options[:3]
    if any(option is not None for option in given):
        raise ValueError(
            "freeze: plan, output and features must be None for a model of BWTA layers, got "
            "{!r}, {!r} and {!r}".format(*given)
        )
    letters: dict[str, str] = {}
    floats: dict[str, str] = {}
    replaced: dict[str, nn.Module] = {}
    for name, module in outermost(model, lambda module: isinstance(module, TRAINED)).items():
        level: Any = module.level
        if level is None:
            floats[name] = "at level None"
            replaced[name] = float_form(module)
        else:
            form = next(form for trained, form in FORMS.items() if isinstance(module, trained))
            replaced[name] = form.from_layer(name or type(module).__name__, module)
            letters[name] = "BWTA" if isinstance(module, BWTALinear) else "BWTA attention"
    if not letters:
        raise ValueError(f"freeze: every BWTA layer of {type(model).__name__} is at level None")
    frozen = copy_with(model, replaced)
    leave_fast_paths(frozen)
    report = FreezeReport(letters=letters, floats=floats)
    _log.info("freeze:\n%s", report)
    return FrozenModel.of_code("bwta", frozen, report)


@handles("summary", BWTAConfig)
def summarise_bwta(model: nn.Module, data: Any, repeats: int) -> Summary:
    """Bits and bytes of the layers of a model with BWTA layers, as frozen, without times."""
    if data is not None:
        raise ValueError(
            "summary: data must be None for a model of BWTA layers, which is not timed"
        )
    frozen = model if isinstance(model, FrozenModel) else freeze_bwta(model)
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
        bits, share = None, None
        if isinstance(module, nn.Linear):
            whole += module.weight.numel()
            bits, share = FLOAT_BITS, 0.0
        rows.append(LayerSummary(name, "", bits, bits, None, FLOAT_BITS, size, size, share, None))
    notes = ["1-bit ops: share of the linear layers' products; attention's own come beside"]
    if not isinstance(model, FrozenModel):
        notes.append("bits and packed bytes are those of the frozen form")
    notes += [f"{name}: full precision, {why}" for name, why in frozen.report.floats.items()]
    total = on_bits / whole if whole else None
    return Summary(type(frozen.model).__name__, tuple(rows), total, tuple(notes))


def _packed_row(name: str, module: nn.Module, weights: int) -> LayerSummary:
    is_linear = isinstance(module, FrozenBWTALinear)
    is_attention = isinstance(module, FrozenBWTAAttention)
    is_one_bit = is_linear and module.activation in ("bool", "sign")
    held = {key: tensor.nbytes for key, tensor in module.state_dict().items()}
    biases = sum(size for key, size in held.items() if key.endswith("bias"))
    return LayerSummary(
        name,
        letters="BWTA attention" if is_attention else "BWTA",
        activation_bits=1 if is_one_bit else TERNARY_BITS,
        weight_bits=None if is_attention else 1,
        aggregation_bits=None if is_linear else TERNARY_BITS,
        output_bits=FLOAT_BITS,
        float_bytes=FLOAT_BYTES * weights + biases,
        packed_bytes=sum(held.values()),
        one_bit_share=1.0,
        measured_seconds=None,
    )


def _weights(module: nn.Module) -> int:
    """Weights of a packed layer's products."""
    if isinstance(module, FrozenBWTALinear):
        return module.in_features * module.out_features
    if isinstance(module, FrozenBWTAMultiheadAttention):
        return sum(_weights(getattr(module, name)) for name in PROJECTIONS)
    return 0

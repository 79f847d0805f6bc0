"""binarize(): swap a model's layers for binary ones."""

from __future__ import annotations

import logging
import warnings
from dataclasses import replace
from typing import Any, Literal, get_args

from torch import nn
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.models.basic_gnn import BasicGNN

from bitgnn.convert.binarizing import Activation, BinarizeConfig, BinarizeReport, Precision
from bitgnn.convert.binary_forms import LINEAR, binary_form
from bitgnn.convert.bwta import BWTAConfig, binarize_bwta
from bitgnn.convert.images.relu_calls import without_relu_calls
from bitgnn.convert.images.swapping import is_for_images, swap_image_layers
from bitgnn.convert.keeping import (
    carry_tree,
    copied,
    put_everywhere,
    uncalled_hooks,
    why_float,
)
from bitgnn.convert.layers import SUPPORTED
from bitgnn.convert.letters import HasPrecision, model_letters
from bitgnn.convert.requests import asked_for, nothing_to_swap, plain_model
from bitgnn.convert.sign_inputs import (
    layers_before_norms,
    relu_warnings,
    sign_feeding_calls,
    sign_feeding_modules,
)
from bitgnn.nn import LayerPrecision

__all__ = ["BinarizeConfig", "BinarizeReport", "binarize", "report_of", "swapped_layer"]

_log = logging.getLogger(__name__)
Scheme = Literal["binary", "bwta"]
_REPORT = "bitgnn_report"
WHOLE = ("bin", "full")


def binarize(
    model: nn.Module,
    config: BinarizeConfig | BWTAConfig | Precision | None = None,
    *,
    scheme: Scheme = "binary",
    **options: Any,
) -> nn.Module:
    """A copy of ``model`` whose supported layers are binary, with the weights kept.

    ``GCNConv``, ``SAGEConv`` and ``GraphConv`` of PyG and of this package are swapped, linear
    layers where ``config`` asks for it. In a model of ``bitgnn.models`` the whole model changes
    form (its ReLU goes too).

    In a model without graph layers ``Conv2d`` becomes ``BinaryConv2d`` and ``Linear``
    ``BinaryLinear``: the layers that read the input keep its values in fixed point, the others
    binarise theirs, and a ReLU in front of a sign is dropped, calls in the code included, where
    torch.fx can trace the model. (With ``linear=True`` a model of linear layers alone gets
    ``bitgnn.nn.Linear``, with its letters.)

    With ``scheme="bwta"`` linear layers and attention of any model, of transformers of Hugging Face
    among others, get binary weights and ternary activations (:class:`BWTAConfig`).

    Elsewhere the code of the model is not touched, so that an activation
    function in it stays; a ReLU in front of a sign is warned of: it makes every sign +1.

    Args:
        model: any module tree, which is taken out of ``torch.compile`` and data-parallel wrappers;
            unchanged.
        config: what to do, or just a precision; None is ``BinarizeConfig()``. A ``BWTAConfig``
            means its scheme.
        scheme: ``"binary"`` or ``"bwta"``.
        options: fields of :class:`BinarizeConfig`, which win over ``config``:
            ``precision="full"``, ``skip="head"``, ...; with scheme ``"bwta"`` those of
            :class:`BWTAConfig`: ``layers=0.15``, ...

    Returns:
        The copy; :func:`report_of` tells what was done. Names, state-dict keys, dtypes, devices,
        modes, hooks, tied and frozen parameters are those of ``model``. A layer whose class
        computes something else, whose weight is computed, or that has further tensors stays as it
        is; the report says why.

    Raises:
        ValueError: unknown precision or scheme, a name in ``config`` that is no layer or of a layer
            that has to stay, or nothing to swap.
        TypeError: ``model`` is not a module, frozen, scripted or compiled in parts, or ``options``
            has no field's name.
    """
    model = plain_model(model)
    if scheme not in get_args(Scheme):
        raise ValueError(f"binarize: scheme must be one of {get_args(Scheme)}, got {scheme!r}")
    config = asked_for(config, scheme, options)
    if isinstance(config, BWTAConfig):
        return _reported(*binarize_bwta(model, config))
    if is_for_images(model) and (_has_convolution(model) or not (config.linear or config.layers)):
        result, report = _swap_image_layers(model, config)
        return _reported(result, report)
    whole = not (config.layers or config.skip or config.options or config.linear)
    if isinstance(model, HasPrecision) and whole:
        result = carry_tree(model, model.with_precision(config.precision))
        swapped = {
            name: layer.precision
            for name, layer in result.named_modules()
            if isinstance(layer, SUPPORTED)
        }
        report = BinarizeReport(swapped, {}, ())
    else:
        result, report = _swap_layers(model, config)
    return _reported(result, report)


def _reported(result: nn.Module, report: BinarizeReport) -> nn.Module:
    """The result with its report, told of and warned of."""
    for text in report.warnings:
        warnings.warn(f"binarize: {text}", UserWarning, stacklevel=3)
    _log.info("binarize:\n%s", report)
    object.__setattr__(result, _REPORT, report)
    return result


def report_of(model: nn.Module) -> BinarizeReport:
    """The report of the :func:`binarize` call that made ``model``.

    Raises:
        ValueError: ``model`` does not come from :func:`binarize`.
    """
    report = getattr(model, _REPORT, None)
    if not isinstance(report, BinarizeReport):
        raise ValueError("report_of: this model was not made by binarize()")
    return report


def _has_convolution(model: nn.Module) -> bool:
    return any(isinstance(module, nn.Conv2d) for module in model.modules())


def _swap_image_layers(
    model: nn.Module, config: BinarizeConfig
) -> tuple[nn.Module, BinarizeReport]:
    """The swapped copy of a network of images and the report."""
    given = [name for name in ("layers", "options", "dropout") if getattr(config, name)]
    if given or config.precision not in WHOLE:
        raise ValueError(
            "binarize: layers, options and dropout are of graph layers, and precision must be one "
            f"of {list(WHOLE)} in a network of images, got "
            f"{' and '.join(given) or f'precision {config.precision!r}'}"
        )
    swapped = swap_image_layers(model, config.skip, config.input_step, config.scale, config.last)
    result = swapped.model
    # As in bitgnn.models: nothing stands between the sums, or their norm, and the sign.
    activation = config.activation or "drop"
    replaced = _replace_activations(result, activation)
    replaced |= _replace_calls(result, activation)
    warned = relu_warnings(result)
    return result, BinarizeReport(swapped.layers, swapped.left, warned, replaced)


def _swap_layers(model: nn.Module, config: BinarizeConfig) -> tuple[nn.Module, BinarizeReport]:
    """The swapped copy of a model and the report."""
    graph_layers = {n: m for n, m in model.named_modules() if isinstance(m, SUPPORTED)}
    # Linear layers inside of these go with them.
    inside = tuple(f"{name}." if name else "" for name in graph_layers)
    linear = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, LINEAR) and not (inside and name.startswith(inside))
    }
    known = {**graph_layers, **linear}
    config = _with_first_names(model, config)
    unknown = sorted({*config.layers, *config.skip} - known.keys())
    if unknown:
        raise ValueError(
            f"binarize: no layer that can be binary is named {unknown}, the model has "
            f"{sorted(known)}"
        )
    reasons = {name: why_float(layer) for name, layer in known.items() if name not in config.skip}
    kept = {name: reason for name, reason in reasons.items() if reason is not None}
    refused = [name for name in kept if name in config.layers]
    if refused:
        raise ValueError(f"binarize: layer {refused[0]!r} cannot be binary: {kept[refused[0]]}")
    graph_names = [name for name in graph_layers if name not in kept]
    linear_names = [name for name in linear if name not in kept]
    precisions = _precisions(config, graph_names, linear_names, layers_before_norms(model))
    if not precisions:
        can = {n: m for n, m in linear.items() if n in linear_names and n not in config.skip}
        left_out = {**dict.fromkeys(config.skip, "named in skip"), **kept}
        raise ValueError(nothing_to_swap(model, can, left_out))
    result = copied(model)
    for name, precision in precisions.items():
        result = swapped_layer(result, name, precision, config.dropout)
    replaced = _replace_activations(result, config.activation or "keep")
    swapped = {name: str(result.get_submodule(name).precision) for name in precisions}
    left = {**dict.fromkeys(config.skip, "named in skip"), **kept}
    for name, module in result.named_modules():
        if name in precisions or name in left or (inside and name.startswith(inside)):
            continue
        if isinstance(module, MessagePassing):
            left[name] = f"{type(module).__name__} has no binary form here"
        elif isinstance(module, LINEAR):
            left[name] = f"{type(module).__name__} is swapped with linear=True or by name only"
    warned = relu_warnings(result)
    for name in precisions:
        maps = uncalled_hooks(graph_layers.get(name, result.get_submodule(name)))
        if maps:
            what = f"hooks of {', '.join(maps)} in layer {name!r} are not called in binary products"
            warned = (*warned, what)
    report = BinarizeReport(swapped, left, warned, replaced)
    return result, report


def _with_first_names(model: nn.Module, config: BinarizeConfig) -> BinarizeConfig:
    """The configuration with the first of the names of every module that has several."""
    first: dict[int, str] = {}
    names = {
        name: first.setdefault(id(module), name)
        for name, module in model.named_modules(remove_duplicate=False)
    }
    skip = tuple(names.get(name, name) for name in config.skip)
    layers = {names.get(name, name): letters for name, letters in config.layers.items()}
    return replace(config, skip=skip, layers=layers)


def _precisions(
    config: BinarizeConfig, graph_layers: list[str], linear: list[str], normed: set[str]
) -> dict[str, str | LayerPrecision]:
    """Precision of each layer to swap.

    "bin" and "full" are given by name: the layers find their role and their input's bits. With
    ``options`` those of the model as a whole stand for letters, and layers in front of a norm hand
    on floats in "bin".
    """
    names = [name for name in graph_layers if name not in config.skip]
    found: dict[str, str | LayerPrecision] = {}
    by_name = config.precision in WHOLE and not config.options
    if by_name:
        found = dict.fromkeys(names, config.precision)
    defaults = dict(zip(names, model_letters(config.precision, len(names)), strict=True))
    for name in names:
        if by_name and name not in config.layers:
            continue
        if config.layers.get(name) in WHOLE:
            found[name] = config.layers[name]
            continue
        precision = LayerPrecision.parse(config.layers.get(name, defaults[name]))
        if name not in config.layers:
            precision = replace(precision, **config.options)
            if config.precision == "bin" and name in normed:
                precision = replace(precision, bspmm=precision.bspmm[:2] + "F")
        found[name] = precision
    for name in linear:
        if name in config.layers:
            found[name] = LayerPrecision.parse_linear(config.layers[name])
        elif config.linear and name not in config.skip:
            # Floats out: a sign behind them becomes a threshold when the model is frozen.
            letters = LayerPrecision.parse(config.precision)
            activation = "B" if config.precision == "bin" else letters.bmm[0]
            found[name] = LayerPrecision.parse_linear(f"{activation}{letters.bmm[1]}F")
    return found


def swapped_layer(
    model: nn.Module, name: str, precision: str | LayerPrecision, dropout: float
) -> nn.Module:
    """Put a layer of another precision with the same weights in the place of one.

    Args:
        model: changed in place.
        name: module name of the layer, which may be the model itself.
        precision: of the new layer.
        dropout: of the new layer.

    Returns:
        The model, or the layer in its place.

    Raises:
        ValueError: the layer has other tensors than PyG's.
    """
    layer = model.get_submodule(name)
    return put_everywhere(model, layer, binary_form(layer, precision, dropout))


def _replace_activations(model: nn.Module, activation: Activation) -> dict[str, str]:
    """Replace activations of PyG's models and ReLU modules that feed a sign; their names."""
    if activation == "keep":
        return {}
    names = [
        f"{name}.act" if name else "act"
        for name, module in model.named_modules()
        if isinstance(module, BasicGNN) and module.act is not None
    ]
    names += [name for name in sign_feeding_modules(model) if name not in names]
    for name in names:
        new = nn.Hardtanh() if activation == "hardtanh" else nn.Identity()
        put_everywhere(model, model.get_submodule(name), new)
    return dict.fromkeys(names, "Hardtanh" if activation == "hardtanh" else "Identity")


def _replace_calls(model: nn.Module, activation: Activation) -> dict[str, str]:
    """Replace calls of ReLU that feed a sign in a network of images; where they stood."""
    if activation == "keep":
        return {}
    replaced = {}
    for name, places in sign_feeding_calls(model).items():
        module = model.get_submodule(name)
        without_relu_calls(module, places, clip=activation == "hardtanh")
        where = name or type(module).__name__
        for place in places:
            replaced[f"ReLU call {place + 1} of {where}"] = (
                "hardtanh" if activation == "hardtanh" else "dropped"
            )
    return replaced

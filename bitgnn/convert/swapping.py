"""binarize(): swap a model's layers for binary ones."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Collection
from typing import Any, Literal, get_args

from torch import nn
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.models.basic_gnn import BasicGNN

from bitgnn.convert.assigning import WHOLE, assigned_precisions, with_first_names
from bitgnn.convert.binarizing import Activation, BinarizeConfig, Precision
from bitgnn.convert.binary_forms import LINEAR, binary_form
from bitgnn.convert.bwta import BWTAConfig, binarize_bwta
from bitgnn.convert.example import is_example, run_example
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
from bitgnn.convert.letters import HasPrecision
from bitgnn.convert.reporting import BinarizeReport, keep_report, report_of
from bitgnn.convert.requests import asked_for, nothing_to_swap, plain_model
from bitgnn.convert.sign_inputs import (
    layers_before_norms,
    relu_warnings,
    sign_feeding_calls,
    sign_feeding_modules,
)
from bitgnn.nn import LayerPrecision

__all__ = ["BinarizeConfig", "binarize", "swapped_layer"]

_log = logging.getLogger(__name__)
Scheme = Literal["binary", "bwta"]


def binarize(
    model: nn.Module,
    config: BinarizeConfig | BWTAConfig | Precision | Any | None = None,
    *,
    example: Any = None,
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

    Layers of the precisions ``"bin"`` and ``"full"`` look at what their input is made of, and
    find whether a binary layer takes their result, in the first batch that they are trained on;
    with ``example`` they do so now, before an optimizer takes their parameters::

        binary = binarize(model, "bin", example=data)  # or example=(data.x, data.edge_index)
        binary = binarize(model, data)

    Args:
        model: any module tree, which is taken out of ``torch.compile`` and data-parallel wrappers;
            unchanged.
        config: what to do, or just a precision; None is ``BinarizeConfig()``. A ``BWTAConfig``
            means its scheme. A ``Data`` object, tensor, tuple or mapping is ``example``.
        example: what the forward takes: a ``Data`` object, which it reads itself or which has its
            arguments as attributes; a tuple of arguments, a mapping of named ones, or the only
            one. The copy runs on it once, in evaluation, with gradients recorded; modes, buffers,
            ``.grad`` and random numbers stay as they are. None for a model without forward.
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
            that has to stay, nothing to swap, or an ``example`` that the forward does not take.
        TypeError: ``model`` is not a module, frozen, scripted or compiled in parts, ``options``
            has no field's name, or ``example`` is nothing that a forward takes.
    """
    model = plain_model(model)
    config, example = _told_apart(config, example)
    if example is not None and (scheme == "bwta" or isinstance(config, BWTAConfig)):
        raise ValueError(
            "binarize: example must be None with scheme 'bwta', which takes inputs as calibration, "
            f"got {type(example).__name__}"
        )
    result, report = _swapped(model, config, scheme, options)
    if example is not None:
        run_example(result, example)
    return _reported(result, report)


def _told_apart(config: Any, example: Any) -> tuple[Any, Any]:
    """The configuration and the example, which may stand in the place of the other."""
    if not is_example(config):
        return config, example
    if example is not None:
        raise TypeError(
            "binarize: example must be given once, got "
            f"{type(config).__name__} as config and {type(example).__name__} as example"
        )
    return None, config


def _swapped(
    model: nn.Module, config: Any, scheme: str, options: dict[str, Any]
) -> tuple[nn.Module, BinarizeReport]:
    """The copy and the report, by the scheme and by what the model is."""
    if scheme not in get_args(Scheme):
        raise ValueError(f"binarize: scheme must be one of {get_args(Scheme)}, got {scheme!r}")
    config = asked_for(config, scheme, options)
    if isinstance(config, BWTAConfig):
        return binarize_bwta(model, config)
    if is_for_images(model) and (_has_convolution(model) or not (config.linear or config.layers)):
        return _swap_image_layers(model, config)
    whole = not (config.layers or config.skip or config.options or config.linear)
    if not (isinstance(model, HasPrecision) and whole):
        return _swap_layers(model, config)
    result = carry_tree(model, model.with_precision(config.precision))
    swapped = {
        name: layer.precision
        for name, layer in result.named_modules()
        if isinstance(layer, SUPPORTED)
    }
    reasons = dict.fromkeys(swapped, f"the model's own form of {config.precision!r}")
    return result, BinarizeReport(swapped, _left(result, swapped), (), reasons=reasons)


def _reported(result: nn.Module, report: BinarizeReport) -> nn.Module:
    """The result with its report, told of and warned of."""
    for text in report.warnings:
        warnings.warn(f"binarize: {text}", UserWarning, stacklevel=3)
    keep_report(result, report)
    _log.info("binarize:\n%s", report_of(result))
    return result


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
    config = with_first_names(model, config)
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
    normed = layers_before_norms(model)
    precisions, why = assigned_precisions(config, graph_names, linear_names, normed)
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
    left |= {n: why for n, why in _left(result, precisions, inside).items() if n not in left}
    warned = relu_warnings(result)
    for name in precisions:
        maps = uncalled_hooks(graph_layers.get(name, result.get_submodule(name)))
        if maps:
            what = f"hooks of {', '.join(maps)} in layer {name!r} are not called in binary products"
            warned = (*warned, what)
    return result, BinarizeReport(swapped, left, warned, replaced, why)


def _left(
    model: nn.Module, swapped: Collection[str], inside: tuple[str, ...] = ()
) -> dict[str, str]:
    """Why layers that nobody asked about stay in floats.

    Args:
        model: the binarised model.
        swapped: names of its binary layers.
        inside: how names begin of modules that belong to graph layers.
    """
    inside = inside or tuple(f"{name}." if name else "" for name in swapped)
    found: dict[str, str] = {}
    for name, module in model.named_modules():
        if name in swapped or (inside and name.startswith(inside)):
            continue
        if isinstance(module, MessagePassing):
            found[name] = f"{type(module).__name__} has no binary form here"
        elif isinstance(module, LINEAR):
            found[name] = f"{type(module).__name__} is swapped with linear=True or by name only"
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

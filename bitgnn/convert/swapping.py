"""binarize(): swap a model's layers for binary ones."""

from __future__ import annotations

import copy
import logging
import warnings
from dataclasses import replace
from typing import Any, Literal, get_args

import torch_geometric.nn
from torch import nn
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.models.basic_gnn import BasicGNN

import bitgnn.nn
from bitgnn.convert.binarizing import Activation, BinarizeConfig, BinarizeReport, Precision
from bitgnn.convert.bwta import BWTAConfig, binarize_bwta
from bitgnn.convert.images.swapping import is_for_images, swap_image_layers
from bitgnn.convert.layers import SUPPORTED
from bitgnn.convert.letters import HasPrecision, model_letters
from bitgnn.convert.sign_inputs import (
    layers_before_norms,
    relu_warnings,
    sign_feeding_modules,
)
from bitgnn.convert.unwrap import unwrapped
from bitgnn.nn import LayerPrecision
from bitgnn.nn.binary_product import NORMS, QUANTIZERS

__all__ = ["BinarizeConfig", "BinarizeReport", "binarize", "report_of", "swapped_layer"]

_log = logging.getLogger(__name__)
Scheme = Literal["binary", "bwta"]
_REPORT = "bitgnn_report"
LINEAR = (nn.Linear, torch_geometric.nn.Linear)
WHOLE = ("bin", "full")
PLAIN_AGGREGATIONS = ("add", "sum", "mean", "min", "max", "mul")


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
    binarise theirs. (With ``linear=True`` a model of linear layers alone gets
    ``bitgnn.nn.Linear``, with its letters.)

    With ``scheme="bwta"`` linear layers and attention of any model, of transformers of Hugging Face
    among others, get binary weights and ternary activations (:class:`BWTAConfig`).

    Elsewhere the code of the model is not touched, so that an activation
    function in it stays; a ReLU in front of a sign is warned of: it makes every sign +1.

    Args:
        model: any module tree; unchanged.
        config: what to do, or just a precision; None is ``BinarizeConfig()``. A ``BWTAConfig``
            means its scheme.
        scheme: ``"binary"`` or ``"bwta"``.
        options: fields of :class:`BWTAConfig`, with that scheme: ``layers=0.15``, ...

    Returns:
        The copy; :func:`report_of` tells what was done.

    Raises:
        ValueError: unknown precision or scheme, a name in ``config`` that is no layer, or nothing
            to swap.
        TypeError: ``model`` is not a module, or ``options`` has no field's name.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"binarize: model must be a torch.nn.Module, got {type(model).__name__}")
    model = unwrapped(model)
    if scheme not in get_args(Scheme):
        raise ValueError(f"binarize: scheme must be one of {get_args(Scheme)}, got {scheme!r}")
    if scheme == "bwta" or isinstance(config, BWTAConfig):
        return _reported(*binarize_bwta(model, _bwta_config(config, options)))
    if options:
        raise TypeError(f"binarize: {sorted(options)} are of scheme 'bwta'; use a BinarizeConfig")
    if config is None:
        config = BinarizeConfig()
    elif not isinstance(config, BinarizeConfig):
        config = BinarizeConfig(precision=config)
    if is_for_images(model) and (_has_convolution(model) or not (config.linear or config.layers)):
        result, report = _swap_image_layers(model, config)
        return _reported(result, report)
    whole = not (config.layers or config.skip or config.options or config.linear)
    if isinstance(model, HasPrecision) and whole:
        result = model.with_precision(config.precision)
        swapped = {
            name: layer.precision
            for name, layer in result.named_modules()
            if isinstance(layer, SUPPORTED)
        }
        report = BinarizeReport(swapped, {}, ())
    else:
        result, report = _swap_layers(model, config)
    return _reported(result, report)


def _bwta_config(config: Any, options: dict[str, Any]) -> BWTAConfig:
    """The config itself, or one of options."""
    if config is None:
        return BWTAConfig(**options)
    if not isinstance(config, BWTAConfig) or options:
        raise ValueError(
            "binarize: with scheme 'bwta' config must be a BWTAConfig alone or None, got "
            f"{type(config).__name__} and {sorted(options)}"
        )
    return config


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
    if config.layers or config.options or config.dropout or config.precision not in WHOLE:
        raise ValueError(
            "binarize: layers, options and dropout are of graph layers, and precision must be one "
            f"of {list(WHOLE)} in a network of images, got {config}"
        )
    swapped = swap_image_layers(model, config.skip, config.input_step, config.scale, config.last)
    result = swapped.model
    replaced = _replace_activations(result, config.activation)
    warned = relu_warnings(result, list(swapped.layers))
    return result, BinarizeReport(swapped.layers, swapped.left, warned, replaced)


def _swap_layers(model: nn.Module, config: BinarizeConfig) -> tuple[nn.Module, BinarizeReport]:
    """The swapped copy of a model and the report."""
    graph_layers = {n: m for n, m in model.named_modules() if isinstance(m, SUPPORTED)}
    # Linear layers inside of others, such as GCNConv's own, go with them.
    outer = [name for name, m in model.named_modules() if isinstance(m, MessagePassing)]
    inside = tuple(f"{name}." if name else "" for name in outer)
    linear = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, LINEAR) and not (inside and name.startswith(inside))
    }
    known = {**graph_layers, **linear}
    unknown = sorted({*config.layers, *config.skip} - known.keys())
    if unknown:
        raise ValueError(
            f"binarize: no layer that can be binary is named {unknown}, the model has "
            f"{sorted(known)}"
        )
    precisions = _precisions(config, list(graph_layers), list(linear), layers_before_norms(model))
    if not precisions:
        raise ValueError(
            "binarize: the model has no GCNConv, SAGEConv or GraphConv to swap"
            + (", only linear layers (BinarizeConfig(linear=True))" if linear else "")
        )
    result = copy.deepcopy(model)
    for name, precision in precisions.items():
        result = _replace(result, name, _binary_layer(known[name], precision, config.dropout))
    replaced = _replace_activations(result, config.activation)
    swapped = {name: str(result.get_submodule(name).precision) for name in precisions}
    left = dict.fromkeys(config.skip, "named in skip")
    for name, module in result.named_modules():
        if name in precisions or name in left or (inside and name.startswith(inside)):
            continue
        if isinstance(module, MessagePassing):
            left[name] = f"{type(module).__name__} has no binary form here"
        elif isinstance(module, LINEAR):
            left[name] = f"{type(module).__name__} is swapped with linear=True or by name only"
    report = BinarizeReport(swapped, left, relu_warnings(result, list(precisions)), replaced)
    return result, report


def _precisions(
    config: BinarizeConfig, graph_layers: list[str], linear: list[str], normed: set[str]
) -> dict[str, LayerPrecision]:
    """Precision of each layer to swap; those in front of a norm hand on floats in "bin"."""
    names = [name for name in graph_layers if name not in config.skip]
    defaults = dict(zip(names, model_letters(config.precision, len(names)), strict=True))
    found = {}
    for name in names:
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
    model: nn.Module, name: str, precision: LayerPrecision, dropout: float
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
    return _replace(model, name, _binary_layer(model.get_submodule(name), precision, dropout))


def _binary_layer(layer: Any, precision: LayerPrecision, dropout: float) -> nn.Module:
    """A binary layer with the options and weights of a float one."""
    new: nn.Module
    chosen = {"precision": precision, "dropout": dropout}
    if isinstance(layer, LINEAR):
        new = bitgnn.nn.Linear(
            getattr(layer, "in_channels", None) or layer.in_features,
            getattr(layer, "out_channels", None) or layer.out_features,
            layer.bias is not None,
            **chosen,  # type: ignore[arg-type]
        )
    else:
        plain = layer.aggr in PLAIN_AGGREGATIONS
        options = {
            "aggr": layer.aggr if plain else copy.deepcopy(layer.aggr_module),
            "flow": layer.flow,
            "node_dim": layer.node_dim,
            **chosen,
        }
        new = _graph_layer(layer, options)
    missing, unexpected = new.load_state_dict(layer.state_dict(), strict=False)
    own = tuple(f"{name}." for name in (*NORMS, *QUANTIZERS))
    lost = [name for name in [*missing, *unexpected] if not name.startswith(own)]
    if lost:
        raise ValueError(f"binarize: {type(layer).__name__} has other tensors than PyG's: {lost}")
    tensor = next(iter(layer.parameters()))
    new.to(tensor.device, tensor.dtype)
    return new.train(layer.training)


def _graph_layer(layer: Any, options: dict[str, Any]) -> nn.Module:
    sizes = (layer.in_channels, layer.out_channels)
    if isinstance(layer, torch_geometric.nn.GCNConv):
        return bitgnn.nn.GCNConv(
            *sizes,
            layer.improved,
            layer.cached,
            layer.add_self_loops,
            layer.normalize,
            layer.bias is not None,
            **options,
        )
    if isinstance(layer, torch_geometric.nn.SAGEConv):
        return bitgnn.nn.SAGEConv(
            *sizes,
            normalize=layer.normalize,
            root_weight=layer.root_weight,
            project=layer.project,
            bias=layer.lin_l.bias is not None,
            **options,
        )
    return bitgnn.nn.GraphConv(*sizes, bias=layer.lin_rel.bias is not None, **options)


def _replace(model: nn.Module, name: str, module: nn.Module) -> nn.Module:
    """Put a module in place of another; the model, which may be that module itself."""
    if not name:
        return module
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, module)
    return model


def _replace_activations(model: nn.Module, activation: Activation) -> dict[str, str]:
    """Replace the activations of PyG's models and ReLU modules that feed a sign; their names."""
    if activation == "keep":
        return {}
    names = [
        f"{name}.act" if name else "act"
        for name, module in model.named_modules()
        if isinstance(module, BasicGNN) and module.act is not None
    ]
    names += [name for name in sign_feeding_modules(model) if name not in names]
    for name in names:
        _replace(model, name, nn.Hardtanh() if activation == "hardtanh" else nn.Identity())
    return dict.fromkeys(names, "Hardtanh" if activation == "hardtanh" else "Identity")

"""freeze(): pack a trained binary model for inference."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch_geometric.nn
from torch import nn
from torch_geometric.nn import MessagePassing

from bitgnn.convert.configs import GraphConfig, ImageConfig
from bitgnn.convert.handlers import FreezeOptions, handler, handles, scheme_of
from bitgnn.convert.layerwise import (
    layerwise,
    own_form,
    own_methods,
    packed_copy,
    settled_copy,
    tell,
)
from bitgnn.convert.network.graph_layers import has_binary_layers
from bitgnn.convert.network.graph_rows import SUPPORTED
from bitgnn.convert.network.layers import Planned
from bitgnn.convert.network.lower import lower_images, lower_model
from bitgnn.convert.network.passes import Output, set_output, settle_orders
from bitgnn.convert.network.select import select_steps
from bitgnn.convert.network.trace import trace_model
from bitgnn.convert.network.tracer import NotTraced
from bitgnn.convert.network.values import Network, ordered
from bitgnn.convert.plan import Plan, is_plan_path, tunable_layers
from bitgnn.convert.reporting import ATTRIBUTE, check_trained
from bitgnn.convert.swap.graphs import HasPrecision, planned_form, with_options
from bitgnn.convert.walker import unwrapped
from bitgnn.inference import FeatureForm, FrozenModel
from bitgnn.inference.own_code.calls import is_unsaved
from bitgnn.nn import LayerPrecision
from bitgnn.nn.precision import model_letters

_OF_OTHER_INPUTS = (nn.Conv1d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose3d)
_COULD_BE_BINARY = (MessagePassing, nn.Linear, torch_geometric.nn.Linear, nn.Conv2d)
ONLY_INSIDE = "its binary layers belong to graph layers without a binary form"
MOST_NAMED = 12
"""Layers that an error names."""

Precision = str | LayerPrecision
Letters = Precision | Sequence[Precision] | Mapping[str, Precision]


@torch.inference_mode(False)  # whose tensors nothing could be loaded into
@torch.no_grad()
def freeze(
    model: nn.Module,
    plan: Plan | Letters | os.PathLike[str] | None = None,
    *,
    output: Output | None = None,
    features: FeatureForm | None = None,
    fold: bool = True,
    check: bool = True,
) -> Any:
    """Pack a trained binary model for inference.

    The forward is traced with torch.fx. Weights become words, those of dense features 8-bit
    integers beside features in 8 bits; biases, batch norms, clips and dropout between a product and
    the sign behind it become thresholds; a value whose readers look at signs alone is written as
    bits. The frozen model decides as the trained one in evaluation.
    In a network of images max pools become OR of bits, residual sums stay integers where they are
    such, and the first layer may keep its input in fixed point. Thresholds follow the arithmetic of
    the device that the model is on, whose rounding decides where a value lies on a threshold
    exactly. NaN and infinity become bits like other features, so that results may be numbers where
    the trained model returns NaN; ``pack_features(x, check_finite=True)`` of the result refuses
    them. What cannot be bits stays in floats; ``frozen.report`` says what and why, and a warning
    says it of what neither the letters nor another reader of the same value ask for.

    Args:
        model: any module that has binary layers of ``bitgnn.nn``, or was returned by
            :func:`~bitgnn.binarize` without one: its forward takes features (or
            node ids for an embedding), an edge index where there are graph layers, edge weights,
            and further tensors for float parts, or a ``Data`` object with all of them; or images
            alone, with ``BinaryConv2d`` and ``BinaryLinear``. Where torch.fx cannot follow a
            forward, or a submodule, that keeps its code and each binary layer in it is packed by
            itself, as are those inside of graph layers such as GINConv. Models with BWTA layers are
            not traced: every BWTA layer is packed in its place. Wrappers of torch (compiled,
            data-parallel) are looked into.
        plan: precision of the layers: one for all graph layers (``"full"`` and ``"bin"`` mean the
            model as a whole), one for each in order, or by module name; None keeps those it was
            trained with (others change its results). A :class:`~bitgnn.Plan` also settles the
            order of float maps and the form of the features; it may name floats alone. A path is
            that of a file with one, as is a string that ends in ``.yaml``, ``.yml`` or ``.json``.
            Networks of images take none.
        output: what the model hands out: ``"log_softmax"`` or ``"softmax"`` over the features of
            its scores, in place of either of the two where the forward ends in one; ``"classes"``,
            int64 ``[N]``, the index of the largest score (the first of equal ones, as
            ``torch.argmax``), found without a softmax in front; None for what the forward returns.
        features: ``"packed"`` for a model that takes its features as deployment stores them,
            from :meth:`~bitgnn.inference.FrozenModel.pack_features`, and refuses floats; None is
            what the plan says, else ``"floats"``.
        fold: compose linear maps that follow each other in floats where that is less work; scores
            then differ by the rounding of floats. ``frozen.report.folded`` names them.
        check: refuse layers of graph networks that cannot be those of a trained model: one that
            never looked at what its input is made of, or whose input bits or hidden bits (those
            in front of an aggregation of bits) were all the same for every row of the last
            forwards looked at; warn where more than half of them were. False packs them as they
            are, features that no layer has looked at as 8-bit rows of centre 0 and deviation 1.

    Returns:
        The inference module, on the model's device, with tensors of its own, so that the model may
        go on training: a :class:`~bitgnn.inference.FrozenModel`, whose ``kind`` tells a program of
        a graph from one of images, and from the model's own forward, where that has no trace or
        layers are BWTA ones. It is called as
        ``model`` is, and has the methods of its class: of a traced model these, and calls with
        another value of an argument that kept its default, run the model's own code on layers
        packed one by one, which lie beside the program and are not saved with it.

    Raises:
        TypeError: ``model`` is not a module, or frozen already.
        FileNotFoundError: there is no such plan.
        ValueError: the model has no binary layer and is no result of binarize(), cannot be traced
            where an option needs it, spans devices, the plan does not fit or is for another model
            (the message says which), there is no such output, or not every part of the model looks
            at the same bits of the features, so that packed ones cannot do. With ``check``, a
            layer was never trained or its bits are constant.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"freeze: model must be a torch.nn.Module, got {type(model).__name__}")
    model = unwrapped(model)
    if isinstance(model, FrozenModel):
        raise TypeError(f"freeze: model is frozen already, a {type(model).__name__}")
    _check_devices(model)
    options = FreezeOptions(plan, output, features, fold, check)
    return handler("freeze", scheme_of(model))(model, options)


@handles("freeze", ImageConfig)
def _freeze_images(model: nn.Module, options: FreezeOptions) -> FrozenModel:
    if options.plan is not None:
        raise ValueError(
            "freeze: plan must be None for a network of images, whose layers have one form"
        )

    def lower(copied: nn.Module) -> Network:
        network = lower_images(trace_model(copied))
        _check_input(network)
        if not network.letters and has_binary_layers(copied, {}):
            reason = "its binary layers are inside of modules that no trace goes into"
            raise NotTraced(f"freeze: {reason}", reason)
        return network

    return _frozen(settled_copy(model), {}, options, lower)


@handles("freeze", GraphConfig)
def _freeze_graphs(model: nn.Module, options: FreezeOptions) -> FrozenModel:
    plan = options.plan
    if isinstance(plan, os.PathLike) or is_plan_path(plan):
        plan = Plan.load(plan)
    options = options._replace(plan=plan)
    if isinstance(plan, Plan):
        plan.check_model(model)
        model, plan = planned_form(model, plan.letters)
    elif isinstance(plan, str) and isinstance(model, HasPrecision):
        model, plan = model.with_precision(plan), None
    model = settled_copy(model)
    planned = _planned(model, plan)

    def lower(copied: nn.Module) -> Network:
        network = lower_model(copied, planned, packed_copy)
        if options.check:
            check_trained(copied, network.letters, planned)
        return network

    frozen = _frozen(model, planned, options, lower)
    if not frozen.is_program or options.output is not None or options.features is not None:
        return frozen
    methods, arguments = own_methods(model), frozen.own_call.arguments
    ways = [a for a in arguments if a.role == "fixed" or a.missing == "decided"]
    if methods or ways or frozen.kind == "hetero":  # which may lack edges of a type
        frozen.keep_own_form(own_form(model, planned), methods)
    return frozen


def _frozen(
    model: nn.Module, planned: Planned, options: FreezeOptions, lower: Callable[..., Network]
) -> FrozenModel:
    """The program of a model that ``lower`` gives values of; else its own code, layer by layer."""
    document = options.plan if isinstance(options.plan, Plan) else None
    asks = any(option is not None for option in (document, options.output, options.features))
    is_binary = has_binary_layers(model, planned)
    if not is_binary and document is None and not hasattr(model, ATTRIBUTE):
        raise ValueError(_nothing(model))
    try:
        network = lower(model)
        set_output(network, options.output)
        settle_orders(network, {} if document is None else document.order, options.fold)
        frozen = select_steps(network)
        inside = network.letters.keys() <= network.inside
        if inside and not asks and is_unsaved(frozen.calls):
            # Nothing is left to fuse, and what runs the user's own forward can be saved.
            reason = "no layer of it is binary" if not network.letters else ONLY_INSIDE
            raise NotTraced(f"freeze: {reason}", reason)
    except NotTraced as error:
        if asks:
            raise ValueError(
                f"{error}; plan must then name letters alone, and output and features be None"
            ) from error
        return layerwise(model, planned, error.reason, options.check)
    planned_features = None if document is None else document.features
    frozen.set_features(options.features or planned_features or "floats")
    tell(model, frozen)
    return frozen


def _check_input(network: Network) -> None:
    """Refuse networks of signals or volumes."""
    assert network.scores is not None
    for value in ordered(network.scores):
        layer = None if value.call is None else value.call.function
        if not isinstance(layer, _OF_OTHER_INPUTS):
            continue
        sources = list(value.inputs)
        while sources and sources[0].kind == "function":
            sources = list(sources[0].inputs)
        if network.features in sources:
            raise NotTraced(
                f"freeze: layer {value.layer!r} ({type(layer).__name__}) reads the input, and a "
                "frozen network takes images [N, C, H, W] or rows [N, K]"
            )
    assert network.own_call is not None
    others = [a.name for a in network.own_call.arguments if a.role not in ("features", "fixed")]
    if others:
        raise NotTraced(f"freeze: it takes {', '.join(others)} beside its images or rows")


def _nothing(model: nn.Module) -> str:
    """Error message for a model without binary layers: lists its layers."""
    found: dict[str, str] = {}
    for name, layer in model.named_modules():
        inside = any(name.startswith(f"{other}.") for other in found)
        if isinstance(layer, _COULD_BE_BINARY) and not inside:
            found[name] = f"{name or 'the model itself'}: {type(layer).__name__}"
    more = ["..."] if len(found) > MOST_NAMED else []
    seen = ", ".join([*list(found.values())[:MOST_NAMED], *more])
    return (
        f"freeze: {type(model).__name__} has no binary layer; binarize() it and train it first, "
        f"its layers are {seen or 'none that could be binary'}"
    )


def _check_devices(model: nn.Module) -> None:
    found: dict[torch.device, str] = {}
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        found.setdefault(tensor.device, name)
    if len(found) > 1:
        places = ", ".join(f"{name} on {device}" for device, name in found.items())
        raise ValueError(f"freeze: the model must be on one device, got {places}")


def _planned(model: nn.Module, plan: Letters | None) -> Planned:
    """Precisions that replace the layers' own, by ``id``; options of the layers stay."""
    if plan is None:
        return {}
    known = tunable_layers(model)
    layers = [name for name, layer in known.items() if isinstance(layer, SUPPORTED)]
    letters: Mapping[str, Precision]
    if isinstance(plan, Mapping):
        unknown = sorted(plan.keys() - known.keys())
        if unknown:
            raise ValueError(
                f"freeze: plan names {unknown}, the model has the layers {sorted(known)}"
            )
        letters = plan
    elif isinstance(plan, str | LayerPrecision):
        letters = dict(zip(layers, model_letters(plan, len(layers)), strict=True))
    else:
        if len(plan) != len(layers):
            raise ValueError(f"freeze: {len(plan)} precisions for {len(layers)} layers")
        letters = dict(zip(layers, plan, strict=True))
    return {id(known[name]): with_options(known[name], p) for name, p in letters.items()}

"""freeze(): pack a trained binary model for inference."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch_geometric.nn
from torch import nn
from torch_geometric.nn import MessagePassing

import bitgnn.nn
from bitgnn._interpreter import warn
from bitgnn.convert.bwta import freeze_bwta, has_bwta
from bitgnn.convert.network.graph_layers import SUPPORTED, row_of
from bitgnn.convert.network.layers import Planned, letters_of
from bitgnn.convert.network.lower import is_image_network, lower_images, lower_trace
from bitgnn.convert.network.passes import BEHIND_SIGNS, Output, set_output, settle_orders
from bitgnn.convert.network.registers import ALSO_FLOATS, BY_LETTERS, FIRST_LAYER
from bitgnn.convert.network.select import select_steps
from bitgnn.convert.network.trace import evaluating, trace_model
from bitgnn.convert.network.tracer import NotTraced
from bitgnn.convert.network.values import Network, ordered
from bitgnn.convert.plan import Plan, is_plan_path, tunable_layers
from bitgnn.convert.reporting import check_trained
from bitgnn.convert.swap.graphs import HasPrecision, planned_form, with_options
from bitgnn.convert.walker import unwrapped
from bitgnn.inference import FeatureForm, FreezeReport, Frozen, FrozenModel
from bitgnn.inference.frozen_layers import FrozenLayer, FrozenLayers, copy_with
from bitgnn.nn import LayerPrecision
from bitgnn.nn.precision import model_letters

_log = logging.getLogger(__name__)

_OF_OTHER_INPUTS = (nn.Conv1d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose3d)
_COULD_BE_BINARY = (MessagePassing, nn.Linear, torch_geometric.nn.Linear, nn.Conv2d)
MOST_NAMED = 12
"""Layers that an error names."""

Precision = str | LayerPrecision
Letters = Precision | Sequence[Precision] | Mapping[str, Precision]


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
        model: any module that has binary layers of ``bitgnn.nn``: its forward takes features (or
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
            order of float maps, the form of the features, and what ``prepare_graph`` and
            ``executor`` take where a call leaves it open; it may name floats alone. A path is
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
        The inference module, on the model's device; a
        :class:`~bitgnn.inference.FrozenImages` for a network of images, a
        :class:`~bitgnn.inference.FrozenBWTA` for a model with BWTA layers, a
        :class:`~bitgnn.inference.FrozenLayers` for a forward that has no trace. Each is called as
        ``model`` is.

    Raises:
        TypeError: ``model`` is not a module, or frozen already.
        FileNotFoundError: there is no such plan.
        ValueError: the model has no binary layer, cannot be traced where an option needs it, spans
            devices, the plan does not fit or is for another model (the message says which), there
            is no such output, or not every part of the model looks at the same bits of the
            features, so that packed ones cannot do. With ``check``, a layer was never trained or
            its bits are constant.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"freeze: model must be a torch.nn.Module, got {type(model).__name__}")
    model = unwrapped(model)
    if isinstance(model, Frozen):
        raise TypeError(f"freeze: model is frozen already, a {type(model).__name__}")
    _check_devices(model)
    if has_bwta(model):
        if any(option is not None for option in (plan, output, features)):
            raise ValueError(
                "freeze: plan, output and features must be None for a model of BWTA layers, got "
                f"{plan!r}, {output!r} and {features!r}"
            )
        transformer = freeze_bwta(model)
        _log.info("freeze:\n%s", transformer.report)
        return transformer
    document = None
    if is_image_network(model):
        if plan is not None:
            raise ValueError(
                "freeze: plan must be None for a network of images, whose layers have one form"
            )
        network = lower_images(trace_model(model))
        if not network.letters:
            raise ValueError(_nothing(model))
        _check_input(network)
    else:
        if isinstance(plan, os.PathLike) or is_plan_path(plan):
            plan = Plan.load(plan)
        if isinstance(plan, Plan):
            document = plan
            plan.check_model(model)
            model, plan = planned_form(model, plan.letters)
        elif isinstance(plan, str) and isinstance(model, HasPrecision):
            model, plan = model.with_precision(plan), None
        planned = _planned(model, plan)
        asks = any(option is not None for option in (document, output, features))
        try:
            network = lower_trace(trace_model(model), planned)
            if network.inside and not asks and network.letters.keys() <= network.inside:
                # Nothing is left to fuse, and what runs the user's own forward can be saved.
                reason = "its binary layers belong to graph layers without a binary form"
                raise NotTraced(f"freeze: {reason}", reason)
        except NotTraced as error:
            # What no trace can follow is, more often than not, a model that was never binarised.
            if not has_binary_layers(model, planned):
                raise ValueError(f"{_nothing(model)} ({error})") from error
            if asks:
                raise ValueError(
                    f"{error}; plan must then name letters alone, and output and features be None"
                ) from error
            return _layerwise(model, planned, error.reason, check)
        if not network.letters and document is None and not has_binary_layers(model, planned):
            raise ValueError(_nothing(model))
        if check:
            check_trained(model, network.letters, planned)
    set_output(network, output)
    settle_orders(network, {} if document is None else document.order, fold)
    frozen = select_steps(network)
    if document is not None:
        features = features or document.features
    frozen.set_features(features or "floats")
    _report(model, frozen.report)
    return frozen


def _layerwise(model: nn.Module, plan: Planned, reason: str, check: bool) -> FrozenLayers:
    """Pack each binary layer by itself, because the forward has no trace."""
    copied, letters, floats = packed_copy(model, plan)
    own_code = {f"forward of {type(model).__name__}": f"it runs as its own code, {reason}"}
    report = FreezeReport(letters=letters, floats={**own_code, **floats})
    layers = FrozenLayers(copied, report)
    if check:
        check_trained(model, letters, plan)
    _report(model, report)
    return layers


def packed_copy(
    model: nn.Module, plan: Planned, prefix: str = ""
) -> tuple[nn.Module, dict[str, str], dict[str, str]]:
    """A copy of a module in evaluation with each binary layer packed by itself.

    The encoder of PyG's auto-encoders is packed as a whole where it can be traced.

    Returns:
        The copy; operator letters of the packed layers; why others stay as they were. Names begin
        with ``prefix``, that of the module.
    """
    replaced: dict[str, nn.Module] = {}
    letters: dict[str, str] = {}
    floats: dict[str, str] = {}
    for name, module in model.named_modules():
        if any(name == other or name.startswith(f"{other}.") for other in replaced):
            continue
        encoder = getattr(module, "encoder", None)
        is_coder = isinstance(module, torch_geometric.nn.GAE)
        if is_coder and isinstance(encoder, nn.Module) and has_binary_layers(encoder, plan):
            place = f"{name}.encoder" if name else "encoder"
            frozen = _frozen(encoder, plan)
            if frozen is not None:
                replaced[place] = FrozenLayer(frozen, encoder)
                for layer, its_letters in frozen.report.letters.items():
                    letters[_joined(prefix, place, layer)] = its_letters
        elif _is_binary(module, plan):
            full = _joined(prefix, name)
            if isinstance(module, SUPPORTED) and _has_two_widths(module):
                floats[full] = "its sources and destinations have different widths"
                continue
            frozen = _frozen(module, plan)
            if frozen is None or frozen.calls is not None:
                floats[full] = "it runs as its own code, in floats"
                continue
            replaced[name] = FrozenLayer(frozen, module)
            letters[full] = " ".join(frozen.letters)
    with evaluating(model):
        copied = copy_with(model, replaced).requires_grad_(False).eval()
    return copied, letters, floats


def has_binary_layers(model: nn.Module, plan: Planned) -> bool:
    """True if a layer of a model computes with bits."""
    return any(_is_binary(module, plan) for module in model.modules())


def _is_binary(module: nn.Module, plan: Planned) -> bool:
    if isinstance(module, bitgnn.nn.BinaryLinear):
        return True
    kinds = (*SUPPORTED, bitgnn.nn.Linear)
    return isinstance(module, kinds) and not letters_of(module, plan).is_float


def _has_two_widths(layer: nn.Module) -> bool:
    """True if a layer of a bipartite graph reads two matrices that cannot be the same."""
    neighbours, root = row_of(layer).maps(layer)
    return root is not None and neighbours.in_channels != root.in_channels


def _frozen(module: nn.Module, plan: Planned) -> FrozenModel | None:
    """The frozen form of one module alone, None where it has none."""
    try:
        network = lower_trace(trace_model(module), plan)
    except NotTraced:
        return None
    return select_steps(network) if network.letters else None


def _joined(*names: str) -> str:
    return ".".join(name for name in names if name)


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
            raise ValueError(
                f"freeze: layer {value.layer!r} ({type(layer).__name__}) reads the input, and a "
                "frozen network takes images [N, C, H, W] or rows [N, K]"
            )


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


def _report(model: nn.Module, report: FreezeReport) -> None:
    """Log what was done and warn of what stays in floats unasked."""
    _log.info("freeze:\n%s", report)
    unasked = {
        name: why
        for name, why in report.floats.items()
        if not why.startswith((BY_LETTERS, ALSO_FLOATS, FIRST_LAYER, BEHIND_SIGNS))
    }
    if unasked:
        places = "; ".join(f"{name}: {why}" for name, why in unasked.items())
        warn(f"freeze: parts of {type(model).__name__} stay in full precision: {places}")


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

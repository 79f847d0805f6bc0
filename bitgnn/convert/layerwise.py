"""Packs binary layers one by one, in a forward or a module that keeps its own code."""

from __future__ import annotations

import copy
import inspect
import logging
from dataclasses import replace
from typing import Any

import torch
import torch_geometric.nn
from torch import nn
from torch.nn.parameter import is_lazy

import bitgnn.nn
from bitgnn._interpreter import warn
from bitgnn.convert.network.graph_layers import has_binary_layers, is_binary
from bitgnn.convert.network.graph_rows import SUPPORTED, row_of
from bitgnn.convert.network.layers import Planned
from bitgnn.convert.network.lower import lower_trace
from bitgnn.convert.network.passes import BEHIND_SIGNS
from bitgnn.convert.network.registers import ALSO_FLOATS, BY_LETTERS, FIRST_LAYER
from bitgnn.convert.network.select import select_steps
from bitgnn.convert.network.trace import evaluating, trace_model
from bitgnn.convert.network.tracer import NotTraced, stays_whole
from bitgnn.convert.reporting import check_trained
from bitgnn.inference import FreezeReport, Frozen, FrozenModel
from bitgnn.inference.frozen_layers import FrozenLayer
from bitgnn.inference.own_code.calls import is_unsaved
from bitgnn.inference.own_code.structure import copy_with
from bitgnn.nn import RGCNConv
from bitgnn.nn.sum_linear import SumLinear

_log = logging.getLogger("bitgnn.convert.freezing")


def layerwise(model: nn.Module, plan: Planned, reason: str, check: bool) -> FrozenModel:
    """Pack each binary layer by itself, since the forward has no trace for that reason."""
    layers = own_form(model, plan, reason)
    if check:
        check_trained(model, layers.report.letters, plan)
    tell(model, layers)
    return layers


def own_form(model: nn.Module, plan: Planned, reason: str = "") -> FrozenModel:
    """The model's own code with each binary layer packed by itself."""
    copied, letters, floats = packed_copy(model, plan)
    own_code = {f"forward of {type(model).__name__}": f"it runs as its own code, {reason}"}
    report = FreezeReport(letters=letters, floats={**own_code, **floats})
    return FrozenModel.of_code("layers", copied, report)


def settled_copy(model: nn.Module) -> nn.Module:
    """A copy that has no parameters to train, apart from a model that may go on training.

    ``torch.matmul`` sums in another order where it multiplies by a parameter to train, so that a
    frozen model with such ones would differ from itself read from a file.
    """
    copied = copy_with(model, {})
    for parameter in copied.parameters():
        if not is_lazy(parameter):  # which is refused by the name of its layer
            parameter.requires_grad_(False)
    return copied


def own_methods(model: nn.Module) -> set[str]:
    """Public methods of a user's or of PyG's model beside its forward."""
    if stays_whole(model) or type(model).__module__.startswith("bitgnn."):
        return set()
    kinds = [kind for kind in type(model).__mro__ if kind not in nn.Module.__mro__]
    found = {n for kind in kinds for n, value in vars(kind).items() if inspect.isfunction(value)}
    ready = {*dir(nn.Module), "reset_parameters", "jittable"}
    return {name for name in found - ready if not name.startswith("_")}


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
            if frozen is not None and not is_unsaved(frozen.calls):
                replaced[place] = FrozenLayer(frozen, encoder)
                for layer, its_letters in frozen.report.letters.items():
                    letters[_joined(prefix, place, layer)] = its_letters
        elif isinstance(module, bitgnn.nn.Linear) and module.stays_float:
            replaced[name] = plain_linear(module)
        elif is_binary(module, plan) and not isinstance(module, SumLinear):
            full = _joined(prefix, name)
            if isinstance(module, (*SUPPORTED, RGCNConv)) and _has_two_widths(module):
                floats[full] = "its sources and destinations have different widths"
                continue
            if isinstance(module, RGCNConv) and not module.looks_at_features:
                floats[full] = "it was trained on numbers of rows, which it looks up"
                continue
            frozen = _frozen(module, plan)
            if frozen is None or frozen.calls is not None:
                floats[full] = "it runs as its own code, in floats"
                continue
            replaced[name] = FrozenLayer(frozen, module, _of_sources_alone(module, plan))
            letters[full] = " ".join(frozen.letters)
    with evaluating(model):
        copied = copy_with(model, replaced).requires_grad_(False)
        copied.eval()  # the user's own may return nothing
    return copied, letters, floats


@torch.no_grad()
def plain_linear(layer: bitgnn.nn.Linear) -> nn.Module:
    """A layer of torch with copies of the weights of one that its place left in floats."""
    sizes, weight = (layer.in_channels, layer.out_channels), layer.weight
    plain = nn.Linear(*sizes, layer.bias is not None, weight.device, weight.dtype)
    plain.weight.copy_(weight)
    if layer.bias is not None:
        plain.bias.copy_(layer.bias)
    return plain.train(layer.training)


def _has_two_widths(layer: Any) -> bool:
    """True if a layer of a bipartite graph reads two matrices that cannot be one."""
    if isinstance(layer, RGCNConv):
        return layer.root is not None and layer.root.size(0) != layer.in_channels_l
    neighbours, root = row_of(layer).maps(layer)
    return root is not None and neighbours.in_channels != root.in_channels


def _of_sources_alone(layer: Any, plan: Planned) -> FrozenModel | None:
    """The frozen form of a layer without the map of the nodes themselves, where it has one."""
    is_sum = isinstance(layer, bitgnn.nn.GINConv)
    if not is_sum and (not isinstance(layer, SUPPORTED) or row_of(layer).maps(layer)[1] is None):
        return None
    alone: Any = copy.copy(layer)
    alone.root_weight = False
    return _frozen(alone, {**plan, id(alone): plan[id(layer)]} if id(layer) in plan else plan)


def _frozen(module: nn.Module, plan: Planned) -> FrozenModel | None:
    """The frozen form of one module alone, None where it has none."""
    try:
        network = lower_trace(trace_model(module), plan, packed_copy)
    except NotTraced:
        return None
    return select_steps(network) if network.letters else None


def _joined(*names: str) -> str:
    return ".".join(name for name in names if name)


def tell(model: nn.Module, frozen: Frozen) -> None:
    """Complete the report, log what was done and warn of what stays in floats unasked."""
    whole = frozen.nbytes or 1
    shares = {name: size / whole for name, size in frozen.float_bytes().items()}
    report = frozen.report = replace(frozen.report, shares=shares)
    _log.info("freeze:\n%s", report)
    unasked = {
        name: why
        for name, why in report.floats.items()
        if not why.startswith((BY_LETTERS, ALSO_FLOATS, FIRST_LAYER, BEHIND_SIGNS))
    }
    if unasked:
        places = "; ".join(f"{name}: {why}" for name, why in unasked.items())
        warn(f"freeze: parts of {type(model).__name__} stay in full precision: {places}")

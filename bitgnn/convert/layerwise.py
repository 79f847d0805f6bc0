"""freeze() where no trace goes: binary layers packed one by one in a copy of the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch_geometric.nn
from torch import nn

import bitgnn.nn
from bitgnn.convert.network.graph_layers import SUPPORTED, row_of
from bitgnn.convert.network.layers import letters_of
from bitgnn.convert.network.lower import lower_trace
from bitgnn.convert.selection.select import select_steps
from bitgnn.convert.tracing.trace import evaluating, trace_model
from bitgnn.convert.tracing.tracer import NotTraced
from bitgnn.inference import FreezeReport, FrozenModel
from bitgnn.inference.frozen_layers import FrozenLayer, FrozenLayers, copy_with
from bitgnn.nn import LayerPrecision

Planned = Mapping[int, LayerPrecision]


@dataclass
class PackedCopy:
    """A copy of a module with packed layers.

    Attributes:
        module: the copy, in evaluation.
        letters: operator letters of the packed layers by name.
        floats: why binary layers stayed as they are, by name.
    """

    module: nn.Module
    letters: dict[str, str] = field(default_factory=dict)
    floats: dict[str, str] = field(default_factory=dict)


def freeze_layers(model: nn.Module, plan: Planned, reason: str) -> FrozenLayers:
    """Pack each binary layer of a model by itself.

    Args:
        model: trained; unchanged.
        plan: precisions in place of the layers' own, by ``id``.
        reason: why the forward has no trace.

    Returns:
        The frozen model; its report has no letters where there is no binary layer.
    """
    held = packed_copy(model, plan)
    floats = {f"forward of {type(model).__name__}": f"it runs as its own code, {reason}"}
    report = FreezeReport(letters=held.letters, floats={**floats, **held.floats})
    return FrozenLayers(held.module, report)


def packed_copy(model: nn.Module, plan: Planned, prefix: str = "") -> PackedCopy:
    """A copy of a module in evaluation with its binary layers packed.

    The encoder of PyG's auto-encoders is packed as a whole where it can be traced.

    Args:
        model: unchanged.
        plan: precisions in place of the layers' own, by ``id``.
        prefix: name of the module in front of the names of its layers.
    """
    replaced: dict[str, nn.Module] = {}
    held = PackedCopy(model)
    for name, module in model.named_modules():
        if any(name.startswith(f"{other}.") for other in replaced):
            continue
        encoder = getattr(module, "encoder", None)
        is_coder = isinstance(module, torch_geometric.nn.GAE)
        if is_coder and isinstance(encoder, nn.Module) and has_binary_layers(encoder, plan):
            place = f"{name}.encoder" if name else "encoder"
            frozen = _frozen(encoder, plan)
            if frozen is not None:
                replaced[place] = FrozenLayer(frozen, encoder)
                for layer, letters in frozen.report.letters.items():
                    held.letters[_joined(prefix, place, layer)] = letters
        elif name not in replaced and _is_binary(module, plan):
            full = _joined(prefix, name)
            if isinstance(module, SUPPORTED) and _has_two_widths(module):
                held.floats[full] = "its sources and destinations have different widths"
                continue
            frozen = _frozen(module, plan)
            if frozen is None or frozen.calls is not None:
                held.floats[full] = "it runs as its own code, in floats"
                continue
            replaced[name] = FrozenLayer(frozen, module)
            held.letters[full] = " ".join(frozen.letters)
    with evaluating(model):
        held.module = copy_with(model, replaced).requires_grad_(False).eval()
    return held


def has_binary_layers(model: nn.Module, plan: Planned) -> bool:
    """Whether a layer of a model computes with bits."""
    return any(_is_binary(module, plan) for module in model.modules())


def _is_binary(module: nn.Module, plan: Planned) -> bool:
    if isinstance(module, bitgnn.nn.BinaryLinear):
        return True
    kinds = (*SUPPORTED, bitgnn.nn.Linear)
    return isinstance(module, kinds) and not letters_of(module, plan).is_float


def _has_two_widths(layer: nn.Module) -> bool:
    """Whether a layer of a bipartite graph reads two matrices that cannot be one."""
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

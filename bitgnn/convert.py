"""binarize(): swap a model's layers for binary ones; freeze(): pack a trained binary model."""

from __future__ import annotations

import copy
import inspect
import logging
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch_geometric.nn
from torch import nn
from torch_geometric.nn import MessagePassing

from bitgnn.inference import FrozenGCN, freeze_gcn
from bitgnn.nn import GCNConv, LayerPrecision

__all__ = ["BinarizeConfig", "BinarizeReport", "binarize", "freeze", "report_of"]

_log = logging.getLogger(__name__)
_REPORT = "bitgnn_report"
_RELU_CALL = re.compile(r"\brelu6?_?\(|\bReLU6?\(")


@dataclass(frozen=True)
class BinarizeConfig:
    """What :func:`binarize` does.

    Attributes:
        precision: ``"full"`` or ``"bin"`` for the model as a whole, or letters for every layer.
        layers: letters or names for single layers by module name; they win over ``precision``.
        skip: module names to leave alone.
        dropout: dropout of the swapped layers, after the sign.
    """

    precision: str = "bin"
    layers: dict[str, str] = field(default_factory=dict)
    skip: tuple[str, ...] = ()
    dropout: float = 0.0


@dataclass(frozen=True)
class BinarizeReport:
    """What :func:`binarize` did.

    Attributes:
        swapped: precision of each swapped layer by module name.
        left: reason for each layer with weights that was left alone.
        warnings: constructions that cannot work well.
    """

    swapped: dict[str, str]
    left: dict[str, str]
    warnings: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"{name}: now binary, {letters}" for name, letters in self.swapped.items()]
        lines += [f"{name}: left alone, {reason}" for name, reason in self.left.items()]
        return "\n".join([*lines, *(f"warning: {text}" for text in self.warnings)])


@runtime_checkable
class _HasPrecision(Protocol):
    """A whole model that knows its own binary forms, as those of ``bitgnn.models`` do."""

    precision: str

    def with_precision(self, precision: str) -> nn.Module:
        """A copy with the same weights in another precision."""


def binarize(model: nn.Module, config: BinarizeConfig | str | None = None) -> nn.Module:
    """A copy of ``model`` whose supported layers are binary, with the weights kept.

    PyG's and this package's ``GCNConv`` are swapped. In a model of ``bitgnn.models`` the whole
    model changes form (its ReLU goes too). Elsewhere the last layer returns floats computed from
    float sums; the code of the model is not touched, so an activation function between layers
    stays, and a ReLU in front of a sign is warned of: it makes every sign +1.

    Args:
        model: any module tree; unchanged.
        config: what to do, or just a precision; None is ``BinarizeConfig()``.

    Returns:
        The copy; :func:`report_of` tells what was done.

    Raises:
        ValueError: unknown precision, a name in ``config`` that is no layer, or nothing to swap.
        TypeError: ``model`` is not a module.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"binarize: model must be a torch.nn.Module, got {type(model).__name__}")
    if config is None:
        config = BinarizeConfig()
    elif isinstance(config, str):
        config = BinarizeConfig(precision=config)
    if isinstance(model, _HasPrecision) and not config.layers and not config.skip:
        result = model.with_precision(config.precision)
        swapped = {
            name: layer.precision
            for name, layer in result.named_modules()
            if isinstance(layer, GCNConv)
        }
        report = BinarizeReport(swapped, {}, ())
    else:
        result = copy.deepcopy(model)
        report = _swap_layers(result, config)
    for text in report.warnings:
        warnings.warn(f"binarize: {text}", UserWarning, stacklevel=2)
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


def _swap_layers(model: nn.Module, config: BinarizeConfig) -> BinarizeReport:
    """Swap in place and tell."""
    found = {
        name: layer
        for name, layer in model.named_modules()
        if isinstance(layer, torch_geometric.nn.GCNConv)
    }
    unknown = sorted(({*config.layers, *config.skip}) - found.keys())
    if unknown:
        raise ValueError(f"binarize: no GCNConv named {unknown}, the model has {sorted(found)}")
    names = [name for name in found if name not in config.skip]
    if not names:
        raise ValueError("binarize: the model has no GCNConv to swap")
    swapped = {}
    for name in names:
        default = _default_letters(config.precision, is_last=name == names[-1], count=len(names))
        letters = config.layers.get(name, default)
        _replace(model, name, _binary_layer(found[name], letters, config.dropout))
        swapped[name] = str(LayerPrecision.parse(letters))
    left = dict.fromkeys(config.skip, "named in skip")
    inside = tuple(f"{name}." for name in found)
    for name, layer in model.named_modules():
        if name in found or name.startswith(inside):
            continue
        if isinstance(layer, MessagePassing | nn.Linear | torch_geometric.nn.Linear):
            left[name] = f"{type(layer).__name__} has no binary form here"
    return BinarizeReport(swapped, left, _relu_warnings(model, names))


def _default_letters(precision: str, *, is_last: bool, count: int) -> str:
    """Letters of one layer; class scores need floats out of the last one."""
    if precision == "bin" and is_last:
        return "BBF+FBF" if count > 1 else "FBF+FBF"
    return precision


def _binary_layer(layer: torch_geometric.nn.GCNConv, precision: str, dropout: float) -> GCNConv:
    new = GCNConv(
        layer.in_channels,
        layer.out_channels,
        layer.improved,
        layer.cached,
        layer.add_self_loops,
        layer.normalize,
        layer.bias is not None,
        precision=precision,
        dropout=dropout,
        aggr="add",
        flow=layer.flow,
        node_dim=layer.node_dim,
    )
    new.load_state_dict(layer.state_dict())
    new.to(next(layer.parameters()).device)
    return new.train(layer.training)


def _replace(model: nn.Module, name: str, layer: nn.Module) -> None:
    parent, _, child = name.rpartition(".")
    if not name:
        raise ValueError(
            "binarize: the model is itself a GCNConv; construct bitgnn.nn.GCNConv(precision=...)"
        )
    setattr(model.get_submodule(parent), child, layer)


def _relu_warnings(model: nn.Module, names: Sequence[str]) -> tuple[str, ...]:
    """Layers behind another one whose input seems to come out of a ReLU."""
    if len(names) < 2:
        return ()
    modules = [name or "the model" for name, m in model.named_modules() if _is_relu(m)]
    owners = {name.split(".")[0] if "." not in name else name.rsplit(".", 2)[0] for name in names}
    code = [type(model), *(type(model.get_submodule(o)) for o in owners if o not in names)]
    in_code = any(_RELU_CALL.search(_forward_source(kind)) for kind in code)
    if not modules and not in_code:
        return ()
    where = f"ReLU ({', '.join(modules)})" if modules else "a ReLU in the model's forward"
    return (
        f"{where} probably feeds the sign of {', '.join(names[1:])}: no value is negative there, "
        "so every bit would be +1; remove it or use bitgnn.models.GCN",
    )


def _is_relu(module: nn.Module) -> bool:
    return isinstance(module, nn.ReLU | nn.ReLU6)


def _forward_source(kind: type[nn.Module]) -> str:
    # PyG's and torch's own classes mention activations they need not use.
    if kind.__module__.startswith(("torch.", "torch_geometric.")):
        return ""
    try:
        return inspect.getsource(kind.forward)
    except (OSError, TypeError):
        return ""


def freeze(model: nn.Module, plan: str | Sequence[str] | None = None) -> FrozenGCN:
    """Pack a trained binary model for inference.

    Weights become words, the input batch norm becomes per-feature thresholds, a bias in front of
    a sign becomes a threshold. The frozen model decides as the trained one in evaluation.

    Args:
        model: a ``bitgnn.models.GCN`` with precision ``"full"`` or ``"bin"``.
        plan: letters of each layer, or ``"full"`` or ``"bin"``; None keeps those it was trained
            with (others change its results).

    Returns:
        The inference module.

    Raises:
        TypeError: ``model`` is of a kind that cannot be frozen.
        ValueError: the model is not binary or the plan does not fit.
    """
    convs: Any = getattr(model, "convs", None)
    norm: Any = getattr(model, "norm", None)
    if not isinstance(model, _HasPrecision) or not isinstance(convs, nn.ModuleList):
        raise TypeError(f"freeze: model must be a bitgnn.models.GCN, got {type(model).__name__}")
    layers = [conv for conv in convs if isinstance(conv, GCNConv)]
    if plan is None:
        if model.precision == "fp32":
            raise ValueError(
                "freeze: the model has precision 'fp32'; binarize() it and train it first"
            )
        letters = [f"{conv.letters.bmm}+{conv.letters.bspmm}" for conv in layers]
    elif isinstance(plan, str):
        form = model.with_precision(plan)
        letters = [
            f"{conv.letters.bmm}+{conv.letters.bspmm}"
            for conv in form.modules()
            if isinstance(conv, GCNConv)
        ]
    else:
        letters = list(plan)
    return freeze_gcn(layers, norm, letters)

"""Handlers of binarize(), freeze() and summary(), each registered for a configuration's type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeVar

from torch import nn

from bitgnn.convert.configs import BWTAConfig, Config, GraphConfig, ImageConfig
from bitgnn.convert.network.lower import is_image_network
from bitgnn.inference import FrozenModel
from bitgnn.nn import BWTAAttention, BWTALinear, BWTAMultiheadAttention

Verb = Literal["binarize", "freeze", "summary"]
Function = TypeVar("Function", bound=Callable[..., Any])

TRAINED = (BWTALinear, BWTAAttention, BWTAMultiheadAttention)
"""BWTA layers, at any level."""
_HANDLERS: dict[tuple[Verb, type[Config]], Callable[..., Any]] = {}
_OF_KINDS = {"images": ImageConfig, "bwta": BWTAConfig}
"""Schemes of frozen models; those of graphs in other cases."""


class FreezeOptions(NamedTuple):
    """Arguments of :func:`~bitgnn.freeze` beside the model."""

    plan: Any
    output: Any
    features: Any
    fold: bool
    check: bool


def handles(verb: Verb, config: type[Config]) -> Callable[[Function], Function]:
    """Register a function as the one that does ``verb`` in the scheme of a configuration.

    ``"binarize"`` takes a model and a configuration, ``"freeze"`` a model and
    :class:`FreezeOptions`, ``"summary"`` a model, data and repeats.
    """

    def register(function: Function) -> Function:
        _HANDLERS[verb, config] = function
        return function

    return register


def handler(verb: Verb, config: type[Config]) -> Callable[..., Any]:
    """The function registered for this configuration."""
    return _HANDLERS[verb, config]


def scheme_of(model: nn.Module) -> type[Config]:
    """Configuration whose scheme the layers of a trained or frozen model belong to."""
    if isinstance(model, FrozenModel):
        return _OF_KINDS.get(model.kind, GraphConfig)
    if any(isinstance(module, TRAINED) for module in model.modules()):
        return BWTAConfig
    return ImageConfig if is_image_network(model) else GraphConfig

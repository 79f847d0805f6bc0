"""Which precision binarize() gives each layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from torch import nn

from bitgnn.convert.binarizing import BinarizeConfig
from bitgnn.convert.letters import model_letters
from bitgnn.nn import LayerPrecision

__all__ = ["WHOLE", "Assigned", "assigned_precisions", "with_first_names"]

WHOLE = ("bin", "full")
"""Precisions by name, whose form follows the layer's role."""


def with_first_names(model: nn.Module, config: BinarizeConfig) -> BinarizeConfig:
    """The configuration with the first of the names of every module that has several."""
    first: dict[int, str] = {}
    names = {
        name: first.setdefault(id(module), name)
        for name, module in model.named_modules(remove_duplicate=False)
    }
    skip = tuple(names.get(name, name) for name in config.skip)
    layers = {names.get(name, name): letters for name, letters in config.layers.items()}
    return replace(config, skip=skip, layers=layers)


class Assigned(NamedTuple):
    """Precision of each layer to swap, by module name, and why it has that one."""

    precisions: dict[str, str | LayerPrecision]
    reasons: dict[str, str]


def assigned_precisions(
    config: BinarizeConfig, graph_layers: list[str], linear: list[str], normed: set[str]
) -> Assigned:
    """Precision of each layer to swap.

    "bin" and "full" are given by name: the layers find their role and their input's bits. With
    ``options`` they stand for letters, and layers in front of a norm hand on floats in "bin".

    Args:
        config: what was asked for.
        graph_layers: names of those that can be swapped, in order.
        linear: the same of linear layers.
        normed: names of layers whose output a norm reads.

    Raises:
        TypeError: a precision in ``config.layers`` is neither a string nor a LayerPrecision.
        ValueError: it is none that its layer can have.
    """
    names = [name for name in graph_layers if name not in config.skip]
    found: dict[str, str | LayerPrecision] = {}
    reasons: dict[str, str] = {}
    by_name = config.precision in WHOLE and not config.options
    defaults = dict(zip(names, model_letters(config.precision, len(names)), strict=True))
    for name in names:
        if name in config.layers:
            given = config.layers[name]
            known = isinstance(given, str) and given in WHOLE
            found[name] = given if known else _parsed(name, given, LayerPrecision.parse)
            reasons[name] = "named in layers"
        elif by_name:
            found[name], reasons[name] = config.precision, "precision of the model"
        else:
            precision = replace(LayerPrecision.parse(defaults[name]), **config.options)
            reasons[name] = f"{config.precision!r} of the model"
            if config.precision == "bin" and name in normed:
                precision = replace(precision, bspmm=precision.bspmm[:2] + "F")
                reasons[name] += ", floats in front of a norm"
            found[name] = precision
    for name in linear:
        if name in config.layers:
            found[name] = _parsed(name, config.layers[name], LayerPrecision.parse_linear)
            reasons[name] = "named in layers"
        elif config.linear and name not in config.skip:
            # Floats out: a sign behind them becomes a threshold when the model is frozen.
            letters = LayerPrecision.parse(config.precision)
            activation = "B" if config.precision == "bin" else letters.bmm[0]
            found[name] = LayerPrecision.parse_linear(f"{activation}{letters.bmm[1]}F")
            reasons[name] = "linear=True"
    return Assigned(found, reasons)


def _parsed(name: str, given: Any, parse: Callable[[Any], LayerPrecision]) -> LayerPrecision:
    """A precision of ``config.layers``; an error names the layer."""
    try:
        return parse(given)
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"binarize: layers[{name!r}]: {error}") from error

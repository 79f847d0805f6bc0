"""Which precision binarize() gives each layer."""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from bitgnn.convert.binarizing import BinarizeConfig
from bitgnn.convert.letters import model_letters
from bitgnn.nn import LayerPrecision

__all__ = ["WHOLE", "assigned_precisions", "with_first_names"]

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


def assigned_precisions(
    config: BinarizeConfig, graph_layers: list[str], linear: list[str], normed: set[str]
) -> dict[str, str | LayerPrecision]:
    """Precision of each layer to swap.

    "bin" and "full" are given by name: the layers find their role and their input's bits. With
    ``options`` they stand for letters, and layers in front of a norm hand on floats in "bin".
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

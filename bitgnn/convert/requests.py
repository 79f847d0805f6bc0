"""What a call of binarize() asks for: its model and its configuration, checked and spelled out."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from torch import nn
from torch_geometric.nn import MessagePassing

from bitgnn.convert.binarizing import BinarizeConfig
from bitgnn.convert.bwta import BWTAConfig
from bitgnn.inference import FrozenBWTA, FrozenLayers, FrozenModel
from bitgnn.nn import BinaryLinear

__all__ = ["asked_for", "nothing_to_swap", "plain_model"]

CONVOLUTIONS = (
    nn.Conv1d, nn.Conv2d, nn.Conv3d,
    nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d,
)  # fmt: skip


PARALLEL = (nn.DataParallel, nn.parallel.DistributedDataParallel)


def plain_model(model: Any) -> nn.Module:
    """The module tree of a model, without the wrapper of ``torch.compile`` or of data parallelism.

    Raises:
        TypeError: ``model`` is no module, frozen, compiled in parts or scripted.
    """
    if not isinstance(model, nn.Module):
        got = f"the class {model.__name__}" if inspect.isclass(model) else type(model).__name__
        raise TypeError(f"binarize: model must be a torch.nn.Module, got {got}")
    while isinstance(model, PARALLEL) or _is_compiled(model):
        model = model.module if isinstance(model, PARALLEL) else model._orig_mod
    kind = type(model).__name__
    if isinstance(model, FrozenModel | FrozenBWTA | FrozenLayers):
        raise TypeError(
            f"binarize: model is frozen already, a {kind}; pass the model that was frozen"
        )
    for name, module in model.named_modules():
        where = f"model.{name}" if name else "model"
        # What a compiled module calls was settled when it was made, not by its children.
        if _is_compiled(module):
            raise TypeError(
                f"binarize: {where} must not be compiled yet, got the result of torch.compile; "
                f"pass the module it was made of ({where}._orig_mod) and compile the result"
            )
        if type(module).__module__.startswith("torch.jit."):
            raise TypeError(
                f"binarize: {where} must be a module of Python code, got TorchScript ({kind}); "
                "pass the module it was scripted from"
            )
    return model


def _is_compiled(module: nn.Module) -> bool:
    # The class itself is in a module of torch whose import takes seconds.
    return type(module).__name__ == "OptimizedModule"


def asked_for(config: Any, scheme: str, options: Mapping[str, Any]) -> BinarizeConfig | BWTAConfig:
    """The configuration that a call's arguments make.

    Args:
        config: a configuration, a precision, or None.
        scheme: ``"binary"`` or ``"bwta"``.
        options: fields of the configuration.

    Raises:
        TypeError: an option is no field.
        ValueError: what they say does not go together.
    """
    if scheme == "bwta" or isinstance(config, BWTAConfig):
        _check_fields(BWTAConfig, options, "bwta")
        if config is None:
            return BWTAConfig(**options)
        if not isinstance(config, BWTAConfig) or options:
            raise ValueError(
                "binarize: with scheme 'bwta' config must be a BWTAConfig alone or None, got "
                f"{type(config).__name__} and {sorted(options)}"
            )
        return config
    _check_fields(BinarizeConfig, options, "binary")
    if isinstance(config, BinarizeConfig):
        return replace(config, **options)
    if config is None:
        return BinarizeConfig(**options)
    if "precision" in options:
        raise TypeError(
            "binarize: precision must be given once, got "
            f"{config!r} and precision={options['precision']!r}"
        )
    return BinarizeConfig(precision=config, **options)


def _check_fields(kind: type, options: Mapping[str, Any], scheme: str) -> None:
    known = {field.name: field for field in fields(kind) if field.init}
    unknown = sorted(options.keys() - known.keys())
    if not unknown:
        return
    other, of_other = ("binary", BinarizeConfig) if scheme == "bwta" else ("bwta", BWTAConfig)
    theirs = {field.name for field in fields(of_other) if field.init}
    hint = f" ({', '.join(sorted(theirs & set(unknown)))}: with scheme={other!r})"
    raise TypeError(
        f"binarize: scheme {scheme!r} takes the keywords {', '.join(known)}, got "
        f"{', '.join(unknown)}{hint if theirs & set(unknown) else ''}"
    )


def nothing_to_swap(model: nn.Module, linear: Mapping[str, Any], kept: Mapping[str, str]) -> str:
    """What to say of a model without a layer to swap: what it has, and what would work.

    Args:
        model: the model.
        linear: its linear layers that could be swapped, by name.
        kept: why other layers were left alone, by name.
    """
    others: dict[str, list[str]] = {}
    for name, module in model.named_modules():
        if isinstance(module, (MessagePassing, *CONVOLUTIONS, BinaryLinear)) and name not in kept:
            others.setdefault(type(module).__name__, []).append(name or "the model itself")
    binary = ("BinaryConv2d", "BinaryLinear")
    parts = [
        f"{kind} ({', '.join(names)}) "
        + ("is binary already" if kind in binary else "has no binary form")
        for kind, names in others.items()
    ]
    parts += [f"{name or 'the model itself'} stays in floats, {why}" for name, why in kept.items()]
    if linear:
        names = ", ".join(name or "the model itself" for name in linear)
        parts.append(f"linear=True swaps its linear layers ({names})")
    if not parts:
        own = {type(m).__name__ for m in model.modules() if list(m.parameters(recurse=False))}
        parts = [f"it has {', '.join(sorted(own)) or 'no layer with weights'}"]
    return (
        "binarize: the model has no GCNConv, SAGEConv or GraphConv to swap, and no Conv2d of a "
        f"network of images; {'; '.join(parts)}"
    )

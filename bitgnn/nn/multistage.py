"""Smooth multi-stage quantisation of BWTA: levels fall from stage to stage, scales follow."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bitgnn.nn.bwta_linear import ActivationQuantizer

__all__ = [
    "BERT_LEVELS",
    "DECODER_LEVELS",
    "Stage",
    "activation_quantizers",
    "enter_level",
    "initialize_scales",
    "plan_stages",
    "set_level",
]

BERT_LEVELS = (4, 3, 2, 1)
"""Level-wise schedule for BERT: integers in [-L, L], L falling by 1."""
DECODER_LEVELS = (9, 7, 5, 3, 1)
"""That for language models: 19, 15, 11, 7 and 3 integers."""


@dataclass(frozen=True)
class Stage:
    """Part of a training with one range of integers.

    Attributes:
        level: activations are integers in [-level, level], or [0, level] where they are not
            negative.
        epochs: how long it lasts at most.
    """

    level: int
    epochs: int


def plan_stages(levels: Sequence[int], epochs: int) -> list[Stage]:
    """Give half of all epochs to the last stage and divide the others evenly.

    Earlier stages get the odd epochs first. Where there are too few epochs for every stage to have
    one, earlier stages come first to be left out, never the last one.

    Args:
        levels: falling, at least 1.
        epochs: of all stages together.

    Raises:
        ValueError: levels do not fall or are below 1, there are none, or no epochs.
    """
    if not levels or levels[-1] < 1 or any(a <= b for a, b in itertools.pairwise(levels)):
        raise ValueError(f"plan_stages: levels must fall and be at least 1, got {list(levels)}")
    if epochs < 1:
        raise ValueError(f"plan_stages: epochs must be at least 1, got {epochs}")
    if len(levels) == 1:
        return [Stage(levels[0], epochs)]
    early = epochs // 2
    earlier = list(levels[:-1])[max(0, len(levels) - 1 - early) :]
    share, odd = divmod(early, len(earlier)) if earlier else (0, 0)
    stages = [Stage(level, share + (number < odd)) for number, level in enumerate(earlier)]
    return [*stages, Stage(levels[-1], epochs - sum(stage.epochs for stage in stages))]


def activation_quantizers(
    model: nn.Module, only: Collection[str] | None = None
) -> dict[str, ActivationQuantizer]:
    """The model's quantisers of activations by name, those of signs too.

    ``only`` are names of the modules in which to look; None for all of the model.
    """
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, ActivationQuantizer)
        and (only is None or any(name == p or name.startswith(f"{p}.") for p in only))
    }


def set_level(model: nn.Module, level: int | None, only: Collection[str] | None = None) -> None:
    """Set the level of quantised layers; scales stay as they are.

    ``level`` None is full precision, of weights too; ``only`` are names of layers, None for all.

    Raises:
        TypeError: ``level`` is no integer.
        ValueError: ``level`` is below 1.
    """
    for quantizer in activation_quantizers(model, only).values():
        quantizer.level = level


def initialize_scales(
    model: nn.Module, run: Callable[[], Any], only: Collection[str] | None = None
) -> None:
    """Start every scale from the activations of a calibration run.

    Scales are set one after the other in the order in which activations reach them, each by the
    activations that the scales before it already shape.

    Args:
        model: with quantisers.
        run: sends calibration data through the model; no gradients are kept.
        only: names of the layers; None for all.
    """
    quantizers = activation_quantizers(model, only).values()
    with _hooked(quantizers, lambda module, inputs: module.initialize(*inputs)), torch.no_grad():
        run()


def enter_level(
    model: nn.Module,
    level: int,
    run: Callable[[], Any],
    only: Collection[str] | None = None,
) -> dict[str, float]:
    """Pass from one stage to the next: set the level of quantised layers and adapt their scales.

    Every scale is multiplied by ``sum |A_prev| / sum |A_now|``, both of the same activations, with
    the old and with the new level (BWTA, equation 1). A scale whose activations all become 0 with
    the new level starts anew from their mean. Scales of signs stay.

    Args:
        model: with quantisers that have a level.
        level: of the next stage.
        run: sends calibration data through the model; no gradients are kept.
        only: names of the layers; None for all.

    Returns:
        What each scale was multiplied by, by the quantiser's name.

    Raises:
        ValueError: a quantiser has no level or no scale yet.
    """
    found = activation_quantizers(model, only)
    quantizers = {name: q for name, q in found.items() if q.kind != "sign"}
    for name, quantizer in quantizers.items():
        if quantizer.level is None:
            raise ValueError(f"enter_level: {name} has no level to come from; set_level first")
    for name, quantizer in quantizers.items():
        if not quantizer.is_set:
            raise ValueError(
                f"enter_level: the scale of {name} is not set; initialize_scales first"
            )
    before = {name: float(quantizer.scale.detach()) for name, quantizer in quantizers.items()}
    sums: dict[nn.Module, list[float]] = {}
    inputs: dict[nn.Module, tuple[Tensor, ...]] = {}

    def add(module: ActivationQuantizer, given: tuple[Tensor, ...]) -> None:
        """The run itself keeps the old level; the scale is common to both sums."""
        previous = module.level
        inputs.setdefault(module, given)
        both = sums.setdefault(module, [0.0, 0.0])
        for number, candidate in enumerate((previous, level)):
            module.level = candidate
            # The module's forward itself, since calling it would call the hook again.
            q, _ = module.forward(*given)
            both[number] += float(q.abs().sum(dtype=torch.float64))
        module.level = previous

    with _hooked(quantizers.values(), add), torch.no_grad():
        run()
        set_level(model, level, only)
        for quantizer in quantizers.values():
            was, now = sums.get(quantizer, (1.0, 1.0))  # calibration data may not reach it
            if was > 0 and now > 0:
                quantizer.scale.mul_(was / now)
            else:
                quantizer.initialize(*inputs[quantizer])
    return {name: float(q.scale.detach()) / before[name] for name, q in quantizers.items()}


@contextmanager
def _hooked(
    modules: Iterable[nn.Module], hook: Callable[[Any, tuple[Tensor, ...]], None]
) -> Iterator[None]:
    """Call ``hook`` before every call of the modules."""
    handles = [module.register_forward_pre_hook(hook) for module in modules]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()

"""Candidates of the tuner: precisions layer by layer, times widths, in the order they are tried."""

from __future__ import annotations

import hashlib
import itertools
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from torch import nn

from bitgnn.convert import report_of
from bitgnn.convert.configs import GraphConfig
from bitgnn.convert.plan import tunable_layers
from bitgnn.distillation import DistillError
from bitgnn.distillation.problems import Problem
from bitgnn.distillation.students import binary_student, widened
from bitgnn.nn import LayerPrecision

PRECISIONS = ("bin", "full", "fp32")
"""Precisions that every layer may take; the first one is the default."""
MOST_COMBINATIONS = 16
"""Most combinations that are all tried; of more, only those that differ from the default in one
layer."""
LONGEST = 100
"""Characters of a folder's name, beyond which a checksum stands for the precisions."""

Pins = Mapping[str | int, str] | str | Sequence[str]


@dataclass(frozen=True)
class Candidate:
    """Precisions by layer name, and the multiple of the hidden channels.

    ``bitgnn.distill(model, data, candidate.config, widen=candidate.widen)`` trains it.
    """

    precisions: Mapping[str, str]
    widen: float = 1.0

    def __hash__(self) -> int:
        return hash((frozenset(self.precisions.items()), self.widen))

    @property
    def config(self) -> GraphConfig:
        """The precisions as :func:`bitgnn.binarize` and :func:`bitgnn.distill` take them."""
        return GraphConfig(layers=dict(self.precisions))

    @property
    def folder(self) -> str:
        """Name of its folder."""
        name = "_".join(self.precisions.values()).replace("+", "-")
        if len(name) > LONGEST:
            name = hashlib.sha256(name.encode()).hexdigest()[:16]
        return f"x{self.widen:g}-{name}"

    def __str__(self) -> str:
        return f"{', '.join(self.precisions.values())} ×{self.widen:g}"


def candidates(
    model: nn.Module,
    problem: Problem,
    precisions: Sequence[str],
    pins: Pins | None,
    widths: Sequence[float],
) -> list[Candidate]:
    """The candidates of a float model, those nearest to the default precision first.

    Combinations that leave nothing binary are left out, and those that come to the same letters as
    an earlier one: a last layer of ``"bin"`` and of ``"full"`` is the same.

    Raises:
        ValueError: precisions, pins or widths are wrong, or no combination is left.
    """
    options = (precisions,) if isinstance(precisions, str) else tuple(dict.fromkeys(precisions))
    if not options:
        raise ValueError("tune: precisions must name one at least, got none")
    for option in options:
        _check_precision("precisions", option)
    if not widths or not all(1 <= width < math.inf for width in widths):
        raise ValueError(f"tune: widen must be numbers of at least 1, got {list(widths)}")
    tunable = tunable_layers(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # distill says them once
        for width in widths:
            if width != 1:
                widened(model, problem.example, width)
        swapped = list(report_of(binary_student(model, "bin", problem)).swapped)
        # Linear layers between graph layers follow their place, as in a model that is not tuned.
        layers = [name for name in swapped if name in tunable] or swapped
        pinned = pinned_layers(pins, layers)
        choices = [(pinned[name],) if name in pinned else options for name in layers]
        kept = _distinct(model, problem, layers, combinations(choices))
    return [Candidate(found, width) for found in kept for width in widths]


def combinations(choices: Sequence[Sequence[str]]) -> Iterator[tuple[str, ...]]:
    """One option of each layer: all combinations of few, else one layer at a time.

    First options are the default; what differs from it in fewer layers comes first.
    """
    default = tuple(options[0] for options in choices)
    if math.prod(map(len, choices)) <= MOST_COMBINATIONS:

        def differing(found: tuple[str, ...]) -> int:
            return sum(a != b for a, b in zip(found, default, strict=True))

        yield from sorted(itertools.product(*choices), key=differing)
        return
    yield default
    for place, options in enumerate(choices):
        for option in options[1:]:
            yield (*default[:place], option, *default[place + 1 :])


def pinned_layers(pins: Pins | None, layers: Sequence[str]) -> dict[str, str]:
    """Settled precisions by layer name.

    Pins map layer names or places (0 the first, -1 the last) to precisions, or are texts such as
    ``"conv1=fp32"``.
    """
    texts = [pins] if isinstance(pins, str) else pins or ()
    pairs = list(texts.items()) if isinstance(texts, Mapping) else [_read(text) for text in texts]
    found: dict[str, str] = {}
    for where, precision in pairs:
        place = layers.index(where) if where in layers else where
        try:
            name = layers[int(place)]
        except (TypeError, ValueError, IndexError):
            raise ValueError(
                f"tune: pins name the layer {where!r}, the model has {list(layers)} "
                f"(or 0 to {len(layers) - 1})"
            ) from None
        if name in found:
            raise ValueError(f"tune: pins must name a layer once, got {name!r} twice")
        _check_precision(f"the pin of {name!r}", precision)
        found[name] = precision
    return found


def _read(text: str) -> tuple[str, str]:
    name, equals, precision = str(text).partition("=")
    if not equals:
        raise ValueError(f"tune: pins must read like 'conv1=fp32', got {text!r}")
    return name.strip(), precision.strip()


def _check_precision(what: str, precision: str) -> None:
    try:
        LayerPrecision.parse(precision)
    except (TypeError, ValueError) as error:
        raise ValueError(f"tune: {what}: {error}") from None


def _distinct(
    model: nn.Module, problem: Problem, layers: Sequence[str], found: Iterator[tuple[str, ...]]
) -> list[dict[str, str]]:
    """Precisions by layer name of the combinations whose binary models exist and differ."""
    seen: dict[tuple[object, ...], dict[str, str]] = {}
    reason = ""
    for combination in found:
        named = dict(zip(layers, combination, strict=True))
        if all(LayerPrecision.parse(p).is_float for p in combination):
            reason = reason or "all layers are in floats"
            continue
        try:
            student = binary_student(model, GraphConfig(layers=named), problem)
        except DistillError as error:
            reason = str(error)
            continue
        forms = (getattr(layer, "letters", None) for layer in tunable_layers(student).values())
        seen.setdefault(tuple(forms), named)
    if not seen:
        raise ValueError(f"tune: precisions and pins leave no binary model: {reason}")
    return list(seen.values())

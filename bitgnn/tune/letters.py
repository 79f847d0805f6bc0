"""Letters that the layers of a model may have together, and those that a user pins.

The last letter of a layer is the first one of its readers, through what stands between them: a
dropout or a join of columns hands bits on as they are; a sum of layers may be read as floats or by
its signs; a function such as a norm takes floats, and a reader behind it may take the signs of what
it gives, unless none is below 0. Class scores are floats. Ternary letters are for layers that were
trained with them, which have their scales.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from torch import nn
from torch_geometric.nn import MessagePassing

from bitgnn.convert.layerwise import packed_copy
from bitgnn.convert.network.lower import lower_trace
from bitgnn.convert.network.trace import trace_model
from bitgnn.convert.network.values import Network, Value, is_nowhere_negative, ordered
from bitgnn.convert.plan import tunable_layers
from bitgnn.convert.swap.graphs import HasPrecision
from bitgnn.nn.binary_product import QUANTIZERS
from bitgnn.nn.precision import PRESETS

Between = Literal["floats", "nothing", "sum", "signed", "positive"]
"""What stands in front of a layer: floats of no tunable layer, or what such layers hand on, behind
nothing, a sum, or functions that give both signs or none below 0."""

LETTERS = "FB"
"""Of every operand."""
TERNARY = "T"
"""Of activations, in the place of F: ternary values are made of floats, beside bits alone."""
_RANK: tuple[Between, ...] = ("nothing", "sum", "signed", "positive")
_FLOATS = ("signed", "positive")
"""Functions that take floats: behind a sign they would see two values only."""

Pins = Mapping[str | int, str] | Sequence[str]
"""Patterns by layer name or place, or sentences such as ``"first layer stays F"``; a single
sentence needs no list."""
_SENTENCE = re.compile(
    r"\s*(?:the\s+)?(?:(?P<end>first|last)\s+layer|(?:layer\s+)?(?P<name>[\w.\-]+))"
    r"\s*(?:stays|=|:)\s*(?P<pattern>[\w*+]+)\s*",
)
_PATTERN = re.compile(rf"[{LETTERS}{TERNARY}*]{{3}}(\+[{LETTERS}{TERNARY}*]{{3}})?")


@dataclass(frozen=True)
class LayerRule:
    """Properties of a layer on which its letters depend.

    Its product and its aggregation may take ternary activations, where so marked.
    """

    name: str
    is_graph: bool  # aggregates: six letters, else three
    sources: tuple[str, ...]  # layers whose results it reads
    between: Between  # these and the layer
    outputs: str  # last letters it may have
    ternary_input: bool = False
    ternary_hidden: bool = False

    def activations(self, handed_over: Mapping[str, str]) -> str:
        """First letters that fit the last letters of the sources."""
        firsts = "F"
        if self.between in ("sum", "signed"):
            firsts = LETTERS
        elif self.between == "nothing":
            found = {handed_over[name] for name in self.sources}
            firsts = found.pop() if len(found) == 1 else "F"
        return firsts + TERNARY if self.ternary_input and "F" in firsts else firsts


def layer_rules(model: nn.Module) -> tuple[LayerRule, ...]:
    """The tunable layers of a model in the order of the dataflow."""
    if isinstance(model, HasPrecision):
        rules = _model_rules(model)
    else:
        rules = _traced_rules(model, lower_trace(trace_model(model), {}, packed_copy))
    if not rules:
        raise ValueError(
            f"tune: nothing to tune, no layer of {type(model).__name__} that its scores depend "
            "on has letters to choose"
        )
    return rules


def _model_rules(model: nn.Module) -> tuple[LayerRule, ...]:
    """Rules for a model that adapts the parts between its layers to their letters."""
    layers = {n: m for n, m in tunable_layers(model).items() if isinstance(m, MessagePassing)}
    last = list(layers)[-1] if layers and getattr(model, "gives_scores", True) else None
    rules: list[LayerRule] = []
    for name, layer in layers.items():
        sources = (rules[-1].name,) if rules else ()
        between: Between = "nothing" if rules else "floats"
        outputs = "F" if name == last else LETTERS
        rules.append(LayerRule(name, True, sources, between, outputs, *_ternary(layer)))
    return tuple(rules)


def _traced_rules(model: nn.Module, network: Network) -> tuple[LayerRule, ...]:
    known = tunable_layers(model)
    layers = {
        value: name
        for name, value in network.outputs.items()
        if name in known and name not in network.calls
    }
    assert network.scores is not None
    sources = {
        name: _sources(_entry(value, name, layers), layers) for value, name in layers.items()
    }
    in_floats = set(_sources([network.scores], layers)[0])
    in_floats.update(
        name for names, between in sources.values() if between in _FLOATS for name in names
    )
    for value in ordered(network.scores):
        if value.kind in ("linear", "call", "classes") and value.layer not in sources:
            names, between = _sources(list(value.inputs), layers)
            # Maps take +1 and -1 as they are; what the user's own code does is not known.
            in_floats.update(names if between in _FLOATS or value.kind != "linear" else ())
    return tuple(
        LayerRule(
            name,
            isinstance(known[name], MessagePassing),
            *sources[name],
            "F" if name in in_floats else LETTERS,
            *_ternary(known[name]),
        )
        for name in layers.values()
    )


def _ternary(layer: nn.Module) -> tuple[bool, bool]:
    """True if a layer has scales of ternary activations in product and aggregation."""
    input_scale, hidden_scale = (
        quantizer is not None and bool(quantizer.is_set)
        for quantizer in (getattr(layer, name, None) for name in QUANTIZERS)
    )
    return input_scale, hidden_scale


def _entry(output: Value, name: str, layers: Mapping[Value, str]) -> list[Value]:
    """Values outside a layer that it reads."""
    read: list[Value] = []
    stack, seen = [output], {output}
    while stack:
        for value in stack.pop().inputs:
            if value in seen:
                continue
            seen.add(value)
            is_own = value.layer == name or value.layer.startswith(f"{name}.")
            if is_own and value not in layers and value.kind != "input":
                stack.append(value)
            else:
                read.append(value)
    return read


def _sources(values: list[Value], layers: Mapping[Value, str]) -> tuple[tuple[str, ...], Between]:
    """The tunable layers that feed some values, and the strictest operation in between."""
    found: set[str] = set()
    worst: Between = "nothing"
    reads_floats = False
    stack = [(value, worst) for value in values]
    seen: set[Value] = set()
    while stack:
        value, way = stack.pop()
        worst = max(worst, way, key=_RANK.index)
        if value in layers:
            found.add(layers[value])
        elif value.kind in ("input", "linear", "aggregate", "product", "call"):
            reads_floats = True
        elif value not in seen:
            seen.add(value)
            way = max(way, _kind_of_way(value), key=_RANK.index)
            stack += [(part, way) for part in value.inputs]
    if not found:
        return (), "floats"
    names = tuple(name for name in layers.values() if name in found)
    # Floats beside the layers' results: what is read is floats.
    return names, max(worst, "sum", key=_RANK.index) if reads_floats else worst


def _kind_of_way(value: Value) -> Between:
    if value.kind == "cat" or value.name in ("hardtanh", "sign"):
        return "nothing"
    if value.kind in ("add", "mul", "maximum"):
        return "sum"
    return "positive" if is_nowhere_negative(value) else "signed"


class LetterChoices:
    """All compatible choices of letters, in a fixed order."""

    def __init__(self, rules: tuple[LayerRule, ...], patterns: Mapping[str, str]) -> None:
        self.rules = rules
        self.patterns = dict(patterns)

    def options(self, layer: int, chosen: Mapping[str, str]) -> tuple[str, ...]:
        """Letters that a layer may have after those chosen for earlier layers."""
        rule = self.rules[layer]
        handed_over = {name: letters[-1] for name, letters in chosen.items()}
        return _spelled(rule, rule.activations(handed_over), self.patterns.get(rule.name))

    def __iter__(self) -> Iterator[dict[str, str]]:
        return self._from(0, {})

    def _from(self, layer: int, chosen: dict[str, str]) -> Iterator[dict[str, str]]:
        if layer == len(self.rules):
            yield dict(chosen)
            return
        name = self.rules[layer].name
        for letters in self.options(layer, chosen):
            yield from self._from(layer + 1, {**chosen, name: letters})

    def __len__(self) -> int:
        """Number of choices, counted without making them."""
        last_reader = {
            name: place for place, rule in enumerate(self.rules) for name in rule.sources
        }

        @cache
        def count(layer: int, live: tuple[tuple[str, str], ...]) -> int:
            if layer == len(self.rules):
                return 1
            rule = self.rules[layer]
            rest = {name: o for name, o in live if last_reader.get(name, -1) > layer}
            total = 0
            for letters in self.options(layer, dict(live)):
                following = dict(rest)
                if last_reader.get(rule.name, -1) > layer:
                    following[rule.name] = letters[-1]
                total += count(layer + 1, tuple(sorted(following.items())))
            return total

        return count(0, ())

    def __contains__(self, letters: object) -> bool:
        if not isinstance(letters, Mapping) or set(letters) != {rule.name for rule in self.rules}:
            return False
        return all(
            letters[rule.name] in self.options(place, letters)
            for place, rule in enumerate(self.rules)
        )


@cache
def _spelled(rule: LayerRule, firsts: str, pattern: str | None) -> tuple[str, ...]:
    """Letters of a layer with one of these first letters that fit a pattern."""
    found = []
    for first, weight, last in itertools.product(firsts, LETTERS, rule.outputs):
        if first == TERNARY and weight != "B":
            continue
        if rule.is_graph:
            found += [
                f"{first}{weight}{hidden}+{hidden}{adjacency}{last}"
                for hidden, adjacency in itertools.product(LETTERS, repeat=2)
            ]
            found += [f"{first}{weight}F+{TERNARY}B{last}"] * rule.ternary_hidden
        else:
            found.append(first + weight + last)
    return tuple(letters for letters in found if pattern is None or _matches(letters, pattern))


def _matches(letters: str, pattern: str) -> bool:
    """True if letters fit a pattern in which ``*`` stands for any letter."""
    return len(letters) == len(pattern) and all(
        wanted in ("*", found) for found, wanted in zip(letters, pattern, strict=True)
    )


def pinned_choices(model: nn.Module, pins: Pins | None) -> LetterChoices:
    """Every choice of letters that a model's layers and the pins allow."""
    rules = layer_rules(model)
    patterns = pin_patterns(pins, rules)
    choices = LetterChoices(rules, patterns)
    if len(choices) == 0:
        raise ValueError(
            f"tune: no letters that fit together are left by the pins {patterns}; what a layer "
            "hands over (its last letter) is what the next one takes (its first), and class "
            "scores are floats"
        )
    return choices


def pin_patterns(pins: Pins | None, rules: Sequence[LayerRule]) -> dict[str, str]:
    """Patterns of letters by layer name.

    Pins map layer names or places (0 the first, -1 the last) to letters in which ``*`` is any, a
    preset (``"fp32"``, ``"full"``, ``"bin"``), or ``"F"`` for a layer without binary operands; or
    they are sentences: ``"first layer stays F"``, ``"conv1=FBB+BBB"``.
    """
    pins = [pins] if isinstance(pins, str) else pins
    pairs = list(pins.items()) if isinstance(pins, Mapping) else list(map(_read, pins or ()))
    found: dict[str, str] = {}
    for where, pattern in pairs:
        rule = _rule(where, rules)
        if rule.name in found:
            raise ValueError(f"tune: two pins for layer {rule.name!r}")
        found[rule.name] = _pattern(pattern, rule)
    return found


def _read(sentence: str) -> tuple[str | int, str]:
    match = _SENTENCE.fullmatch(sentence)
    if match is None:
        raise ValueError(
            f"tune: a pin must read like 'first layer stays F' or 'conv1=FBB+BBB', got {sentence!r}"
        )
    end = match["end"]
    return (match["name"] if end is None else 0 if end == "first" else -1), match["pattern"]


def _rule(where: str | int, rules: Sequence[LayerRule]) -> LayerRule:
    for rule in rules:
        if rule.name == where:
            return rule
    try:
        return rules[int(where)]
    except (ValueError, IndexError):
        raise ValueError(
            f"tune: pins name the layer {where!r}, the model has "
            f"{[rule.name for rule in rules]} (or 0 to {len(rules) - 1})"
        ) from None


def _pattern(pattern: str, rule: LayerRule) -> str:
    """Three or six letters for the layer."""
    if pattern == "F":
        pattern = "FF*+*F*" if rule.is_graph else "FF*"
    pattern = PRESETS.get(pattern, pattern)
    length = 7 if rule.is_graph else 3
    if _PATTERN.fullmatch(pattern) is None or len(pattern) < length:
        wanted = "'FBB+BBB' or 'F**+***'" if rule.is_graph else "'FBB' or 'F**'"
        raise ValueError(f"tune: pin of {rule.name!r} must read like {wanted}, got {pattern!r}")
    return pattern[:length]

"""Pins: letters that a user fixes, by layer name or place, in patterns or in words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from torch import nn

from bitgnn.nn.precision import PRESETS
from bitgnn.tune.letter_choices import LETTERS, TERNARY, LayerRule, LetterChoices, layer_rules

Pins = Mapping[str | int, str] | Sequence[str]
"""Patterns by layer name or place, or sentences such as ``"first layer stays F"``; a single
sentence needs no list."""

_SENTENCE = re.compile(
    r"\s*(?:the\s+)?(?:(?P<end>first|last)\s+layer|(?:layer\s+)?(?P<name>[\w.\-]+))"
    r"\s*(?:stays|=|:)\s*(?P<pattern>[\w*+]+)\s*",
)
_PATTERN = re.compile(rf"[{LETTERS}{TERNARY}*]{{3}}(\+[{LETTERS}{TERNARY}*]{{3}})?")
FLOAT_LETTER = "F"


def pinned_choices(model: nn.Module, pins: Pins | None) -> LetterChoices:
    """Every choice of letters that a model's layers and the pins allow.

    Args:
        model: with tunable layers.
        pins: see :func:`pin_patterns`.

    Raises:
        ValueError: there is nothing to tune, a pin is wrong, or the pins leave nothing that fits
            together.
    """
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

    Args:
        pins: a mapping from layer names or places (0 the first, -1 the last) to letters in which
            ``*`` is any, a preset (``"fp32"``, ``"full"``, ``"bin"``), or ``"F"`` for a layer
            without binary operands; or sentences: ``"first layer stays F"``, ``"conv1=FBB+BBB"``.
        rules: of the layers.

    Raises:
        ValueError: a pin that cannot be read or names no layer, or two for the same layer.
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
    if pattern == FLOAT_LETTER:
        pattern = "FF*+*F*" if rule.is_graph else "FF*"
    pattern = PRESETS.get(pattern, pattern)
    length = 7 if rule.is_graph else 3
    if _PATTERN.fullmatch(pattern) is None or len(pattern) < length:
        wanted = "'FBB+BBB' or 'F**+***'" if rule.is_graph else "'FBB' or 'F**'"
        raise ValueError(f"tune: pin of {rule.name!r} must read like {wanted}, got {pattern!r}")
    return pattern[:length]

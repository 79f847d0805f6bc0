"""What is wrong with a configuration, in one line."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

import pydantic
from pydantic import BaseModel
from pydantic_core import ErrorDetails

from bitgnn.train.recipe import FullGraph, Neighbors, RandomWalks, Strict

# Keys of several types: pydantic complains once for each.
UNION_KEYS = {"split", "precision"}
LOADERS: dict[str, type[BaseModel]] = {
    "full": FullGraph,
    "neighbor": Neighbors,
    "saint_rw": RandomWalks,
}


def explained(error: pydantic.ValidationError, kind: type[Strict]) -> str:
    """The problem to mend first, in one line, and how many more there are.

    An unknown key comes first: it may be the misspelt name of one that is missing.
    """
    problems = sorted(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden")
    first = problems[0]
    location = _location(first)
    same = [first]
    for name in UNION_KEYS & {part for part in location if isinstance(part, str)}:
        location = location[: location.index(name) + 1]
        same = [problem for problem in problems if problem["loc"][: len(location)] == location]
    key = _key_of(location)
    found = _shorten(first.get("input"))
    if first["type"] == "extra_forbidden":
        known = _keys_at(first["loc"], kind)
        near = get_close_matches(str(location[-1]), known, n=1)
        meant = f"{near[0]!r} perhaps, or " if near else ""
        text = f"unknown key {key!r} (found {key}: {found}), expected {meant}one of "
        text += ", ".join(known)
    elif first["type"] == "missing":
        same = [problem for problem in problems if problem["type"] == "missing"]
        keys = [repr(_key_of(_location(problem))) for problem in same]
        text = f"key {keys[0]} is" if len(keys) == 1 else f"keys {', '.join(keys)} are"
        text += " missing"
    elif first["type"] == "value_error":
        text = str(first["ctx"]["error"]) if "ctx" in first else first["msg"]
    elif first["type"].startswith("union_tag"):
        text = f"key 'loader.kind': found {found}, expected: one of {', '.join(LOADERS)}"
    else:
        expected = " or ".join(_expectation(problem["msg"]) for problem in same)
        text = f"key {key!r}: found {found}, expected: {expected}"
    more = len(problems) - len(same)
    return text if not more else f"{text} (and {more} more)"


def _location(problem: ErrorDetails) -> tuple[int | str, ...]:
    """Where a problem is; pydantic puts the kind of loader between the section and its key."""
    location = problem["loc"]
    return location[:1] + location[1 + (location[:1] == ("loader",)) :]


def _key_of(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in location if part != "[key]")


def _expectation(message: str) -> str:
    return message.removeprefix("Input should be ").split(", unable to")[0]


def _shorten(value: Any, limit: int = 60) -> str:
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _keys_at(location: tuple[int | str, ...], kind: type[Strict]) -> list[str]:
    """Known keys of the section that holds ``location``."""
    if len(location) == 1:
        return list(kind.model_fields)
    name = location[1] if location[0] == "loader" else location[0]
    return list(kind.sections[str(name)].model_fields)

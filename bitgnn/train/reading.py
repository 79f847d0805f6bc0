"""Reading a configuration: values taken from others, and what is wrong with it in one line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import pydantic
from pydantic import BaseModel
from pydantic_core import ErrorDetails

from bitgnn._files import FileError
from bitgnn.train.recipe import FullGraph, Neighbors, RandomWalks, Strict

MERGED = ("forms", "loader")
"""Sections whose keys hold one by one, unless one of another kind begins; of others the last one is
taken as a whole."""


def inherited(
    file: Path, read: Callable[[Path], dict[str, Any]], find: Callable[[str], Path]
) -> dict[str, Any]:
    """What a file and its bases say, with the forms spelled out.

    Raises:
        FileError: a base or a form is missing, or rests on itself.
    """
    content, seen = read(file), [file]
    while "base" in content:
        name = str(content.pop("base"))
        beside = seen[-1].parent / f"{name}.yaml"
        base = beside if beside.exists() and beside not in seen else find(name)
        if base in seen:
            raise FileError(f"{file}: base {name!r} rests on itself")
        seen.append(base)
        content = _merged(read(base), content)
    forms = content.get("forms")
    if isinstance(forms, Mapping):
        kept = {name: form for name, form in forms.items() if form is not None}
        content["forms"] = {name: _spelled(name, kept, str(file)) for name in kept}
    return content


def _merged(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The base's values where there are no own ones."""
    found = {**base, **own}
    for section in MERGED:
        before, after = base.get(section), own.get(section)
        if not isinstance(before, Mapping) or not isinstance(after, Mapping) or "kind" in after:
            continue
        found[section] = {**before, **after}
        for name in before.keys() & after.keys():
            if isinstance(before[name], Mapping) and isinstance(after[name], Mapping):
                found[section][name] = {**before[name], **after[name]}
    return found


def _spelled(name: str, forms: Mapping[str, Any], where: str) -> Any:
    """A form with the values of those that it is like."""
    form, seen = forms[name], [name]
    while isinstance(form, Mapping) and "like" in form:
        other = form["like"]
        if other not in forms or other in seen:
            raise FileError(
                f"{where}: forms.{name}: like must name another form, which does not rest on this "
                f"one, got {other!r}"
            )
        seen.append(other)
        rest = {key: value for key, value in form.items() if key != "like"}
        form = {**forms[other], **rest}
    return form


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

"""Configurations that only say what is special: the rest is another file's, or another form's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bitgnn._files import FileError

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

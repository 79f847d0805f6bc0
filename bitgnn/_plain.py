"""JSON and YAML from files of unknown origin: bounded, finite and without surprises."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from bitgnn._files import FileError, OutputError, read_regular, write_atomically

YAML_BYTES = 1 << 20
"""Largest YAML file that is read: its parser takes some seconds for as much."""
DEPTH = 64
"""Deepest nesting of lists and mappings."""
NODES = 100_000
"""Most values of a YAML file, those of an alias counted wherever it stands."""


def read_json(path: Path) -> Any:
    """Contents of a JSON file; see :func:`parse_json`."""
    return parse_json(read_regular(path), path)


def read_yaml(path: Path) -> Any:
    """Contents of a YAML file; see :func:`parse_yaml`."""
    return parse_yaml(read_regular(path, limit=YAML_BYTES), path)


def parse_json(data: bytes, source: object) -> Any:
    """Plain values of JSON: numbers are finite, keys of an object differ, nesting is bounded.

    Anything else is a ``FileError`` that names the source.
    """
    try:
        value = json.loads(
            data.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_refuse_constant
        )
        _check(value)
    except (ValueError, RecursionError) as error:
        raise FileError(f"{source}: is not valid JSON ({_line(error)})") from None
    return value


def parse_yaml(data: bytes, source: object) -> Any:
    """Plain values of YAML, within the same bounds."""
    try:
        value = yaml.load(data.decode("utf-8"), _Loader)
        _check(value)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise FileError(f"{source}: is not valid YAML ({_line(error)})") from None
    return value


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader that refuses equal keys and aliases that grow without bound."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self.depth += 1
        if self.depth > DEPTH:
            raise ValueError(f"nested more than {DEPTH} deep")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def get_single_node(self) -> Any:
        node = super().get_single_node()
        if _expanded(node, {}, 0) > NODES:
            raise ValueError(f"holds more than {NODES} values")
        return node


def _expanded(node: Any, sizes: dict[int, int], depth: int) -> int:
    """Number of values below a node; those of an alias count each time it occurs."""
    if depth > DEPTH:
        raise ValueError(f"nested more than {DEPTH} deep")
    if isinstance(node, yaml.MappingNode):
        _refuse_equal([key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)])
        inner = [part for pair in node.value for part in pair]
    else:
        inner = node.value if isinstance(node, yaml.SequenceNode) else []
    if id(node) not in sizes:
        sizes[id(node)] = 1 + sum(_expanded(part, sizes, depth + 1) for part in inner)
    return sizes[id(node)]


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    _refuse_equal([key for key, _ in pairs])
    return dict(pairs)


def _refuse_equal(keys: list[Any]) -> None:
    if len(set(keys)) < len(keys):
        first = next(key for number, key in enumerate(keys) if key in keys[:number])
        raise ValueError(f"key {first!r} stands twice")


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number of JSON")


def _check(value: Any) -> None:
    """Refuse nesting without bound and numbers that are not finite."""
    level = [value]
    for _ in range(DEPTH):
        inner: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                inner += item.values()
            elif isinstance(item, list):
                inner += item
            elif isinstance(item, float) and not math.isfinite(item):
                raise ValueError("numbers must be finite")
        level = inner
    if level:
        raise ValueError(f"nested more than {DEPTH} deep")


def _line(error: BaseException) -> str:
    """The reason in one short line."""
    text = " ".join(str(error).split())
    return text if len(text) <= 200 else f"{text[:197]}..."


def record_job(file: Path, wanted: Mapping[str, Any], is_begun: bool) -> None:
    """Record the job of a folder, or compare it with the recorded one.

    A folder without work in it takes any job. Raises :class:`OutputError` where it holds work of
    another one, or cannot be read or written.
    """
    folder = file.parent
    if not (is_begun and file.exists()):
        try:
            write_atomically(file, json.dumps(wanted, indent=2).encode() + b"\n")
        except OSError as error:
            raise OutputError(f"{folder}: cannot be written ({error.strerror})") from error
        return
    try:
        recorded = read_json(file)
    except (OSError, FileError) as error:
        raise OutputError(f"{file}: cannot be read ({error})") from error
    different = "; ".join(_differences(recorded, wanted))
    if different:
        raise OutputError(
            f"{folder}: holds another job's work ({different}); choose another --output or delete "
            "the folder"
        )


def _differences(recorded: Any, wanted: Any, key: str = "") -> Iterator[str]:
    """Keys in which two nested mappings differ, with both values."""
    if isinstance(recorded, Mapping) and isinstance(wanted, Mapping):
        for name in sorted({*recorded, *wanted}):
            inner = f"{key}.{name}" if key else name
            yield from _differences(recorded.get(name), wanted.get(name), inner)
    elif recorded != wanted:
        yield f"{key}: {recorded!r} there, {wanted!r} here"

"""Registers classes of this package as pytrees, so that programs take them as inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from torch.utils import _pytree as pytree

Held = TypeVar("Held")


def register(
    kind: type[Held],
    keys: Sequence[str],
    split: Callable[[Held], tuple[list[Any], Any]],
    join: Callable[[Any, Any], Held],
) -> None:
    """Register a class as a pytree; ``keys`` name the tensors that ``split`` returns."""

    def split_with_keys(held: Any) -> tuple[list[tuple[Any, Any]], Any]:
        leaves, rest = split(held)
        named = zip(keys, leaves, strict=True)
        return [(pytree.GetAttrKey(key), leaf) for key, leaf in named], rest

    pytree.register_pytree_node(
        kind,
        split,
        join,
        serialized_type_name=f"bitgnn.{kind.__name__}",
        flatten_with_keys_fn=split_with_keys,
    )


def register_plain(kind: type[Any], tensors: Sequence[str], count: str) -> None:
    """Make a class a pytree that holds nothing but its tensors and a count, by their names."""

    def split(held: Any) -> tuple[list[Any], Any]:
        return [getattr(held, name) for name in tensors], getattr(held, count)

    def join(leaves: Any, rest: Any) -> Any:
        held = object.__new__(kind)
        vars(held).update(zip(tensors, leaves, strict=True), **{count: rest})
        return held

    register(kind, tensors, split, join)

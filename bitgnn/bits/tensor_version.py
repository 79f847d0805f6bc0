"""Detects in-place writes to the tensors that a cached value depends on."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterable, Sequence
from operator import attrgetter, is_
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bitgnn.bits.contents import Contents, plain

_version = attrgetter("_version")


class Watch:
    """Snapshot of tensors and the writes to them.

    A write raises the version, a move of the storage changes the address, which nothing else gets
    while it is held here. Tensors made in inference mode count no writes: see :func:`counted`.
    With ``reads_bytes`` writes to a CPU's memory that count nowhere are noticed, too.
    """

    __slots__ = ("_contents", "_counted", "_held", "_places", "_tensors", "_versions")

    def __init__(self, tensors: Iterable[Tensor | None], reads_bytes: bool = False) -> None:
        self._tensors = tuple(tensors)
        self._contents = Contents(self._tensors) if reads_bytes else None
        self._held = [tensor for tensor in self._tensors if tensor is not None]
        self._counted = [tensor for tensor in self._held if not tensor.is_inference()]
        self._versions = list(map(_version, self._counted))
        self._places = list(map(Tensor.data_ptr, self._held))

    def unchanged(self, tensors: Sequence[Tensor | None] | None = None) -> bool:
        """True if no tensor was written to since, and ``tensors``, if given, are the same."""
        return (
            (tensors is None or are_same(tensors, self._tensors))
            and list(map(_version, self._counted)) == self._versions
            and list(map(Tensor.data_ptr, self._held)) == self._places
            and (self._contents is None or self._contents.are_those_of(self._tensors))
        )


def are_same(found: Sequence[Any], expected: Sequence[Any]) -> bool:
    """True if these are the very objects expected, in order."""
    return len(found) == len(expected) and all(map(is_, found, expected))


def counted(tensor: Tensor) -> Tensor:
    """The tensor, or a copy that counts writes if it was made in inference mode."""
    if not tensor.is_inference():
        return tensor
    with torch.inference_mode(False):
        return tensor.clone()


class Made(NamedTuple):
    """A result and a snapshot of the tensors that it was made of."""

    tensors: tuple[weakref.ref[Tensor] | None, ...]
    states: tuple[Any, ...]
    contents: Contents
    value: Any


class TensorMemory:
    """Cache of results, valid as long as their tensors live and are not written to.

    On the CPU the bytes are compared, so that writes which no version counts are noticed: through
    ``.data``, a numpy array, or another library. On a GPU these are not. Tensors are told apart by
    identity and are not kept alive: an entry goes with the first of its tensors, or where there are
    more than ``most``. Threads may share a memory; at worst two of them make the same thing. A copy
    begins empty.
    """

    def __init__(self, most: int = 1) -> None:
        self._most = most
        self._entries: dict[Hashable, Made] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __reduce__(self) -> tuple[type[TensorMemory], tuple[int]]:
        return TensorMemory, (self._most,)

    def values(self) -> tuple[Any, ...]:
        """The results kept now."""
        return tuple(made.value for made in list(self._entries.values()))

    def get(
        self, tensors: tuple[Tensor | None, ...], options: Hashable, make: Callable[[], Any]
    ) -> Any:
        """Result of ``make()``, or the kept one for the same tensors and options.

        Nothing is remembered where writes to one of the tensors would go unnoticed. ``make`` is
        called without gradients and outside of inference mode: its result serves every mode.
        """
        if torch.compiler.is_compiling() or not all(map(_is_counted, tensors)):
            return make()
        key = (tuple(map(id, tensors)), options)
        states = tuple(map(_state, tensors))
        found = self._entries.get(key)
        if found is not None and found.states == states:
            alive = [None if ref is None else ref() for ref in found.tensors]
            if are_same(alive, tensors) and found.contents.are_those_of(tensors):
                return found.value
        contents = Contents(tensors)  # before they are read, so that no write is lost
        with torch.inference_mode(False), torch.no_grad():
            value = make()

        def forget(gone: weakref.ref[Tensor]) -> None:
            held = self._entries.get(key)
            if held is not None and any(ref is gone for ref in held.tensors):
                self._entries.pop(key, None)

        refs = tuple(None if t is None else weakref.ref(t, forget) for t in tensors)
        self._entries.pop(key, None)
        self._entries[key] = Made(refs, states, contents, value)
        for oldest in list(self._entries)[: -self._most]:
            self._entries.pop(oldest, None)
        return value


def _is_counted(tensor: Any) -> bool:
    """True if the tensor counts writes to it, as dense ones do."""
    if tensor is None:
        return True
    is_dense = isinstance(tensor, Tensor) and tensor.layout == torch.strided
    return is_dense and not tensor.is_inference() and not plain(tensor).is_inference()


def _state(tensor: Tensor | None) -> Any:
    if tensor is None:
        return None
    held = plain(tensor)
    place = held.data_ptr(), tensor.shape, tensor.stride(), tensor.device
    return tensor._version, held._version, *place

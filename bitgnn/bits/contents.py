"""Detects changed bytes of CPU tensors, whoever wrote to them.

A write through ``.data``, a numpy array or another library that shares the memory raises no version
of a tensor: only its bytes tell. Of a GPU nothing is asked, which would mean waiting for it.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from itertools import compress
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

COPIED_BYTES = 2**22
"""Most bytes compared with a copy; more are compared by a hash, which takes no memory."""
CHUNK = 2**17
"""Words hashed at a time; they stay in a core's cache with their factors."""
PRIME = 0x9E3779B97F4A7C15
MASK = 2**64 - 1
_nbytes = attrgetter("nbytes")
_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

# Four times as fast as torch.equal on some 100 kB, and NaN is equal to itself.
_compare = ctypes.CDLL(None).memcmp
_compare.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]

# Without the frames of ctypes.string_at: layers ask for their state in every forward.
bytes_at: Any = ctypes.PyDLL(None)["PyBytes_FromStringAndSize"]
"""Bytes from an address on, so many."""
bytes_at.argtypes, bytes_at.restype = (ctypes.c_void_p, ctypes.c_ssize_t), ctypes.py_object


class Contents:
    """Snapshot of the bytes of CPU tensors; tensors elsewhere are not looked at.

    Shapes, strides and dtypes are the caller's to compare.
    """

    __slots__ = ("_copied", "_copies", "_is_copied", "_is_other", "_others", "_sizes")

    def __init__(self, tensors: tuple[Tensor | None, ...]) -> None:
        parts = tuple(map(_taken, tensors))
        self._is_copied = list(map(_is_plainly_copied, parts, tensors))
        self._is_other = [not is_copied for is_copied in self._is_copied]
        self._copies: list[Tensor] = list(compress(parts, self._is_copied))
        self._copied = list(map(Tensor.data_ptr, self._copies))
        self._sizes = list(map(_nbytes, self._copies))
        self._others = tuple(compress(parts, self._is_other))

    def are_those_of(self, tensors: tuple[Tensor | None, ...]) -> bool:
        """True if these tensors hold the same bytes as those given before."""
        # Every call of a frozen model asks: builtins on all tensors, no function of Python's each.
        copied: list[Any] = list(compress(tensors, self._is_copied))
        if not all(map(Tensor.is_contiguous, copied)):
            is_same = all(map(_is_same, self._copies, copied))
        else:
            places, sizes = map(Tensor.data_ptr, copied), self._sizes
            is_same = list(map(_nbytes, copied)) == sizes and not any(
                map(_compare, places, self._copied, sizes)
            )
        return is_same and all(map(_is_same, self._others, compress(tensors, self._is_other)))


def plain(tensor: Tensor) -> Tensor:
    """The tensor that holds the values; PyG's ``EdgeIndex`` wraps one."""
    inner = getattr(tensor, "_data", None)
    return inner if isinstance(inner, Tensor) else tensor


def _taken(tensor: Tensor | None) -> Any:
    """A flat copy or a hash of a tensor; None if it is not looked at."""
    if tensor is None or not _has_bytes(tensor := plain(tensor)):
        return None
    block = _block(tensor)
    return block.clone() if block.nbytes <= COPIED_BYTES else _hash(block)


def _is_plainly_copied(part: Any, tensor: Tensor | None) -> bool:
    """True if a copy is of the tensor itself, not of one that it wraps."""
    return isinstance(part, Tensor) and tensor is not None and plain(tensor) is tensor


def _is_same(part: Any, tensor: Tensor | None) -> bool:
    if part is None or tensor is None:
        return True
    tensor = plain(tensor)
    if not isinstance(part, Tensor):
        return bool(part == _hash(_block(tensor)))
    if not tensor.is_contiguous():
        tensor = _block(tensor)
    size = part.nbytes
    return tensor.nbytes == size and _compare(tensor.data_ptr(), part.data_ptr(), size) == 0


def _has_bytes(tensor: Tensor) -> bool:
    is_dense = tensor.layout == torch.strided and tensor.device.type == "cpu"
    return is_dense and tensor.element_size() in _WORDS and not tensor.is_complex()


def _block(tensor: Tensor) -> Tensor:
    """All elements in one dimension: a view if there are no gaps, else a copy."""
    tensor = tensor.detach()
    if tensor.is_contiguous():
        return tensor.view(-1)
    span = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    if span == tensor.numel():
        return tensor.as_strided((span,), (1,))
    return tensor.reshape(-1)


def _hash(block: Tensor) -> int:
    """Sum of words times odd factors, by chunks: a change of any one word changes it.

    Others do by a chance of about ``2**-64``. It is computed modulo ``2**64``.
    """
    words, found = block.view(_WORDS[block.element_size()]), 0
    for chunk in words.split(CHUNK):
        part = int(torch.dot(chunk.long(), _factors()[: chunk.numel()]))
        found = (found * PRIME + part) & MASK
    return found


@lru_cache(maxsize=1)
def _factors() -> Tensor:
    generator = torch.Generator().manual_seed(PRIME & (2**63 - 1))
    with torch.inference_mode(False):
        return torch.randint(-(2**63), 2**63 - 1, (CHUNK,), generator=generator) | 1

"""BitFeatures: a BitTensor that is a torch.Tensor as well, as PyG asks of features."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bitgnn.bits import pytrees
from bitgnn.bits.functions import dispatch
from bitgnn.bits.tensor import BitTensor, words_for

# Of no type to checkers, for which nothing can be both; see its attribute size.
_TensorClass: Any = Tensor
_NO_FUNCTION: Any = torch._C._disabled_torch_function_impl


class BitFeatures(BitTensor, _TensorClass):
    """A :class:`~bitgnn.BitTensor` that is a wrapper subclass of ``torch.Tensor``.

    PyG looks for node features among tensors alone: ``Data``, ``Batch`` and the loaders cut, join
    and move these as they do floats, while models and operators read the bits. ``size`` is the
    number of features and, called, what ``torch.Tensor.size`` is. The dtype is that of the words,
    int32. Rows, copies and moves of it are of this kind; results of operators and of compiled
    programs are plain. Arguments and errors are those of :class:`~bitgnn.BitTensor`.
    """

    FIELDS = ("words", "_features", "scale")
    __torch_function__ = _NO_FUNCTION

    _size: _Size
    _features: int

    def __new__(cls, words: Tensor, size: int, scale: Tensor | None = None) -> BitFeatures:
        """Check the bits as ``BitTensor`` does."""
        return BitTensor(words, size, scale).as_features()

    def __init__(self, words: Tensor, size: int, scale: Tensor | None = None) -> None:
        pass

    @classmethod
    def _trusted(cls, words: Any, count: Any, scale: Any = None) -> BitFeatures:
        shape = (*words.shape[:-1], count)
        self = Tensor._make_wrapper_subclass(cls, shape, dtype=torch.int32, device=words.device)
        self.words = words
        self._size = _Size(shape)
        self._features = int(count)
        self.scale = scale
        return self

    @classmethod
    def _made(cls, words: Tensor, count: int, scale: Tensor | None = None) -> Any:
        # Compiled programs make no subclasses of tensors.
        is_traced = type(words) is not Tensor or torch.compiler.is_compiling()
        return (BitTensor if is_traced else cls)._trusted(words, count, scale)

    @classmethod
    def __torch_dispatch__(
        cls, operator: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return dispatch(operator, args, kwargs or {})

    def as_features(self) -> BitFeatures:
        """Itself."""
        return self

    @property
    def size(self) -> Any:  # type: ignore[override]
        """The number of features, and ``torch.Tensor.size`` when it is called."""
        return self._features if torch.compiler.is_compiling() else self._size

    @property
    def shape(self) -> torch.Size:
        """``(N, size)``, of a row ``(size,)``."""
        return torch.Size((*self.words.shape[:-1], self._features))

    def new(self, storage: torch.UntypedStorage) -> _Destination:
        """Memory for rows like these; ``view`` or ``resize_`` makes them of it."""
        return _Destination(storage, self.scale is not None)


class _Size(int):
    """The number of features, and ``torch.Tensor.size`` when it is called."""

    shape: torch.Size

    def __new__(cls, shape: tuple[int, ...]) -> _Size:
        self = super().__new__(cls, shape[-1])
        self.shape = torch.Size(shape)
        return self

    def __call__(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]


class _Destination:
    """Shared memory that a worker of a loader writes rows into.

    Loaders ask for it with 4 bytes for each feature, more than the words take.
    """

    def __init__(self, storage: torch.UntypedStorage, is_scaled: bool) -> None:
        self._words = torch.empty(0, dtype=torch.int32, device=storage.device).set_(storage)
        self._is_scaled = is_scaled

    def view(self, shape: Any) -> BitFeatures:
        """Rows of a shape ``[N, size]`` in this memory, to be written."""
        rows, size = shape
        num_words = words_for(size)
        words = self._words[: rows * num_words].view(rows, num_words)
        scale = torch.empty(rows, dtype=torch.float32).share_memory_() if self._is_scaled else None
        return BitFeatures._trusted(words, size, scale)

    def resize_(self, *shape: int) -> BitFeatures:
        """As :meth:`view`."""
        return self.view(shape)


def _join(leaves: Any, size: Any) -> Any:
    # Not only tensors come here: a specification of leaves is joined with placeholders.
    kind = BitFeatures if isinstance(leaves[0], Tensor) else BitTensor
    return kind._trusted(leaves[0], size, leaves[1])


pytrees.register(
    BitFeatures,
    ("words", "scale"),
    lambda held: ([held.words, held.scale], held._features),
    _join,
)

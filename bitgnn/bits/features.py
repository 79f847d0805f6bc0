"""BitFeatures and Int8Features: packed rows that are torch.Tensors, as PyG expects."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from bitgnn.bits import pytrees
from bitgnn.bits.int8 import Int8Tensor
from bitgnn.bits.rows import function_of
from bitgnn.bits.tensor import BitTensor

# Of no type to checkers, for which nothing can be both; see its attribute size.
_TensorClass: Any = Tensor
_NO_FUNCTION: Any = torch._C._disabled_torch_function_impl


class _Features:
    """Mixin of packed rows that are wrapper subclasses of ``torch.Tensor``."""

    PLAIN: ClassVar[type[Any]]
    """Kind of the same rows that is no tensor."""

    __torch_function__ = _NO_FUNCTION

    _packed: Any
    _has_rows: Any
    _mapped: Any
    _size: _Size
    _features: int

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.PLAIN.FEATURES = cls

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Check the rows as the plain kind does."""
        return cls.PLAIN(*args, **kwargs).as_features()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    @classmethod
    def _shell(cls, packed: Tensor, count: int) -> Any:
        """An empty tensor of the shape of the rows."""
        shape = (*packed.shape[:-1], count)
        self = _TensorClass._make_wrapper_subclass(
            cls, shape, dtype=packed.dtype, device=packed.device
        )
        self._size = _Size(shape)
        self._features = int(count)
        return self

    @classmethod
    def _made(cls, packed: Any, *state: Any) -> Any:
        # Compiled programs make no subclasses of tensors.
        is_traced = type(packed) is not Tensor or torch.compiler.is_compiling()
        kind: Any = cls.PLAIN if is_traced else cls
        return kind._trusted(packed, *state)

    @classmethod
    def __torch_dispatch__(
        cls, operator: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = operator.overloadpacket.__name__
        return function_of(name, f"aten.{name}")(*args, **(kwargs or {}))

    def as_features(self) -> Any:
        """The rows themselves."""
        return self

    @property
    def size(self) -> Any:
        """The number of features, and ``torch.Tensor.size`` when it is called."""
        return self._features if torch.compiler.is_compiling() else self._size

    @property
    def shape(self) -> torch.Size:
        """``(N, size)``, of a row ``(size,)``."""
        return torch.Size((*self._packed.shape[:-1], self._features))

    def new(self, storage: torch.UntypedStorage) -> _Destination:
        """Allocate memory for rows like these; ``view`` or ``resize_`` shapes it."""
        return _Destination(self, storage)


class BitFeatures(_Features, BitTensor, _TensorClass):  # type: ignore[override]
    """A :class:`~bitgnn.BitTensor` that is a wrapper subclass of ``torch.Tensor``.

    PyG looks for node features only among tensors: ``Data``, ``Batch`` and the loaders cut, join
    and move these as they do floats, while models and operators read the bits. ``size`` is the
    number of features and, called, what ``torch.Tensor.size`` is. The dtype is that of the words,
    int32. Rows, copies and moves of it are of this kind; results of operators and of compiled
    programs are plain. Arguments and errors are those of :class:`~bitgnn.BitTensor`.
    """

    PLAIN = BitTensor
    FIELDS = ("words", "_features", "scale")

    @classmethod
    def _trusted(cls, words: Any, count: Any, scale: Any = None) -> BitFeatures:
        self: BitFeatures = cls._shell(words, count)
        self.words = words
        self.scale = scale
        return self


class Int8Features(_Features, Int8Tensor, _TensorClass):  # type: ignore[override]
    """An :class:`~bitgnn.bits.Int8Tensor` that is a wrapper subclass of ``torch.Tensor``.

    It stands to 8-bit rows as :class:`~bitgnn.bits.BitFeatures` stands to bits; the dtype is that
    of the codes, int8. Arguments and errors are those of :class:`~bitgnn.bits.Int8Tensor`.
    """

    PLAIN = Int8Tensor
    FIELDS = ("codes", "_features", "centre", "step", "fingerprint")

    @classmethod
    def _trusted(
        cls, codes: Any, size: Any, centre: Any, step: Any, fingerprint: int | None = None
    ) -> Int8Features:
        self: Int8Features = cls._shell(codes, size)
        self.codes = codes
        self.centre = centre
        self.step = step
        self._fingerprint = fingerprint
        return self


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

    Loaders ask for it with the bytes of a dtype for each feature, which is more than words take
    and less than padded codes: those get memory of their own, which is shared when they are sent.
    """

    def __init__(self, like: _Features, storage: torch.UntypedStorage) -> None:
        self._like = like
        self._storage = storage

    def view(self, shape: Any) -> Any:
        """Rows of a shape ``[N, size]``, to be written."""
        like = self._like
        packed = like._packed
        first = int(like._has_rows())

        def empty(part: Tensor) -> Tensor:
            rows = (shape[0], *part.shape[first:])
            place: Any = {"dtype": part.dtype, "device": part.device}
            needed = math.prod(rows)
            if part is packed and needed * part.itemsize <= self._storage.nbytes():
                return torch.empty(0, **place).set_(self._storage)[:needed].view(rows)
            return torch.empty(rows, **place)

        return like._mapped(empty, by_row=True)

    def resize_(self, *shape: int) -> Any:
        """Behave as :meth:`view` does."""
        return self.view(shape)


def _join_bits(leaves: Any, size: Any) -> Any:
    # Not only tensors come here: a specification of leaves is joined with placeholders.
    kind = BitFeatures if isinstance(leaves[0], Tensor) else BitTensor
    return kind._trusted(leaves[0], size, leaves[1])


def _join_codes(leaves: Any, rest: Any) -> Any:
    kind = Int8Features if isinstance(leaves[0], Tensor) else Int8Tensor
    size, fingerprint = rest
    codes, centre, step = leaves
    return kind._trusted(codes, size, centre, step, fingerprint)


pytrees.register(
    BitFeatures,
    ("words", "scale"),
    lambda held: ([held.words, held.scale], held._features),
    _join_bits,
)
pytrees.register(
    Int8Features,
    ("codes", "centre", "step"),
    lambda held: ([held.codes, held.centre, held.step], [held._features, held.fingerprint]),
    _join_codes,
)

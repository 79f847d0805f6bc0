"""Packed tensors that behave as torch.Tensor: rows, moves, copies, pickles, values, repr."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from bitgnn._checks import name_type
from bitgnn.bits._operands import check_index, rows_index

if TYPE_CHECKING:
    from typing_extensions import Self

_KINDS: dict[str, type[PackedRows]] = {}
"""Classes that pickles name."""
FUNCTIONS: dict[str, Callable[..., Any]] = {}
"""Functions and operators of PyTorch that take packed tensors, by name."""


class PackedRows:
    """Base of packed tensors: the first dimension is indexed as that of a ``torch.Tensor`` is.

    A slice or an integer gives a view, a mask or an index tensor a copy; the features of a row
    stay packed. ``==`` compares values one by one, as PyTorch does; :meth:`equal` and
    ``torch.equal`` compare all at once. Other functions of PyTorch raise ``TypeError``: they
    need ``to_float()``.
    """

    NAME: ClassVar[str]
    """Name in messages."""
    ROW_DIMS: ClassVar[int]
    """Dimensions of the packed values of one row."""
    ANY_DIMS: ClassVar[bool] = False
    """True if rows may span more than one dimension."""
    FIELDS: ClassVar[tuple[str, ...]]
    """Attributes in the order of the constructor's arguments."""
    ROW_FIELDS: ClassVar[tuple[str, ...]] = ("words", "scale")
    """Tensors that have a part for each row, first the packed values."""
    FEATURES: ClassVar[Any] = None
    """Kind of the same rows that is a ``torch.Tensor``, where there is one."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        _KINDS[cls.__name__] = cls

    @property
    def shape(self) -> Any:
        """Sizes of the unpacked tensor."""
        raise NotImplementedError

    def to_float(self) -> Tensor:
        """The values, unpacked."""
        raise NotImplementedError

    @classmethod
    def _trusted(cls, *state: Any) -> Self:
        """Build without checks, from results of operators."""
        raise NotImplementedError

    @classmethod
    def _made(cls, *state: Any) -> Self:
        """Build a tensor of the same kind from other parts."""
        return cls._trusted(*state)

    def as_features(self) -> Any:
        """View the rows as the ``torch.Tensor`` subclass that ``Data(x=rows)`` holds.

        Raises:
            TypeError: there is none.
        """
        if self.FEATURES is None:
            raise TypeError(
                f"{self.NAME}: PyG's Data cuts and joins tensors alone and would pass packed rows "
                "of this kind on whole; give it a BitTensor, an Int8Tensor or to_float()"
            )
        return self.FEATURES._made(*self._state())

    @classmethod
    def _rebuilt(cls, *state: Any) -> Self:
        """The inverse of :meth:`_state`, checked."""
        raise NotImplementedError

    def _state(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self.FIELDS)

    def _tensors(self) -> list[Tensor]:
        return [part for part in self._state() if isinstance(part, Tensor)]

    def _mapped(self, f: Callable[[Tensor], Tensor], by_row: bool = False) -> Self:
        """Apply ``f`` to each tensor, or only to those with one entry per row."""
        names = self.ROW_FIELDS if by_row else self.FIELDS
        return self._made(
            *(
                f(part) if name in names and isinstance(part, Tensor) else part
                for name, part in zip(self.FIELDS, self._state(), strict=True)
            )
        )

    @classmethod
    def _joined(cls, name: str, parts: list[Any], join: Callable[[list[Tensor]], Tensor]) -> Self:
        """Parts of one kind and size, joined tensor by tensor."""
        cls._check_parts(name, parts)
        state = []
        for field, *held in zip(cls.FIELDS, *(part._state() for part in parts), strict=True):
            by_row = field in cls.ROW_FIELDS
            if by_row and len({part is None for part in held}) > 1:
                raise ValueError(
                    f"{name}: all tensors must have a {field} or none of them, got both"
                )
            if not by_row and not all(part is held[0] or _same(part, held[0]) for part in held):
                raise ValueError(f"{name}: all tensors must have the {field} of the first")
            state.append(join(held) if by_row and held[0] is not None else held[0])
        return cls._made(*state)

    @classmethod
    def _check_parts(cls, name: str, parts: list[Any]) -> None:
        """Check parts before they are joined."""

    @property
    def _packed(self) -> Tensor:
        """The packed values."""
        packed: Tensor = getattr(self, self.ROW_FIELDS[0])
        return packed

    def dim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def numel(self) -> int:
        """Number of values."""
        return math.prod(self.shape)

    def __len__(self) -> int:
        if not self._has_rows():
            raise TypeError(f"{self.NAME}: a single row of features has no length")
        return int(self._packed.size(0))

    @property
    def device(self) -> torch.device:
        """Device of the packed values."""
        return self._packed.device

    @property
    def is_cuda(self) -> bool:
        """True if the packed values are on a GPU."""
        return self._packed.is_cuda

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors held."""
        return sum(part.nbytes for part in self._tensors())

    def is_contiguous(self, memory_format: torch.memory_format = torch.contiguous_format) -> bool:
        """True if every tensor held is contiguous."""
        return all(part.is_contiguous() for part in self._tensors())

    def is_pinned(self) -> bool:
        """True if the packed values are in page-locked memory."""
        return self._packed.is_pinned()

    def is_shared(self) -> bool:
        """True if the packed values are in memory that processes share."""
        return self._packed.is_shared()

    def _has_rows(self) -> bool:
        return self._packed.dim() > self.ROW_DIMS

    def to(
        self,
        device: torch.device | str | int | None,
        non_blocking: bool = False,
        copy: bool = False,
    ) -> Self:
        """Copy to another device; None, as for ``torch.Tensor``, keeps the present one.

        Raises:
            TypeError: ``device`` is no device; packed values have no other dtype.
        """
        device = self.device if device is None else device
        if not isinstance(device, torch.device | str | int):
            raise TypeError(f"{self.NAME}.to: device must be a device, got {name_type(device)}")
        return self._mapped(lambda part: part.to(device, non_blocking=non_blocking, copy=copy))

    def cpu(self) -> Self:
        """Copy to the CPU."""
        return self.to("cpu")

    def cuda(
        self, device: torch.device | str | int | None = None, non_blocking: bool = False
    ) -> Self:
        """Copy to a GPU, the current one if none is named."""
        return self.to("cuda" if device is None else device, non_blocking)

    def clone(self, *, memory_format: torch.memory_format = torch.preserve_format) -> Self:
        """A copy."""
        return self._mapped(lambda part: part.clone(memory_format=memory_format))

    def detach(self) -> Self:
        """A view without the gradient of the scale."""
        return self._mapped(Tensor.detach)

    def contiguous(self, memory_format: torch.memory_format = torch.contiguous_format) -> Self:
        """Make every tensor contiguous; contiguous ones are not copied."""
        return self._mapped(Tensor.contiguous)

    def pin_memory(self) -> Self:
        """Copy to page-locked memory, from which a GPU copies without waiting."""
        return self._mapped(Tensor.pin_memory)

    def share_memory_(self) -> Self:
        """Move the tensors to memory that processes share."""
        for part in self._tensors():
            part.share_memory_()
        return self

    def record_stream(self, stream: torch.Stream) -> None:
        """Keep the memory until the work queued on ``stream`` is done."""
        for part in self._tensors():
            part.record_stream(stream)

    def __getitem__(self, index: Any) -> Self:
        self._check_rows("index")
        if not isinstance(index, slice):
            index = rows_index(f"{self.NAME}[index]", index, len(self), self.device)
        return self._mapped(lambda part: part[index], by_row=True)

    def __iter__(self) -> Iterator[Self]:
        return (self[row] for row in range(len(self)))

    def index_select(self, dim: int, index: Tensor) -> Self:
        """Rows in the order of ``index``, as :meth:`torch.Tensor.index_select`.

        Args:
            dim: 0, since features are packed.
            index: int64 or int32 ``[R]`` on the device of the bits; each in ``[0, len)``, which is
                checked on the CPU.

        Raises:
            TypeError: ``index`` is no tensor of integers.
            ValueError: ``dim`` is another one, or shape or device of ``index`` do not fit.
            IndexError: a row does not exist.
        """
        name = f"{self.NAME}.index_select"
        self._check_dim(name, dim)
        check_index(name, index, len(self), self.device)
        return self._mapped(lambda part: part.index_select(0, index), by_row=True)

    def narrow(self, dim: int, start: int, length: int) -> Self:
        """The view of ``length`` rows from ``start`` on.

        Raises:
            ValueError: ``dim`` is not 0, or there are no such rows.
        """
        name, rows = f"{self.NAME}.narrow", len(self)
        self._check_dim(name, dim)
        if not (0 <= start <= rows and 0 <= length <= rows - start):
            raise ValueError(
                f"{name}: start and length must be within {rows} rows, got {start}, {length}"
            )
        return self._mapped(lambda part: part.narrow(0, start, length), by_row=True)

    def _check_rows(self, name: str) -> None:
        if not self._has_rows():
            raise TypeError(
                f"{self.NAME}: features of a row are packed and have no {name}; "
                "call to_float() first"
            )

    def _check_dim(self, name: str, dim: int) -> None:
        self._check_rows("dim")
        if dim not in (0, -self.dim()):
            raise ValueError(f"{name}: dim must be 0, since features are packed, got {dim}")

    def equal(self, other: Any) -> bool:
        """True if kind, sizes, values and scales (present in both or neither) are equal."""
        if not isinstance(other, PackedRows) or self.NAME != other.NAME:
            return False
        return all(_same(a, b) for a, b in zip(self._state(), other._state(), strict=True))

    def __eq__(self, other: object) -> Any:
        values = other.to_float() if isinstance(other, PackedRows) else other
        if not isinstance(values, Tensor | int | float):
            return NotImplemented
        return self.to_float() == values

    def __ne__(self, other: object) -> Any:
        found = self.__eq__(other)
        return found if found is NotImplemented else ~found

    __hash__ = object.__hash__

    def numpy(self) -> np.ndarray[Any, Any]:
        """The values as a float32 array, unpacked; of bits on the CPU."""
        array: np.ndarray[Any, Any] = self.to_float().detach().numpy()
        return array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError(f"{self.NAME}: an array of packed values is a copy, got copy=False")
        return self.numpy() if dtype is None else self.numpy().astype(dtype, copy=False)

    def tolist(self) -> list[Any]:
        """The values as nested lists of floats."""
        values: list[Any] = self.to_float().tolist()
        return values

    def __repr__(self) -> str:
        from bitgnn.bits._shown import described

        return described(self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return rebuild, (type(self).__name__, *self._state())

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        memo[id(self)] = copied = self.clone()
        return copied

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if "tensors" not in kwargs and "input" in kwargs:
            args = (kwargs.pop("input"), *args)
        name = getattr(function, "__name__", str(function))
        return function_of(name, name)(*args, **kwargs)


def function_of(name: str, shown: str) -> Callable[..., Any]:
    """A function of PyTorch's for packed tensors; ``TypeError`` where there is none."""
    if name not in FUNCTIONS:
        raise TypeError(f"{shown}: not defined for packed values; call to_float() first")
    return FUNCTIONS[name]


def rebuild(kind: str, *state: Any) -> PackedRows:
    """Unpickles a packed tensor of a kind from its constructor's arguments, checked."""
    if kind not in _KINDS:
        raise ValueError(f"rebuild: kind must be one of {list(_KINDS)}, got {kind}")
    return _KINDS[kind]._rebuilt(*state)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return torch.equal(a, b)
    return not isinstance(a, Tensor) and not isinstance(b, Tensor) and a == b

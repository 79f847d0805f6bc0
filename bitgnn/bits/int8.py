"""Int8Tensor: rows of dense features in 8 bits each, with a centre and a step for each column."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bitgnn._checks import name_type
from bitgnn.bits import pytrees
from bitgnn.bits._operands import check_scale
from bitgnn.bits.pyg_storage import teach_storages
from bitgnn.bits.rows import PackedRows
from bitgnn.bits.tensor import held_tensors

if TYPE_CHECKING:
    from typing_extensions import Self

ROW_BYTES = 16
"""Rows are padded to a multiple of it, as integer matrix units and bulk copies read them."""
MOST = 127
"""Largest code; -128 is none, so that codes are symmetric."""
MOST_FEATURES = 133120
"""Features up to which int32 holds every product of codes."""
STEPS = 2.0**-126, 2.0**126
"""Smallest and largest step: neither it nor its inverse is subnormal in float32."""


class Int8Tensor(PackedRows):
    """A matrix ``[N, size]`` of signed 8-bit codes with a centre and a step for each column.

    The value of feature ``k`` in row ``i`` is ``centre[k] + codes[i, k] * step[k]``. It is the
    packed form of dense features for a binary model's first layer, in a quarter of their bytes.
    A row ``rows[i]`` is an ``Int8Tensor`` ``[size]``; PyG's ``Data`` holds what
    :meth:`as_features` returns. Rows, copies and moves share the scales or have equal ones, and the
    ``fingerprint`` of the scales tells rows that were packed for another model. Scales are not
    written to.

    Args:
        codes: int8 ``[N, 16 * ceil(size / 16)]`` within [-127, 127]; padding bytes are 0.
        size: number of features.
        centre: float32 ``[size]``, finite.
        step: float32 ``[size]``: 0, of a constant column, or within [2^-126, 2^126].

    Raises:
        TypeError: a tensor has another dtype.
        ValueError: shapes, devices or scales do not fit, or codes on the CPU hold -128 or have
            padding bytes set; on a GPU, whose codes are not waited for, :meth:`validate` tells.
    """

    NAME = "Int8Tensor"
    ROW_DIMS = 1
    FIELDS = ("codes", "size", "centre", "step", "fingerprint")
    ROW_FIELDS = ("codes",)

    codes: Tensor
    size: int
    centre: Tensor
    step: Tensor
    _fingerprint: int | None

    def __init__(self, codes: Tensor, size: int, centre: Tensor, step: Tensor) -> None:
        teach_storages()
        is_plain = isinstance(codes, Tensor) and not isinstance(codes, PackedRows)
        if not is_plain or codes.dtype != torch.int8:
            raise TypeError(f"Int8Tensor: codes must be an int8 tensor, got {name_type(codes)}")
        if isinstance(size, bool) or not isinstance(size, int | torch.SymInt):
            raise TypeError(f"Int8Tensor: size must be an int, got {name_type(size)}")
        width = bytes_for(size)
        if size < 0 or codes.dim() != 2 or codes.size(1) != width:
            raise ValueError(
                f"Int8Tensor: codes must have shape [N, {width}] for size {size}, "
                f"got {list(codes.shape)}"
            )
        for name, scale in (("centre", centre), ("step", step)):
            check_scale("Int8Tensor", name, scale, size, codes.device)
        self.codes = codes
        self.size = size
        self.centre = centre
        self.step = step
        self._fingerprint = _checked_fingerprint("Int8Tensor", centre, step)
        if type(codes) is Tensor and codes.device.type == "cpu":
            self._check_codes()

    @classmethod
    def from_float(cls, x: Tensor, centre: Tensor, step: Tensor) -> Int8Tensor:
        """Round ``x`` to codes, ``clamp(rint((x - centre) * (1 / step)), -127, 127)``.

        Computed in float32, each operation rounded, halves to even. NaN gives 0, infinities give
        +-127, and a column whose step is 0 holds zeros.

        Args:
            x: ``[N, K]``, any floating-point dtype.
            centre: floating point ``[K]``, finite; copied, as ``step`` is.
            step: floating point ``[K]``: 0, of a constant column, or within [2^-126, 2^126].

        Raises:
            TypeError: ``x`` or a scale is no dense tensor of floats.
            ValueError: a shape or device does not fit, or a scale has another value.
        """
        name = "Int8Tensor.from_float"
        teach_storages()
        for argument, given in (("x", x), ("centre", centre), ("step", step)):
            _check_floats(name, argument, given)
        if x.dim() != 2 or x.size(1) > MOST_FEATURES:
            raise ValueError(
                f"{name}: x must have shape [N, K] with K <= {MOST_FEATURES}, got {list(x.shape)}"
            )
        # Copies: the running statistics of a layer go on while the rows stay as they are.
        scales = [given.detach().to(torch.float32, copy=True) for given in (centre, step)]
        for argument, scale in zip(("centre", "step"), scales, strict=True):
            check_scale(name, argument, scale, x.size(1), x.device, " like x's features")
        fingerprint = _checked_fingerprint(name, *scales)
        values = x.detach()
        values = values.float() if values.dtype == torch.float64 else values
        codes = torch.ops.bitgnn.pack_int8(values, scales[0], inverse_step(scales[1]))
        return cls._made(codes, x.size(1), *scales, fingerprint)

    def to_float(self) -> Tensor:
        """Float32 ``[N, size]``: ``centre + codes * step``."""
        return self.codes[..., : self.size].to(torch.float32) * self.step + self.centre

    @property
    def shape(self) -> torch.Size:
        """``(N, size)``, of a row ``(size,)``."""
        return torch.Size((*self.codes.shape[:-1], self.size))

    @property
    def fingerprint(self) -> int | None:
        """Number in [0, 2^63) that stands for centre and step: equal scales, equal numbers.

        It is on the host and goes along with rows, copies and moves. Rows that were packed while a
        program was traced or captured read their scales when they are first asked; without
        values, on the meta device, it is None.
        """
        if self._fingerprint is None and _has_values(self.centre):
            self._fingerprint = fingerprint_of(self.centre, self.step)
        return self._fingerprint

    def check_fingerprint(self, owner: str, expected: int | None) -> None:
        """Require the scales that a model packs with.

        Args:
            owner: the model's name in the message.
            expected: the ``fingerprint`` of its scales.

        Raises:
            ValueError: these rows were packed by others; the message names both fingerprints.
        """
        if self.fingerprint != expected:
            raise ValueError(
                f"{owner}: x must be packed by the scales {shown(expected)} of this model, got "
                f"rows packed by {shown(self.fingerprint)}; pack the floats with its pack_features"
            )

    def validate(self) -> Self:
        """Check codes and scales and return self; reads all of them.

        Raises:
            ValueError: a padding byte is not 0, a code is -128, or a scale has a value that it
                must not have or was written to.
        """
        self._check_codes()
        if _checked_fingerprint(self.NAME, self.centre, self.step) != self.fingerprint:
            raise ValueError("Int8Tensor: centre and step must be those that packed the rows")
        return self

    def _check_codes(self) -> None:
        padding = int(self.codes[..., self.size :].count_nonzero())
        if padding != 0:
            raise ValueError(f"Int8Tensor: padding bytes must be 0, got {padding} others")
        if self.codes.numel() and int(self.codes.min()) < -MOST:
            raise ValueError("Int8Tensor: codes must be within [-127, 127], got -128")

    def to_tensors(self, prefix: str = "") -> dict[str, Tensor]:
        """Plain tensors under ``prefix``: codes, size (int64 scalar), centre, step."""
        held = {"codes": self.codes, "size": torch.tensor(self.size)}
        held |= {"centre": self.centre, "step": self.step}
        return {f"{prefix}{name}": tensor for name, tensor in held.items()}

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor], prefix: str = "") -> Int8Tensor:
        """The inverse of :meth:`to_tensors`.

        Raises:
            ValueError: a tensor is missing, shapes do not fit, or codes or scales hold values
                that they must not hold.
        """
        names = ("codes", "size", "centre", "step")
        codes, size, centre, step = held_tensors(cls, tensors, prefix, *names)
        return cls(codes, int(size), centre, step).validate()

    @classmethod
    def _trusted(
        cls, codes: Any, size: Any, centre: Any, step: Any, fingerprint: int | None = None
    ) -> Self:
        self = object.__new__(cls)
        self.codes = codes
        self.size = size
        self.centre = centre
        self.step = step
        self._fingerprint = fingerprint
        return self

    @classmethod
    def _rebuilt(cls, codes: Any, size: Any, centre: Any, step: Any, _: Any = None) -> Self:
        if isinstance(codes, Tensor) and codes.dim() == cls.ROW_DIMS:
            return cls(codes.unsqueeze(0), size, centre, step)[0]
        return cls(codes, size, centre, step)

    @classmethod
    def _check_parts(cls, name: str, parts: list[Any]) -> None:
        first = parts[0].fingerprint
        for place, part in enumerate(parts):
            if part.fingerprint != first:
                raise ValueError(
                    f"{name}: tensors[{place}] must be packed by the scales {shown(first)} like "
                    f"the first, got {shown(part.fingerprint)}"
                )


def bytes_for(size: int) -> int:
    """Bytes of a row of ``size`` codes, a multiple of 16."""
    return (size + ROW_BYTES - 1) // ROW_BYTES * ROW_BYTES


def inverse_step(step: Tensor) -> Tensor:
    """Float32 ``1 / step``, and 0 where the step is 0: the factor that packing multiplies by.

    Taken three times it is what it is taken once: a factor that it gave and the step that it gives
    for that factor stand for each other exactly, as an arbitrary factor and its inverse do not.
    """
    return torch.where(step > 0, 1.0 / step, 0.0)


def fingerprint_of(centre: Tensor, step: Tensor) -> int:
    """The ``fingerprint`` of rows that these scales pack, in [0, 2^63); waits for a GPU.

    The first 63 bits of SHA-256 over both as little-endian float32; -0 counts as 0.
    """
    digest = hashlib.sha256()
    for scale in (centre, step):
        digest.update((scale.detach().cpu() + 0.0).numpy().astype("<f4", copy=False).tobytes())
    return int.from_bytes(digest.digest()[:8], "big") >> 1


def shown(fingerprint: int | None) -> str:
    """A fingerprint as messages and files name it: 16 hexadecimal digits."""
    return "of unknown values" if fingerprint is None else f"{fingerprint:016x}"


def check_scales(owner: str, centre: Tensor, step: Tensor) -> None:
    """Require float32 scales of values that packing can use; waits for a GPU.

    Raises:
        ValueError: the message names the first column that does not fit.
    """
    low, high = STEPS
    centre, step = centre.detach().cpu(), step.detach().cpu()
    for name, values, fits, must in (
        ("centre", centre, centre.isfinite(), "finite"),
        ("step", step, (step == 0) | ((step >= low) & (step <= high)), "0 or in [2^-126, 2^126]"),
    ):
        if not bool(fits.all()):
            column = int(fits.logical_not().nonzero()[0])
            raise ValueError(
                f"{owner}: {name} must be {must}, got {float(values[column])} in column {column}"
            )


def _checked_fingerprint(owner: str, centre: Tensor, step: Tensor) -> int | None:
    if not _has_values(centre):
        return None
    check_scales(owner, centre, step)
    return fingerprint_of(centre, step)


def _has_values(tensor: Tensor) -> bool:
    """True if the host can read the values now, outside of traces and captures."""
    is_real = type(tensor) in (Tensor, torch.nn.Parameter) and not tensor.is_meta
    if not is_real or torch.compiler.is_compiling():
        return False
    return not (tensor.is_cuda and torch.cuda.is_current_stream_capturing())


def _check_floats(function: str, name: str, x: Any) -> None:
    is_dense = isinstance(x, Tensor) and not isinstance(x, PackedRows)
    if not is_dense or not x.is_floating_point():
        raise TypeError(f"{function}: {name} must be a tensor of floats, got {name_type(x)}")
    if x.layout != torch.strided or x.is_nested:
        got = "a nested tensor" if x.is_nested else f"layout {x.layout}"
        raise TypeError(f"{function}: {name} must be dense, got {got}")


pytrees.register(
    Int8Tensor,
    ("codes", "centre", "step"),
    lambda held: ([held.codes, held.centre, held.step], [held.size, held.fingerprint]),
    lambda leaves, rest: Int8Tensor._trusted(leaves[0], rest[0], leaves[1], leaves[2], rest[1]),
)

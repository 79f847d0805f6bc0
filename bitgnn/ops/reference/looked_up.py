"""Reference of operators of looked-up products in training: weights, activations, gradients."""

import torch
from torch import Tensor

from bitgnn.ops.reference.pack import from_words, signs, to_words, words_for
from bitgnn.ops.reference.table import operator

__all__ = [
    "activation_bits",
    "fold_weight",
    "kept_share",
    "row_signs",
    "straight_through",
    "unpack_pair",
]


def _check_floats(op: str, **tensors: Tensor | None) -> None:
    for name, tensor in tensors.items():
        if tensor is not None and tensor.dtype != torch.float32:
            raise TypeError(f"{op}: {name} must be float32, got {tensor.dtype}")


def _check_numbers(op: str, **tensors: Tensor | None) -> None:
    _check_floats(op, **tensors)
    for name, tensor in tensors.items():
        if tensor is not None and tensor.dim() != 0:
            raise ValueError(f"{op}: {name} must have 0 dimensions, got {tensor.dim()}")


def _words_like(x: Tensor) -> Tensor:
    return x.new_empty((x.size(0), words_for(x.size(1))), dtype=torch.int32)


def _floats(x: Tensor, *shape: int) -> Tensor:
    return x.new_empty(shape, dtype=torch.float32)


@operator(
    "weight:M,B offset:B",
    lambda weight: (
        _words_like(weight), _floats(weight, weight.size(0)), _floats(weight, weight.size(0))
    ),
)  # fmt: skip
def fold_weight(
    weight: Tensor,
    unit: Tensor,
    step: float,
    zero_one: bool,
    offset: Tensor | None = None,
    gain: Tensor | None = None,
    log_gain: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Words of weights ``[M, B]``, and scale and shift ``[M]`` of their products in training.

    With :math:`s_o = unit \cdot step \cdot gain \cdot e^{log\_gain}` they are :math:`s_o` and
    :math:`s_o \sum_k \mathrm{sgn}(W_{ok}) (zero\_one + offset_k / (step \cdot gain))`, in float64
    and rounded once; sums of offsets that are multiples of a power of two are exact. ``log_gain``
    has one entry for each of several parts with equally many outputs; ``unit`` and ``gain`` are
    numbers.
    """
    _check_floats("fold_weight", weight=weight, offset=offset, log_gain=log_gain)
    _check_numbers("fold_weight", unit=unit, gain=gain)
    parts = 1 if log_gain is None else log_gain.numel()
    if parts == 0 or weight.size(0) % parts:
        raise ValueError(
            f"fold_weight: log_gain must have a number of entries that divides {weight.size(0)}, "
            f"got {parts}"
        )
    by = step if gain is None else step * gain.double()
    scale = (unit.double() * by).expand(weight.size(0))
    if log_gain is not None:
        scale = scale * log_gain.double().exp().repeat_interleave(weight.size(0) // parts)
    ones = torch.where(weight >= 0, 1.0, -1.0).double()
    sums = ones.sum(1) if zero_one else 0.0
    if offset is not None:
        sums = sums + torch.mv(ones, offset.double()) / by
    return to_words(weight >= 0), scale.float().contiguous(), (scale * sums).float()


@operator(
    "x:N,K mask:N,K",
    lambda x: (_words_like(x), _words_like(x), _floats(x, x.size(0)), _floats(x)),
)
def activation_bits(
    x: Tensor, mask: Tensor | None, threshold: float, factor: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    r"""Words of ``x >= threshold``, the same with dropped bits set, bad rows, and the norm.

    Args:
        x: float32 ``[N, K]``.
        mask: bool ``[N, K]``, what a dropout has kept; None is all.
        threshold: of every feature.
        factor: of the norm.

    Returns:
        Both words ``[N, ceil(K / 32)]``; float32 ``[N]``, 0, or NaN where a row has NaN or
        infinity; and :math:`factor \sqrt{\sum x^2}`, summed in float64, without dimensions.
    """
    _check_floats("activation_bits", x=x)
    if mask is not None and mask.dtype != torch.bool:
        raise TypeError(f"activation_bits: mask must be bool, got {mask.dtype}")
    bits = x >= threshold
    raised = bits if mask is None else bits | ~mask
    bad = torch.where(x.isfinite().all(1), 0.0, torch.nan).float()
    norm = (x.double().square().sum().sqrt() * factor).float()
    return to_words(bits), to_words(raised), bad, norm


@operator("words:N,W(size)", lambda words: (_floats(words), _floats(words)))
def kept_share(
    words: Tensor, size: int, present: Tensor, weight: float, most: float
) -> tuple[Tensor, Tensor]:
    """Share of set bits of late, and the gain that makes up for those that are missing.

    ``present`` holds three shares: of late, in evaluation, and one that does not count. The first
    moves by ``weight`` toward that of ``words``; the gain is the quotient of the second and the
    result, between 1 and ``most``. Both are float32 without dimensions, computed in float64.
    """
    _check_floats("kept_share", present=present)
    if present.shape != (3,):
        raise ValueError(f"kept_share: present must have 3 entries, got {list(present.shape)}")
    if not most >= 1:
        raise ValueError(f"kept_share: most must be at least 1, got {most}")
    share = from_words(words, size).sum().double() / max(words.size(0) * size, 1)
    before, evaluated, _ = present.double()
    late = before + weight * (share - before)
    gain = (evaluated / late).nan_to_num(nan=1.0, posinf=most, neginf=1.0).clamp(1.0, most)
    return late.float(), gain.float()


@operator("words:N,W(size) raised:N,W(size) -> floats:N,size")
def unpack_pair(words: Tensor, raised: Tensor, size: int) -> Tensor:
    """Float32 ``[N, size]``: the sum of two matrices of signs."""
    return signs(words, size) + signs(raised, size)


@operator("x:N,K total:N -> floats:N,K")
def row_signs(x: Tensor, total: Tensor) -> Tensor:
    """Signs of float32 x ``[N, K]``, and NaN in rows whose ``total`` is not finite."""
    _check_floats("row_signs", x=x, total=total)
    return torch.where(x >= 0, 1.0, -1.0) + (total * 0.0).unsqueeze(1)


@operator("grad:M,K x:M,K scale:M -> floats:M,K")
def straight_through(
    grad: Tensor,
    x: Tensor,
    slope: float,
    window: Tensor | None = None,
    scale: Tensor | None = None,
) -> Tensor:
    """``grad * (scale * slope)``, scales by rows, where ``|x| <= window`` (None: 1), else 0."""
    _check_floats("straight_through", grad=grad, x=x, scale=scale)
    _check_numbers("straight_through", window=window)
    inside = x.abs() <= (1.0 if window is None else window)
    factor = slope if scale is None else (scale * slope).unsqueeze(1)
    return torch.where(inside, grad * factor, 0.0).contiguous()

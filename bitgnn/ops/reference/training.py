"""Reference of operators of training: rounding, its gradients, and looked-up products."""

import math

import torch
from torch import Tensor

from bitgnn.ops.reference.pack import signs, to_words, words_for
from bitgnn.ops.reference.table import Arguments, operator

MOST_LEVEL = 2**24
"""Every integer up to here is a float32."""


def _check_floats(op: str, **tensors: Tensor | None) -> None:
    for name, tensor in tensors.items():
        if tensor is not None and tensor.dtype != torch.float32:
            raise TypeError(f"{op}: {name} must be float32, got {tensor.dtype}")


def _check_numbers(op: str, **tensors: Tensor | None) -> None:
    _check_floats(op, **tensors)
    for name, tensor in tensors.items():
        if tensor is not None and tensor.dim() != 0:
            raise ValueError(f"{op}: {name} must have 0 dimensions, got {tensor.dim()}")


def _check_levels(op: str, a: Arguments) -> None:
    _check_floats(op, x=a.x)
    _check_numbers(op, scale=a.scale)
    if not 1 <= a.highest <= MOST_LEVEL:
        raise ValueError(f"{op}: highest must be in [1, {MOST_LEVEL}], got {a.highest}")
    if not -MOST_LEVEL <= a.lowest <= 0:
        raise ValueError(f"{op}: lowest must be in [{-MOST_LEVEL}, 0], got {a.lowest}")


def _floats(x: Tensor, *shape: int) -> Tensor:
    return x.new_empty(shape, dtype=torch.float32)


def _words_like(x: Tensor) -> Tensor:
    return x.new_empty((x.size(0), words_for(x.size(1))), dtype=torch.int32)


@operator("x scale lowest:int highest:int", lambda a: _floats(a.x, *a.x.shape))
def round_levels(a: Arguments) -> Tensor:
    """``x / scale`` rounded to integers in [lowest, highest], halves up; 0 for NaN.

    With ``highest`` 1 decided as packing does, where a quotient could round to the half.
    """
    _check_levels("round_levels", a)
    x = a.x.contiguous()
    if a.highest == 1:
        half = 0.5 * a.scale
        above = (x >= half).float()
        return above if a.lowest == 0 else above - (x < -half).float()
    return torch.floor(x / a.scale + 0.5).nan_to_num(nan=0.0).clamp(a.lowest, a.highest)


@operator(
    "grad x scale lowest:int highest:int gain? sign=False",
    lambda a: (_floats(a.grad, *a.grad.shape), _floats(a.grad)),
)
def clip_gradients(a: Arguments) -> tuple[Tensor, Tensor]:
    """Gradients of ``clip(x / scale, lowest, highest)`` in x and in the scale, a float64 sum.

    With ``gain`` they are LSQ's, of ``gain * scale * q`` whose gradient ``grad`` is: q is what
    :func:`round_levels` gives, or with ``sign`` the sign of x, which is 1 where x is 0.
    """
    x, scale, grad = a.x, a.scale, a.grad
    _check_levels("clip_gradients", a)
    _check_floats("clip_gradients", grad=grad)
    _check_numbers("clip_gradients", gain=a.gain)
    if grad.shape != x.shape:
        raise ValueError(f"clip_gradients: grad must have the shape of x, got {list(grad.shape)}")
    v = x / scale
    inside = (v >= a.lowest) & (v <= a.highest)
    if a.gain is None:
        passed = torch.where(inside, grad, 0.0) / scale
        terms = passed * torch.where(inside, v, 0.0)
        return passed.contiguous(), -terms.sum(dtype=torch.float64).float()
    if a.sign:
        q = torch.where(x >= 0, 1.0, -1.0).float()
    else:
        q = round_levels(x, scale, a.lowest, a.highest)
    wide = a.gain * grad
    passed = torch.where(inside, wide, 0.0)
    terms = wide * q - passed * torch.where(inside, v, 0.0)
    factor = 1.0 / math.sqrt(max(x.numel(), 1) * a.highest)
    return passed.contiguous(), (terms.sum(dtype=torch.float64) * factor).float()


@operator("weight", lambda a: (_floats(a.weight, *a.weight.shape), _floats(a.weight)))
def shift_signs(a: Arguments) -> tuple[Tensor, Tensor]:
    """Signs of the weights less their mean, and the mean of what is left, both float64 sums."""
    _check_floats("shift_signs", weight=a.weight)
    # Sums in float64 differ by the order of their terms far less than float32 tells: signs and
    # scale are the same on every device and for any number of threads.
    count = max(a.weight.numel(), 1)
    centred = a.weight - (a.weight.sum(dtype=torch.float64) / count).float()
    scale = (centred.abs().sum(dtype=torch.float64) / count).float()
    return torch.where(centred >= 0, 1.0, -1.0).float().contiguous(), scale


@operator("grad factor", lambda a: _floats(a.grad, *a.grad.shape))
def centre_gradients(a: Arguments) -> Tensor:
    """``(grad - mean(grad)) * factor``, the mean a float64 sum."""
    _check_floats("centre_gradients", grad=a.grad)
    _check_numbers("centre_gradients", factor=a.factor)
    mean = (a.grad.sum(dtype=torch.float64) / max(a.grad.numel(), 1)).float()
    return ((a.grad - mean) * a.factor).contiguous()


@operator("sums scale weight_scale bias?", lambda a: _floats(a.sums, *a.sums.shape))
def scale_sums(a: Arguments) -> Tensor:
    """``(scale * weight_scale) * sums + bias``, each step rounded."""
    _check_floats("scale_sums", sums=a.sums, bias=a.bias)
    if a.sums.dim() == 0:
        raise ValueError("scale_sums: sums must have a dimension at least, got 0")
    _check_numbers("scale_sums", scale=a.scale, weight_scale=a.weight_scale)
    out = (a.scale * a.weight_scale) * a.sums
    if a.bias is None:
        return out.contiguous()
    if a.bias.shape != a.sums.shape[-1:]:
        raise ValueError(
            f"scale_sums: entries of bias must be {a.sums.size(-1)}, got {list(a.bias.shape)}"
        )
    return (out + a.bias).contiguous()


@operator(
    "weight:M,B unit step:float zero_one:bool offset?:B log_gain?",
    lambda a: (_words_like(a.weight), *(_floats(a.weight, a.weight.size(0)) for _ in range(2))),
)
def fold_weight(a: Arguments) -> tuple[Tensor, Tensor, Tensor]:
    r"""Words of weights ``[M, B]``, and scale and shift ``[M]`` of their products in training.

    With :math:`s_o = unit \cdot step \cdot e^{log\_gain}` they are :math:`s_o` and
    :math:`s_o \sum_k \mathrm{sgn}(W_{ok}) (zero\_one + offset_k / step)`, in float64 and rounded
    once; sums of offsets that are multiples of a power of two are exact. ``log_gain`` has one entry
    for each of several parts with equally many outputs; ``unit`` is a number.
    """
    weight, log_gain = a.weight, a.log_gain
    _check_floats("fold_weight", weight=weight, offset=a.offset, log_gain=log_gain)
    _check_numbers("fold_weight", unit=a.unit)
    parts = 1 if log_gain is None else log_gain.numel()
    if parts == 0 or weight.size(0) % parts:
        raise ValueError(
            f"fold_weight: log_gain must have a number of entries that divides {weight.size(0)}, "
            f"got {parts}"
        )
    scale = (a.unit.double() * a.step).expand(weight.size(0))
    if log_gain is not None:
        scale = scale * log_gain.double().exp().repeat_interleave(weight.size(0) // parts)
    ones = torch.where(weight >= 0, 1.0, -1.0).double()
    sums = ones.sum(1) if a.zero_one else 0.0
    if a.offset is not None:
        sums = sums + torch.mv(ones, a.offset.double()) / a.step
    return to_words(weight >= 0), scale.float().contiguous(), (scale * sums).float()


@operator(
    "x:N,K threshold:float factor:float",
    lambda a: (_words_like(a.x), _floats(a.x, a.x.size(0)), _floats(a.x)),
)
def activation_bits(a: Arguments) -> tuple[Tensor, Tensor, Tensor]:
    r"""Words of ``x >= threshold``, bad rows, and the norm, of float32 ``x [N, K]``.

    Words are ``[N, ceil(K / 32)]``; the bad rows float32 ``[N]``, 0, or NaN where a row has NaN or
    infinity; the norm, without dimensions, is :math:`factor \sqrt{\sum x^2}`, summed in float64.
    """
    _check_floats("activation_bits", x=a.x)
    bits = a.x >= a.threshold
    bad = torch.where(a.x.isfinite().all(1), 0.0, torch.nan).float()
    norm = (a.x.double().square().sum().sqrt() * a.factor).float()
    return to_words(bits), bad, norm


@operator("words:N,W(size) raised:N,W(size) size:int -> floats:N,size")
def unpack_pair(a: Arguments) -> Tensor:
    """Float32 ``[N, size]``: the sum of two matrices of signs."""
    return signs(a.words, a.size) + signs(a.raised, a.size)


@operator("x:N,K total:N -> floats:N,K")
def row_signs(a: Arguments) -> Tensor:
    """Signs of float32 x ``[N, K]``, and NaN in rows whose ``total`` is not finite."""
    _check_floats("row_signs", x=a.x, total=a.total)
    return torch.where(a.x >= 0, 1.0, -1.0).float() + (a.total * 0.0).unsqueeze(1)


@operator("grad:M,K x:M,K slope:float window? scale?:M -> floats:M,K")
def straight_through(a: Arguments) -> Tensor:
    """``grad * (scale * slope)``, scales by rows, where ``|x| <= window`` (None: 1), else 0."""
    _check_floats("straight_through", grad=a.grad, x=a.x, scale=a.scale)
    _check_numbers("straight_through", window=a.window)
    inside = a.x.abs() <= (1.0 if a.window is None else a.window)
    factor = a.slope if a.scale is None else (a.scale * a.slope).unsqueeze(1)
    return torch.where(inside, a.grad * factor, 0.0).contiguous()


@operator(
    "x:N,K every:int memory:float mean:K variance:K present:K negative rows due?",
    lambda a: (*(_floats(a.x, a.x.size(1)) for _ in range(3)), *(_floats(a.x) for _ in range(3))),
)
def merge_columns(a: Arguments) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    r"""Running statistics of columns, and those of every ``every``-th row of x ``[N, K]``.

    Merged, of n = N rows against r = ``rows`` seen, with the weight :math:`w = n / (n + r)`: means
    :math:`\mu + w d` with the distance :math:`d = m - \mu`, variances :math:`(1 - w)
    \sigma^2 + w v + w (1 - w) d^2` (v where r = 0), shares of entries that are normal and above 0
    and of all that are below 0, and rows :math:`\max(\min(r + n, (memory - 1) n), r (1 -
    1/memory))`. In float64, rounded once. Nothing changes where ``due`` is not above 0, x is empty,
    or a merged mean or variance is not finite; the last result is 0 in that case, else 1.
    """
    floats = {"mean": a.mean, "variance": a.variance, "present": a.present}
    _check_floats("merge_columns", x=a.x, **floats)
    _check_numbers("merge_columns", negative=a.negative, rows=a.rows, due=a.due)
    for name, least in (("every", a.every), ("memory", a.memory)):
        if least < 1:
            raise ValueError(f"merge_columns: {name} must be at least 1, got {least}")
    held = (a.mean, a.variance, a.present, a.negative, a.rows)
    if a.x.numel() == 0:
        kept = [h.clone() for h in held]
        return kept[0], kept[1], kept[2], kept[3], kept[4], torch.ones_like(a.rows)
    found, number = a.x[:: a.every].double(), a.x.size(0)
    first, looked_at = found[0], found.size(0)
    shift = (found - first).sum(0) / looked_at
    mean = first + shift
    variance = ((found - first).square().sum(0) / looked_at - shift * shift).clamp(min=0.0)
    present = (found >= torch.finfo(torch.float32).tiny).sum(0).double() / looked_at
    negative = (found < 0).sum().double() / found.numel()
    old = tuple(h.double() for h in held)
    rows = old[4]
    weight = torch.full_like(rows, number) / (rows + number)
    distance = mean - old[0]
    spread = old[1] * (1 - weight) + variance * weight
    spread = spread + distance * distance * (weight * (1 - weight))
    grown = torch.minimum(rows + number, torch.full_like(rows, (a.memory - 1) * number))
    made = (
        old[0] + distance * weight,
        torch.where(rows > 0, spread, variance),
        old[2] + (present - old[2]) * weight,
        old[3] + (negative - old[3]) * weight,
        torch.maximum(grown, rows * (1 - 1 / a.memory)),
    )
    merged = tuple(m.float() for m in made)
    is_due = torch.ones_like(a.rows, dtype=torch.bool) if a.due is None else a.due > 0
    is_finite = merged[0].isfinite().all() & merged[1].isfinite().all() | ~is_due
    kept = [torch.where(is_finite & is_due, m, h) for m, h in zip(merged, held, strict=True)]
    return kept[0], kept[1], kept[2], kept[3], kept[4], is_finite.float()

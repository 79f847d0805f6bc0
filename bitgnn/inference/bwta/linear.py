"""BWTALinear on bits, and what all frozen BWTA layers share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, get_args

import torch
from torch import Tensor, nn

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.bits.tensor import words_for
from bitgnn.bits.ternary import QUANTISED
from bitgnn.nn.bwta_linear import ActivationQuantizer, BWTALinear, Kind
from bitgnn.nn.inputs.float_inputs import check_floats
from bitgnn.quantize import shifted_sign


class FrozenBWTALayer(nn.Module):
    """A layer with buffers alone, which move between devices but keep their types.

    ``model.half()`` must not round scales that decide bits. ``kind`` is its name in checkpoints,
    whose entry :meth:`description` makes of the ``settings`` and ``from_tensors`` reads.
    """

    kind: str
    settings: tuple[str, ...]

    def description(self) -> dict[str, Any]:
        """Arguments of ``from_tensors`` beside the tensors, as plain values."""
        return {name: getattr(self, name) for name in self.settings}

    def settle(self) -> None:
        """Make anew what follows from the tensors."""

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *args)
        self.settle()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> FrozenBWTALayer:
        before = dict(self._buffers)
        super()._apply(fn, recurse)
        for name, kept in before.items():
            moved = self._buffers[name]
            if kept is not None and moved is not None and moved.dtype != kept.dtype:
                self._buffers[name] = kept.to(moved.device)
        return self


def inside(tensors: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    """Tensors of a part of a module, by their names in it."""
    start = f"{name}." if name else ""
    return {key.removeprefix(start): t for key, t in tensors.items() if key.startswith(start)}


def checked_scale(tensors: dict[str, Tensor], name: str, layer: str) -> Tensor:
    """The 0-d float32 scale of that name, which is positive and finite, or a ValueError."""
    scale = tensors.get(name)
    if scale is None or scale.dim() != 0 or scale.dtype != torch.float32:
        raise ValueError(f"{layer}: {name} must be a 0-d float32 tensor")
    assert scale is not None
    if not scale > 0 or not scale.isfinite():
        raise ValueError(f"{layer}: {name} must be positive and finite, got {float(scale)}")
    return scale


class FrozenBWTALinear(FrozenBWTALayer):
    r"""Packed weights times activations that are made ternary, or 0 and 1, or signs on the way in.

    :math:`((s_A s_W)\, dot) + b` in float32, rounded once to the type of the input: what
    :class:`bitgnn.nn.BWTALinear` gives at level 1, bit for bit.

    ``words`` are int32 ``[M, ceil(K / 32)]``, bit 1 = +1; the scales, of activations and of
    weights, 0-d float32; the bias is float32 ``[M]`` or None; K is ``in_features``.

    Raises:
        ValueError: a tensor has another shape or type than that, or a value no meaning.
    """

    kind = "linear"
    settings = ("in_features", "activation")
    words: Tensor
    scale: Tensor
    weight_scale: Tensor

    def __init__(
        self,
        words: Tensor,
        scale: Tensor,
        weight_scale: Tensor,
        bias: Tensor | None,
        in_features: int,
        activation: str = "ternary",
    ) -> None:
        super().__init__()
        fits = words.dim() == 2 and words.dtype == torch.int32
        if not fits or words.size(1) != words_for(in_features):
            raise ValueError(
                f"FrozenBWTALinear: words must be int32 [M, ceil({in_features} / 32)], "
                f"got {words.dtype} {list(words.shape)}"
            )
        if bias is not None and (bias.shape != words.shape[:1] or bias.dtype != torch.float32):
            raise ValueError(f"FrozenBWTALinear: bias must be float32 [{words.size(0)}]")
        if activation not in get_args(Kind):
            raise ValueError(
                f"FrozenBWTALinear: activation must be one of {get_args(Kind)}, got {activation!r}"
            )
        if weight_scale.dim() != 0 or not weight_scale.isfinite():
            raise ValueError(
                f"FrozenBWTALinear: weight_scale must be a finite number, got {weight_scale}"
            )
        self.in_features, self.out_features = in_features, words.size(0)
        self.activation = activation
        self.register_buffer("words", words)
        self.register_buffer("scale", checked_scale({"scale": scale}, "scale", "FrozenBWTALinear"))
        self.register_buffer("weight_scale", weight_scale)
        self.register_buffer("bias", bias)
        self.register_buffer("_factor", None, persistent=False)
        self.settle()

    def settle(self) -> None:
        """Both scales as one of each output, as products of signs take them."""
        if self.activation == "sign":
            self._factor = (self.scale * self.weight_scale).repeat(self.out_features)

    @classmethod
    def from_parts(
        cls, name: str, weight: Tensor, bias: Tensor | None, quantizer: ActivationQuantizer
    ) -> FrozenBWTALinear:
        """The frozen form of a product, or a ValueError about ``name``, its layer."""
        scale = quantizer.frozen_scale(name)
        for what, tensor in (("weight", weight), ("bias", bias)):
            if tensor is not None and not bool(tensor.isfinite().all()):
                raise ValueError(f"freeze: the {what} of {name} holds NaN or infinity")
        signs, weight_scale = shifted_sign(weight.detach())
        words: Tensor = torch.ops.bitgnn.pack(signs)
        bias = None if bias is None else bias.detach().float().clone()
        return cls(words, scale, weight_scale.clone(), bias, weight.size(1), quantizer.kind)

    @classmethod
    def from_layer(cls, name: str, layer: BWTALinear) -> FrozenBWTALinear:
        """The frozen form of a trained layer."""
        return cls.from_parts(name, layer.weight, layer.bias, layer.input_quantizer)

    @classmethod
    def from_tensors(
        cls, description: dict[str, Any], tensors: dict[str, Tensor]
    ) -> FrozenBWTALinear:
        """The inverse of :meth:`description` and ``state_dict``."""
        words, scale, weight_scale = (tensors[n] for n in ("words", "scale", "weight_scale"))
        settings = {name: description[name] for name in cls.settings}
        return cls(words, scale, weight_scale, tensors.get("bias"), **settings)

    def forward(self, input: Tensor) -> Tensor:
        """As of ``BWTALinear``, for ``[*, in_features]`` in float32, float16 or bfloat16."""
        check_floats("FrozenBWTALinear", "input", input, self.words.device, QUANTISED)
        if input.dim() == 0 or input.size(-1) != self.in_features:
            raise ValueError(
                f"FrozenBWTALinear: input must be [*, {self.in_features}], got {list(input.shape)}"
            )
        rows = input.reshape(math.prod(input.shape[:-1]), self.in_features)
        if self.activation == "sign":
            words = torch.ops.bitgnn.pack(rows)
            out = torch.ops.bitgnn.bmm_bbf(
                words, self.words, self.in_features, None, self._factor, self.bias
            ).to(rows.dtype)
        else:
            out = torch.ops.bitgnn.linear_ternary(
                rows, self.words, self.in_features, self.scale, self.weight_scale, self.bias,
                rows.dtype, self.activation == "bool",
            )  # fmt: skip
        return out.view(*input.shape[:-1], self.out_features)

    @property
    def weight(self) -> Tensor:
        """:meth:`to_float`, made anew at each look: for code that reads ``Linear``'s weights."""
        return self.to_float()

    def to_float(self) -> Tensor:
        """The weights as floats ``[M, K]``: signs times their scale."""
        signs: Tensor = torch.ops.bitgnn.unpack(self.words, self.in_features)
        return self.weight_scale * signs

    def extra_repr(self) -> str:
        """Sizes and activation."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}, activation={self.activation!r}"
        )

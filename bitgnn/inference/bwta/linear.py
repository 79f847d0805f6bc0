"""BWTALinear on bits, and what all frozen BWTA layers share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, get_args

import torch
from torch import Tensor, nn

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn._checks import check_value
from bitgnn.bits.tensor import words_for
from bitgnn.bits.ternary import QUANTISED
from bitgnn.nn.activation_quantizer import ActivationQuantizer, Kind
from bitgnn.nn.bwta_linear import BWTALinear
from bitgnn.nn.float_inputs import check_floats
from bitgnn.quantize import shifted_sign


class FrozenBWTALayer(nn.Module):
    """A layer with buffers alone, which move between devices but keep their types.

    ``model.half()`` must not round scales that decide bits.

    Attributes:
        kind: name of the layer's form in checkpoints.
    """

    kind: str

    def description(self) -> dict[str, Any]:
        """Arguments of ``from_tensors`` beside the tensors, as plain values."""
        raise NotImplementedError

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> FrozenBWTALayer:
        types = {name: b.dtype for name, b in self._buffers.items() if b is not None}
        before = {name: self._buffers[name] for name in types}
        super()._apply(fn, recurse)
        for name, dtype in types.items():
            moved, kept = self._buffers[name], before[name]
            if moved is not None and kept is not None and moved.dtype != dtype:
                self._buffers[name] = kept.to(moved.device)
        return self


def checked_scale(tensors: dict[str, Tensor], name: str, layer: str) -> Tensor:
    """The 0-d float32 scale of that name.

    Raises:
        ValueError: it is missing, of another form, or not positive and finite.
    """
    scale = tensors.get(name)
    check_value(
        scale is not None and scale.dim() == 0 and scale.dtype == torch.float32,
        lambda: f"{layer}: {name} must be a 0-d float32 tensor",
    )
    assert scale is not None
    check_value(
        bool(scale > 0) and bool(scale.isfinite()),
        lambda: f"{layer}: {name} must be positive and finite, got {float(scale)}",
    )
    return scale


class FrozenBWTALinear(FrozenBWTALayer):
    r"""Packed weights times activations that are made ternary, or 0 and 1, or signs on the way in.

    :math:`((s_A s_W)\, dot) + b` in float32, rounded once to the type of the input: what
    :class:`bitgnn.nn.BWTALinear` gives at level 1, bit for bit.

    Args:
        words: int32 ``[M, ceil(K / 32)]``, bit 1 = +1.
        scale: 0-d float32, of activations.
        weight_scale: 0-d float32.
        bias: float32 ``[M]`` or None.
        in_features: K.
        activation: ``"ternary"``, ``"bool"`` or ``"sign"``.

    Raises:
        ValueError: a tensor has another shape or type than that, or a value no meaning.
    """

    kind = "linear"
    words: Tensor
    scale: Tensor
    weight_scale: Tensor
    bias: Tensor | None
    _factor: Tensor | None

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
        check_value(
            words.dim() == 2
            and words.dtype == torch.int32
            and words.size(1) == words_for(in_features),
            lambda: (
                f"FrozenBWTALinear: words must be int32 [M, ceil({in_features} / 32)], "
                f"got {words.dtype} {list(words.shape)}"
            ),
        )
        check_value(
            bias is None or (bias.shape == words.shape[:1] and bias.dtype == torch.float32),
            lambda: f"FrozenBWTALinear: bias must be float32 [{words.size(0)}]",
        )
        check_value(
            activation in get_args(Kind),
            lambda: (
                f"FrozenBWTALinear: activation must be one of {get_args(Kind)}, got {activation!r}"
            ),
        )
        check_value(
            weight_scale.dim() == 0 and bool(weight_scale.isfinite()),
            lambda: f"FrozenBWTALinear: weight_scale must be a finite number, got {weight_scale}",
        )
        self.in_features, self.out_features = in_features, words.size(0)
        self.activation = activation
        self.register_buffer("words", words)
        self.register_buffer("scale", checked_scale({"scale": scale}, "scale", "FrozenBWTALinear"))
        self.register_buffer("weight_scale", weight_scale)
        self.register_buffer("bias", bias)
        self.register_buffer("_factor", self._joint_scale(), persistent=False)

    def _joint_scale(self) -> Tensor | None:
        """Both scales as one of each output, as products of signs take them."""
        if self.activation != "sign":
            return None
        return (self.scale * self.weight_scale).repeat(self.out_features)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        """As torch's; the joint scale follows."""
        super()._load_from_state_dict(state_dict, prefix, *args)
        self._factor = self._joint_scale()

    @classmethod
    def from_parts(
        cls, name: str, weight: Tensor, bias: Tensor | None, quantizer: ActivationQuantizer
    ) -> FrozenBWTALinear:
        """The frozen form of a product.

        Args:
            name: of the layer, for messages.
            weight: latent ``[M, K]``.
            bias: ``[M]`` or None.
            quantizer: of the input.

        Raises:
            ValueError: weights or bias are not finite, the scale is not set or not positive, the
                level is not 1.
        """
        scale = quantizer.frozen_scale(name)
        for what, tensor in (("weight", weight), ("bias", bias)):
            check_value(
                tensor is None or bool(tensor.isfinite().all()),
                lambda what=what: f"freeze: the {what} of {name} holds NaN or infinity",  # type: ignore[misc]
            )
        signs, weight_scale = shifted_sign(weight.detach())
        return cls(
            torch.ops.bitgnn.pack(signs),
            scale,
            weight_scale.clone(),
            None if bias is None else bias.detach().float().clone(),
            weight.size(1),
            quantizer.kind,
        )

    @classmethod
    def from_layer(cls, name: str, layer: BWTALinear) -> FrozenBWTALinear:
        """The frozen form of a trained layer; errors are those of :meth:`from_parts`."""
        return cls.from_parts(name, layer.weight, layer.bias, layer.input_quantizer)

    @classmethod
    def from_tensors(
        cls, description: dict[str, Any], tensors: dict[str, Tensor]
    ) -> FrozenBWTALinear:
        """The inverse of :meth:`description` and ``state_dict``.

        Raises:
            KeyError: an entry is missing.
            ValueError: one is wrong.
        """
        return cls(
            tensors["words"],
            tensors["scale"],
            tensors["weight_scale"],
            tensors.get("bias"),
            description["in_features"],
            description["activation"],
        )

    def description(self) -> dict[str, Any]:
        """Arguments beside the tensors."""
        return {"in_features": self.in_features, "activation": self.activation}

    def forward(self, input: Tensor) -> Tensor:
        """Apply the layer.

        Args:
            input: ``[*, in_features]`` float32, float16 or bfloat16.

        Returns:
            ``[*, out_features]`` of the input's dtype.

        Raises:
            TypeError: ``input`` is no dense tensor of such floats.
            ValueError: the last size of ``input`` is not ``in_features``, or it is on another
                device.
        """
        check_floats("FrozenBWTALinear", "input", input, self.words.device, QUANTISED)
        check_value(
            input.dim() > 0 and input.size(-1) == self.in_features,
            lambda: (
                f"FrozenBWTALinear: input must be [*, {self.in_features}], got {list(input.shape)}"
            ),
        )
        rows = input.reshape(math.prod(input.shape[:-1]), self.in_features)
        out = self._of_signs(rows) if self.activation == "sign" else self._of_ternary(rows)
        return out.view(*input.shape[:-1], self.out_features)

    def _of_ternary(self, rows: Tensor) -> Tensor:
        out: Tensor = torch.ops.bitgnn.linear_ternary(
            rows,
            self.words,
            self.in_features,
            self.scale,
            self.weight_scale,
            self.bias,
            rows.dtype,
            self.activation == "bool",
        )
        return out

    def _of_signs(self, rows: Tensor) -> Tensor:
        operators = torch.ops.bitgnn
        words = operators.pack(rows)
        out: Tensor = operators.bmm_bbf(
            words, self.words, self.in_features, None, self._factor, self.bias
        )
        return out.to(rows.dtype)

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

"""Linear with binary weights and ternary activations in torch's place, and their quantiser."""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn._interpreter import with_signature
from bitgnn.nn.inputs.float_inputs import check_floats, require_floats
from bitgnn.quantize.first_order import first_order
from bitgnn.quantize.levels import (
    Operand,
    Rounding,
    check_level,
    initial_scale,
    operand_gradients,
    positive_scale,
    quantised,
)

Kind = Literal["ternary", "bool", "sign"]


class ActivationQuantizer(nn.Module):
    r"""Activations as integers q, to be multiplied by a learnt scale s after the product.

    * ``"ternary"``: :math:`q = \mathrm{clip}(\lfloor x / s + 1/2 \rfloor, -L, L)`, in training on
      the way to L = 1, where q is in {-1, 0, +1}.
    * ``"bool"``: the same in [0, L], for what is never negative.
    * ``"sign"``: :math:`q = \mathrm{sgn}(x)`, whatever the level; binary activations to compare
      with.

    The scale starts from :math:`2\,\mathrm{mean}|x| / \sqrt{L}` of the first activations seen in
    training, or of those given to :meth:`initialize`; gradients are LSQ's, see
    :func:`bitgnn.quantize.levels`.

    Args:
        kind: which values.
        level: L, or None for activations that are not quantised.
        device: of the scale.

    Attributes:
        scale: 0-d parameter, float32; 0 as long as it is not set.

    Raises:
        TypeError: ``level`` is no integer.
        ValueError: unknown kind, or ``level`` is below 1.
    """

    def __init__(self, kind: Kind = "ternary", level: int | None = 1, device: Any = None) -> None:
        super().__init__()
        if kind not in get_args(Kind):
            raise ValueError(
                f"ActivationQuantizer: kind must be one of {get_args(Kind)}, got {kind!r}"
            )
        self.kind: Kind = kind
        self.level = level
        self._is_set = False
        self.scale = nn.Parameter(torch.zeros((), dtype=torch.float32, device=device))

    @property
    def level(self) -> int | None:
        """Largest integer; None for activations as they are."""
        return self._level

    @level.setter
    def level(self, level: int | None) -> None:
        self._level = None if level is None else check_level("ActivationQuantizer", level)

    @property
    def rounding(self) -> Rounding | None:
        """Range that activations are rounded to; None leaves them unchanged."""
        if self._level is None:
            return None
        if self.kind == "sign":
            return Rounding(-1, 1, True)
        return Rounding(-self._level if self.kind == "ternary" else 0, self._level)

    @property
    def is_set(self) -> bool:
        """True if the scale has a value, even one copied in from outside."""
        looked_at = type(self.scale) is nn.Parameter and not self.scale.is_meta
        if not self._is_set and looked_at and not torch.compiler.is_compiling():
            self._is_set = bool(self.scale.detach() != 0)
        return self._is_set

    def reset_parameters(self) -> None:
        """Forget the scale."""
        nn.init.zeros_(self.scale)
        self._is_set = False

    @torch.no_grad()
    def initialize(self, x: Tensor, valid: Tensor | None = None) -> None:
        r"""Set the scale to :math:`2\,\mathrm{mean}|x| / \sqrt{L}`; it may be set anew.

        ``x`` are activations of any shape, without NaN and not all 0; ``valid`` is bool and
        broadcasts to them: values that count, None for all.

        Raises:
            ValueError: the scale would not be positive and finite (looked at on the CPU).
        """
        self._start(x, valid)
        if not self._is_set:
            raise ValueError(
                f"ActivationQuantizer: x must have values other than 0, got {list(x.shape)}"
            )

    @torch.no_grad()
    def _start(self, x: Tensor, valid: Tensor | None) -> None:
        """Set the scale from ``x``, without waiting for a GPU."""
        level = 1 if self.kind == "sign" else self._level or 1
        scale = initial_scale(x, level, self.kind != "bool", valid)
        self._is_set = x.numel() > 0
        if scale.device.type == "cpu" and not torch.compiler.is_compiling():
            value = float(scale)
            if not math.isfinite(value):
                raise ValueError(
                    f"ActivationQuantizer: x must be finite, got NaN or infinity in {list(x.shape)}"
                )
            self._is_set = value > 0
        self.scale.copy_(scale)

    def forward(self, x: Tensor, valid: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Integers ``q``, float32 like ``x``, and the scale s; ``s q`` is the activation.

        NaN becomes 0; s is a positive 0-d float32 tensor. With level None the two are ``x`` itself
        and 1. ``valid`` tells which values count for a scale that starts here.

        Raises:
            TypeError: ``x`` holds no floats.
            ValueError: the scale is not set and the module is in evaluation.
        """
        require_floats("ActivationQuantizer", "x", x)
        rounding = self.rounding
        if rounding is None:
            return x, torch.ones((), device=x.device, dtype=torch.float32)
        unset = not self.is_set
        if unset and not self.training:
            raise ValueError(
                "ActivationQuantizer: the scale is not set; call the model in training mode, "
                "initialize(x), or load trained parameters"
            )
        if unset:
            self._start(x, valid)
        return quantised(x, self.scale, rounding)

    def operand(self, x: Tensor, valid: Tensor | None = None) -> Operand:
        """Result of :meth:`forward`, without gradients, for a product with gradients of its own."""
        with torch.no_grad():
            q, scale = self(x, valid)
        if torch.compiler.is_compiling():
            x = x.view_as(x)  # dynamo refuses functions of the same tensor twice
        return Operand(x, self.scale, q, scale, self.rounding)

    def quantize(self, x: Tensor) -> Tensor:
        """Only the integers of :meth:`forward`."""
        return self(x)[0]

    def frozen_scale(self, name: str, level: int = 1) -> Tensor:
        """The scale as frozen forms hold it, 0-d float32, or a ValueError about ``name``."""
        if self.kind != "sign" and self._level != level:
            raise ValueError(
                f"freeze: {name} must have level {level}, got {self._level}; train it down to there"
            )
        value = float(self.scale.detach())
        if not self.is_set or not math.isfinite(value):
            raise ValueError(
                f"freeze: the scale of {name} must be set and finite, got {value}"
                + ("" if self.is_set else "; it was never set: train or initialize first")
            )
        return positive_scale(self.scale.detach()).clone()

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        """Load as torch does, but keep the scale where a float layer's checkpoint has none."""
        key = prefix + "scale"
        if key not in state_dict:
            return
        super()._load_from_state_dict(state_dict, prefix, *args)
        # Loaded tensors may be as little set as this one was.
        self._is_set = self.scale.is_meta or bool(self.scale != 0)

    def extra_repr(self) -> str:
        """Kind and level."""
        return f"{self.kind}, level={self._level}"


class _Product(torch.autograd.Function):
    """The product of an operand and the signs of weights, with all of its gradients.

    One function, not one for each part: small layers take longer to launch than to compute.
    """

    @staticmethod
    @with_signature
    def forward(*given: Any) -> tuple[Tensor, Tensor, Tensor]:
        x, _, q, scale, _, weight, bias = given
        signs, weight_scale = torch.ops.bitgnn.shift_signs(weight.float())
        sums = functional.linear(q, signs)
        wide = None if bias is None else bias.float()
        out = torch.ops.bitgnn.scale_sums(sums, scale, weight_scale, wide)
        return out.to(x.dtype), signs, weight_scale

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]
    ) -> None:
        x, _, q, scale, ctx.rounding, weight, bias = inputs
        ctx.dtypes = weight.dtype, None if bias is None else bias.dtype
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, q, scale, *output[1:])

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        grads: list[Tensor | None] = [None] * len(ctx.needs_input_grad)
        if grad is None:
            return tuple(grads)
        of_x, of_parameter, *_, of_weight, of_bias = ctx.needs_input_grad
        x, q, scale, signs, weight_scale = ctx.saved_tensors
        weight_dtype, bias_dtype = ctx.dtypes
        rows = _rows(grad.float())
        if of_x or of_parameter:
            wanted = (rows @ signs).view(x.shape)
            grads[:2] = operand_gradients(wanted, x, scale, ctx.rounding, weight_scale)
        if of_weight:
            wanted = (rows.t() @ _rows(q)).float()
            grads[5] = torch.ops.bitgnn.centre_gradients(wanted, scale).to(weight_dtype)
        if of_bias:
            grads[6] = rows.sum(0).to(bias_dtype)
        return tuple(grads)


def _rows(x: Tensor) -> Tensor:
    """``[*, K]`` as ``[N, K]``."""
    return x.flatten(0, -2) if x.dim() > 1 else x.unsqueeze(0)


def bwta_product(
    x: Tensor, weight: Tensor, bias: Tensor | None, quantizer: ActivationQuantizer
) -> Tensor:
    r"""``[*, M]``: :math:`(s_A s_W)\,(q \cdot \mathrm{sgn}(W - \mu)) + b`, of the dtype of ``x``.

    The product is one of exact integers; the rest is float32 in this order, rounded once, as in the
    packed operators. The gradients are LSQ's in ``x`` and in the scale, see
    :func:`bitgnn.quantize.levels`, and pass :math:`s_W\,\mathrm{sgn}(W - \mu)` straight through to
    :math:`W - \mu`, the scale taken as a constant, as in :func:`bitgnn.quantize.shifted_sign`.

    ``weight`` is ``[M, K]`` latent; the level of ``quantizer``, of ``x [*, K]``, is an integer.
    """
    with torch.autocast(x.device.type, enabled=False):
        out: Tensor = _Product.apply(*quantizer.operand(x), weight, bias)[0]
    return out


class BWTALinear(nn.Linear):
    r"""torch's ``Linear`` with weights of one bit and activations in {-1, 0, +1}.

    .. math:: Y = (s_A s_W)\, q(X / s_A) \cdot \mathrm{sgn}(W - \mu)^\top + b

    :math:`\mu` is the mean of the weights and :math:`s_W = \mathrm{mean}|W - \mu|`; :math:`s_A` is
    learnt. Parameters are torch's, so that checkpoints of ``Linear`` load. Gradients pass straight
    through to the weights, and to activations where they are not clipped
    (:func:`bitgnn.quantize.levels`). Frozen, the same values come from bits, bit for bit.

    Source: Ding et al., "BWTA: Accurate and Efficient Binarized Transformer by Algorithm-Hardware
    Co-design".

    Arguments up to ``dtype`` are torch's; the scale is float32 whatever it is. ``activation`` is
    ``"ternary"``, ``"bool"`` for input that is never negative, or ``"sign"`` for binary
    activations; ``level`` is 1, more on the way there, or None for torch's own product of floats.

    Attributes:
        input_quantizer: the :class:`ActivationQuantizer` of the input.

    Raises:
        TypeError: ``level`` is no integer.
        ValueError: unknown ``activation``, or ``level`` is below 1.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        activation: Kind = "ternary",
        level: int | None = 1,
    ) -> None:
        super().__init__(in_features, out_features, bias, device, dtype)
        self.input_quantizer = ActivationQuantizer(activation, level, device)

    @property
    def activation(self) -> Kind:
        """Kind of the quantised input."""
        return self.input_quantizer.kind

    @property
    def level(self) -> int | None:
        """Largest integer that an activation becomes; None: nothing is quantised."""
        return self.input_quantizer.level

    @level.setter
    def level(self, level: int | None) -> None:
        self.input_quantizer.level = level

    def forward(self, input: Tensor) -> Tensor:
        """Apply the layer.

        Args:
            input: ``[*, in_features]`` floats.

        Returns:
            ``[*, out_features]`` floats of the input's dtype.

        Raises:
            TypeError: ``input`` is no dense tensor of floats.
            ValueError: the last size of ``input`` is not ``in_features``, it is on another device
                than the weight, or the scale is not set in evaluation.
        """
        check_floats("BWTALinear", "input", input, self.weight.device)
        if input.dim() == 0 or input.size(-1) != self.in_features:
            raise ValueError(
                f"BWTALinear: input must be [*, {self.in_features}], got {list(input.shape)}"
            )
        if self.level is None:
            return functional.linear(input, self.weight, self.bias)
        return bwta_product(input, self.weight, self.bias, self.input_quantizer)

    def extra_repr(self) -> str:
        """Torch's description and the activation."""
        return f"{super().extra_repr()}, activation={self.activation!r}, level={self.level}"

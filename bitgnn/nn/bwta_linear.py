"""Linear with binary weights and ternary activations, in the place of torch's."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn._signature import with_signature
from bitgnn.nn.activation_quantizer import ActivationQuantizer, Kind
from bitgnn.nn.float_inputs import check_floats
from bitgnn.quantize.levels import Rounding, operand_gradients


class _Product(torch.autograd.Function):
    """The product of an operand and the signs of weights, with all of its gradients.

    One function, not one for each part: small layers take longer to launch than to compute.
    """

    @staticmethod
    @with_signature
    def forward(
        x: Tensor,
        parameter: Tensor,
        q: Tensor,
        scale: Tensor,
        rounding: Rounding | None,
        weight: Tensor,
        bias: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
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

    Args:
        in_features: as in torch, and so on up to ``dtype``.
        out_features: outputs M.
        bias: add a bias.
        device: of the parameters.
        dtype: of the parameters; the scale is float32.
        activation: ``"ternary"``; ``"bool"`` for input that is never negative; ``"sign"`` for
            binary activations.
        level: of the activations: 1, more on the way there, or None for torch's own product of
            floats.

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

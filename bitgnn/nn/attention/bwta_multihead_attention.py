"""torch's MultiheadAttention with binary projections and ternary products."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from bitgnn._checks import check_value
from bitgnn.nn.activation_quantizer import ActivationQuantizer, Kind
from bitgnn.nn.attention.bwta_attention import BWTAAttention
from bitgnn.nn.attention.multihead_forward import NAME, MultiheadForward
from bitgnn.nn.bwta_linear import BWTALinear, bwta_product

__all__ = ["BWTAMultiheadAttention"]


class BWTAMultiheadAttention(MultiheadForward, nn.MultiheadAttention):
    """torch's ``MultiheadAttention`` in BWTA: constructor, forward and parameters are torch's.

    The projections are those of :class:`BWTALinear`, each of the three with its own mean and scale
    of weights and its own scale of input; between them is :class:`BWTAAttention`. A query that may
    attend to no key gets the output of zeros, not NaN.

    Args:
        embed_dim: as in torch, and so on up to ``dtype``.
        num_heads: divides ``embed_dim``.
        dropout: probability of dropping an attention weight in training.
        bias: of the projections.
        add_bias_kv: append a learnt key and value.
        add_zero_attn: append a key and value of zeros.
        kdim: features of keys.
        vdim: features of values.
        batch_first: ``[B, N, E]`` rather than ``[N, B, E]``.
        device: of the parameters.
        dtype: of the parameters; scales are float32.
        activation: ``"ternary"``, or ``"sign"`` for binary activations.
        level: of all activations; None for full precision.

    Attributes:
        attention: the :class:`BWTAAttention`.
        query_input_quantizer: of the input of the queries' projection; so of ``key`` and ``value``.

    Raises:
        TypeError: ``level`` is no integer.
        ValueError: ``num_heads`` does not divide, or an option has none of its values.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        activation: Kind = "ternary",
        level: int | None = 1,
    ) -> None:
        check_value(
            embed_dim > 0 and num_heads > 0 and embed_dim % num_heads == 0,
            lambda: f"{NAME}: num_heads must divide embed_dim, got {num_heads} and {embed_dim}",
        )
        super().__init__(
            embed_dim,
            num_heads,
            dropout,
            bias,
            add_bias_kv,
            add_zero_attn,
            kdim,
            vdim,
            batch_first,
            device,
            dtype,
        )
        # TransformerEncoderLayer would compute attention itself, past this class, were it True.
        self._qkv_same_embed_dim = False
        initial = self.out_proj.state_dict()
        self.out_proj = BWTALinear(
            embed_dim, embed_dim, bias, device, dtype, activation=activation, level=level
        )
        self.out_proj.load_state_dict(initial)
        self.attention = BWTAAttention(dropout, activation, level, device=device)
        self.query_input_quantizer = ActivationQuantizer(activation, level, device)
        self.key_input_quantizer = ActivationQuantizer(activation, level, device)
        self.value_input_quantizer = ActivationQuantizer(activation, level, device)

    @property
    def level(self) -> int | None:
        """Largest integer of every activation; None: nothing is quantised."""
        return self.attention.level

    @level.setter
    def level(self, level: int | None) -> None:
        for module in self.children():
            module.level = level  # type: ignore[assignment]

    def projections(self) -> list[tuple[Tensor, Tensor | None, ActivationQuantizer]]:
        """Weight, bias and input quantiser of the projections of queries, keys and values."""
        weights = (
            (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
            if self.in_proj_weight is None
            else self.in_proj_weight.chunk(3)
        )
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        quantizers = (
            self.query_input_quantizer,
            self.key_input_quantizer,
            self.value_input_quantizer,
        )
        return list(zip(weights, biases, quantizers, strict=True))

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = (
            functional.linear(x, weight, bias)
            if self.level is None
            else bwta_product(x, weight, bias, quantizer)
            for x, (weight, bias, quantizer) in zip(
                (query, key, value), self.projections(), strict=True
            )
        )
        return q, k, v

"""BWTAMultiheadAttention on bits."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from bitgnn.bits.ternary import QUANTISED
from bitgnn.inference.bwta.attention import attention_from_tensors, frozen_attention
from bitgnn.inference.bwta.linear import FrozenBWTALayer, FrozenBWTALinear
from bitgnn.nn.attention.multihead import BWTAMultiheadAttention, MultiheadForward

PROJECTIONS = ("query_proj", "key_proj", "value_proj", "out_proj")


class FrozenBWTAMultiheadAttention(MultiheadForward, FrozenBWTALayer):
    """Four packed projections and attention on bits, called as torch's ``MultiheadAttention`` is.

    Args:
        parts: ``query_proj``, ``key_proj``, ``value_proj``, ``out_proj`` and ``attention``.
        num_heads: H.
        batch_first: ``[B, N, E]`` rather than ``[N, B, E]``.
        add_zero_attn: append a key and value of zeros.
        bias_k: appended key ``[1, 1, E]`` or None.
        bias_v: appended value or None.
    """

    kind = "multihead_attention"
    input_dtypes = QUANTISED
    query_proj: FrozenBWTALinear
    key_proj: FrozenBWTALinear
    value_proj: FrozenBWTALinear
    bias_k: Tensor | None
    bias_v: Tensor | None

    def __init__(
        self,
        parts: dict[str, FrozenBWTALayer],
        num_heads: int,
        batch_first: bool,
        add_zero_attn: bool,
        bias_k: Tensor | None,
        bias_v: Tensor | None,
    ) -> None:
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)
        widths = [parts[name].in_features for name in PROJECTIONS[:3]]
        self.embed_dim, self.kdim, self.vdim = (int(width) for width in widths)  # type: ignore[arg-type]
        self.num_heads, self.head_dim = num_heads, self.embed_dim // num_heads
        self.batch_first, self.add_zero_attn = batch_first, add_zero_attn
        self.register_buffer("bias_k", bias_k)
        self.register_buffer("bias_v", bias_v)
        # Read by torch's TransformerEncoderLayer, which must call this module.
        self._qkv_same_embed_dim = False
        self.in_proj_bias = None

    @classmethod
    def from_layer(cls, name: str, layer: BWTAMultiheadAttention) -> FrozenBWTAMultiheadAttention:
        """The frozen form of a trained layer.

        Args:
            name: of the layer, for messages.
            layer: trained.

        Raises:
            ValueError: a scale is not set or not positive, weights are not finite, or the level is
                not 1.
        """
        parts: dict[str, FrozenBWTALayer] = {
            part: FrozenBWTALinear.from_parts(f"{name}.{part}", weight, bias, quantizer)
            for part, (weight, bias, quantizer) in zip(
                PROJECTIONS[:3], layer.projections(), strict=True
            )
        }
        parts["out_proj"] = FrozenBWTALinear.from_layer(f"{name}.out_proj", layer.out_proj)
        parts["attention"] = frozen_attention(f"{name}.attention", layer.attention)
        key, value = (
            None if bias is None else bias.detach().clone() for bias in (layer.bias_k, layer.bias_v)
        )
        return cls(parts, layer.num_heads, layer.batch_first, layer.add_zero_attn, key, value)

    @classmethod
    def from_tensors(
        cls, description: dict[str, Any], tensors: dict[str, Tensor]
    ) -> FrozenBWTAMultiheadAttention:
        """The inverse of :meth:`description` and ``state_dict``."""

        def inside(part: str) -> dict[str, Tensor]:
            start = f"{part}."
            return {k.removeprefix(start): t for k, t in tensors.items() if k.startswith(start)}

        described = description["parts"]
        parts: dict[str, FrozenBWTALayer] = {
            name: FrozenBWTALinear.from_tensors(described[name], inside(name))
            for name in PROJECTIONS
        }
        parts["attention"] = attention_from_tensors(described["attention"], inside("attention"))
        settings = {
            name: description[name] for name in ("num_heads", "batch_first", "add_zero_attn")
        }
        return cls(parts, **settings, bias_k=tensors.get("bias_k"), bias_v=tensors.get("bias_v"))

    def description(self) -> dict[str, Any]:
        """Arguments beside the tensors."""
        parts = {
            name: part.description()
            for name, part in self.named_children()
            if isinstance(part, FrozenBWTALayer)
        }
        return {
            "num_heads": self.num_heads,
            "batch_first": self.batch_first,
            "add_zero_attn": self.add_zero_attn,
            "parts": parts,
        }

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.query_proj(query), self.key_proj(key), self.value_proj(value)

    def extra_repr(self) -> str:
        """Heads."""
        return f"num_heads={self.num_heads}, batch_first={self.batch_first}"

"""Self-attention with binary projections and ternary products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from bitgnn._checks import check_type, check_value, name_type
from bitgnn.nn.activation_quantizer import Kind
from bitgnn.nn.attention.bwta_attention import BWTAAttention
from bitgnn.nn.bwta_linear import BWTALinear
from bitgnn.nn.multistage import set_level

Rotary = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


class BWTASelfAttention(nn.Module):
    """Attention of a sequence to itself: three projections, :class:`BWTAAttention`, and a fourth.

    Args:
        hidden: features E of the sequence.
        heads: H, dividing E.
        kv_heads: heads of keys and values, dividing H; None for as many.
        bias: of the projections.
        dropout: probability of dropping an attention weight in training.
        activation: ``"ternary"``, or ``"sign"`` for binary activations.
        level: of all activations; None for full precision.
        device: of the parameters.
        dtype: of the parameters; scales are float32.

    Attributes:
        query: the :class:`BWTALinear` of the queries; so ``key``, ``value`` and ``out``.
        attention: the :class:`BWTAAttention`.

    Raises:
        TypeError: ``level``, ``hidden`` or a number of heads is no integer.
        ValueError: heads do not divide, or an option has none of its values.
    """

    def __init__(
        self,
        hidden: int,
        heads: int,
        kv_heads: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        activation: Kind = "ternary",
        level: int | None = 1,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        kv_heads = heads if kv_heads is None else kv_heads
        for name, number in (("hidden", hidden), ("heads", heads), ("kv_heads", kv_heads)):
            if not isinstance(number, int) or isinstance(number, bool):
                raise TypeError(
                    f"BWTASelfAttention: {name} must be an integer, got {name_type(number)}"
                )
        check_value(
            heads > 0 and hidden > 0 and hidden % heads == 0,
            lambda: f"BWTASelfAttention: heads must divide hidden, got {heads} and {hidden}",
        )
        check_value(
            kv_heads > 0 and heads % kv_heads == 0,
            lambda: f"BWTASelfAttention: kv_heads must divide heads, got {kv_heads} and {heads}",
        )
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, hidden // heads
        options: dict[str, Any] = {"activation": activation, "level": level}
        options |= {"bias": bias, "device": device, "dtype": dtype}
        self.query = BWTALinear(hidden, hidden, **options)
        self.key = BWTALinear(hidden, kv_heads * self.head_dim, **options)
        self.value = BWTALinear(hidden, kv_heads * self.head_dim, **options)
        self.attention = BWTAAttention(dropout, activation, level, device=device)
        self.out = BWTALinear(hidden, hidden, **options)

    @property
    def level(self) -> int | None:
        """Largest integer of every activation; None: nothing is quantised."""
        return self.attention.level

    @level.setter
    def level(self, level: int | None) -> None:
        set_level(self, level)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        *,
        causal: bool = False,
        return_probabilities: bool = False,
        rotary: Rotary | None = None,
    ) -> Any:
        """Attend.

        Args:
            x: ``[B, N, E]`` floats.
            mask: bool or 0 and 1 ``[B, N]``: 1 where there is something to attend to.
            causal: position i attends to positions j <= i alone.
            return_probabilities: return the softmax ``[B, H, N, N]``, too.
            rotary: turns queries and keys ``[B, H, N, D]`` by their positions, before they are
                quantised.

        Returns:
            ``[B, N, E]`` of the dtype of ``x``; with ``return_probabilities`` a tuple.

        Raises:
            TypeError: ``x`` is no dense tensor of floats.
            ValueError: shapes or devices do not fit together.
        """
        check_type(
            isinstance(x, Tensor),
            lambda: f"BWTASelfAttention: x must be a tensor, got {name_type(x)}",
        )
        check_value(
            x.dim() == 3,
            lambda: (
                f"BWTASelfAttention: x must be [B, N, {self.query.in_features}], "
                f"got {list(x.shape)}"
            ),
        )
        query = self._heads(self.query(x), self.heads)
        key = self._heads(self.key(x), self.kv_heads)
        value = self._heads(self.value(x), self.kv_heads)
        if rotary is not None:
            query, key = rotary(query, key)
        result = self.attention(
            query, key, value, mask, causal=causal, return_probabilities=return_probabilities
        )
        context, probabilities = result if return_probabilities else (result, None)
        out = self.out(context.transpose(1, 2).flatten(2))
        return (out, probabilities) if return_probabilities else out

    def _heads(self, x: Tensor, heads: int) -> Tensor:
        """``[B, N, heads * D]`` as ``[B, heads, N, D]``."""
        return x.view(x.size(0), x.size(1), heads, self.head_dim).transpose(1, 2)

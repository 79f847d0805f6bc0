"""A LLaMA-shaped decoder whose linear layers can be binary with ternary activations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from bitgnn.nn import BWTALinear

Activation = Literal["ternary", "sign"]

INITIAL_STD = 0.02
ROTARY_BASE = 10_000.0
NORM_EPSILON = 1e-5


@dataclass
class KeyValueCache:
    """Keys and values of the positions seen so far, with room for more.

    Attributes:
        keys: ``[B, Hk, length, D]`` of each layer.
        values: the same of the values.
        position: int64 ``[1]``, number of positions seen, on the device: recorded steps count on.
    """

    keys: list[Tensor]
    values: list[Tensor]
    position: Tensor


FLOAT: Any = {"bias": False, "level": None}
"""Options of linear layers that get their level later."""
Cached = tuple[Tensor, Tensor, Tensor]
"""Keys and values of a layer, and the places in them of the tokens that are new."""


class _Attention(nn.Module):
    """Causal attention in floats with rotary positions between binary projections."""

    def __init__(self, width: int, heads: int, kv_heads: int, activation: Activation) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, width // heads
        inner = kv_heads * self.size
        self.query = BWTALinear(width, width, activation=activation, **FLOAT)
        self.key = BWTALinear(width, inner, activation=activation, **FLOAT)
        self.value = BWTALinear(width, inner, activation=activation, **FLOAT)
        self.out = BWTALinear(width, width, activation=activation, **FLOAT)

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor], cache: Cached | None) -> Tensor:
        batch, length, width = x.shape
        query, key, value = (
            layer(x).view(batch, length, heads, self.size).transpose(1, 2)
            for layer, heads in (
                (self.query, self.heads), (self.key, self.kv_heads), (self.value, self.kv_heads),
            )
        )  # fmt: skip
        query, key = turned_by_position(query, turn), turned_by_position(key, turn)
        seen = None
        if cache is not None:
            keys, values, places = cache
            key, value = keys.index_copy_(2, places, key), values.index_copy_(2, places, value)
            seen = torch.arange(keys.size(2), device=x.device) <= places[:, None]
        context = functional.scaled_dot_product_attention(
            query, key, value, seen, is_causal=cache is None, enable_gqa=self.kv_heads != self.heads
        )
        out: Tensor = self.out(context.transpose(1, 2).reshape(batch, length, width))
        return out


class _FeedForward(nn.Module):
    """SwiGLU: ``down(silu(gate(x)) * up(x))``."""

    def __init__(self, width: int, inner: int, activation: Activation) -> None:
        super().__init__()
        self.gate = BWTALinear(width, inner, activation=activation, **FLOAT)
        self.up = BWTALinear(width, inner, activation=activation, **FLOAT)
        self.down = BWTALinear(inner, width, activation=activation, **FLOAT)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(functional.silu(self.gate(x)) * self.up(x))
        return out


class DecoderLayer(nn.Module):
    """Attention and SwiGLU, each after an RMS norm and with dropout on its output."""

    def __init__(
        self, width: int, heads: int, kv_heads: int, inner: int, dropout: float, activation: Any
    ) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(width, NORM_EPSILON)
        self.attention = _Attention(width, heads, kv_heads, activation)
        self.feed_forward_norm = nn.RMSNorm(width, NORM_EPSILON)
        self.feed_forward = _FeedForward(width, inner, activation)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: Tensor, turn: tuple[Tensor, Tensor], cache: Cached | None = None
    ) -> Tensor:
        """Residual stream ``[B, N, width]`` after the layer.

        ``turn`` are cosines and sines ``[N, D]`` of the rotary positions.
        """
        x = x + self.dropout(self.attention(self.attention_norm(x), turn, cache))
        return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))


class Decoder(nn.Module):
    """Embeddings, decoder layers, and scores of the next token.

    Every linear layer inside is a :class:`bitgnn.nn.BWTALinear` of level None, torch's own product;
    those that are given a level (:func:`bitgnn.nn.multistage.set_level`) are binary with
    activations of few values. Embeddings, norms, attention and the head stay in full precision.

    Args:
        vocabulary: number of tokens there are.
        layers: decoder layers.
        width: features of a token.
        heads: heads of queries, a divisor of ``width`` with an even quotient.
        kv_heads: heads of keys and values, a divisor of ``heads``; None for as many.
        inner: features inside feed-forward networks.
        length: tokens of a context at most.
        dropout: probability of dropping in training.
        activation: ``"ternary"``, or ``"sign"`` for binary ones to compare with.

    Attributes:
        config: the arguments.

    Raises:
        ValueError: an argument is outside of its range.

    Source: Touvron et al., LLaMA, 2023.
    """

    def __init__(
        self,
        vocabulary: int,
        *,
        layers: int = 4,
        width: int = 256,
        heads: int = 4,
        kv_heads: int | None = None,
        inner: int = 704,
        length: int = 256,
        dropout: float = 0.0,
        activation: Activation = "ternary",
    ) -> None:
        super().__init__()
        kv_heads = heads if kv_heads is None else kv_heads
        self.config: dict[str, Any] = {
            "vocabulary": vocabulary, "layers": layers, "width": width, "heads": heads,
            "kv_heads": kv_heads, "inner": inner, "length": length, "dropout": dropout,
            "activation": activation,
        }  # fmt: skip
        for name, value in self.config.items():
            if name not in ("dropout", "activation") and value < 1:
                raise ValueError(f"Decoder: {name} must be at least 1, got {value}")
        if width % (2 * heads):
            raise ValueError(f"Decoder: width must be a multiple of 2 * heads, got {width}")
        if heads % kv_heads:
            raise ValueError(f"Decoder: kv_heads must divide heads {heads}, got {kv_heads}")
        if activation not in get_args(Activation):
            raise ValueError(
                f"Decoder: activation must be one of {get_args(Activation)}, got {activation!r}"
            )
        self.length, self.kv_heads, self.size = length, kv_heads, width // heads
        self.tokens = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(
            DecoderLayer(width, heads, kv_heads, inner, dropout, activation) for _ in range(layers)
        )
        self.norm = nn.RMSNorm(width, NORM_EPSILON)
        self.head = nn.Linear(width, vocabulary, bias=False)
        places = torch.arange(length, dtype=torch.float64)
        rates = ROTARY_BASE ** (-torch.arange(0, self.size, 2, dtype=torch.float64) / self.size)
        angles = torch.outer(places, rates).repeat(1, 2)
        self.register_buffer("cosines", angles.cos().float(), persistent=False)
        self.register_buffer("sines", angles.sin().float(), persistent=False)
        self.cosines: Tensor
        self.sines: Tensor
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all weights from N(0, 0.02²); norms start at 1."""
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=INITIAL_STD)

    def forward(self, ids: Tensor) -> Tensor:
        """Scores ``[B, N, vocabulary]`` of the token after each of ``[B, N]``, int32 or int64.

        Raises:
            ValueError: ``ids`` has another shape or too many tokens.
        """
        x = self._embedded(ids)
        turn = self.cosines[: ids.size(1)], self.sines[: ids.size(1)]
        for layer in self.layers:
            x = layer(x, turn)
        out: Tensor = self.head(self.norm(x))
        return out

    def new_cache(self, batch: int) -> KeyValueCache:
        """An empty cache for ``batch`` contexts of ``length`` tokens, where the model is.

        Raises:
            ValueError: ``batch`` is below 1.
        """
        if batch < 1:
            raise ValueError(f"Decoder.new_cache: batch must be at least 1, got {batch}")
        weight = self.tokens.weight
        shape = batch, self.kv_heads, self.length, self.size
        keys, values = ([weight.new_zeros(shape) for _ in self.layers] for _ in range(2))
        position = torch.zeros(1, dtype=torch.int64, device=weight.device)
        return KeyValueCache(keys, values, position)

    @torch.no_grad()
    def step(self, ids: Tensor, cache: KeyValueCache) -> Tensor:
        """Scores of the next token, given the tokens in the cache.

        A prompt is one call, each further token another; the same call can be recorded as a CUDA
        graph, since the position is counted on the device. It is not looked at there: a context
        longer than ``length`` is the caller's affair.

        ``ids``, int32 or int64 ``[B, N]``, are the next tokens of each context and are added to the
        cache of :meth:`new_cache`; the scores are ``[B, vocabulary]``.

        Raises:
            ValueError: ``ids`` has another shape, too many tokens, or another batch than the cache.
        """
        x = self._embedded(ids)
        held = cache.keys[0].size(0)
        if ids.size(0) != held:
            raise ValueError(f"Decoder: ids must have the cache's {held} contexts, got {len(ids)}")
        places = cache.position + torch.arange(ids.size(1), device=ids.device)
        turn = self.cosines[places], self.sines[places]
        for layer, keys, values in zip(self.layers, cache.keys, cache.values, strict=True):
            x = layer(x, turn, (keys, values, places))
        cache.position += ids.size(1)
        out: Tensor = self.head(self.norm(x[:, -1]))
        return out

    def _embedded(self, ids: Tensor) -> Tensor:
        if ids.dim() != 2 or not 0 < ids.size(1) <= self.length:
            raise ValueError(f"Decoder: ids must be [B, 1 to {self.length}], got {list(ids.shape)}")
        x: Tensor = self.tokens(ids)
        return x


def turned_by_position(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary positions: pairs of features half a head apart turned by their position's angle."""
    cosines, sines = (t.to(x.dtype) for t in turn)
    first, second = x.chunk(2, -1)
    return x * cosines + torch.cat([-second, first], -1) * sines

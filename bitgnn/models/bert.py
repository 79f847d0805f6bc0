"""A BERT-shaped encoder that classifies sentences: full precision, binary, or BWTA."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from bitgnn.nn import BWTALinear, BWTASelfAttention
from bitgnn.nn.multistage import set_level
from bitgnn.nn.seeded_dropout import SeededDropout

TextPrecision = Literal["fp32", "binary", "bwta"]

INITIAL_STD = 0.02


@dataclass
class BertStates:
    """States that distillation compares, layer by layer.

    Attributes:
        hidden: ``[B, T, width]`` behind each layer, the embeddings first.
        feed_forward: ``[B, T, width]`` outputs of the feed-forward networks in front of their sum.
        attention: ``[B, heads, T, T]`` probabilities.
    """

    hidden: list[Tensor] = field(default_factory=list)
    feed_forward: list[Tensor] = field(default_factory=list)
    attention: list[Tensor] = field(default_factory=list)


class BertLayer(nn.Module):
    """Attention, then a feed-forward network with ReLU, a layer norm behind each sum.

    ReLU stands where BERT has GELU, so that what it leaves is non-negative, as BWTA's bool
    activations need it.

    Args:
        width: features of a token.
        heads: attention heads.
        inner: features inside the feed-forward network.
        precision: of products.
        dropout: probability of dropping what is added to the residual stream.
    """

    def __init__(
        self, width: int, heads: int, inner: int, precision: TextPrecision, dropout: float
    ) -> None:
        super().__init__()
        kind: Literal["sign", "ternary"] = "sign" if precision == "binary" else "ternary"
        self.attention = BWTASelfAttention(width, heads, activation=kind)
        self.inner = BWTALinear(width, inner, activation=kind)
        self.outer = BWTALinear(inner, width, activation="bool")
        self.attention_norm = nn.LayerNorm(width)
        self.output_norm = nn.LayerNorm(width)
        self.dropout = SeededDropout(dropout)

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The layer's output, the feed-forward network's, and the attention's probabilities.

        Args:
            x: ``[B, T, width]``.
            mask: bool ``[B, T]``, true where a token may be attended to.
        """
        attended, probabilities = self.attention(x, mask, return_probabilities=True)
        x = self.attention_norm(x + self.dropout(attended))
        fed = self.outer(functional.relu(self.inner(x)))
        return self.output_norm(x + self.dropout(fed)), fed, probabilities


class BertClassifier(nn.Module):
    """Embeddings, encoder layers, and a classifier on the first token.

    Embeddings, layer norms, softmax and the classifier stay in full precision, as in BWTA's paper.

    Args:
        vocabulary: number of tokens there are.
        classes: number of classes.
        layers: encoder layers.
        width: features of a token.
        heads: attention heads, a divisor of ``width``.
        inner: features inside feed-forward networks.
        length: tokens of a sentence at most.
        precision: ``"fp32"``: the parameters of the others with every level None; ``"binary"``:
            weights and activations by their sign, attention and ReLU as 0 and 1; ``"bwta"``:
            binary weights, ternary activations, attention and ReLU as 0 and 1.
        dropout: probability of dropping in training.

    Attributes:
        config: the arguments.

    Raises:
        ValueError: an argument is outside of its range.

    Source: Devlin et al., BERT, 2019; Ding et al., BWTA.
    """

    def __init__(
        self,
        vocabulary: int,
        classes: int,
        *,
        layers: int = 4,
        width: int = 256,
        heads: int = 4,
        inner: int = 1024,
        length: int = 64,
        precision: TextPrecision = "fp32",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        for name, value in (
            ("vocabulary", vocabulary), ("classes", classes), ("layers", layers), ("width", width),
            ("heads", heads), ("inner", inner), ("length", length),
        ):  # fmt: skip
            if value < 1:
                raise ValueError(f"BertClassifier: {name} must be at least 1, got {value}")
        if width % heads:
            raise ValueError(f"BertClassifier: heads must divide width {width}, got {heads}")
        if precision not in get_args(TextPrecision):
            raise ValueError(
                f"BertClassifier: precision must be one of {get_args(TextPrecision)}, "
                f"got {precision!r}"
            )
        self.config = {
            "vocabulary": vocabulary, "classes": classes, "layers": layers, "width": width,
            "heads": heads, "inner": inner, "length": length, "precision": precision,
            "dropout": dropout,
        }  # fmt: skip
        self.length = length
        self.precision = precision
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        self.norm = nn.LayerNorm(width)
        self.dropout = SeededDropout(dropout)
        self.layers = nn.ModuleList(
            BertLayer(width, heads, inner, precision, dropout) for _ in range(layers)
        )
        self.pooler = nn.Linear(width, width)
        self.classifier = nn.Linear(width, classes)
        self.reset_parameters()
        if precision == "fp32":
            set_level(self, None)

    def reset_parameters(self) -> None:
        """Draw all weights from BERT's normal distribution; biases start at 0."""
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=INITIAL_STD)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """Class scores of each sentence.

        Args:
            ids: int32 or int64 ``[B, T]`` token numbers.
            mask: bool ``[B, T]``, true for tokens of the sentence; None where all are.

        Returns:
            ``[B, classes]`` floats.

        Raises:
            ValueError: the shapes do not fit, or sentences are too long.
        """
        return self.with_states(ids, mask)[0]

    def with_states(self, ids: Tensor, mask: Tensor | None = None) -> tuple[Tensor, BertStates]:
        """Class scores and what lies between, see :class:`BertStates`."""
        if ids.dim() != 2 or not 0 < ids.size(1) <= self.length:
            raise ValueError(
                f"BertClassifier: ids must be [B, 1 to {self.length}], got {list(ids.shape)}"
            )
        if mask is None:
            mask = torch.ones_like(ids, dtype=torch.bool)
        if mask.shape != ids.shape or mask.dtype != torch.bool:
            raise ValueError(
                f"BertClassifier: mask must be bool {list(ids.shape)}, "
                f"got {mask.dtype} {list(mask.shape)}"
            )
        x = self.tokens(ids) + self.positions.weight[: ids.size(1)]
        x = self.dropout(self.norm(x))
        states = BertStates([x])
        for layer in self.layers:
            x, fed, probabilities = layer(x, mask)
            states.hidden.append(x)
            states.feed_forward.append(fed)
            states.attention.append(probabilities)
        pooled = torch.tanh(self.pooler(x[:, 0]))
        return self.classifier(self.dropout(pooled)), states

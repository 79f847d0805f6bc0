"""GCN for node classification on one graph, in full precision and in two binary forms."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from bitgnn.nn import GCNConv

__all__ = ["GCN", "layer_letters"]


def layer_letters(precision: str, num_layers: int) -> list[str]:
    """Operator letters of each layer of a preset.

    ``"bin"`` hands bits from layer to layer: every layer but the last aggregates bits and returns
    bits; the last multiplies bits and aggregates floats, since class scores need them.

    Args:
        precision: ``"fp32"``, ``"full"`` or ``"bin"``.
        num_layers: number of layers, at least 1.

    Returns:
        One letter pair ``"xyz+xyz"`` a layer.

    Raises:
        ValueError: unknown preset or fewer than one layer.
    """
    if num_layers < 1:
        raise ValueError(f"GCN: num_layers must be at least 1, got {num_layers}")
    if precision == "fp32":
        return ["FFF+FFF"] * num_layers
    if precision == "full" or (precision == "bin" and num_layers == 1):
        return ["FBF+FBF"] * num_layers
    if precision == "bin":
        return ["FBB+BBB"] + ["BBB+BBB"] * (num_layers - 2) + ["BBF+FBF"]
    raise ValueError(f"GCN: precision must be 'fp32', 'full' or 'bin', got {precision!r}")


class GCN(nn.Module):
    r"""Stack of :class:`bitgnn.nn.GCNConv`.

    * ``"fp32"``: :math:`\hat A\,\mathrm{ReLU}(\hat A X W_1^\top + b_1) W_2^\top + b_2` (Kipf and
      Welling 2017), dropout in front of each layer.
    * ``"full"``: no ReLU; each layer binarises its input and weights and aggregates floats
      (Bi-GCN, Wang et al. 2021).
    * ``"bin"``: layers before the last also aggregate bits,
      :math:`h = \mathrm{sgn}(\hat D^{-1/2}(A+I)\,\mathrm{sgn}(\cdot) + b)` (BitGNN's "bin").

    Args:
        in_channels: features of a node.
        hidden_channels: width of the hidden layers.
        out_channels: classes.
        num_layers: number of layers.
        precision: ``"fp32"``, ``"full"`` or ``"bin"``.
        dropout: probability of dropping a layer's input; in binary forms after the sign.
        input_norm: standardise each raw feature by ``BatchNorm1d(affine=False)``.
        cached: layers keep the normalised graph of the first call (one graph only).
        bias: layers add a bias after the aggregation.

    Raises:
        ValueError: unknown precision, ``num_layers`` below 1, ``dropout`` outside [0, 1).
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        num_layers: int = 2,
        precision: str = "fp32",
        dropout: float = 0.0,
        input_norm: bool = True,
        cached: bool = False,
        bias: bool = True,
    ) -> None:
        super().__init__()
        letters = layer_letters(precision, num_layers)
        self.in_channels = in_channels
        self.hidden_channels = hidden_channels
        self.out_channels = out_channels
        self.num_layers = num_layers
        self.precision = precision
        self.dropout = dropout
        self.cached = cached
        self.norm = nn.BatchNorm1d(in_channels, affine=False) if input_norm else None
        sizes = [in_channels] + [hidden_channels] * (num_layers - 1) + [out_channels]
        self.convs = nn.ModuleList(
            GCNConv(
                sizes[i],
                sizes[i + 1],
                precision=letters[i],
                dropout=dropout,
                cached=cached,
                bias=bias,
            )
            for i in range(num_layers)
        )

    def _layers(self) -> list[GCNConv]:
        return [conv for conv in self.convs if isinstance(conv, GCNConv)]

    def reset_parameters(self) -> None:
        """Draw all weights anew and forget the input statistics and cached graphs."""
        if self.norm is not None:
            self.norm.reset_parameters()
        for conv in self._layers():
            conv.reset_parameters()

    def forward(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """Class scores of each node.

        Args:
            x: ``[N, in_channels]`` float features.
            edge_index: graph in any form :class:`bitgnn.nn.GCNConv` takes.
            edge_weight: ``[E]`` float weights beside an edge index.

        Returns:
            ``[N, out_channels]`` float logits.

        Raises:
            ValueError: the number of features is not ``in_channels`` or the graph does not fit.
        """
        if x.dim() != 2 or x.size(1) != self.in_channels:
            raise ValueError(f"GCN: x must be [N, {self.in_channels}], got {list(x.shape)}")
        if self.norm is not None:
            x = self.norm(x)
        for i, conv in enumerate(self.convs):
            if i > 0 and self.precision == "fp32":
                x = functional.relu(x)
            x = conv(x, edge_index, edge_weight)
        return x

    def with_precision(self, precision: str) -> GCN:
        """A copy with the same weights, biases and input statistics in another precision.

        Raises:
            ValueError: unknown precision.
        """
        first = self._layers()[0]
        copy = GCN(
            self.in_channels,
            self.hidden_channels,
            self.out_channels,
            self.num_layers,
            precision,
            self.dropout,
            self.norm is not None,
            self.cached,
            first.bias is not None,
        )
        copy.load_state_dict(self.state_dict())
        return copy.to(first.lin.weight.device).train(self.training)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.in_channels}, {self.hidden_channels}, "
            f"{self.out_channels}, num_layers={self.num_layers}, precision={self.precision!r})"
        )

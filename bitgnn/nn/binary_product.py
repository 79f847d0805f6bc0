"""Linear, and the base of all layers with a binary dense product: norms and the product."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
import torch_geometric.nn
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn.dense.linear import is_uninitialized_parameter

from bitgnn._checks import name_type
from bitgnn.nn.bwta_linear import ActivationQuantizer
from bitgnn.nn.inputs.float_inputs import refuse_transforms
from bitgnn.nn.inputs.looks_up import GAINS, LooksUp
from bitgnn.nn.map_linear import MapLinear, through
from bitgnn.nn.norms import ProductNorm
from bitgnn.nn.precision import InputNorm, LayerPrecision, Role
from bitgnn.nn.roles.tape import kept_share
from bitgnn.nn.torch_layers import NodeStandardize
from bitgnn.quantize import binary_linear, binary_sign, fast_dropout, row_scale

NORMS = ("input_norm", "hidden_norm", "output_norm")
LEAST_SHARE = 1e-3
QUANTIZERS = ("input_quantizer", "hidden_quantizer")
LOOKED_UP = ("input_bits", "root_bits", "root_norm")
STATE = ("feeds", "steps")
"""Buffers of layers of named precision."""
"""Modules that layers add to PyG's."""


class BinaryProduct(LooksUp):
    """Mixin of every layer with a binary dense product, a base class before one of PyG's layers.

    ``dropout`` drops an activation before the product in training; in binary forms it acts on
    the binarised activation. Norms and quantisers that the precision does not name are None.
    """

    dropout: float
    input_norm: nn.Module | None
    output_norm: nn.Module | None
    input_quantizer: ActivationQuantizer | None

    def _set_precision(
        self,
        precision: str | LayerPrecision | None,
        dropout: float,
        role: Role | None = None,
    ) -> None:
        """Settle what PyG's constructor needs when it calls ``reset_parameters``."""
        if not 0.0 <= dropout < 1.0:
            raise ValueError(f"{type(self).__name__}: dropout must be in [0, 1), got {dropout}")
        self._choose_precision(precision, role)
        self.dropout = dropout

    def _add_norms(self, in_channels: int | tuple[int, int], out_channels: int) -> None:
        """Create the norms and quantisers that the precision asks for."""
        kinds = self._letters if self._forms is None else self._forms["hidden"]
        is_apart = not isinstance(in_channels, int) or bool(getattr(self, "project", False))
        self._add_inputs(in_channels, is_apart)
        for linear in self._products():
            # Float layers are PyG's own, which TorchScript compiles.
            if type(linear) is torch_geometric.nn.Linear and not self._letters.is_float:
                linear.__class__ = MapLinear
        levels = kinds.input_letter.level, kinds.sum_letter.level
        of_input, of_sums = (ActivationQuantizer(level=n) if n else None for n in levels)
        self.input_quantizer, self.hidden_quantizer = of_input, of_sums
        self.input_norm = _input_norm(type(self).__name__, kinds.input_norm, in_channels)
        self.hidden_norm = None if kinds.hidden_norm is None else ProductNorm(out_channels)
        self.output_norm = None if kinds.output_norm is None else nn.BatchNorm1d(out_channels)
        self._spread_thresholds()

    def _spread_thresholds(self) -> None:
        r"""Start the biases of a named precision's hidden norm at quantiles of N(0, 1 / in).

        With all thresholds at the mean, signs of one feature are one bit over and over, and those
        of a few tell little more than their own. Many features have many directions instead.
        """
        norm: Any = getattr(self, "hidden_norm", None)
        weight: Any = next(iter(self._products())).weight
        if self._forms is None or norm is None or is_uninitialized_parameter(weight):
            return
        size = norm.bias.numel()
        places = (torch.arange(size, dtype=torch.float64) + 0.5) / max(size, 1)
        deviation = 1.0 / math.sqrt(max(weight.size(1), 1))
        with torch.no_grad():
            norm.bias.copy_(deviation * torch.special.ndtri(places))

    @property
    def precision(self) -> str:
        """Name or letters of the layer's precision, without its options.

        "bin" and "full" are names of more than letters: those of other layers are spelled out.
        """
        if self._forms is not None:
            return str(self._precision_name)
        return str(self.letters) if self.letters.is_float else self.letters.pair

    def _products(self) -> Iterable[torch_geometric.nn.Linear]:
        """The linear maps whose weights take part in binary products."""
        raise NotImplementedError

    def _latent_weights(self) -> Iterable[Tensor]:
        """The parameters that the weights of these maps are made of."""
        return (linear.weight for linear in self._products())

    def reset_parameters(self) -> None:
        """Draw the weights anew and reset the norms; binary weights start at N(0, 1 / in)."""
        super().reset_parameters()  # type: ignore[misc]
        for linear in self._products():
            self._reset_product(linear)
        self.forget_constant_bits()
        # PyG's constructors call this before these exist.
        for name in GAINS:
            level = getattr(self, name, None)
            if level is not None:
                nn.init.zeros_(level)
        for name in (*NORMS, *QUANTIZERS, *LOOKED_UP):
            part = getattr(self, name, None)
            if isinstance(part, nn.BatchNorm1d | ActivationQuantizer):
                part.reset_parameters()
        self._spread_thresholds()
        if getattr(self, "input_bits", None) is not None:
            self._begin()

    def _reset_product(self, linear: torch_geometric.nn.Linear) -> None:
        """Bi-GCN's initialisation; PyG's stays where the product is a float one."""
        if self._letters.is_float_linear or is_uninitialized_parameter(linear.weight):
            return
        nn.init.normal_(linear.weight, std=1.0 / math.sqrt(max(linear.weight.size(1), 1)))
        if linear.bias is not None:
            nn.init.zeros_(linear.bias)

    def _ready(self, linear: torch_geometric.nn.Linear, x: Tensor) -> Tensor:
        """The weight of a linear map, made now if its width was left to the first input."""
        if is_uninitialized_parameter(linear.weight):
            linear.initialize_parameters(linear, (x,))
            self._reset_product(linear)
            if linear is next(iter(self._products())):
                self._spread_thresholds()
        weight: Tensor = linear.weight
        width = weight.size(1)
        if x.dim() == 0 or x.size(-1) != width:
            raise ValueError(f"{type(self).__name__}: x must be [N, {width}], got {list(x.shape)}")
        return weight

    def _prepare(self, x: Tensor) -> Tensor:
        """Input of the sign: ``x`` after norm and hardtanh."""
        if not isinstance(x, Tensor):
            raise TypeError(f"{type(self).__name__}: x must be a tensor, got {name_type(x)}")
        refuse_transforms(type(self).__name__)
        if x.layout != torch.strided:
            # A missing entry is a 0, whose sign is +1: the signs are dense.
            x = x.to_dense()
        if self.input_norm is not None:
            x = on_rows(self.input_norm, x)
        return functional.hardtanh(x) if self._letters.hardtanh else x

    def _map_product(self, linear: Any, u: Tensor, sign_output: bool = False) -> Tensor:
        """The dense product of one of the layer's maps, with the hooks on it called."""
        self._ready(linear, u)

        def compute(x: Tensor) -> Tensor:
            return self._product(x, self._ready(linear, x), sign_output)

        return through(linear, u, compute)

    def _product(self, u: Tensor, weight: Tensor, sign_output: bool | int = False) -> Tensor:
        """The dense product ``[*, M]`` of prepared activations ``[*, K]`` and ``[M, K]``."""
        letters = self._letters
        if letters.is_float_linear:
            return functional.linear(fast_dropout(u, self._input_dropout, self.training), weight)
        if "B" in letters.bmm[:2] and self.input_quantizer is None:
            self._note_signs("input", u)
        if self.input_quantizer is not None:
            return self._ternary_product(u, weight, self.input_quantizer, sign_output)
        out = binary_linear(
            u if u.dim() == 2 else u.reshape(-1, u.size(-1)),
            weight,
            x_scale=letters.bmm[0] == "F",
            binary_weight=letters.bmm[1] == "B",
            sign_output=sign_output,
            dropout=self._input_dropout,
            training=self.training,
            surrogate=letters.surrogate,
            weight_gradient=letters.weight_gradient,
        )
        return out if u.dim() == 2 else out.view(*u.shape[:-1], -1)

    def _ternary_product(
        self, u: Tensor, weight: Tensor, quantizer: ActivationQuantizer, sign_output: bool | int
    ) -> Tensor:
        """``(s m_o) dot`` of ternary activations; Bi-GCN's gradients reach the weights."""
        letters = self._letters
        with torch.autocast(u.device.type, enabled=False):
            share = 1.0
            if self.training and u.requires_grad and not torch.compiler.is_compiling():
                # What dropout in front has kept is larger there than it will be in evaluation.
                share = max(kept_share(u), LEAST_SHARE)
            q, scale = quantizer(u if share == 1.0 else u * share)
            scale = scale if share == 1.0 else scale / share
            q = fast_dropout(q, self._input_dropout, self.training)
            weight_scale = row_scale(weight).float()
            if letters.weight_gradient == "ste":
                weight_scale = weight_scale.detach()
            signs = binary_sign(weight, letters.surrogate).float()
            out = ((scale * weight_scale) * functional.linear(q, signs)).to(u.dtype)
        if sign_output is True:
            return binary_sign(out, letters.surrogate)
        if sign_output:
            first = binary_sign(out[..., :sign_output], letters.surrogate)
            return torch.cat([first, out[..., sign_output:]], -1)
        return out

    @property
    def _to_signs(self) -> bool:
        return self._letters.bmm[2] == "B"

    @property
    def _signs_product(self) -> bool:
        """True if the sign is taken of the product itself, without a norm between."""
        return self._to_signs and self._letters.hidden_norm is None

    def _hidden(self, z: Tensor) -> Tensor:
        """The product after its norm, as the next product reads it."""
        if self._norm is None:
            return z
        z = on_rows(self._norm, z)
        return binary_sign(z, self._letters.surrogate) if self._to_signs else z


def _input_norm(
    layer: str, kind: InputNorm | None, in_channels: int | tuple[int, int]
) -> nn.Module | None:
    """The norm of a layer's input; a batch norm of unknown width takes that of the first input."""
    if kind is None:
        return None
    if kind == "standardize":
        return NodeStandardize()
    widths = {in_channels} if isinstance(in_channels, int) else set(in_channels)
    if len(widths) > 1:
        raise ValueError(
            f"{layer}: input_norm='batch' needs sources and destinations of one width, "
            f"got in_channels {in_channels}"
        )
    width = widths.pop()
    if width > 0:
        return nn.BatchNorm1d(width, affine=False)
    return nn.LazyBatchNorm1d(affine=False)


def on_rows(module: nn.Module, x: Tensor) -> Tensor:
    """A module for matrices ``[N, K]`` on ``[*, K]``."""
    if x.dim() == 2:
        out: Tensor = module(x)
        return out
    rows: Tensor = module(x.reshape(-1, x.size(-1)))
    return rows.view(x.shape)

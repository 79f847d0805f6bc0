"""Linear with a binary product, PyG's layer plus a precision, and MLPs that are made of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch_geometric.nn
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn.dense.linear import is_uninitialized_parameter

from bitgnn.nn.binary_product import BinaryProduct, on_rows
from bitgnn.nn.inputs.float_inputs import require_floats
from bitgnn.nn.inputs.input_bits import InputKind
from bitgnn.nn.inputs.looked_up_products import Part
from bitgnn.nn.precision import NAMES, Form, LayerPrecision, Role, named_linear_forms
from bitgnn.quantize import binary_sign, fast_dropout

KINDS = (nn.Linear, torch_geometric.nn.Linear)


class Linear(BinaryProduct, torch_geometric.nn.Linear):
    r"""PyG's ``Linear`` whose product can be binary.

    * ``"fp32"``: :math:`X W^\top + b`, PyG's own code.
    * ``"bin"`` or ``"full"``: the product of a graph layer, :math:`\mathrm{norm}(B(X)\,
      \mathrm{sgn}(W)^\top) + b` with bits or 8-bit rows :math:`B` of
      :class:`~bitgnn.nn.InputBits`: results of other layers are bits, whatever activation comes
      before; dense features, counts, and activations that are above 0 nearly everywhere, as after
      a sigmoid, are 8-bit rows. A layer whose result no other one reads has a learnt gain in place
      of the batch norm.
    * letters ``"xyz"``: activation, weight and output, the former as its sign:
      ``"FBF"`` is :math:`\alpha_i m_o\,\mathrm{sgn}(X_i)\cdot\mathrm{sgn}(W_o) + b_o` with
      :math:`\alpha_i = \mathrm{mean}|X_i|`, :math:`m_o = \mathrm{mean}|W_o|` (Bi-GCN). A B
      activation is used only by its sign; an F weight is used as it is; a B output is a sign; a T
      activation is ternary, {-1, 0, +1} times a learnt scale.
    * a :class:`~bitgnn.nn.LayerPrecision` also places norms and hardtanh; its aggregation letters
      mean nothing here. ``hidden_norm`` acts before the bias, ``output_norm`` after it.

    Source: Wang et al., "Bi-GCN: Binary Graph Convolutional Network", CVPR 2021.

    Args:
        in_channels: size of each input sample, or -1 to take it from the first input.
        out_channels: size of each output sample.
        bias: add a bias, before the sign where the output is one.
        weight_initializer: as in PyG; binary weights start at N(0, 1 / in) whatever it says.
        bias_initializer: as in PyG; with binary weights it starts at 0.
        precision: ``"fp32"``, ``"full"``, ``"bin"``, three letters, or a LayerPrecision.
        dropout: probability of dropping an activation in training; in binary forms it acts on the
            binarised activation.
        role: ``"first"``, ``"inner"``, ``"last"`` or ``"only"`` among the binary layers of a model,
            for named precisions; None follows from the data flow when the model first trains.

    Raises:
        ValueError: unknown precision or ``dropout`` outside [0, 1).
    """

    _letters: LayerPrecision
    least_below = 0.25  # sums of ReLUs that messages bring to a map inside of a layer are below it
    is_asked = True
    """False for a layer that binarize() made binary by its place in the model."""
    adds_bias = True
    """False where the layer around adds the bias, after sums of neighbours."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        bias: bool = True,
        weight_initializer: str | None = None,
        bias_initializer: str | None = None,
        precision: str | LayerPrecision = "fp32",
        dropout: float = 0.0,
        role: Role | None = None,
    ) -> None:
        if precision not in NAMES:
            precision = LayerPrecision.parse_linear(precision)
        self._set_precision(precision, dropout, role)
        super().__init__(in_channels, out_channels, bias, weight_initializer, bias_initializer)
        self._add_norms(in_channels, out_channels)

    def choose_by_place(self, ends_in_floats: bool) -> None:
        """Let a layer of named precision stay in floats that nobody asked to be binary.

        It does where it is never called, since its owner reads only the weight, and with
        ``ends_in_floats`` where no other layer reads its result: class scores are worth more than
        the few bytes of a head.
        """
        self.is_asked = False
        if self._forms is not None and ends_in_floats:
            self._forms = named_linear_forms(str(self._precision_name), True)

    def hand_on_signs(self) -> None:
        """Let a layer whose result neighbours' sums read, and then a binary layer, give signs.

        So few input bits that their products say all of them are not worth it.
        """
        assert self._forms is not None
        for name in ("hidden", "hidden_rows"):
            form = self._forms[name]
            self._forms[name] = replace(form, bmm=f"{form.bmm[:2]}B", bspmm="BBF")

    @property
    def own_bias(self) -> Tensor | None:
        """The bias that the layer itself adds."""
        return self.bias if self.adds_bias else None

    @property
    def gives_signs(self) -> bool:
        """True where the results are signs."""
        return self.letters.bmm[2] == "B"

    @property
    def stays_float(self) -> bool:
        """True for a layer of named precision that its place in the model leaves in floats."""
        return self._forms is not None and self.letters.is_float

    @property
    def precision(self) -> str:
        """Name or the three letters of the layer's precision, without its options."""
        if self._forms is not None:
            return str(self._precision_name)
        return "fp32" if self.letters.is_float else self.letters.bmm

    def _named_forms(self, precision: str | LayerPrecision) -> dict[Form, LayerPrecision] | None:
        return named_linear_forms(precision)

    def _form(self, feeds_bits: bool, kind: InputKind | None) -> Form:
        """Form by role and input; a layer that nobody asked for or called stays in floats."""
        is_unseen = kind is None and not self.is_asked
        return "floats" if is_unseen else super()._form(feeds_bits, kind)

    def _products(self) -> Iterable[torch_geometric.nn.Linear]:
        return (self,)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        """Save as PyG does, which writes only weight and bias, and add the other tensors."""
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for name, tensor in (*self._parameters.items(), *self._buffers.items()):
            if tensor is not None:
                destination.setdefault(prefix + name, tensor if keep_vars else tensor.detach())

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer.

        Args:
            x: ``[*, in_channels]`` floats.

        Returns:
            ``[*, out_channels]`` floats; +1 and -1 if the output letter is B.

        Raises:
            TypeError: ``x`` is no tensor, or holds no floats.
            ValueError: the width of ``x`` is not ``in_channels``.
        """
        self._meet_model()
        require_floats(type(self).__name__, "x", x)
        if self._forms is None and self._letters.is_float:
            dropped = fast_dropout(x, self.dropout, self.training)
            return functional.linear(dropped, self.weight, self.own_bias)
        u = self._prepare(x)
        weight = self._ready(self, u)
        if self.input_bits is not None:
            return self._looked_up(u)
        letters = self._letters
        between = (self.own_bias, self.hidden_norm, self.output_norm)
        if letters.bmm[2] == "B" and all(part is None for part in between):
            return self._product(u, weight, sign_output=True)
        out = self._product(u, weight)
        if self.hidden_norm is not None:
            out = on_rows(self.hidden_norm, out)
        if self.own_bias is not None:
            out = out + self.own_bias
        if self.output_norm is not None:
            out = on_rows(self.output_norm, out)
        return binary_sign(out, letters.surrogate) if letters.bmm[2] == "B" else out

    def _looked_up(self, u: Tensor) -> Tensor:
        """The product with looked-up bits or 8-bit rows, or with floats where the role has some."""
        bits: Any = self.input_bits
        self._look(u, bits, self)
        if self._letters.is_float:
            dropped = fast_dropout(u, self.dropout, self.training)
            out = functional.linear(dropped, self.weight, self.own_bias)
        else:
            rows = u.reshape(-1, u.size(-1)) if u.numel() or u.dim() == 1 else u.flatten(0, -2)
            part = Part(self, self._norm)
            out = self._bits_product(self._see(rows, bits, self.dropout), bits, part)
            out = out.view(*u.shape[:-1], out.size(-1))
            out = out if self.own_bias is None else out + self.own_bias
            out = binary_sign(out, self._letters.surrogate) if self._to_signs else out
        return self._mark(self._with_all_parameters(out))


def with_binary_maps(module: nn.Module, precision: str, dropout: float = 0.0) -> nn.Module:
    """A module whose linear maps are binary where the layer around calls for it, in place.

    Weights, names and modes stay; a map without weights yet stays as it is. ``precision`` is
    ``"bin"`` or ``"full"``.
    """
    if isinstance(module, KINDS):
        return _binary_map(module, precision, dropout)
    for name, child in list(module.named_children()):
        setattr(module, name, with_binary_maps(child, precision, dropout))
    return module


def _binary_map(linear: Any, precision: str, dropout: float) -> nn.Module:
    if isinstance(linear, BinaryProduct) or is_uninitialized_parameter(linear.weight):
        found: nn.Module = linear
        return found
    outputs, inputs = linear.weight.shape
    made = Linear(inputs, outputs, linear.bias is not None, precision=precision, dropout=dropout)
    made.choose_by_place(ends_in_floats=True)
    return adopt(made, linear)


def adopt(made: nn.Module, linear: Any) -> nn.Module:
    """A map with the parameters of another one, where code may ask for torch's names of sizes."""
    made.to(linear.weight.device, linear.weight.dtype)
    made._parameters.update(weight=linear.weight, bias=linear.bias)
    outputs, inputs = linear.weight.shape
    vars(made).update(in_features=inputs, out_features=outputs)
    return made.train(linear.training)

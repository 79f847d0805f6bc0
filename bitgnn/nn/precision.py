"""Precision of a layer: letters, options of its training arithmetic, and forms of the names."""

from __future__ import annotations

import contextvars
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Literal, get_args

from bitgnn.bits import letters
from bitgnn.quantize import Surrogate, WeightGradient

PRESETS = {"fp32": "FFF+FFF", "full": "FBF+FBF", "bin": "FBB+BBF"}
"""Names a layer accepts as well as explicit letters, and the letters they stand for."""

Norm = Literal["batch"]
InputNorm = Literal["batch", "standardize"]
Inputs = Literal["sign", "looked_up"]
ProductOrder = Literal["transform_first", "aggregate_first"]
Role = Literal["first", "inner", "last", "only"]
"""Position among binary layers: ``"first"`` and ``"only"`` read features, ``"inner"`` and
``"last"`` results of binary layers; one reads the result of ``"first"`` and ``"inner"``."""
Form = Literal["hidden", "last", "few_bits", "hidden_rows", "last_rows", "floats"]
"""Letters of a layer whose result a binary one reads, or does not; ``"few_bits"`` is that on a
pattern of no more bits than outputs, ``"..._rows"`` that on 8-bit rows, ``"floats"`` where nothing
is binary."""

NAMES = ("bin", "full")
"""Names of more than letters: the form follows the layer's role."""
NORM_OPTIONS = ("hidden_norm", "output_norm")
"""Fields of batch norms before a sign, which a model passes to the layers that have one."""
PRODUCT_OPTIONS = ("surrogate", "weight_gradient", "hardtanh")
"""Fields that concern every binary product, which a model gives all of its layers."""

_LINEAR_LETTERS = letters.pattern("products", leaves_out="I")
_PATTERNS = {"bmm": letters.pattern("products"), "bspmm": letters.pattern("sums")}
_PAIR = re.compile("([{0}]{{3}})\\+([{0}]{{3}})".format("".join(letters.LETTERS)))
_CHOICES: dict[str, tuple[object, ...]] = {
    "surrogate": get_args(Surrogate),
    "weight_gradient": get_args(WeightGradient),
    "hardtanh": (False, True),
    "input_norm": (None, *get_args(InputNorm)),
    "hidden_norm": (None, *get_args(Norm)),
    "output_norm": (None, *get_args(Norm)),
    "inputs": get_args(Inputs),
    "order": get_args(ProductOrder),
    "shortcut": (False, True),
}


@dataclass(frozen=True)
class LayerPrecision:
    """The binary parts of a layer, and their training arithmetic.

    Attributes:
        bmm: activation, weight and output of the dense product; F full precision, B bits; as
            activation with binary weights also T, ternary: {-1, 0, +1} times a learnt scale; as
            weight with an F activation also I: both become 8-bit integers inside.
        bspmm: activation, adjacency and output of the aggregation; T with a pattern takes the
            dense product's floats and makes them ternary.
        surrogate: slope in place of the sign's derivative: ``"ste"`` (clipped straight-through),
            ``"approx"`` (ApproxSign) or ``"identity"``, see
            :func:`bitgnn.quantize.surrogate_slope`.
        weight_gradient: ``"bigcn"`` (Bi-GCN's rule) or ``"ste"`` (its first term, the scale of the
            weights taken as a constant), see :func:`bitgnn.quantize.binary_linear`.
        hardtanh: clip what the sign sees to [-1, 1]; this bounds the row scale.
        input_norm: of the layer's input: None, ``"batch"`` (batch norm without affine parameters)
            or ``"standardize"`` (per node, :class:`bitgnn.nn.NodeStandardize`).
        hidden_norm: between the dense product and the aggregation: None or ``"batch"``, a batch
            norm that blends fewer than 256 rows with its running statistics.
        output_norm: after aggregation, bias and root term: None or ``"batch"``.
        inputs: bits that the dense product takes: ``"sign"`` of each value, or ``"looked_up"``,
            what :class:`bitgnn.nn.InputBits` finds in the data (the row scale is left out).
        order: ``"aggregate_first"`` sums the neighbours' bits, integers, and multiplies the sums:
            the column factor cannot act. It is computed in the order with less work; both give
            the same.
        shortcut: add the looked-up bits of an activation to what is aggregated, where the layer
            has as many outputs: of GCNConv, which has no map of the node itself.

    Raises:
        TypeError: the letters are not strings.
        ValueError: a field has none of its values, the dense product hands over something other
            than what the aggregation takes, or ``"FFF+FFF"`` comes with a norm or hardtanh.
    """

    bmm: str
    bspmm: str
    surrogate: Surrogate = "ste"
    weight_gradient: WeightGradient = "bigcn"
    hardtanh: bool = False
    input_norm: InputNorm | None = None
    hidden_norm: Norm | None = None
    output_norm: Norm | None = None
    inputs: Inputs = "sign"
    order: ProductOrder = "transform_first"
    shortcut: bool = False

    def __post_init__(self) -> None:
        for name in ("bmm", "bspmm"):
            given = getattr(self, name)
            if not isinstance(given, str):
                raise TypeError(
                    f"LayerPrecision: {name} must be a string, got {type(given).__name__}"
                )
            if _PATTERNS[name].fullmatch(given) is None:
                raise ValueError(
                    f"LayerPrecision: {name} must be three letters F or B, got {given!r}"
                    f"{letters.hint(given)}"
                )
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value not in choices:
                named = ", ".join(map(repr, choices))
                raise ValueError(f"LayerPrecision: {name} must be one of {named}, got {value!r}")
        if self.bmm[2] != ("F" if self.sum_letter.level else self.bspmm[0]):
            raise ValueError(
                f"precision {self.pair!r}: the output of BMM ({self.bmm[2]}) must be the "
                f"activation of BSpMM ({self.bspmm[0]})"
            )
        if self.looks_up:
            if self.bmm[:2] not in ("FB", "BB", "FI"):
                raise ValueError(
                    "LayerPrecision: inputs='looked_up' needs binary or 8-bit weights, got "
                    f"{self.bmm!r}"
                )
            if self.hardtanh or self.input_norm:
                raise ValueError(
                    "LayerPrecision: inputs='looked_up' takes neither hardtanh nor input_norm"
                )
        elif self.shortcut or self.takes_rows:
            what = "shortcut" if self.shortcut else f"the letter I of {self.bmm!r}"
            raise ValueError(f"LayerPrecision: {what} needs inputs='looked_up'")
        shaping = ("hardtanh", "input_norm", "hidden_norm", "output_norm")
        extra = [name for name in shaping if getattr(self, name)]
        if self.is_float and extra:
            raise ValueError(
                f"LayerPrecision: {extra} need a binary letter; 'FFF+FFF' is PyG's own layer"
            )

    @classmethod
    def parse(cls, precision: str | LayerPrecision) -> LayerPrecision:
        """Read ``"fp32"``, ``"full"``, ``"bin"`` or letters such as ``"FBB+BBF"``.

        Args:
            precision: preset name, letters (dense product first), or a ready precision.

        Returns:
            The precision; options that a string cannot name have their defaults.

        Raises:
            TypeError: ``precision`` is neither a string nor a LayerPrecision.
            ValueError: it is neither a preset nor letters, or the letters do not fit.
        """
        if isinstance(precision, LayerPrecision):
            return precision
        if not isinstance(precision, str):
            raise TypeError(
                f"precision must be a string or a LayerPrecision, got {type(precision).__name__}"
            )
        match = _PAIR.fullmatch(PRESETS.get(precision, precision))
        if match is None:
            raise ValueError(
                "precision must be 'fp32', 'full', 'bin' or letters such as 'FBB+BBF', "
                f"got {precision!r}"
            )
        return cls(match[1], match[2], inputs="looked_up" if "I" in match[1] else "sign")

    @classmethod
    def parse_linear(cls, precision: str | LayerPrecision) -> LayerPrecision:
        """Read the precision of a layer without aggregation.

        Args:
            precision: preset name, the three letters of the dense product, or a ready precision
                whose aggregation letters do not matter.

        Returns:
            The precision; its aggregation letters mean nothing.

        Raises:
            TypeError: ``precision`` is neither a string nor a LayerPrecision.
            ValueError: it is neither a preset nor three letters.
        """
        if not isinstance(precision, str) or precision in PRESETS:
            return cls.parse(precision)
        if _LINEAR_LETTERS.fullmatch(precision) is None:
            raise ValueError(
                "precision must be 'fp32', 'full', 'bin' or three letters such as 'FBB', "
                f"got {precision!r}"
            )
        rest = "FFF" if precision == "FFF" else f"{precision[2]}BF"
        return cls(precision, rest)

    @property
    def looks_up(self) -> bool:
        """True if the bits of the input are looked up from the data."""
        return self.inputs == "looked_up"

    @property
    def is_float(self) -> bool:
        """True if nothing in the layer is binary."""
        return self.bmm == "FFF" and self.bspmm == "FFF"

    @property
    def is_float_linear(self) -> bool:
        """True if the dense product is the plain float one."""
        return self.bmm == "FFF"

    @property
    def takes_rows(self) -> bool:
        """True if the dense product is one of 8-bit integers."""
        return self.bmm[1] == "I"

    @property
    def input_letter(self) -> letters.Letter:
        """Row of the activations of the dense product."""
        return letters.LETTERS[self.bmm[0]]

    @property
    def sum_letter(self) -> letters.Letter:
        """Row of the values that are aggregated."""
        return letters.LETTERS[self.bspmm[0]]

    @property
    def options(self) -> dict[str, object]:
        """The fields other than the letters, by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)[2:]}

    @property
    def pair(self) -> str:
        """The six letters, whatever name they have."""
        return f"{self.bmm}+{self.bspmm}"

    def __str__(self) -> str:
        return next((name for name, letters in PRESETS.items() if letters == self.pair), self.pair)


def model_letters(precision: str | LayerPrecision, num_layers: int) -> list[str | LayerPrecision]:
    """Precision of each layer of a chain; anything but ``"bin"`` holds for every one.

    ``"bin"`` hands bits from layer to layer, ``FBB+BBB``, ``BBB+BBB``, ..., ``BBF+FBF``: the last
    layer aggregates floats, since class scores need them; a single layer has no such boundary and
    is ``FBF+FBF``.
    """
    if precision != "bin" or num_layers == 0:
        return [precision] * num_layers
    if num_layers == 1:
        return ["FBF+FBF"]
    return ["FBB+BBB", *["BBB+BBB"] * (num_layers - 2), "BBF+FBF"]


_default: contextvars.ContextVar[str | LayerPrecision] = contextvars.ContextVar(
    "bitgnn_default_precision", default="bin"
)


@contextmanager
def default_precision(precision: str | LayerPrecision) -> Iterator[None]:
    """Let graph layers made inside have this precision where they name none.

    ``with bitgnn.nn.default_precision("fp32"):`` makes PyG's own layers of them. Outside it is
    ``"bin"``.

    Args:
        precision: what ``precision=`` of a layer takes.

    Raises:
        ValueError: it is neither a name nor letters.
    """
    LayerPrecision.parse(precision)
    token = _default.set(precision)
    try:
        yield
    finally:
        _default.reset(token)


def chosen_precision(precision: str | LayerPrecision | None) -> str | LayerPrecision:
    """The precision a layer was asked for, or the default."""
    return _default.get() if precision is None else precision


def named_forms(precision: str | LayerPrecision) -> dict[Form, LayerPrecision] | None:
    """The forms of ``"bin"`` or ``"full"``; None for anything else.

    A hidden layer has a batch norm after its product; in ``"bin"`` the sign follows, and bits are
    aggregated. On dense features the product is one of 8-bit integers. The last layer sums the
    neighbours' bits, and multiplies these integers by binary weights with a learnt gain. A hidden
    layer on a pattern of no more bits than it has outputs does so too, with its batch norm: fewer
    bits are summed, and no sign loses any of the sums.
    """
    if precision not in NAMES:
        return None
    letters = ("FBB", "BBF") if precision == "bin" else ("FBF", "FBF")
    hidden = LayerPrecision(*letters, hidden_norm="batch", inputs="looked_up", shortcut=True)
    last = LayerPrecision("FBF", "FBF", inputs="looked_up", order="aggregate_first")
    few = replace(last, hidden_norm="batch") if precision == "bin" else hidden
    # Floats are summed with the column factor, as in PyG.
    rows = replace(hidden, bmm=f"FI{letters[0][2]}", shortcut=False)
    last_rows = LayerPrecision("FIF", "FBF", inputs="looked_up")
    return {
        "hidden": hidden,
        "last": last,
        "few_bits": few,
        "hidden_rows": rows,
        "last_rows": last_rows,
    }


def named_linear_forms(
    precision: str | LayerPrecision, ends_in_floats: bool = False
) -> dict[Form, LayerPrecision] | None:
    """The forms of ``"bin"`` and ``"full"`` of a linear layer; None for anything else.

    They are those of a graph layer without its aggregation: both names mean the same, since the
    reader takes the signs. With ``ends_in_floats`` a layer whose result no binary layer reads
    stays in floats.
    """
    if precision not in NAMES:
        return None
    floats = LayerPrecision.parse("fp32")
    last = LayerPrecision("FBF", "FBF", inputs="looked_up")
    hidden = replace(last, hidden_norm="batch")
    return {
        "hidden": hidden,
        "last": floats if ends_in_floats else last,
        "few_bits": hidden,
        "hidden_rows": replace(hidden, bmm="FIF"),
        "last_rows": floats if ends_in_floats else replace(last, bmm="FIF"),
        "floats": floats,
    }


def named_sum_forms(precision: str | LayerPrecision) -> dict[Form, LayerPrecision] | None:
    """The forms of ``"bin"`` and ``"full"`` of a map of summed features; None for anything else.

    Integers are summed, and a batch norm follows where a binary layer reads the result.
    """
    if precision not in NAMES:
        return None
    last = LayerPrecision("FBF", "FBF", inputs="looked_up", order="aggregate_first")
    hidden = replace(last, output_norm="batch")
    rows = LayerPrecision("FIF", "FBF", inputs="looked_up")
    return {
        "hidden": hidden,
        "last": last,
        "few_bits": hidden,
        "hidden_rows": replace(rows, output_norm="batch"),
        "last_rows": rows,
    }

"""report_of(): changes of binarize() and the present layers; freeze()'s check of training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.dense.linear import is_uninitialized_parameter

from bitgnn._interpreter import warn
from bitgnn.convert.network.layers import letters_of
from bitgnn.nn import (
    BinaryConv2d,
    BinaryLinear,
    BWTALinear,
    BWTAMultiheadAttention,
    LayerPrecision,
)
from bitgnn.nn.binary_product import BinaryProduct
from bitgnn.nn.inputs.seen_bits import ConstantBits

NOT_YET = "not known yet"
ATTRIBUTE = "bitgnn_report"
"""Where the report of a model is kept on it."""
HEADS = ("layer", "class", "precision", "role", "input", "added", "why")
ROLES = {
    "first": "it reads features, a binary layer its result",
    "inner": "it reads a binary layer's result, and a binary layer its own",
    "last": "it reads a binary layer's result, no binary layer its own",
    "only": "it reads features, no binary layer its result",
    NOT_YET: "its role follows from the first forward in training",
}

GO_ON = "freeze(model, check=False) packs it as it is"
FEW_ROWS = 32
"""Rows that statistics of an input stand on at least."""
FEW_CURE = "train it on more"
MANY = 0.5
"""Share of constant bits from which on there is a warning."""
CENTRE = "centre what it reads, or put a norm in front"
BY_NAME = "centre what it reads, put a norm in front, or give it precision 'bin' or 'full'"
TRAIN = "train it further, or put a batch norm in front of the sign (hidden_norm='batch')"


@dataclass(frozen=True)
class LayerReport:
    """One binary layer as it stands.

    Attributes:
        name: module name; empty for the model itself.
        kind: class.
        precision: by name, or letters.
        role: of a precision by name, ``"first"``, ``"inner"``, ``"last"``, ``"only"`` or
            ``"not known yet"``; empty where letters say what the layer hands on.
        inputs: what the product sees: ``"rows"`` of 8-bit integers, ``"pattern"``,
            ``"activation"``, ``"not looked at yet"``, ``"signs"``, ``"ternary"``, ``"floats"`` or
            ``"fixed point"``.
        added: what the layer has beside that of PyG or torch: norms, gain, thresholds, scales.
        why: where precision and role come from.
    """

    name: str
    kind: str
    precision: str
    role: str
    inputs: str
    added: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class BinarizeReport:
    """Changes made by :func:`binarize`; prints as a table.

    Attributes:
        swapped: precision of each swapped layer by module name.
        left: reason for each layer with weights that was left alone.
        warnings: constructions that cannot work well.
        replaced: what stands in place of each activation function, by module name.
        reasons: why each swapped layer has its precision, by module name.
        layers: the binary layers at the time of the :func:`report_of` call.
        float_share: part of the weights (parameters of two dimensions and more) that no product
            of bits or 8-bit integers uses, at that time; None where there are none.
    """

    swapped: dict[str, str]
    left: dict[str, str]
    warnings: tuple[str, ...]
    replaced: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    layers: tuple[LayerReport, ...] = ()
    float_share: float | None = None

    def __str__(self) -> str:
        rows = [
            (_named(r.name), r.kind, r.precision, r.role, r.inputs, ", ".join(r.added), r.why)
            for r in self.layers
        ]
        shown = {layer.name for layer in self.layers}
        lines = _table((HEADS, *rows)) if rows else []
        lines += [f"{_named(n)}: now {text}" for n, text in self.swapped.items() if n not in shown]
        lines += [f"{name}: now {new}" for name, new in self.replaced.items()]
        lines += [f"{_named(name)}: left alone, {reason}" for name, reason in self.left.items()]
        if self.float_share is not None:
            lines.append(f"{100 * self.float_share:.1f} % of the weights stay float")
        return "\n".join([*lines, *(f"warning: {text}" for text in self.warnings)])


def _named(name: str) -> str:
    return name or "the model itself"


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows with aligned columns; columns without entries are left out."""
    columns = [column for column in zip(*rows, strict=True) if any(column[1:])]
    widths = [max(map(len, column)) for column in columns]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in zip(*columns, strict=True)
    ]


def report_of(model: nn.Module) -> BinarizeReport:
    """Changes made by the :func:`binarize` call behind ``model``, and its layers as they are now.

    Roles and input bits are found in the first training batch, or on an example; before that the
    report says that they are not known yet. Models made of layers of :mod:`bitgnn.nn` have a
    report, too.

    Raises:
        ValueError: ``model`` has no binary layer.
    """
    modules = dict(model.named_modules())
    report = getattr(model, ATTRIBUTE, None)
    if not isinstance(report, BinarizeReport):
        found = {
            name: layer.precision
            for name, layer in modules.items()
            if isinstance(layer, BinaryProduct) and not layer.letters.is_float
        }
        if not found:
            raise ValueError("report_of: model must have binary layers, got one without any")
        report = BinarizeReport(found, {}, ())
    layers = tuple(
        _layer_report(name, modules[name], report.reasons.get(name, ""))
        for name in report.swapped
        if isinstance(modules.get(name), BinaryProduct | BinaryLinear | BinaryConv2d)
    )
    return replace(report, layers=layers, float_share=_float_share(model))


def _layer_report(name: str, layer: Any, why: str) -> LayerReport:
    kind = type(layer).__name__
    if not isinstance(layer, BinaryProduct):
        is_sign = layer.input_step is None
        texts = ("BBF", "", "signs") if is_sign else ("FBF", "", "fixed point")
        return LayerReport(name, kind, *texts, (), why)
    letters, bits, role = layer.letters, layer.input_bits, ""
    if layer.has_role:
        precision = str(layer.precision)
        role = str(layer.role or NOT_YET)
    else:
        precision = spelled(layer, letters)
    if bits is not None and not (letters.is_float and bits.kind):
        inputs = str(bits.kind or "not looked at yet")
    else:
        # Binary weights take the signs of floats.
        is_sign = letters.bmm[:2] == "FB"
        inputs = "signs" if is_sign else letters.input_letter.reads
    reasons = "; ".join(text for text in (why, ROLES.get(role, "")) if text)
    return LayerReport(name, kind, precision, role, inputs, _added(layer, role), reasons)


def spelled(layer: object, letters: LayerPrecision) -> str:
    """Letters of a layer as plans have them, three for a linear one."""
    is_graph = isinstance(layer, MessagePassing)
    return f"{letters.bmm}+{letters.bspmm}" if is_graph else letters.bmm


def _added(layer: Any, role: str) -> tuple[str, ...]:
    letters = layer.letters
    found = ["batch norm" if letters.input_norm == "batch" else str(letters.input_norm or "")]
    found += ["batch norm"] * (bool(letters.hidden_norm) + bool(letters.output_norm))
    if layer.gain_level is not None and not (letters.hidden_norm or letters.is_float):
        found.append("batch norm or gain" if role == NOT_YET else "gain")
    found += ["shortcut"] if getattr(layer, "has_shortcut", False) else []
    scales = sum(q is not None for q in (layer.input_quantizer, layer.hidden_quantizer))
    found += ["ternary scale"] * scales
    return tuple(text for text in found if text)


def _float_share(model: nn.Module) -> float | None:
    """Part of the weights that take part in no product with binary or 8-bit weights."""
    binary: set[int] = set()
    for module in model.modules():
        if isinstance(module, BinaryProduct):
            if module.letters.bmm[1] in "BI":
                binary |= {id(weight) for weight in module._latent_weights()}
        elif isinstance(module, BinaryLinear | BinaryConv2d):
            binary.add(id(module.weight))
        elif isinstance(module, BWTALinear | BWTAMultiheadAttention):
            binary |= {id(parameter) for parameter in module.parameters()}
    sizes = {
        id(parameter): parameter.numel()
        for parameter in model.parameters()
        if not is_uninitialized_parameter(parameter) and parameter.dim() >= 2
    }
    whole = sum(sizes.values())
    return sum(n for p, n in sizes.items() if p not in binary) / whole if whole else None


def check_trained(
    model: nn.Module, names: Iterable[str], plan: Mapping[int, LayerPrecision]
) -> None:
    """Refuse layers whose bits cannot be those of a trained model, and warn of doubtful ones.

    Such a layer never looked at its input, or all its bits were constant in the last forwards.
    """
    modules = dict(model.named_modules())
    found: list[str] = []
    for name in names:
        layer: Any = modules.get(name, model)  # a layer alone has the name of its class
        if not isinstance(layer, BinaryProduct):
            continue
        where = f"layer {name!r} ({type(layer).__name__})"
        if layer.input_bits is not None and layer.input_bits.kind is None:
            raise ValueError(
                f"freeze: {where} must have looked at its input, got a model that was never "
                f"trained; train it, or pass example to binarize(); {GO_ON}"
            )
        looked_up = (bits for bits in (layer.input_bits, layer.root_bits) if bits is not None)
        for bits in looked_up:
            if bits.kind != "activation" and float(bits.rows) < FEW_ROWS:
                found.append(
                    f"{where} knows its input's columns from {int(bits.rows)} rows; {FEW_CURE}"
                )
        letters = letters_of(modules.get(name, model), plan)
        for what, seen in layer.constant_bits().items():
            if what == "hidden":
                is_read, cure = letters.bspmm[0] == "B", TRAIN
            else:
                is_read = "B" in letters.bmm[:2] and not letters.input_letter.level
                # Only graph layers can look their bits up.
                can_look = isinstance(layer, MessagePassing) and not letters.looks_up
                cure = BY_NAME if can_look else CENTRE
            if is_read and seen.constant == seen.size and getattr(layer, "is_asked", True):
                raise ValueError(
                    f"freeze: {where} must have {what} bits that vary, got all {seen.size} of them "
                    f"the same in all {_rows(seen)}; {cure}; {GO_ON}"
                )
            if is_read and seen.constant > MANY * seen.size:
                found.append(
                    f"{seen.constant} of the {seen.size} {what} bits of {where} are the same in "
                    f"all {_rows(seen)}"
                )
    if found:
        warn(f"freeze: {'; '.join(found)}")


def _rows(seen: ConstantBits) -> str:
    return f"{seen.rows} rows of the last batch of training looked at"

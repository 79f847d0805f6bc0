"""report_of(): the changes that binarize() made, and the present state of each layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor, nn
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.dense.linear import is_uninitialized_parameter

from bitgnn.nn import (
    BinaryConv2d,
    BinaryLinear,
    BWTALinear,
    BWTAMultiheadAttention,
    InputBits,
)
from bitgnn.nn.binary_product import BinaryProduct

NOT_YET = "not known yet"
ATTRIBUTE = "bitgnn_report"
HEADS = ("layer", "class", "precision", "role", "input", "added", "why")
MATRIX = 2
ROLES = {
    "hidden": "a binary layer takes its result",
    "last": "no binary layer takes its result",
    NOT_YET: "its role follows from the first forward in training",
}


@dataclass(frozen=True)
class LayerReport:
    """One binary layer as it stands.

    Attributes:
        name: module name; empty for the model itself.
        kind: class.
        precision: by name, or letters.
        role: of a precision by name, ``"hidden"`` (a binary layer takes the result), ``"last"`` or
            ``"not known yet"``; empty where letters say what the layer hands on.
        inputs: what the product sees: ``"pattern"``, ``"thermometer, 90 bits"``, ``"activation"``,
            ``"not looked at yet"``, ``"signs"``, ``"ternary"``, ``"floats"`` or ``"fixed point"``.
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
        float_share: part of the weights (parameters of two dimensions and more) that no binary
            product uses, at that time; None where there are none.
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
    """Rows with aligned columns, without those that are empty below their head."""
    columns = [column for column in zip(*rows, strict=True) if any(column[1:])]
    widths = [max(map(len, column)) for column in columns]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in zip(*columns, strict=True)
    ]


def keep_report(model: nn.Module, report: BinarizeReport) -> None:
    """Let :func:`report_of` find the report of a model."""
    object.__setattr__(model, ATTRIBUTE, report)


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
        inputs = "signs" if layer.input_step is None else "fixed point"
        letters = "BBF" if layer.input_step is None else "FBF"
        return LayerReport(name, kind, letters, "", inputs, (), why)
    named = layer.has_role
    role = _role(layer) if named else ""
    precision = layer.precision if named else _spelled(layer)
    reasons = "; ".join(text for text in (why, ROLES.get(role, "")) if text)
    return LayerReport(name, kind, precision, role, _inputs(layer), _added(layer), reasons)


def _role(layer: Any) -> str:
    """Layers that nothing binary takes the result of keep no role, whoever looked."""
    if layer.role is not None:
        return str(layer.role)
    return "last" if layer.input_bits.is_settled else NOT_YET


def _spelled(layer: Any) -> str:
    letters = layer.letters
    is_graph = isinstance(layer, MessagePassing)
    return f"{letters.bmm}+{letters.bspmm}" if is_graph else str(letters.bmm)


def _inputs(layer: Any) -> str:
    if layer.input_bits is not None:
        return str(layer.input_bits.extra_repr())
    if layer.letters.takes_ternary:
        return "ternary"
    return "floats" if layer.letters.bmm[:2] in ("FF", "FT") else "signs"


def _added(layer: Any) -> tuple[str, ...]:
    letters = layer.letters
    found = ["batch norm" if letters.input_norm == "batch" else str(letters.input_norm or "")]
    found += ["batch norm" if letters.hidden_norm else ""]
    found += ["batch norm" if letters.output_norm else ""]
    unsure = layer.has_role and _role(layer) == NOT_YET
    if layer.gain_level is not None and not letters.hidden_norm:
        found.append("batch norm or gain" if unsure else "gain")
    found += ["shortcut"] if getattr(layer, "has_shortcut", False) else []
    for bits in (layer.input_bits, layer.root_bits):
        if isinstance(bits, InputBits) and bits.kind == "thermometer":
            found.append(f"{bits.thresholds.numel()} thresholds")
    scales = sum(q is not None for q in (layer.input_quantizer, layer.hidden_quantizer))
    found += ["ternary scale"] * scales
    return tuple(text for text in found if text)


def _float_share(model: nn.Module) -> float | None:
    """Part of the weights that take part in no product with binary weights."""
    binary: set[int] = set()
    for module in model.modules():
        if isinstance(module, BinaryProduct):
            if module.letters.bmm[1] == "B":
                binary |= {id(linear.weight) for linear in module._products()}
        elif isinstance(module, BinaryLinear | BinaryConv2d):
            binary.add(id(module.weight))
        elif isinstance(module, BWTALinear | BWTAMultiheadAttention):
            binary |= {id(parameter) for parameter in module.parameters()}
    sizes = {
        id(parameter): parameter.numel()
        for parameter in model.parameters()
        if not is_uninitialized_parameter(parameter) and _is_weight(parameter)
    }
    whole = sum(sizes.values())
    return sum(n for p, n in sizes.items() if p not in binary) / whole if whole else None


def _is_weight(parameter: Tensor) -> bool:
    return parameter.dim() >= MATRIX

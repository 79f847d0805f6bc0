"""Plan: letters, orders and form of features with which a model is frozen, as a document."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeGuard, get_args

import yaml
from torch import nn
from torch_geometric.nn import MessagePassing

import bitgnn.nn
from bitgnn._files import FileError, write_atomically
from bitgnn._plain import read_json, read_yaml
from bitgnn.convert.network.graph_rows import SUPPORTED
from bitgnn.inference import FeatureForm
from bitgnn.nn import LayerPrecision

Order = Literal["transform_first", "aggregate_first"]
"""Order of a layer's two float linear maps, that of the features and that of the graph."""

FORMAT = 1
YAML_SUFFIXES = (".yaml", ".yml")
JSON_SUFFIX = ".json"


def is_plan_path(value: Any) -> TypeGuard[str]:
    """True if a value is a string with a plan's suffix, which letters never have."""
    return isinstance(value, str) and value.endswith((*YAML_SUFFIXES, JSON_SUFFIX))


def tunable_layers(model: nn.Module) -> dict[str, nn.Module]:
    """Layers whose letters a plan may choose, by module name in the order of the module tree.

    Graph layers of PyG and of ``bitgnn.nn`` that freezing knows, and ``bitgnn.nn.Linear``.
    """
    kinds: tuple[type[nn.Module], ...] = (*SUPPORTED, bitgnn.nn.Linear)
    return {name: layer for name, layer in model.named_modules() if isinstance(layer, kinds)}


@dataclass(frozen=True)
class LayerShape:
    """One layer as plans know it; ``type`` is the same for PyG's layers and the binary ones."""

    name: str
    type: str
    in_channels: int
    out_channels: int

    def __str__(self) -> str:
        return f"{self.name} {self.type}({self.in_channels}, {self.out_channels})"


@dataclass(frozen=True)
class ModelShape:
    """Identity of a model for plans: classes and widths, not weights.

    Attributes:
        type: class name of the model.
        layers: its tunable layers in order.
    """

    type: str
    layers: tuple[LayerShape, ...]

    @classmethod
    def of(cls, model: nn.Module) -> ModelShape:
        """The shape of a model."""
        layers: list[LayerShape] = []
        layer: Any
        for name, layer in tunable_layers(model).items():
            width = layer.in_channels
            # Sources and destinations of one width: a frozen model has one set of nodes.
            width = width[0] if isinstance(width, tuple) else width
            shape = LayerShape(name, type(layer).__name__, int(width), int(layer.out_channels))
            layers.append(shape)
        return cls(type(model).__name__, tuple(layers))

    def __str__(self) -> str:
        return f"{self.type} of {', '.join(map(str, self.layers)) or 'no layers'}"

    @classmethod
    def from_dict(cls, content: Any) -> ModelShape:
        """Read what ``dataclasses.asdict`` gave.

        Raises:
            ValueError: an entry is missing, left over or of the wrong type.
        """
        _expect_keys("plan: model", content, {"type", "layers"}, {"type", "layers"})
        if not isinstance(content["type"], str) or not isinstance(content["layers"], list):
            raise ValueError(f"plan: model must have a type and a list of layers, got {content}")
        kinds = {"name": str, "type": str, "in_channels": int, "out_channels": int}
        for entry in content["layers"]:
            _expect_keys("plan: a layer of model", entry, set(kinds), set(kinds))
            if any(type(entry[name]) is not kind for name, kind in kinds.items()):
                raise ValueError(f"plan: a layer of model is wrong: {entry}")
        return cls(content["type"], tuple(LayerShape(**entry) for entry in content["layers"]))


@dataclass(frozen=True)
class Plan:
    """Letters and other choices with which :func:`bitgnn.freeze` freezes a model.

    Attributes:
        letters: by layer name: ``"FBB+BBB"`` (BMM+BSpMM) of a graph layer, ``"FBB"`` of a linear
            one; layers without an entry keep their own.
        order: by name of layers where both orders compute the same up to the rounding of floats;
            without an entry freezing takes the one with less work.
        features: ``"packed"`` for a model that takes packed features alone.
        model: which model the plan is for; None fits every model with layers of these names.
        notes: accuracy, latency, memory, device, reasons and the like; information only.

    Raises:
        TypeError: an entry is of the wrong type.
        ValueError: unknown letters, order or features.
    """

    letters: Mapping[str, str]
    order: Mapping[str, Order] = field(default_factory=dict)
    features: FeatureForm = "floats"
    model: ModelShape | None = None
    notes: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        for name in ("letters", "order", "notes"):
            if not isinstance(getattr(self, name), Mapping):
                raise TypeError(
                    f"Plan: {name} must be a mapping, got {type(getattr(self, name)).__name__}"
                )
        for layer, letters in self.letters.items():
            _check_letters(layer, letters)
        choices = [(f"order of {name!r}", given, Order) for name, given in self.order.items()]
        for what, given, known in (*choices, ("features", self.features, FeatureForm)):
            if given not in get_args(known):
                raise ValueError(
                    f"Plan: {what} must be one of {list(get_args(known))}, got {given!r}"
                )
        if self.model is not None and not isinstance(self.model, ModelShape):
            raise TypeError(f"Plan: model must be a ModelShape, got {type(self.model).__name__}")

    def __hash__(self) -> int:
        letters, order = frozenset(self.letters.items()), frozenset(self.order.items())
        return hash((letters, order, self.features, self.model))

    def check_model(self, model: nn.Module) -> None:
        """Refuse a model that this plan is not for.

        Raises:
            ValueError: the model has other classes or widths, or no layers of these names, or a
                layer of another kind; the message says which.
        """
        found = ModelShape.of(model)
        if self.model is not None and self.model != found:
            raise ValueError(f"plan is for {self.model}; the model is {found}")
        layers = tunable_layers(model)
        unknown = sorted({*self.letters, *self.order} - layers.keys())
        if unknown:
            raise ValueError(f"plan is for layers {unknown}; the model is {found}")
        for name, letters in self.letters.items():
            is_graph = isinstance(layers[name], MessagePassing)
            if is_graph != ("+" in letters):
                wanted = "six, such as 'FBB+BBB'" if is_graph else "three, such as 'FBB'"
                raise ValueError(
                    f"plan: letters of {name!r}, a {type(layers[name]).__name__}, must be "
                    f"{wanted}, got {letters!r}"
                )

    def to_dict(self) -> dict[str, Any]:
        """Plain values that :meth:`from_dict` reads."""
        content: dict[str, Any] = {"format": FORMAT, "letters": dict(self.letters)}
        content |= {"order": dict(self.order), "features": self.features}
        if self.model is not None:
            layers = [asdict(layer) for layer in self.model.layers]
            content["model"] = {"type": self.model.type, "layers": layers}
        if self.notes:
            content["notes"] = dict(self.notes)
        return content

    @classmethod
    def from_dict(cls, content: Any) -> Plan:
        """Read and check plain values.

        Raises:
            ValueError: an entry is missing, unknown or wrong; the message names it.
        """
        known = {entry.name for entry in fields(cls)}
        _expect_keys("plan", content, known | {"format"}, {"letters"})
        if content.get("format", FORMAT) != FORMAT:
            raise ValueError(
                f"plan: format {content['format']!r} is unknown; this version reads {FORMAT}"
            )
        values = {name: value for name, value in content.items() if name in known}
        if values.get("model") is not None:
            values["model"] = ModelShape.from_dict(values["model"])
        try:
            return cls(**values)
        except TypeError as error:
            raise ValueError(str(error)) from None

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the plan as YAML or JSON, whole or not at all.

        Args:
            path: file with the suffix ``.yaml``, ``.yml`` or ``.json``; its folder exists.

        Returns:
            The file.

        Raises:
            ValueError: another suffix.
            OSError: the file cannot be written.
        """
        file = Path(path)
        if _is_yaml(file):
            text = yaml.safe_dump(self.to_dict(), sort_keys=False, allow_unicode=True)
        else:
            text = json.dumps(self.to_dict(), indent=2) + "\n"
        write_atomically(file, text.encode(), durable=True)
        return file

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Plan:
        """Read a plan that :meth:`save` or a person wrote.

        Raises:
            FileNotFoundError: there is no such file.
            FileError: the file is not a plan; the message names file and entry.
            ValueError: another suffix.
        """
        file = Path(path)
        content = read_yaml(file) if _is_yaml(file) else read_json(file)
        try:
            return cls.from_dict(content)
        except ValueError as error:
            raise FileError(f"{file}: {error}") from None

    def describe(self) -> str:
        """The plan in one line."""
        parts = [f"{name} {letters}" for name, letters in self.letters.items()]
        parts += [f"{name} {order.replace('_', ' ')}" for name, order in self.order.items()]
        return ", ".join([*parts, f"{self.features} in"])


def _check_letters(layer: Any, letters: Any) -> None:
    if not isinstance(layer, str) or not isinstance(letters, str):
        raise TypeError(f"Plan: letters must map names to strings, got {layer!r}: {letters!r}")
    parse = LayerPrecision.parse if "+" in letters else LayerPrecision.parse_linear
    try:
        parse(letters)
    except ValueError as error:
        raise ValueError(f"Plan: letters of {layer!r}: {error}") from None
    if not set(letters) <= set("FBTI+"):
        raise ValueError(f"Plan: letters of {layer!r} must be spelled out, got {letters!r}")


def _expect_keys(what: str, content: Any, known: set[str], needed: set[str]) -> None:
    if not isinstance(content, Mapping):
        raise ValueError(f"{what} must be a mapping, got {type(content).__name__}")
    unknown = sorted(set(map(str, content)) - known)
    if unknown:
        raise ValueError(f"{what} has unknown entries {unknown}, known are {sorted(known)}")
    missing = sorted(needed - content.keys())
    if missing:
        raise ValueError(f"{what} lacks the entries {missing}")


def _is_yaml(file: Path) -> bool:
    if file.suffix in YAML_SUFFIXES:
        return True
    if file.suffix != JSON_SUFFIX:
        raise ValueError(
            f"{file}: a plan's suffix must be one of {[*YAML_SUFFIXES, JSON_SUFFIX]}, "
            f"got {file.suffix!r}"
        )
    return False

"""Experiment configurations: YAML read into checked models, with one clear error if it fails."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal, get_args

import pydantic
import yaml
from pydantic import BaseModel, ConfigDict, Field

__all__ = ["ConfigError", "DatasetConfig", "ExperimentConfig", "Form", "Recipe", "load_config"]

Form = Literal["fp32", "full", "bin"]


class ConfigError(ValueError):
    """A configuration file is wrong; the message names file, key, found and expected."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DatasetConfig(_Strict):
    """The graph to train on.

    Attributes:
        kind: ``planetoid`` (public split) or ``digits``.
        name: name of the Planetoid graph.
    """

    kind: Literal["planetoid", "digits"]
    name: Literal["Cora", "CiteSeer", "PubMed"] | None = None

    @property
    def title(self) -> str:
        """Name to show."""
        return self.name or self.kind


class Recipe(_Strict):
    """How one form is trained.

    Attributes:
        epochs: full-graph steps.
        learning_rate: of Adam.
        weight_decay: of Adam, on all parameters.
        dropout: in front of each layer, after the sign in binary forms.
        input_norm: standardise raw features by a batch norm without parameters.
        normalize_features: divide each row of the raw features by its sum.
        start_from: form whose trained model of the same seed gives the initial weights.
        schedule: learning rate over the epochs: constant, or a cosine falling to 0.
        distill: weight of the divergence from that model's class probabilities on all nodes.
        temperature: logits are divided by it in that divergence.
    """

    epochs: int = Field(gt=0)
    learning_rate: float = Field(gt=0)
    weight_decay: float = Field(0.0, ge=0)
    dropout: float = Field(0.0, ge=0, lt=1)
    input_norm: bool = True
    normalize_features: bool = False
    schedule: Literal["constant", "cosine"] = "constant"
    start_from: Form | None = None
    distill: float = Field(0.0, ge=0)
    temperature: float = Field(1.0, gt=0)


class ExperimentConfig(_Strict):
    """One experiment: a graph, a model size and a recipe for each form.

    Attributes:
        name: short name of the experiment.
        dataset: the graph.
        hidden_channels: width of hidden layers.
        num_layers: number of layers.
        seeds: number of repeats; repeat ``i`` uses seed ``i``.
        forms: recipe by form; trained in the order fp32, full, bin.
    """

    name: str
    dataset: DatasetConfig
    hidden_channels: int = Field(64, gt=0)
    num_layers: int = Field(2, gt=0)
    seeds: int = Field(10, gt=0)
    forms: dict[Form, Recipe] = Field(min_length=1)

    @pydantic.model_validator(mode="after")
    def _check(self) -> ExperimentConfig:
        if (self.dataset.kind == "planetoid") != (self.dataset.name is not None):
            raise ValueError("dataset: name belongs to kind planetoid, and to it alone")
        order = get_args(Form)
        for form, recipe in self.forms.items():
            start = recipe.start_from
            if start is None:
                if recipe.distill:
                    raise ValueError(f"forms.{form}: distill needs start_from")
                continue
            if start not in self.forms or order.index(start) >= order.index(form):
                raise ValueError(
                    f"forms.{form}: start_from must name a form trained before, got {start!r}"
                )
            if self.forms[start].input_norm != recipe.input_norm:
                raise ValueError(f"forms.{form}: input_norm must be that of {start!r}")
        return self

    def ordered_forms(self) -> list[tuple[Form, Recipe]]:
        """Forms in training order."""
        return [(form, self.forms[form]) for form in get_args(Form) if form in self.forms]


def load_config(path: str | os.PathLike[str]) -> ExperimentConfig:
    """Read and check a YAML configuration.

    Args:
        path: the file.

    Returns:
        The configuration.

    Raises:
        ConfigError: the file is missing, no YAML, or a key is unknown, missing or of the wrong
            type; the message names file, key, what was found and what is expected.
    """
    file = Path(path)
    try:
        content = yaml.safe_load(file.read_text())
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read ({error.strerror})") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"{file}: is not valid YAML ({reason})") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{file}: expected keys and values, found {type(content).__name__}")
    try:
        return ExperimentConfig.model_validate(content)
    except pydantic.ValidationError as error:
        raise ConfigError(f"{file}: {_explain(error)}") from error


def _explain(error: pydantic.ValidationError) -> str:
    """The first problem in one line, and how many more there are."""
    problems = error.errors()
    first = problems[0]
    path = [str(part) for part in first["loc"] if part != "[key]"]
    key = ".".join(path)
    found = _shorten(first.get("input"))
    if first["type"] == "extra_forbidden":
        known = ", ".join(_keys_at(path[:-1]))
        text = f"unknown key {key!r} (found {key}: {found}), expected one of {known}"
    elif first["type"] == "missing":
        text = f"key {key!r} is missing"
    elif first["type"] == "value_error":
        text = str(first["ctx"]["error"]) if "ctx" in first else first["msg"]
    else:
        text = f"key {key!r}: found {found}, expected: {_expectation(first['msg'])}"
    more = len(problems) - 1
    return text if not more else f"{text} (and {more} more)"


def _expectation(message: str) -> str:
    return message.removeprefix("Input should be ").split(", unable to")[0]


def _shorten(value: Any, limit: int = 60) -> str:
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _keys_at(path: list[str]) -> list[str]:
    """Known keys of the section at ``path``."""
    if not path:
        return list(ExperimentConfig.model_fields)
    section: type[BaseModel] = DatasetConfig if path[0] == "dataset" else Recipe
    return list(section.model_fields)

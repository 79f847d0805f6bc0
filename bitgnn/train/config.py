"""Experiment configurations: YAML read into checked models, with one clear error if it fails."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import pydantic
from pydantic import BaseModel, Field

from bitgnn._files import FileError
from bitgnn._plain import read_yaml
from bitgnn.data.own_graphs import graph_title
from bitgnn.data.splits import Split
from bitgnn.models.base import layer_precisions
from bitgnn.train.reading import LOADERS, explained, inherited
from bitgnn.train.recipe import FullGraph, Loader, Neighbors, Recipe, Strict
from bitgnn.train.recipe import layer_options as _layer_options

__all__ = [
    "ConfigError",
    "DatasetConfig",
    "ExperimentConfig",
    "Recipe",
    "check_config",
    "find_config",
    "load_config",
    "read_config",
]

PACKAGE = Path(__file__).resolve().parents[1]
# Beside the package in a source tree, inside of it where it is installed.
BUILT_IN = (PACKAGE / "configs", PACKAGE.parent / "configs")
PRESETS = ("fp32", "full", "bin")
# Form names become parts of file names.
FORM_NAME = re.compile(r"[a-z0-9_]+")
SAINT_LAYERS = 2
Config = TypeVar("Config", bound=Strict)


class ConfigError(FileError):
    """A configuration file is wrong; the message names file, key, found and expected."""


class DatasetConfig(Strict):
    """The graph to train on.

    Attributes:
        name: as :func:`bitgnn.data.load` takes it: of a data set, or where one's own graph is.
        split: number of a public split; ``random`` for one drawn with equal classes; null for the
            first public one, or a drawn one where there is none. ``seed`` takes the run's seed as
            the number, or to draw with where there is no public split.
        seed: of a drawn split and of made-up features.
        features: ``synthetic`` makes features up where the real ones are not at hand.
    """

    name: str = Field(min_length=1)
    split: int | Literal["random", "seed"] | None = None
    seed: int = Field(0, ge=0)
    features: Literal["synthetic"] | None = None

    @property
    def title(self) -> str:
        """Name to show; made-up features are said."""
        return f"{self.name} ({self.features} features)" if self.features else self.name

    def of_run(self, seed: int) -> tuple[Split, int]:
        """Number and seed of the split that the run of ``seed`` uses."""
        return (seed, seed) if self.split == "seed" else (self.split, self.seed)


class ExperimentConfig(Strict):
    """One experiment: a graph, a model and a recipe for each form of it.

    Attributes:
        name: short name of the experiment.
        dataset: the graph.
        model: ``gcn``, ``graphsage`` or ``graphsaint``.
        inductive: the inductive recipe of the GCN.
        hidden_channels: width of hidden layers.
        num_layers: number of layers.
        loader: what a training step sees.
        metric: the score of validation and test: accuracy, or area under the ROC curve (two
            classes).
        seeds: number of repeats; repeat ``i`` uses seed ``i``.
        forms: recipe by form, trained in this order.
    """

    sections: ClassVar[Mapping[str, type[BaseModel]]] = {
        "dataset": DatasetConfig,
        "forms": Recipe,
        **LOADERS,
    }

    name: str
    dataset: DatasetConfig
    model: Literal["gcn", "graphsage", "graphsaint"] = "gcn"
    inductive: bool = False
    hidden_channels: int = Field(64, gt=0)
    num_layers: int = Field(2, gt=0)
    loader: Loader = FullGraph()
    metric: Literal["accuracy", "roc_auc"] = "accuracy"
    seeds: int = Field(10, gt=0)
    forms: dict[str, Recipe] = Field(min_length=1)

    @pydantic.model_validator(mode="after")
    def _check(self) -> ExperimentConfig:
        if self.inductive and self.model != "gcn":
            raise ValueError(f"inductive: belongs to model gcn, got model {self.model!r}")
        if self.model == "graphsaint" and self.num_layers != SAINT_LAYERS:
            raise ValueError(f"num_layers: graphsaint has {SAINT_LAYERS}, got {self.num_layers}")
        loader = self.loader
        if isinstance(loader, Neighbors) and len(loader.neighbors) != self.num_layers:
            raise ValueError(
                f"loader.neighbors: expected one number for each of {self.num_layers} layers, "
                f"found {list(loader.neighbors)}"
            )
        before: list[str] = []
        for form, recipe in self.forms.items():
            self._check_form(form, recipe, before)
            before.append(form)
        return self

    def _check_form(self, form: str, recipe: Recipe, before: list[str]) -> None:
        where = f"forms.{form}"
        if FORM_NAME.fullmatch(form) is None:
            raise ValueError(f"{where}: a form's name is lower-case letters, digits and _")
        if recipe.precision is None and form not in PRESETS:
            known = ", ".join(repr(name) for name in PRESETS)
            raise ValueError(f"{where}: precision is missing; only {known} imply their own")
        try:
            layer_precisions(
                self.precision(form), self.num_layers, _layer_options(recipe), owner=where,
                gives_scores=self.model != "graphsaint",
            )  # fmt: skip
        except (TypeError, ValueError) as error:
            message = str(error)
            text = message if message.startswith(where) else f"{where}: {message}"
            raise ValueError(text) from error
        for key, needed in (("start_from", recipe.needs()[:1]), ("teachers", recipe.teachers)):
            for name in needed if getattr(recipe, key) else ():
                if name not in before:
                    raise ValueError(
                        f"{where}: {key} must name a form trained before, got {name!r}"
                    )
        if recipe.distill and not recipe.needs():
            raise ValueError(f"{where}: distill needs start_from or teachers")
        if recipe.teachers and not recipe.distill:
            raise ValueError(f"{where}: teachers need distill above 0")
        start = recipe.start_from
        if start is not None:
            for key in ("input_norm", "thermometer"):
                if getattr(self.forms[start], key) != getattr(recipe, key):
                    raise ValueError(f"{where}: {key} must be that of {start!r}")

    def on(self, data: str) -> ExperimentConfig:
        """The same experiment on another graph, whose name its own name ends in.

        Raises:
            ConfigError: the name is empty.
        """
        dataset = check_config({"name": data}, DatasetConfig, "data")
        name = f"{self.name}_{graph_title(data).lower()}"
        return self.model_copy(update={"dataset": dataset, "name": name})

    def precision(self, form: str) -> str | tuple[str, ...]:
        """Precision of a form, as the models take it."""
        return self.forms[form].precision or form

    def is_binary(self, form: str) -> bool:
        """Whether a form has any binary product, so that it can be frozen."""
        layers = layer_precisions(self.precision(form), self.num_layers, gives_scores=False)
        return not all(layer.is_float for layer in layers)

    def all_needs(self, form: str) -> list[str]:
        """Forms that training ``form`` needs, and what those need, each once."""
        found: dict[str, None] = {}
        for name in self.forms[form].needs():
            found.update(dict.fromkeys([name, *self.all_needs(name)]))
        return list(found)


def find_config(name: str | os.PathLike[str]) -> Path:
    """The file of a configuration.

    Args:
        name: path of a YAML file, or name of a built-in configuration, such as ``gcn_cora``; a file
            goes before a name.

    Raises:
        ConfigError: there is neither; the message lists the built-in ones.
    """
    path = Path(name)
    if path.exists() or path.suffix:
        return path
    folder = next((place for place in BUILT_IN if place.is_dir()), BUILT_IN[0])
    known = sorted(file.stem for file in folder.glob("*.yaml"))
    if str(name) not in known:
        raise ConfigError(
            f"{name}: neither a file nor a built-in configuration, which are {', '.join(known)}"
        )
    return folder / f"{name}.yaml"


def load_config(path: str | os.PathLike[str]) -> ExperimentConfig:
    """Read and check the configuration of an experiment on a graph; see :func:`read_config`."""
    return read_config(path, ExperimentConfig)


def read_config(path: str | os.PathLike[str], kind: type[Config]) -> Config:
    """Read and check a YAML configuration.

    A key ``base`` names another one, whose values hold where this one says nothing: a file beside
    it or a built-in configuration. A form's key ``like`` names another form in the same way. A form
    that is null is left out.

    Returns:
        The configuration.

    Raises:
        ConfigError: the file is missing, no YAML, or a key is unknown, missing or of the wrong
            type; the message names file, key, what was found and what is expected.
    """
    file = Path(path)
    try:
        content = inherited(file, _content, find_config)
    except FileError as error:
        raise ConfigError(str(error)) from error
    return check_config(content, kind, str(file))


def _content(file: Path) -> dict[str, Any]:
    """Keys and values of a file."""
    try:
        content = read_yaml(file)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read ({error.strerror})") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{file}: expected keys and values, found {type(content).__name__}")
    return content


def check_config(content: Mapping[str, Any], kind: type[Config], where: str) -> Config:
    """A configuration of plain values.

    Args:
        content: values by key.
        kind: what it configures.
        where: they come from, for messages.

    Raises:
        ConfigError: a key is unknown, missing or of the wrong type, see :func:`read_config`.
    """
    try:
        return kind.model_validate(content)
    except pydantic.ValidationError as error:
        raise ConfigError(f"{where}: {explained(error, kind)}") from error

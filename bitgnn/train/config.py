"""Experiment configurations: YAML read into checked models and loaders, or one clear error."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import pydantic
import torch
from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import ErrorDetails
from torch_geometric import typing as pyg
from torch_geometric.data import Data
from torch_geometric.data.data import BaseData
from torch_geometric.loader import GraphSAINTRandomWalkSampler

from bitgnn._files import FileError
from bitgnn._plain import read_yaml
from bitgnn.data import NeighborLoader
from bitgnn.data.own_graphs import graph_title
from bitgnn.data.splits import Split
from bitgnn.nn import LayerPrecision

PACKAGE = Path(__file__).resolve().parents[1]
# Beside the package in a source tree, inside of it where it is installed.
BUILT_IN = (PACKAGE / "configs", PACKAGE.parent / "configs")
FLOAT_FORM = "fp32"
# Form names become parts of file names.
FORM_NAME = re.compile(r"[a-z0-9_]+")
SHOWN = 60
"""Characters of a wrong value that a message shows."""
INSTALL = "pip install --no-build-isolation 'bitgnn[sparse]'"


class ConfigError(FileError):
    """A configuration file is wrong; the message names file, key, found and expected."""


class LoaderError(RuntimeError):
    """A loader needs a library that is not installed; the message says which extra brings it."""


class Strict(BaseModel):
    """A section whose unknown keys are mistakes."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    sections: ClassVar[Mapping[str, type[BaseModel]]] = {}
    """Sections inside it by key, for messages."""


class Neighbors(Strict):
    """:class:`bitgnn.data.NeighborLoader`: steps see sampled neighbourhoods of training nodes."""

    kind: Literal["neighbor"]
    neighbors: tuple[Annotated[int, Field(gt=0)], ...] = (25, 10)  # a layer, the nearest first
    batch_size: int = Field(512, gt=0)  # training nodes of a step

    def batches(self, data: Data) -> Iterable[BaseData]:
        """Batches of a graph, sampled on the CPU with torch's default generator."""
        return NeighborLoader(
            data, num_neighbors=list(self.neighbors), input_nodes=data.train_mask,
            batch_size=self.batch_size, shuffle=True,
        )  # fmt: skip


class RandomWalks(Strict):
    """PyG's ``GraphSAINTRandomWalkSampler``: steps see subgraphs that random walks visit."""

    kind: Literal["saint_rw"]
    roots: int = Field(gt=0)  # where walks start
    walk_length: int = Field(gt=0)
    steps: int = Field(gt=0)  # subgraphs an epoch

    def batches(self, data: Data) -> Iterable[BaseData]:
        """Batches of a graph, sampled on the CPU with torch's default generator."""
        if not pyg.WITH_TORCH_SPARSE:
            raise LoaderError(
                f"loader saint_rw: PyG's GraphSAINTRandomWalkSampler needs torch-sparse: {INSTALL}"
            )
        numbered = copy.copy(data)
        numbered.n_id = torch.arange(data.x.size(0))  # of the teacher's scores of the whole graph
        return GraphSAINTRandomWalkSampler(
            numbered, batch_size=self.roots, walk_length=self.walk_length, num_steps=self.steps,
            sample_coverage=0, log=False,
        )  # fmt: skip


LOADERS: dict[str, type[BaseModel]] = {"neighbor": Neighbors, "saint_rw": RandomWalks}


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


class Form(Strict):
    """A binary form of the model, as :func:`bitgnn.distill` takes it."""

    precision: str | None = None  # that of the form's name
    widen: float | None = Field(None, ge=1)


class ExperimentConfig(Strict):
    """One experiment: a graph, a float model, and its binary forms, all by the recipe of distill().

    Attributes:
        name: short name of the experiment.
        dataset: the graph.
        model: as ``bitgnn distill --model`` takes it.
        hidden: width of hidden layers; None for the default.
        layers: number of layers; None for the default.
        loader: what a training step sees; None is the whole graph.
        epochs: of each training; None follows from the data.
        seeds: number of repeats; repeat ``i`` uses seed ``i``.
        forms: the binary forms; ``fp32``, which teaches them, comes first by itself.
    """

    sections: ClassVar[Mapping[str, type[BaseModel]]] = {
        "dataset": DatasetConfig,
        "forms": Form,
        **LOADERS,
    }

    name: str
    dataset: DatasetConfig
    model: str = Field("gcn", min_length=1)
    hidden: int | None = Field(None, gt=0)
    layers: int | None = Field(None, gt=0)
    loader: Annotated[Neighbors | RandomWalks, Field(discriminator="kind")] | None = None
    epochs: int | None = Field(None, gt=0)
    seeds: int = Field(5, gt=0)
    forms: dict[str, Form] = Field(default={"full": Form(), "bin": Form()}, min_length=1)

    @pydantic.model_validator(mode="after")
    def _check(self) -> ExperimentConfig:
        for form in self.forms:
            if FORM_NAME.fullmatch(form) is None or form == FLOAT_FORM:
                raise ValueError(
                    f"forms.{form}: a form's name is lower-case letters, digits and _, other than "
                    f"{FLOAT_FORM!r}, which is the float model's"
                )
            try:
                precision = LayerPrecision.parse(self.precision(form))
            except ValueError as error:
                raise ValueError(f"forms.{form}: {error}") from error
            if precision.is_float:
                raise ValueError(f"forms.{form}: precision must be a binary one, got {precision}")
        return self

    def on(self, data: str) -> ExperimentConfig:
        """The same experiment on another graph, whose name its own name ends in."""
        if not data:
            raise ConfigError("data: must name a graph, got ''")
        name = f"{self.name}_{graph_title(data).lower()}"
        return self.model_copy(update={"dataset": DatasetConfig(name=data), "name": name})

    def precision(self, form: str) -> str:
        """Precision of a binary form, as distill() takes it."""
        return self.forms[form].precision or form


def find_config(name: str | os.PathLike[str]) -> Path:
    """The file of a configuration: a YAML file's path, or a built-in name such as ``sage_flickr``.

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
    """Read and check a YAML configuration.

    Raises:
        ConfigError: the file is missing, no YAML, or a key is unknown, missing or of the wrong
            type; the message names file, key, what was found and what is expected.
    """
    file = Path(path)
    try:
        content = read_yaml(file)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read ({error.strerror})") from error
    except FileError as error:
        raise ConfigError(str(error)) from error
    if not isinstance(content, dict):
        raise ConfigError(f"{file}: expected keys and values, found {type(content).__name__}")
    try:
        return ExperimentConfig.model_validate(content)
    except pydantic.ValidationError as error:
        raise ConfigError(f"{file}: {_explained(error)}") from error


def _explained(error: pydantic.ValidationError) -> str:
    """The problem to mend first, in one line, and how many more there are.

    An unknown key comes first: it may be the misspelt name of one that is missing.
    """
    problems = sorted(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden")
    first, same = problems[0], problems[:1]
    location = _location(first)
    if "split" in location:  # of several types: pydantic complains once for each
        location = location[: location.index("split") + 1]
        same = [problem for problem in problems if problem["loc"][: len(location)] == location]
    key = ".".join(str(part) for part in location if part != "[key]")
    found = repr(first.get("input"))
    found = found if len(found) <= SHOWN else f"{found[: SHOWN - 3]}..."
    if first["type"] == "extra_forbidden":
        known = _keys_at(first["loc"])
        near = get_close_matches(str(location[-1]), known, n=1)
        meant = f"{near[0]!r} perhaps, or " if near else ""
        text = f"unknown key {key!r} (found {key}: {found}), expected {meant}one of "
        text += ", ".join(known)
    elif first["type"] == "missing":
        text = f"key {key!r} is missing"
    elif first["type"] == "value_error":
        text = str(first["ctx"]["error"])
    elif first["type"].startswith("union_tag"):
        text = f"key 'loader.kind': found {found}, expected: one of {', '.join(LOADERS)}"
    else:
        expected = (p["msg"].removeprefix("Input should be ").split(", unable to")[0] for p in same)
        text = f"key {key!r}: found {found}, expected: {' or '.join(expected)}"
    more = len(problems) - len(same)
    return f"{text} (and {more} more)" if more else text


def _location(problem: ErrorDetails) -> tuple[int | str, ...]:
    """Where a problem is; pydantic puts the kind of loader between the section and its key."""
    location = problem["loc"]
    return location[:1] + location[1 + (location[:1] == ("loader",)) :]


def _keys_at(location: tuple[int | str, ...]) -> list[str]:
    """Known keys of the section that holds ``location``."""
    if len(location) == 1:
        return list(ExperimentConfig.model_fields)
    name = location[1] if location[0] == "loader" else location[0]
    return list(ExperimentConfig.sections[str(name)].model_fields)


def demo_config(seeds: int) -> ExperimentConfig:
    """Configuration of ``bitgnn demo``, repeated with so many seeds."""
    dataset = DatasetConfig(name="digits")
    return ExperimentConfig(name="demo", dataset=dataset, hidden=128, seeds=seeds)

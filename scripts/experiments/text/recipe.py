"""Configuration of a training on sentences: task, network, and a recipe for each form of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal

import pydantic
import yaml
from pydantic import BaseModel, Field

from bitgnn.train.config import read_config
from bitgnn.train.recipe import Strict
from experiments.training.config import TrainingConfig

__all__ = [
    "DecoderConfig",
    "DecoderNetwork",
    "DecoderRecipe",
    "Distillation",
    "Pretraining",
    "TextConfig",
    "TextNetwork",
    "TextRecipe",
    "load_text_config",
]


PRETRAINING = "pretraining"
"""Stands for a form's name where files and records name the pretraining."""


class Distillation(Strict):
    """Weights of the losses that compare a form with its teacher; 0 leaves one out.

    Attributes:
        logits: of the divergence of the class probabilities.
        hidden: of the mean squared difference behind each layer.
        feed_forward: of that of the feed-forward networks' outputs.
        attention: of the divergence of the attention probabilities.
        temperature: logits are divided by it.
    """

    logits: float = Field(1.0, ge=0)
    hidden: float = Field(1.0, ge=0)
    feed_forward: float = Field(1.0, ge=0)
    attention: float = Field(1.0, ge=0)
    temperature: float = Field(1.0, gt=0)


class TextRecipe(Strict):
    """How one form of a network is trained.

    Attributes:
        precision: of the network: ``fp32``, ``binary`` or ``bwta``.
        epochs: passes over the training sentences, of all stages together.
        batch_size: sentences of a step.
        learning_rate: of Adam, for all but scales.
        scale_learning_rate: of Adam, for the scales of activations.
        weight_decay: decoupled from the gradient (AdamW), on weights of more than one dimension.
        warmup: share of a stage's epochs in which the learning rates rise from 0; they fall to 0
            along a cosine behind it.
        dropout: probability of dropping.
        levels: largest integers of the stages; only with ``bwta``.
        alignment: how scales follow from one stage to the next.
        patience: epochs without a lower validation loss that end a stage, not the last; None for
            none.
        labels: weight of the cross entropy with the labels.
        pretrained: start from the configuration's pretraining, if it has any; otherwise from fresh
            weights. A form with a teacher starts from the teacher either way.
        teacher: form trained before with the same seed, whose weights this one starts from.
        distill: losses against the teacher.
    """

    sections: ClassVar[Mapping[str, type[BaseModel]]] = {"distill": Distillation}

    precision: Literal["fp32", "binary", "bwta"]
    epochs: int = Field(gt=0)
    batch_size: int = Field(64, gt=1)
    learning_rate: float = Field(gt=0)
    scale_learning_rate: float = Field(1e-3, gt=0)
    weight_decay: float = Field(0.01, ge=0)
    warmup: float = Field(0.1, ge=0, lt=1)
    dropout: float = Field(0.0, ge=0, lt=1)
    levels: tuple[int, ...] = (1,)
    alignment: Literal["projection", "mean", "none"] = "projection"
    patience: int | None = Field(None, gt=0)
    labels: float = Field(1.0, ge=0)
    pretrained: bool = True
    teacher: str | None = None
    distill: Distillation | None = None

    @pydantic.model_validator(mode="after")
    def _check(self) -> TextRecipe:
        if self.precision != "bwta" and self.levels != (1,):
            raise ValueError(f"levels go with precision bwta only, not {self.precision}")
        if (self.teacher is None) != (self.distill is None):
            raise ValueError("teacher and distill need each other")
        if self.distill is None and self.labels == 0:
            raise ValueError("labels must be above 0 where nothing is distilled")
        return self


class Pretraining(TextRecipe):
    """How the encoder learns its text before it sees a label: hidden tokens are to be told.

    Attributes:
        datasets: whose sentences make the text, as :func:`bitgnn.data.load_text` takes them.
        share: of a sentence's tokens that are to be told.
    """

    precision: Literal["fp32"] = "fp32"
    datasets: tuple[str, ...] = Field(min_length=1)
    learning_rate: float = Field(1e-3, gt=0)
    batch_size: int = Field(256, gt=1)
    dropout: float = Field(0.1, ge=0, lt=1)
    share: float = Field(0.15, gt=0, lt=1)

    @pydantic.model_validator(mode="after")
    def _check_alone(self) -> Pretraining:
        if self.teacher is not None:
            raise ValueError("pretraining has no teacher")
        return self


class TextNetwork(Strict):
    """Sizes of the encoder, as :class:`bitgnn.models.BertClassifier` takes them."""

    layers: int = Field(4, gt=0)
    width: int = Field(256, gt=0)
    heads: int = Field(4, gt=0)
    inner: int = Field(1024, gt=0)
    length: int = Field(64, gt=2)


class TextConfig(TrainingConfig):
    """One experiment on sentences.

    Attributes:
        dataset: as :func:`bitgnn.data.load_text` takes it.
        vocabulary: tokens of the own tokenizer at most.
        network: sizes of the encoder.
        pretraining: what forms without a teacher start from, once for each seed; None for none.
    """

    sections: ClassVar[Mapping[str, type[BaseModel]]] = {
        "network": TextNetwork,
        "pretraining": Pretraining,
        "forms": TextRecipe,
    }

    dataset: str = Field(min_length=1)
    vocabulary: int = Field(8192, gt=5)
    network: TextNetwork = TextNetwork()
    pretraining: Pretraining | None = None
    forms: dict[str, TextRecipe] = Field(min_length=1)

    @pydantic.model_validator(mode="after")
    def _check(self) -> TextConfig:
        self._check_teachers()
        if PRETRAINING in self.forms:
            raise ValueError(f"forms.{PRETRAINING}: the name stands for what comes before forms")
        return self


class DecoderRecipe(TextRecipe):
    """How one form of a decoder is trained.

    Attributes:
        share: of the linear layers that are quantised, those first whose output suffers least.
        steps: of an epoch, each on ``batch_size`` windows of text.
    """

    share: float = Field(1.0, gt=0, le=1)
    steps: int = Field(100, gt=0)


class DecoderNetwork(Strict):
    """Sizes of the decoder, as :class:`bitgnn.models.Decoder` takes them."""

    layers: int = Field(4, gt=0)
    width: int = Field(256, gt=0)
    heads: int = Field(4, gt=0)
    kv_heads: int | None = Field(None, gt=0)
    inner: int = Field(704, gt=0)
    length: int = Field(256, gt=0)


class DecoderConfig(TrainingConfig):
    """One experiment on running text, character by character.

    Attributes:
        datasets: whose sentences make the text, as :func:`bitgnn.data.load_text` takes them.
        network: sizes of the decoder.
        wide: sizes of decoders with random weights whose speed is measured too; None for none.
    """

    sections: ClassVar[Mapping[str, type[BaseModel]]] = {
        "network": DecoderNetwork,
        "wide": DecoderNetwork,
        "forms": DecoderRecipe,
    }

    datasets: tuple[str, ...] = Field(min_length=1)
    network: DecoderNetwork = DecoderNetwork()
    wide: DecoderNetwork | None = None
    seeds: int = Field(1, gt=0)
    forms: dict[str, DecoderRecipe] = Field(min_length=1)


def load_text_config(path: str | os.PathLike[str]) -> TextConfig | DecoderConfig:
    """Read and check a YAML configuration of a training on text.

    Args:
        path: the file; with a key ``datasets`` it is one of a decoder.

    Raises:
        ConfigError: the file is missing, no YAML, or a key is unknown, missing or of the wrong
            type; the message names file, key, what was found and what is expected.
    """
    try:
        content = yaml.safe_load(Path(path).read_text("utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        content = None  # read_config says what is wrong with it
    if isinstance(content, dict) and "datasets" in content:
        return read_config(path, DecoderConfig)
    return read_config(path, TextConfig)

"""Configuration of a training on images: data set, network, and a recipe for each form of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import ClassVar, Literal

import pydantic
from pydantic import BaseModel, Field

from bitgnn.train.config import read_config
from bitgnn.train.recipe import Schedule
from experiments.training.config import TrainingConfig

__all__ = ["ImageConfig", "ImageRecipe", "load_image_config"]

FORMS = ("fp32", "binary")


class ImageRecipe(Schedule):
    """How one form of a network is trained: by Adam, with a schedule and these attributes.

    Attributes:
        batch_size: images of a step; what is left over at the end of an epoch waits for the next.
        weight_decay: decoupled from the gradient (AdamW), on weights of more than one dimension.
        label_smoothing: share of the label spread over all classes.
        flip: mirror half of the images left to right.
        crop: shift images by up to so many pixels, grey coming in.
        clip: keep latent weights of binary layers within [-1, 1], where gradients reach them.
        distill: weight of the divergence from the class probabilities of ``teacher``.
        teacher: form trained before with the same seed.
        temperature: logits are divided by it in that divergence.
        activations: type of activations and their gradients in training on a GPU; bfloat16 is
            faster. Evaluation is always in float32.
    """

    batch_size: int = Field(128, gt=1)
    weight_decay: float = Field(0.0, ge=0)
    schedule: Literal["constant", "cosine"] = "cosine"
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    flip: bool = False
    crop: int = Field(0, ge=0)
    clip: bool = True
    distill: float = Field(0.0, ge=0)
    teacher: str | None = None
    temperature: float = Field(1.0, gt=0)
    activations: Literal["float32", "bfloat16"] = "bfloat16"


class ImageConfig(TrainingConfig):
    """One experiment on images.

    Attributes:
        dataset: as :func:`bitgnn.data.load_images` takes it.
        model: the network.
        published: accuracy in per cent that the papers print, lowest and highest; None for none.
    """

    sections: ClassVar[Mapping[str, type[BaseModel]]] = {"forms": ImageRecipe}

    dataset: str = Field(min_length=1)
    model: Literal["mlp", "vgg", "resnet14"]
    published: tuple[float, float] | None = None
    forms: dict[str, ImageRecipe] = Field(min_length=1)

    @pydantic.model_validator(mode="after")
    def _check(self) -> ImageConfig:
        for form, recipe in self.forms.items():
            where = f"forms.{form}"
            if form not in FORMS:
                raise ValueError(f"{where}: a form must be one of {', '.join(FORMS)}")
            if (recipe.teacher is None) != (recipe.distill == 0):
                raise ValueError(f"{where}: distill above 0 and teacher need each other")
        self._check_teachers()
        return self


def load_image_config(path: str | os.PathLike[str]) -> ImageConfig:
    """Read and check a YAML configuration of a training on images.

    Args:
        path: the file.

    Raises:
        ConfigError: the file is missing, no YAML, or a key is unknown, missing or of the wrong
            type; the message names file, key, what was found and what is expected.
    """
    return read_config(path, ImageConfig)

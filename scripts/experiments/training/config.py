"""What the configurations of trainings on images and text have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pydantic
from pydantic import Field

from bitgnn.train.recipe import Strict

__all__ = ["TrainingConfig"]


class TrainingConfig(Strict):
    """One experiment: forms of a network, each trained over several seeds.

    Attributes:
        name: short name of the experiment.
        title: what tables call it.
        seeds: number of repeats; repeat ``i`` uses seed ``i``.
        forms: recipe by form, trained in this order.
    """

    name: str = Field(min_length=1)
    title: str = Field(min_length=1)
    seeds: int = Field(3, gt=0)
    forms: Mapping[str, Any] = Field(min_length=1)

    @pydantic.model_validator(mode="after")
    def _check(self) -> TrainingConfig:
        self._check_teachers()
        return self

    def _check_teachers(self) -> None:
        before: list[str] = []
        for form, recipe in self.forms.items():
            if recipe.teacher is not None and recipe.teacher not in before:
                raise ValueError(
                    f"forms.{form}: teacher must name a form trained before, got {recipe.teacher!r}"
                )
            before.append(form)

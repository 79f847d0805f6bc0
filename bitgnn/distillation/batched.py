"""What images and texts have in common: rows that come in batches, from a loader or a dataset."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler, Subset

from bitgnn.convert import binarize
from bitgnn.convert.configs import BWTAConfig, Config
from bitgnn.distillation.calling import arguments_of, call, moved
from bitgnn.distillation.checks import (
    check_anew,
    check_targets,
    columns_of,
    is_dataset,
    length_of,
)
from bitgnn.distillation.errors import DistillError
from bitgnn.distillation.objectives import objective_of
from bitgnn.distillation.problems import HELD_OUT, Part, Problem, held_out
from bitgnn.distillation.recipe import DistillRecipe
from bitgnn.distillation.stages import Stage, stages_of

__all__ = ["Batched"]

BATCH = 128


class Batched(Problem):
    """Rows with labels in batches; the student starts from the teacher's weights.

    Args:
        data: dataset of samples, or an iterable of batches that can be begun anew.
        model: takes a batch without its labels.
        validation: dataset or batches, or a share of the samples to hold out; None is a share.
        seed: of the share.

    Raises:
        DistillError: there is no batch, a batch is not of the right form, the model does not take
            it, or nothing can be learnt from the labels.
    """

    keeps_weights = True

    def __init__(self, data: Any, model: nn.Module, validation: Any, seed: int) -> None:
        self.device = next(model.parameters()).device
        self.loader, self.validation = _loaders(data, validation, seed)
        for given in self.loader:
            inputs, y = self.split(given, "data")
            break
        else:
            raise DistillError("data must hold a batch at least, got an empty loader")
        _check_finite(inputs)
        self.example = moved(inputs, self.device)
        self.outputs = columns_of(model, self.example, y.size(0), "inputs")
        labels = [y, *(self.split(batch, "validation")[1] for batch in self.validation)]
        if len(labels) == 1:
            raise DistillError("validation must hold a batch at least, got an empty loader")
        self.objective = objective_of(torch.cat(labels), self.outputs)
        self.steps = length_of(self.loader)

    @abstractmethod
    def split(self, batch: Any, name: str) -> tuple[Any, Tensor]:
        """What the model takes of a batch, and its labels.

        Args:
            batch: as the loader gives it.
            name: of the argument that it came from, for messages.

        Raises:
            DistillError: it is of another form.
        """

    def config(self, precision: Any) -> Any:
        """The configuration that a precision stands for."""
        return precision

    def binary(self, model: nn.Module, precision: Any) -> nn.Module:
        """The binary form of a model, its scales started on the first batch.

        Args:
            model: unchanged.
            precision: a configuration, or a name of one.

        Raises:
            ValueError: as :func:`bitgnn.binarize`.
        """
        config = self.config(precision)
        if not isinstance(config, BWTAConfig):
            return binarize(model, config)
        if config.calibration is None:
            args, named = arguments_of(model, self.example)
            config = replace(config, calibration=named or tuple(args))
        return binarize(model, config)

    def described(self, precision: Any) -> str:
        """A precision as checkpoints hold it, without calibration data."""
        config = self.config(precision)
        if isinstance(config, BWTAConfig):
            config = replace(config, calibration=None)
        return repr(config) if isinstance(config, Config) else str(config)

    def stages(self, student: nn.Module, recipe: DistillRecipe) -> list[Stage]:
        """Those of the student's scheme."""

        def calibrate() -> None:
            call(student.eval(), self.example)

        return stages_of(student, recipe, calibrate)

    def parts(self) -> Iterator[Part]:
        """The loader's batches."""
        for batch in self.loader:
            inputs, y = self._batch(batch, "data")
            yield Part(inputs, None, None, y)

    def results(self, model: nn.Module) -> dict[str, tuple[Tensor, Tensor]]:
        """Scores of the validation batches."""
        scores, labels = [], []
        for batch in self.validation:
            inputs, y = self._batch(batch, "validation")
            scores.append(call(model, inputs))
            labels.append(y)
        return {"val": (torch.cat(scores), torch.cat(labels))}

    def _batch(self, batch: Any, name: str) -> tuple[Any, Tensor]:
        inputs, y = self.split(batch, name)
        if self.objective.metric != "accuracy":
            y = y.view(y.size(0), -1).to(torch.get_default_dtype())
        elif y.device.type == "cpu":
            y = y.flatten()
            check_targets(y, self.objective, self.outputs, name)
        return moved(inputs, self.device), y.to(self.device)


def check_labels(y: Any, rows: int, name: str) -> Tensor:
    """Labels of a batch as a tensor with a row each; bytes and the like become int64.

    Args:
        y: the labels.
        rows: of the batch.
        name: of the argument that they came from, for messages.

    Raises:
        DistillError: they are no tensor, or of another length.
    """
    if not isinstance(y, Tensor) or y.dim() == 0 or y.size(0) != rows:
        got = list(y.shape) if isinstance(y, Tensor) else type(y).__name__
        raise DistillError(f"{name}: labels must have a row for each of {rows} inputs, got {got}")
    return y if y.is_floating_point() else y.long()


def _check_finite(inputs: Any) -> None:
    values = inputs.values() if isinstance(inputs, Mapping) else (inputs,)
    for value in values:
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise DistillError("data must be finite, found NaN or infinity in the first batch")


def _loaders(data: Any, validation: Any, seed: int) -> tuple[Iterable[Any], Iterable[Any]]:
    """Batches for training and for validation."""
    check_anew(data, "data")
    options: dict[str, Any] = {"batch_size": BATCH}
    shuffle = True
    if isinstance(data, DataLoader):
        options = {
            name: getattr(data, name)
            for name in ("batch_size", "collate_fn", "num_workers", "pin_memory")
        }
        shuffle = isinstance(data.sampler, RandomSampler)
    if validation is not None and not isinstance(validation, float):
        check_anew(validation, "validation")
        if is_dataset(validation):
            validation = DataLoader(validation, **options)
        return (_training(data, options) if is_dataset(data) else data), validation
    samples = data if is_dataset(data) else _samples(data)
    share = HELD_OUT if validation is None else validation
    rows = torch.arange(len(samples))
    train, val = held_out(rows, _known_labels(samples, len(rows)), share, seed, "validation")
    kept, held = (Subset(samples, some.tolist()) for some in (train, val))
    return _training(kept, options, shuffle), DataLoader(held, **options)


def _training(samples: Any, options: dict[str, Any], shuffle: bool = True) -> DataLoader[Any]:
    """Batches to train on; a last one of a single row, which batch norms refuse, is left out."""
    alone = len(samples) > 1 and len(samples) % options["batch_size"] == 1
    return DataLoader(samples, shuffle=shuffle, drop_last=alone, **options)


def _samples(loader: Any) -> Any:
    """The dataset behind a loader, of which some samples can be held out.

    Raises:
        DistillError: the loader chooses or batches them in a way of its own.
    """
    plain = isinstance(loader, DataLoader) and loader.batch_size is not None
    if plain and isinstance(loader.sampler, RandomSampler | SequentialSampler):
        return loader.dataset
    raise DistillError(
        f"validation is missing, and of a {type(loader).__name__} with batches of its own none can "
        "be held out; pass a loader or a dataset as validation="
    )


def _known_labels(samples: Any, count: int) -> Tensor:
    """Labels where a dataset tells them without its samples; values without meaning elsewhere."""
    y = getattr(samples, "targets", None)
    if y is None and getattr(samples, "tensors", None):
        y = samples.tensors[-1]
    try:
        found = torch.as_tensor(y)
    except (TypeError, ValueError, RuntimeError):
        found = torch.zeros(0)
    return found if found.dim() and len(found) == count else torch.zeros(count)

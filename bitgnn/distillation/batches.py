"""Images and texts: rows that come in batches with their labels, from a loader or a dataset."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler, Subset

from bitgnn._checks import name_type
from bitgnn.convert import binarize
from bitgnn.convert.configs import BWTAConfig, Config
from bitgnn.distillation.calling import (
    DistillError,
    arguments_of,
    call,
    check_anew,
    columns_of,
    is_dataset,
    length_of,
    moved,
)
from bitgnn.distillation.objectives import Objective, objective_of
from bitgnn.distillation.problems import Part, Problem, Results, held_out, joined
from bitgnn.nn.multistage import BERT_LEVELS

BATCH = 128
PAIR = 2
LABELS = ("labels", "label")


class Batched(Problem):
    """Rows with labels in batches; the student starts from the teacher's weights.

    ``data`` is a dataset of samples, or an iterable of batches that can be begun anew;
    ``validation`` another one, or a share of the samples to hold out.
    """

    keeps_weights = True
    levels: ClassVar[tuple[int, ...]] = BERT_LEVELS
    """Of activations, through which a student of a :class:`~bitgnn.BWTAConfig` goes."""

    def __init__(self, data: Any, model: nn.Module, validation: Any, seed: int) -> None:
        self.device = next(model.parameters()).device
        self.loader, self.validation = _loaders(data, validation, seed)
        for given in self.loader:
            inputs, y = self.split(given, "data")
            break
        else:
            raise DistillError("data must hold a batch at least, got an empty loader")
        for value in inputs.values() if isinstance(inputs, Mapping) else (inputs,):
            if value.is_floating_point() and not bool(torch.isfinite(value).all()):
                raise DistillError("data must be finite, found NaN or infinity in the first batch")
        self.example = moved(inputs, self.device)
        self.outputs = self.columns(model, y)
        labels = [y, *(self.split(batch, "validation")[1] for batch in self.validation)]
        if len(labels) == 1:
            raise DistillError("validation must hold a batch at least, got an empty loader")
        self.objective = self.objective_for(labels)
        self.steps = length_of(self.loader)

    def columns(self, model: nn.Module, y: Tensor) -> int:
        """Columns of the model's scores of the first batch, whose labels are ``y``."""
        return columns_of(model, self.example, y.size(0), "inputs")

    def objective_for(self, labels: Sequence[Tensor]) -> Objective:
        """The objective of the labels of a training batch and of the validation batches."""
        return objective_of(torch.cat(list(labels)), self.outputs)

    @abstractmethod
    def split(self, batch: Any, name: str) -> tuple[Any, Tensor]:
        """Split a batch of the argument ``name`` into the model's inputs and the labels."""

    def config(self, precision: Any) -> Any:
        """The configuration that a precision stands for."""
        return precision

    def binary(self, model: nn.Module, precision: Any) -> nn.Module:
        """The binary form of a model; its scales start from the first batch."""
        config = self.config(precision)
        if isinstance(config, BWTAConfig) and config.calibration is None:
            args, named = arguments_of(model, self.example)
            config = replace(config, calibration=named or tuple(args))
        return binarize(model, config)

    def described(self, precision: Any) -> str:
        """A precision as checkpoints hold it, without calibration data."""
        config = self.config(precision)
        if isinstance(config, BWTAConfig):
            config = replace(config, calibration=None)
        return repr(config) if isinstance(config, Config) else str(config)

    def parts(self) -> Iterator[Part]:
        """The loader's batches."""
        for batch in self.loader:
            inputs, y = self._batch(batch, "data")
            yield Part(inputs, None, None, y)

    def results(self, model: nn.Module) -> Results:
        """Scores of the validation batches."""
        batches = (self._batch(batch, "validation") for batch in self.validation)
        return {"val": joined((call(model, inputs), y) for inputs, y in batches)}

    def _batch(self, batch: Any, name: str) -> tuple[Any, Tensor]:
        inputs, y = self.split(batch, name)
        is_class = self.objective.metric == "accuracy"
        y = self.objective.form(y, y.size(0))
        if is_class and y.device.type == "cpu":
            self.objective.check(y, self.outputs, name)
        return moved(inputs, self.device), y.to(self.device)


class Images(Batched):
    """Images ``[B, C, H, W]``, or vectors, with ``[B]`` classes, ``[B, C]`` labels or values.

    The teacher's probabilities are all that a student learns from, as in ReActNet.
    """

    teacher_options: Mapping[str, Any] = {
        "learning_rate": 2e-3, "weight_decay": 1e-4, "schedule": "cosine",
    }  # fmt: skip
    student_options: Mapping[str, Any] = {
        "learning_rate": 2e-3, "teacher_weight": 1.0, "sharpen": 1.0,
    }  # fmt: skip

    def split(self, batch: Any, name: str) -> tuple[Tensor, Tensor]:
        """Images and labels of a pair."""
        if not isinstance(batch, tuple | list) or len(batch) != PAIR:
            got = f"{len(batch)} values" if isinstance(batch, tuple | list) else name_type(batch)
            raise DistillError(f"{name} must give pairs (images, labels), got {got}")
        images, y = batch
        if not isinstance(images, Tensor) or images.dim() < PAIR:
            found = list(images.shape) if isinstance(images, Tensor) else type(images).__name__
            raise DistillError(f"{name}: images must be a tensor [B, C, H, W], got {found}")
        return images, _checked_labels(y, images.size(0), name)


class Texts(Batched):
    """Mappings of ``input_ids``, ``attention_mask`` and the like, with ``labels``.

    The student is of a :class:`~bitgnn.convert.BWTAConfig`. Labels weigh as much as the teacher.
    """

    teacher_options: Mapping[str, Any] = {"learning_rate": 5e-4, "weight_decay": 0.0}
    student_options: Mapping[str, Any] = {"learning_rate": 1e-3, "sharpen": 1.0}

    def config(self, precision: Any) -> BWTAConfig:
        """A configuration as it is; ``"bin"`` is all layers and attention."""
        if isinstance(precision, BWTAConfig):
            return precision
        if precision != "bin":
            raise DistillError(f'precision must be "bin" or a BWTAConfig for text, got {precision}')
        return BWTAConfig()

    def split(self, batch: Any, name: str) -> tuple[dict[str, Tensor], Tensor]:
        """Tensors by name, and labels."""
        if not isinstance(batch, Mapping):
            raise DistillError(f"{name} must give mappings, got {name_type(batch)}")
        key = next((label for label in LABELS if label in batch), None)
        inputs = {n: v for n, v in batch.items() if isinstance(v, Tensor) and n not in LABELS}
        if key is None or not inputs:
            raise DistillError(
                f"{name} must give mappings of input_ids, attention_mask and labels, got the keys "
                f"{list(batch)}"
            )
        rows = next(iter(inputs.values())).shape[:1]
        if not rows or any(value.shape[:1] != rows for value in inputs.values()):
            shapes = {n: list(value.shape) for n, value in inputs.items()}
            raise DistillError(f"{name}: tensors of a batch must have equal rows, got {shapes}")
        return inputs, _checked_labels(batch[key], rows[0], name)


def _checked_labels(y: Any, rows: int, name: str) -> Tensor:
    """Labels of a batch as a tensor with a row each; bytes and the like become int64."""
    if not isinstance(y, Tensor) or y.dim() == 0 or y.size(0) != rows:
        got = list(y.shape) if isinstance(y, Tensor) else type(y).__name__
        raise DistillError(f"{name}: labels must have a row for each of {rows} inputs, got {got}")
    return y if y.is_floating_point() else y.long()


def _loaders(data: Any, validation: Any, seed: int) -> tuple[Iterable[Any], Iterable[Any]]:
    """Batches for training and for validation."""
    check_anew(data, "data")
    options: dict[str, Any] = {"batch_size": BATCH}
    shuffle = True
    if isinstance(data, DataLoader):
        names = ("batch_size", "collate_fn", "num_workers", "pin_memory")
        options = {name: getattr(data, name) for name in names}
        shuffle = isinstance(data.sampler, RandomSampler)
    if validation is not None and not isinstance(validation, float):
        check_anew(validation, "validation")
        if is_dataset(validation):
            validation = DataLoader(validation, **options)
        return (_training(data, options) if is_dataset(data) else data), validation
    samples = data if is_dataset(data) else _samples(data)
    rows = torch.arange(len(samples))
    train, val = held_out(rows, _known_labels(samples), validation, seed, "validation")
    kept, held = (Subset(samples, some.tolist()) for some in (train, val))
    return _training(kept, options, shuffle), DataLoader(held, **options)


def _training(samples: Any, options: dict[str, Any], shuffle: bool = True) -> DataLoader[Any]:
    """Training batches without a last one of a single row, which batch norms refuse."""
    alone = len(samples) > 1 and len(samples) % options["batch_size"] == 1
    return DataLoader(samples, shuffle=shuffle, drop_last=alone, **options)


def _samples(loader: Any) -> Any:
    """Dataset of a loader with standard sampling and batching; other loaders are refused."""
    plain = isinstance(loader, DataLoader) and loader.batch_size is not None
    if plain and isinstance(loader.sampler, RandomSampler | SequentialSampler):
        return loader.dataset
    raise DistillError(
        f"validation is missing, and of a {type(loader).__name__} with batches of its own none can "
        "be held out; pass a loader or a dataset as validation="
    )


def _known_labels(samples: Any) -> Tensor:
    """Labels if the dataset has them apart from its samples, else placeholders."""
    y = getattr(samples, "targets", None)
    if y is None and getattr(samples, "tensors", None):
        y = samples.tensors[-1]
    try:
        found = torch.as_tensor(y)
    except (TypeError, ValueError, RuntimeError):
        found = torch.zeros(0)
    count = len(samples)
    return found if found.dim() and len(found) == count else torch.zeros(count)

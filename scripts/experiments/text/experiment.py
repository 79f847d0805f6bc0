"""Experiments on text: networks of their forms, what is trained of them, and finished runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from bitgnn.convert.bwta import output_errors
from bitgnn.data import CharacterData, TokenData
from bitgnn.models.bert import BertClassifier
from bitgnn.models.decoder import Decoder
from bitgnn.nn import BWTALinear
from bitgnn.nn.multistage import set_level
from bitgnn.train.run import RunOptions, kept_state, machine_name
from experiments.text.characters import CharacterTask
from experiments.text.hidden_tokens import HiddenTokenTask, TokenTeller, encoder_state
from experiments.text.recipe import (
    PRETRAINING,
    DecoderConfig,
    Pretraining,
    TextConfig,
    TextRecipe,
)
from experiments.text.sentences import SentenceTask
from experiments.training.experiment import Experiment
from experiments.training.loop import Trained
from experiments.training.task import Task

__all__ = ["TextExperiment", "TextRun", "least_sensitive"]

CLASSES = ("pooler.", "classifier.")


@dataclass(frozen=True)
class TextRun:
    """One finished training on text.

    Attributes:
        form: name of the form.
        seed: random seed.
        test_score: accuracy, Matthews correlation or perplexity of the test data behind the last
            epoch.
        validation_score: the same of the validation data.
        validation_loss: cross entropy of the validation data.
        seconds: time of all epochs, evaluations included; trainings side by side share the device.
        history: one row an epoch, see :class:`~experiments.text.batches.TextTask`.
        factors: what scales were multiplied by at each transition.
        machine: processor and torch version it was trained with.
        layers: linear layers that are quantised; empty for all.
    """

    form: str
    seed: int
    test_score: float
    validation_score: float
    validation_loss: float
    seconds: float
    history: list[dict[str, float]]
    factors: dict[str, dict[str, float]]
    machine: str
    layers: list[str] = field(default_factory=list)


class TextExperiment(Experiment):
    """An experiment on text.

    Args:
        config: the experiment.
        data: its tokens or characters on the device.
        text: tokens to pretrain on, None without pretraining.
        folder: output folder of the runs.
        options: how often checkpoints are written.
    """

    run_kind = TextRun

    def __init__(
        self,
        config: TextConfig | DecoderConfig,
        data: TokenData | CharacterData,
        text: TokenData | None,
        folder: Path,
        options: RunOptions,
    ) -> None:
        super().__init__(config, folder, options)
        self.data, self.text = data, text
        train = data.train
        self.device = train.device if isinstance(train, Tensor) else train.labels.device

    @property
    def forms(self) -> Sequence[str]:
        """The pretraining, where there is one, then the forms."""
        return [*([] if self.text is None else [PRETRAINING]), *self.config.forms]

    def recipe(self, form: str) -> TextRecipe:
        """How a form or the pretraining is trained."""
        recipe: TextRecipe
        recipe = self.config.pretraining if form == PRETRAINING else self.config.forms[form]
        return recipe

    def needs(self, form: str) -> str | None:
        """What is trained before, its weights to start from: a teacher, pretraining or nothing."""
        recipe = self.recipe(form)
        if recipe.teacher is not None or form == PRETRAINING:
            return recipe.teacher
        return PRETRAINING if self.text is not None and recipe.pretrained else None

    def build(self, form: str) -> nn.Module:
        """The network of a form with fresh weights, on the device of the data."""
        recipe, sizes, data = self.recipe(form), self.config.network.model_dump(), self.data
        model: nn.Module
        if isinstance(data, CharacterData):
            kind: Any = "sign" if recipe.precision == "binary" else "ternary"
            vocabulary = len(data.alphabet)
            model = Decoder(vocabulary, **sizes, dropout=recipe.dropout, activation=kind)
        else:
            vocabulary = (
                data if self.text is None or form != PRETRAINING else self.text
            ).vocabulary
            classes = len((self.text or data).classes if form == PRETRAINING else data.classes)
            model = BertClassifier(
                vocabulary, classes, **sizes, precision=recipe.precision, dropout=recipe.dropout
            )
        return model.to(self.device)

    def initial(
        self, form: str, seed: int, model: nn.Module, teacher: nn.Module | None
    ) -> dict[str, Tensor] | None:
        """The teacher's weights, or the pretrained encoder's with fresh classes of the task."""
        if teacher is not None:
            return teacher.state_dict()
        if self.needs(form) is None:
            return None
        state = encoder_state(kept_state(self.store, PRETRAINING, seed)[1])
        fresh = model.state_dict()
        return {**state, **{name: fresh[name] for name in fresh if name.startswith(CLASSES)}}

    def task(self, form: str, model: nn.Module, teacher: nn.Module | None) -> Task:
        """What is trained; of a decoder a share of the layers is quantised."""
        recipe: Any = self.recipe(form)
        if isinstance(recipe, Pretraining):
            assert isinstance(model, BertClassifier)
            assert self.text is not None
            return HiddenTokenTask(TokenTeller(model).to(self.device), self.text, recipe)
        if isinstance(model, BertClassifier):
            assert teacher is None or isinstance(teacher, BertClassifier)
            assert isinstance(self.data, TokenData)
            return SentenceTask(model, self.data, recipe, teacher)
        assert isinstance(model, Decoder)
        assert teacher is None or isinstance(teacher, Decoder)
        assert isinstance(self.data, CharacterData)
        task = CharacterTask(model, self.data, recipe, teacher)
        if recipe.precision != "fp32":
            task.only = least_sensitive(model, task.calibrate, recipe.share)
        return task

    def run(self, form: str, seed: int, task: Task, trained: Trained) -> TextRun:
        """The scores behind the last epoch."""
        history = trained.history
        last = history[-1]
        return TextRun(
            form,
            seed,
            last["test_score"],
            last["validation_score"],
            last["validation_loss"],
            sum(row["seconds"] for row in history),
            history,
            trained.factors,
            machine_name(self.device),
            list(task.only or ()),
        )

    def trained(self, form: str, seed: int) -> nn.Module:
        """The network of a finished run in evaluation mode, its layers at their last level."""
        model = super().trained(form, seed)
        layers = kept_state(self.store, form, seed)[0].layers
        if layers:
            set_level(model, self.config.forms[form].levels[-1], layers)
        return model


def least_sensitive(model: Decoder, run: Any, share: float) -> list[str]:
    """A share of the linear layers: those whose output suffers least when they alone are BWTA.

    Args:
        model: at level None.
        run: sends calibration data through a model.
        share: of the layers; at least one is taken.
    """
    names = [name for name, module in model.named_modules() if isinstance(module, BWTALinear)]
    errors = output_errors(model, run, names, relative=True)
    return sorted(errors, key=errors.__getitem__)[: max(1, round(share * len(names)))]

"""One form of one experiment on text with one seed: trained, or found again if it is finished."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric import seed_everything

from bitgnn._files import write_atomically
from bitgnn.convert.bwta import output_errors
from bitgnn.data import CharacterData, TokenData
from bitgnn.models.bert import BertClassifier
from bitgnn.models.decoder import Decoder
from bitgnn.nn import BWTALinear
from bitgnn.nn.multistage import set_level
from bitgnn.train.checkpoint import load_state
from bitgnn.train.store import RunFiles
from bitgnn.train.unit import (
    RunOptions,
    keep_under_way,
    kept_state,
    machine_name,
    named_errors,
)
from experiments.text.characters import CharacterTask
from experiments.text.hidden_tokens import HiddenTokenTask, TokenTeller, encoder_state
from experiments.text.loop import TrainedText, train_text
from experiments.text.recipe import (
    PRETRAINING,
    DecoderConfig,
    DecoderRecipe,
    Pretraining,
    TextConfig,
    TextRecipe,
)
from experiments.text.record import run_chart
from experiments.text.sentences import SentenceTask

__all__ = ["TextRun", "TextRuns", "TextUnit", "build_network", "least_sensitive", "trained_network"]

CLASSES = ("pooler.", "classifier.")
Config = TextConfig | DecoderConfig
Data = TokenData | CharacterData


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
        history: one row an epoch, see :data:`~experiments.text.session.COLUMNS`.
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


class TextRuns(RunFiles[TextRun]):
    """Finished runs of an experiment on text.

    Args:
        folder: output folder.
        config: the experiment.

    Raises:
        OutputError: the folder cannot be written, or holds runs of another configuration.
    """

    def __init__(self, folder: Path, config: Config) -> None:
        super().__init__(folder, config, TextRun)

    def is_finished(self, form: str, seed: int) -> bool:
        """Whether a run is in the folder, which is not read."""
        return self._path(form, seed, "json").is_file()

    def chart(self, form: str, seed: int) -> Path:
        """Picture of a run."""
        return self._path(form, seed, "png")


@dataclass(frozen=True, eq=False)
class TextUnit:
    """One form with one seed.

    Attributes:
        config: the experiment.
        form: name of the form, or :data:`~experiments.text.recipe.PRETRAINING`.
        seed: of all random generators.
        data: tokens or characters on the device; of pretraining, those of its text.
        store: where finished runs are, and checkpoints and logs of those under way.
        options: how often checkpoints are written.
    """

    config: Config
    form: str
    seed: int
    data: Any
    store: TextRuns
    options: RunOptions

    @property
    def recipe(self) -> TextRecipe:
        """How the form is trained."""
        return _recipe(self.config, self.form)

    @property
    def start(self) -> str | None:
        """What is trained before, its weights to start from: a teacher, pretraining or nothing."""
        if self.recipe.teacher is not None or self.form == PRETRAINING:
            return self.recipe.teacher
        has_pretraining = getattr(self.config, PRETRAINING, None) is not None
        return PRETRAINING if has_pretraining and self.recipe.pretrained else None

    def train(
        self, on_epochs: Callable[[int], None] = lambda count: None
    ) -> Generator[None, None, TextRun]:
        """Train, or take the run from the store; waits until what it starts from is there.

        Args:
            on_epochs: called with the number of epochs done since the last call.

        Yields:
            None, often, so that other trainings get their turn.

        Raises:
            CheckpointError: a checkpoint does not fit or is damaged.
            TrainingError: the training diverged.
            OSError: the folder cannot be written.
        """
        store, form, seed, recipe = self.store, self.form, self.seed, self.recipe
        kept = store.load(form, seed)
        if kept is not None:
            store.clear_leftovers(form, seed)
            on_epochs(recipe.epochs)
            return kept[0]
        start = self.start
        while start is not None and not store.is_finished(start, seed):
            yield
        teacher = None
        if recipe.teacher is not None:
            teacher = trained_network(self.config, recipe.teacher, seed, self.data, store)
        seed_everything(seed)
        model = build_network(self.config, form, self.data)
        if teacher is not None:
            load_state(model, teacher.state_dict(), str(store.folder))
        elif start is not None:
            load_state(model, _pretrained(store, seed, model), str(store.folder))
        task, layers = self._task(model, teacher)
        keeping = keep_under_way(store, form, seed, self.options)
        with named_errors(self.config.name, form, seed):
            trained = yield from train_text(
                task, recipe, seed, keeping=keeping, on_epochs=on_epochs
            )
        run = self._run(trained, layers)
        write_atomically(
            store.chart(form, seed), run_chart(self.config.title, form, seed, run.history)
        )
        store.save(run, trained.state)
        return run

    def _task(
        self, model: nn.Module, teacher: nn.Module | None
    ) -> tuple[SentenceTask | CharacterTask | HiddenTokenTask, list[str]]:
        """What is trained, and the names of the layers quantised where it is not all of them."""
        recipe = self.recipe
        if isinstance(recipe, Pretraining):
            assert isinstance(model, BertClassifier)
            teller = TokenTeller(model).to(_device(self.data))
            return HiddenTokenTask(teller, self.data, recipe), []
        if isinstance(model, BertClassifier):
            assert teacher is None or isinstance(teacher, BertClassifier)
            return SentenceTask(model, self.data, recipe, teacher), []
        assert isinstance(model, Decoder)
        assert teacher is None or isinstance(teacher, Decoder)
        assert isinstance(recipe, DecoderRecipe)
        task = CharacterTask(model, self.data, recipe, teacher)
        if recipe.precision == "fp32":
            return task, []
        layers = least_sensitive(model, task.calibrate, recipe.share)
        task.only = layers
        return task, layers

    def _run(self, trained: TrainedText, layers: Sequence[str]) -> TextRun:
        last = trained.history[-1]
        return TextRun(
            self.form,
            self.seed,
            last["test_score"],
            last["validation_score"],
            last["validation_loss"],
            sum(row["seconds"] for row in trained.history),
            trained.history,
            trained.factors,
            machine_name(_device(self.data)),
            list(layers),
        )


def _recipe(config: Config, form: str) -> TextRecipe:
    """The recipe of a form or of the pretraining."""
    if form == PRETRAINING and isinstance(config, TextConfig) and config.pretraining is not None:
        return config.pretraining
    return config.forms[form]


def _pretrained(store: TextRuns, seed: int, model: nn.Module) -> dict[str, Tensor]:
    """Weights of the pretrained encoder; classes start afresh, as many as the task has."""
    state = encoder_state(kept_state(store, PRETRAINING, seed)[1])
    fresh = model.state_dict()
    return {**state, **{name: fresh[name] for name in fresh if name.startswith(CLASSES)}}


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


def build_network(config: Config, form: str, data: Data) -> nn.Module:
    """The network of a form with fresh weights, on the device of ``data``.

    Args:
        config: gives the sizes.
        form: gives precision and dropout.
        data: gives vocabulary and classes.
    """
    recipe = _recipe(config, form)
    model: nn.Module
    if isinstance(config, DecoderConfig):
        assert isinstance(data, CharacterData)
        sizes = config.network.model_dump()
        model = Decoder(
            len(data.alphabet),
            **sizes,
            dropout=recipe.dropout,
            activation="sign" if recipe.precision == "binary" else "ternary",
        )
    else:
        assert isinstance(data, TokenData)
        model = BertClassifier(
            data.vocabulary,
            len(data.classes),
            **config.network.model_dump(),
            precision=recipe.precision,
            dropout=recipe.dropout,
        )
    return model.to(_device(data))


def trained_network(config: Config, form: str, seed: int, data: Data, store: TextRuns) -> nn.Module:
    """The network of a finished run in evaluation mode, on the device of ``data``.

    Raises:
        TrainingError: the run is not in ``store``.
        CheckpointError: its state does not fit the network.
    """
    run, state = kept_state(store, form, seed)
    model = build_network(config, form, data)
    load_state(model, state, str(store.folder))
    if run.layers:
        set_level(model, config.forms[form].levels[-1], run.layers)
    return model.eval()


def _device(data: Data) -> torch.device:
    return data.train.device if isinstance(data, CharacterData) else data.train.labels.device

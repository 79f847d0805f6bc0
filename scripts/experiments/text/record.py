"""The record of trainings on text."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bitgnn.data import CharacterData, TokenData
from bitgnn.measure.environment import environment
from experiments.text.recipe import PRETRAINING, DecoderConfig, TextConfig

if TYPE_CHECKING:
    from experiments.text.experiment import TextRun

__all__ = ["text_record"]

PER_CENT = 100.0


def text_record(
    config: TextConfig | DecoderConfig,
    data: TokenData | CharacterData,
    runs: Sequence[TextRun],
    extra: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Everything that the table shows and what it rests on, in plain values.

    Args:
        config: the experiment.
        data: its sentences or characters.
        runs: the finished ones.
        extra: further entries.
    """
    is_decoder = isinstance(data, CharacterData)
    factor = 1.0 if is_decoder else PER_CENT
    entries = {
        form: _entry([run for run in runs if run.form == form], factor)
        for form in (PRETRAINING, *config.forms)
        if any(run.form == form for run in runs)
    }
    # Its scores are shares of hidden tokens, to be compared with no form's.
    before = {form: entries.pop(form) for form in (PRETRAINING,) if form in entries}
    return {
        "benchmark": "training on text",
        "environment": environment(Path(__file__).resolve().parents[3]),
        "config": config.model_dump(mode="json"),
        "metric": "perplexity" if isinstance(data, CharacterData) else data.metric,
        "score_factor": factor,
        "dataset": _sizes(data),
        "note": "scores of the test data behind the last epoch, no epoch chosen by them; mean and "
        "sample standard deviation over seeds; seconds with other trainings beside",
        "forms": entries,
        **before,
        **(extra or {}),
    }


def _entry(runs: Sequence[TextRun], factor: float) -> dict[str, Any]:
    """Means and spread over the seeds of a form."""
    scores = [factor * run.test_score for run in runs]
    return {
        "test_mean": statistics.mean(scores),
        "test_std": statistics.stdev(scores) if len(runs) > 1 else 0.0,
        "validation_mean": statistics.mean(factor * run.validation_score for run in runs),
        "validation_loss_mean": statistics.mean(run.validation_loss for run in runs),
        "epochs_median": statistics.median(len(run.history) for run in runs),
        "seconds_mean": statistics.mean(run.seconds for run in runs),
        "runs": [asdict(run) for run in runs],
    }


def _sizes(data: TokenData | CharacterData) -> dict[str, Any]:
    parts = ("train", "validation", "test")
    if isinstance(data, CharacterData):
        sizes = {part: getattr(data, part).numel() for part in parts}
        return {"unit": "characters", "vocabulary": len(data.alphabet), **sizes}
    sizes = {part: len(getattr(data, part)) for part in parts}
    return {"unit": "sentences", "vocabulary": data.vocabulary, **sizes}

"""The command behind scripts/train_text.py: trains all forms side by side and records them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from bitgnn.data import character_data, load_text, tokenize
from bitgnn.measure.report import write_json
from experiments.text.experiment import TextExperiment, TextRun
from experiments.text.frozen_decoders import compare_decoders
from experiments.text.hidden_tokens import pretraining_text
from experiments.text.recipe import PRETRAINING, DecoderConfig, load_text_config
from experiments.text.record import text_record
from experiments.training.commands import (
    experiment_parser,
    options_of,
    overridden,
    status_of,
)
from experiments.training.experiment import Unit, train_units

__all__ = ["EXPERIMENTS", "main"]

EXPERIMENTS = ("sst2", "cola", "decoder_order", "decoder")
TOKENS_FILE = "tokens.safetensors"
TEXT_FILE = "text_tokens.safetensors"


def main(arguments: Sequence[str] | None = None, root: Path = Path()) -> int:
    """Train every form and seed of the experiments, on a GPU side by side, and write records.

    Runs that are finished or under way in the output folder are not started anew.

    Args:
        arguments: of the command line; None takes those of the process.
        root: the project's folder, where ``configs`` is.

    Returns:
        Exit status: 0, 1 where something is wrong, 130 on an interrupt.
    """
    parser = experiment_parser(__doc__, root / "configs" / "text", "bitgnn-text", EXPERIMENTS)
    parsed = parser.parse_args(arguments)
    return status_of("train_text", parsed.output, lambda: _run(parsed, Console()))


def _run(parsed: argparse.Namespace, console: Console) -> list[str]:
    """Train and record; nothing is found wrong without an error."""
    device = options_of(parsed).torch_device()
    torch.backends.cuda.matmul.allow_tf32 = True
    results = parsed.results or parsed.output
    experiments = [_experiment(name, parsed, device) for name in parsed.only]
    units = [
        Unit(experiment, form, seed)
        for experiment in experiments
        for seed in range(experiment.config.seeds)
        for form in experiment.forms
    ]
    runs: dict[Unit, TextRun] = {}

    def finished(unit: Unit, run: Any) -> str:
        runs[unit] = run
        return f"test {run.test_score:.4f} in {run.seconds:.1f} s"

    try:
        train_units(units, device, console, finished, together=True)
    finally:
        # What is finished is recorded also when the others are stopped.
        for experiment in experiments:
            _write(experiment, runs, results)
    return []


def _experiment(name: str, parsed: argparse.Namespace, device: torch.device) -> TextExperiment:
    """A configuration with its tokens or characters, and the tokens to pretrain on if any."""
    config = overridden(load_text_config(parsed.configs / f"{name}.yaml"), parsed)
    folder: Path = parsed.output / name
    folder.mkdir(parents=True, exist_ok=True)
    options, root = options_of(parsed), parsed.data_root
    if isinstance(config, DecoderConfig):
        characters = character_data([load_text(name, root) for name in config.datasets])
        return TextExperiment(config, characters.to(device), None, folder, options)
    text = load_text(config.dataset, root)
    sizes = config.vocabulary, config.network.length
    learnt, tokens = None, None
    if config.pretraining is not None:
        whole = pretraining_text([load_text(name, root) for name in config.pretraining.datasets])
        learnt = whole.train.sentences
        tokens = tokenize(whole, *sizes, folder / TEXT_FILE, learnt).to(device)
    data = tokenize(text, *sizes, folder / TOKENS_FILE, learnt).to(device)
    return TextExperiment(config, data, tokens, folder, options)


def _write(experiment: TextExperiment, runs: Mapping[Unit, TextRun], results: Path) -> None:
    """The record of what is finished of an experiment."""
    config = experiment.config
    found = [run for unit, run in runs.items() if unit.experiment is experiment]
    if all(run.form == PRETRAINING for run in found):
        return
    found.sort(key=lambda run: run.seed)
    path = results / f"text_{config.name}.json"
    write_json(path, text_record(config, experiment.data, found))
    forms = config.forms
    is_whole = all(experiment.path(form, 0, "json").is_file() for form in forms)
    if isinstance(config, DecoderConfig) and is_whole:
        extra = {"frozen": compare_decoders(experiment)}
        write_json(path, text_record(config, experiment.data, found, extra))

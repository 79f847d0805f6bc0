"""The command behind scripts/train_text.py: trains all forms side by side and records them."""

from __future__ import annotations

import argparse
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from bitgnn._files import write_atomically
from bitgnn.data import character_data, load_text, tokenize
from bitgnn.measure.report import write_json
from bitgnn.train.experiment import make_progress
from bitgnn.train.unit import RunOptions
from experiments.text.frozen_decoders import compare_decoders
from experiments.text.hidden_tokens import pretraining_text
from experiments.text.recipe import PRETRAINING, DecoderConfig, TextConfig, load_text_config
from experiments.text.record import text_chart, text_record
from experiments.text.recorded import side_by_side
from experiments.text.unit import TextRun, TextRuns, TextUnit
from experiments.training.commands import experiment_parser, overridden, records_at, status_of

__all__ = ["EXPERIMENTS", "main"]

EXPERIMENTS = ("sst2", "cola", "decoder_order", "decoder")
TOKENS_FILE = "tokens.safetensors"
TEXT_FILE = "text_tokens.safetensors"
TASK = "task"


def main(arguments: Sequence[str] | None = None, root: Path = Path()) -> int:
    """Train every form and seed of the experiments, on a GPU side by side, and write records.

    Runs that are finished or under way in the output folder are not started anew.

    Args:
        arguments: of the command line; None takes those of the process.
        root: the project's folder, where ``configs`` and ``scripts/results`` are.

    Returns:
        Exit status: 0, 1 where something is wrong, 130 on an interrupt.
    """
    parsed = _parser(root).parse_args(arguments)
    return status_of("train_text", lambda: _run(parsed, Console()))


def _run(parsed: argparse.Namespace, console: Console) -> list[str]:
    """Train and record; nothing is found wrong without an error."""
    _train(parsed, console)
    records = records_at(parsed.results, "text", EXPERIMENTS)
    if records:
        write_atomically(parsed.results / "text.png", text_chart(records))
    return []


def _parser(root: Path) -> argparse.ArgumentParser:
    parser = experiment_parser(__doc__, root, "configs/text", "bitgnn-text", EXPERIMENTS)
    parser.add_argument(
        "--pretrain", type=int, metavar="EPOCHS",
        help="of telling hidden tokens before encoders see a label; 0 for none (default: the "
        "configuration's)",
    )  # fmt: skip
    parser.add_argument(
        "--exact", action="store_true",
        help="products of floats in float32 on a GPU too, not in TF32; those of integers are exact "
        "either way",
    )  # fmt: skip
    return parser


def _config(name: str, parsed: argparse.Namespace) -> TextConfig | DecoderConfig:
    config = overridden(load_text_config(parsed.configs / f"{name}.yaml"), parsed)
    if parsed.pretrain is None or isinstance(config, DecoderConfig):
        return config
    content = {**config.model_dump(), PRETRAINING: _pretraining(config, parsed.pretrain)}
    return TextConfig.model_validate(content)


def _pretraining(config: TextConfig, epochs: int) -> dict[str, Any] | None:
    """The configuration's pretraining, else one on the task's own sentences; None for none."""
    if epochs < 0:
        raise ValueError(f"--pretrain must be at least 0, got {epochs}")
    if epochs == 0:
        return None
    given = config.pretraining
    content = {"datasets": [config.dataset]} if given is None else given.model_dump()
    return {**content, "epochs": epochs}


def _train(parsed: argparse.Namespace, console: Console) -> None:
    options = RunOptions(parsed.device, parsed.checkpoint_every, parsed.deterministic)
    device = options.torch_device()
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = not parsed.exact
    units: list[TextUnit] = []
    for name in parsed.only:
        config = _config(name, parsed)
        store = TextRuns(parsed.output / name, config)
        data = {form: part.to(device) for form, part in _load(config, parsed, store.folder).items()}
        units += [
            TextUnit(config, form, seed, data.get(form, data[TASK]), store, options)
            for seed in range(config.seeds)
            for form in (*(form for form in data if form != TASK), *config.forms)
        ]
    finished: dict[TextUnit, TextRun] = {}
    total = sum(unit.recipe.epochs for unit in units)
    with make_progress(console) as progress:
        task = progress.add_task(f"{len(units)} trainings", total=total)

        def train(unit: TextUnit) -> Generator[None, None, None]:
            run = yield from unit.train(lambda count: progress.advance(task, count))
            finished[unit] = run
            console.print(
                f"{unit.config.title} {unit.form}, seed {unit.seed + 1}/{unit.config.seeds}: "
                f"test {run.test_score:.4f} in {run.seconds:.1f} s"
            )

        try:
            side_by_side([train(unit) for unit in units], device)
        finally:
            # What is finished is recorded also when the others are stopped.
            _write(finished, parsed.results)


def _load(
    config: TextConfig | DecoderConfig, parsed: argparse.Namespace, folder: Path
) -> dict[str, Any]:
    """The task's tokens or characters, and the tokens to pretrain on where there are any."""
    if isinstance(config, DecoderConfig):
        texts = [load_text(name, parsed.data_root) for name in config.datasets]
        return {TASK: character_data(texts)}
    text = load_text(config.dataset, parsed.data_root)
    sizes = config.vocabulary, config.network.length
    if config.pretraining is None:
        return {TASK: tokenize(text, *sizes, folder / TOKENS_FILE)}
    whole = pretraining_text(
        [load_text(name, parsed.data_root) for name in config.pretraining.datasets]
    )
    learnt = whole.train.sentences
    return {
        TASK: tokenize(text, *sizes, folder / TOKENS_FILE, learnt),
        PRETRAINING: tokenize(whole, *sizes, folder / TEXT_FILE, learnt),
    }


def _write(finished: Mapping[TextUnit, TextRun], results: Path) -> None:
    by_name: dict[str, list[TextUnit]] = {}
    for unit in finished:
        by_name.setdefault(unit.config.name, []).append(unit)
    by_name = {
        name: units
        for name, units in by_name.items()
        if any(unit.form != PRETRAINING for unit in units)
    }
    for units in by_name.values():
        _write_one(units, finished, results)
    for units in by_name.values():
        config, store = units[0].config, units[0].store
        if isinstance(config, DecoderConfig) and all(store.is_finished(f, 0) for f in config.forms):
            frozen = compare_decoders(config, units[0].data, store)
            _write_one(units, finished, results, {"frozen": frozen})


def _write_one(
    units: Sequence[TextUnit],
    finished: Mapping[TextUnit, TextRun],
    results: Path,
    extra: Mapping[str, Any] | None = None,
) -> None:
    config = units[0].config
    data = next(unit.data for unit in units if unit.form != PRETRAINING)
    runs = sorted((finished[unit] for unit in units), key=lambda run: run.seed)
    write_json(results / f"text_{config.name}.json", text_record(config, data, runs, extra))

"""The command behind scripts/train_text.py: trains all forms side by side and records them."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from bitgnn._files import write_atomically
from bitgnn.bench.report import write_json
from bitgnn.data import DataError, character_data, load_text, pretraining_text, tokenize
from bitgnn.train.checkpoint import CheckpointError
from bitgnn.train.config import ConfigError
from bitgnn.train.experiment import make_progress
from bitgnn.train.log import LogError
from bitgnn.train.loop import TrainingError
from bitgnn.train.store import OutputError
from bitgnn.train.text.frozen_decoders import compare_decoders
from bitgnn.train.text.plot import text_chart
from bitgnn.train.text.recipe import PRETRAINING, DecoderConfig, TextConfig, load_text_config
from bitgnn.train.text.record import text_record
from bitgnn.train.text.recorded import side_by_side
from bitgnn.train.text.unit import TextRun, TextRuns, TextUnit
from bitgnn.train.unit import RunOptions

__all__ = ["EXPERIMENTS", "main"]

EXPERIMENTS = ("sst2", "cola", "decoder")
TOKENS_FILE = "tokens.safetensors"
TEXT_FILE = "text_tokens.safetensors"
TASK = "task"
FAILED, INTERRUPTED = 1, 130
MENDABLE = (
    CheckpointError,
    ConfigError,
    DataError,
    LogError,
    OutputError,
    TrainingError,
    OSError,
    ValueError,
)


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
    try:
        _train(parsed, Console())
        records = _records(parsed.results)
        if records:
            write_atomically(parsed.results / "text.png", text_chart(records))
    except MENDABLE as error:
        print(f"train_text: error: {' '.join(str(error).split())}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("train_text: stopped; the same command goes on", file=sys.stderr)
        return INTERRUPTED
    return 0


def _parser(root: Path) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=EXPERIMENTS, help="names of configurations")
    parser.add_argument("--data-root", help="folder of the data sets (default: BITGNN_DATA)")
    parser.add_argument("--output", type=Path, default=Path("bitgnn-text"), help="of the runs")
    parser.add_argument("--results", type=Path, default=root / "scripts" / "results")
    parser.add_argument("--configs", type=Path, default=root / "configs" / "text")
    parser.add_argument("--seeds", type=int, help="repeats (default: the configuration's)")
    parser.add_argument("--epochs", type=int, help="of every form, not the configuration's")
    parser.add_argument(
        "--pretrain", type=int, metavar="EPOCHS",
        help="of telling hidden tokens before encoders see a label; 0 for none (default: the "
        "configuration's)",
    )  # fmt: skip
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument(
        "--exact", action="store_true",
        help="products of floats in float32 on a GPU too, not in TF32; those of integers are exact "
        "either way",
    )  # fmt: skip
    parser.add_argument(
        "--checkpoint-every", type=float, help="least seconds between a run's checkpoints"
    )
    return parser


def _config(name: str, parsed: argparse.Namespace) -> TextConfig | DecoderConfig:
    config = load_text_config(parsed.configs / f"{name}.yaml")
    content = config.model_dump()
    for key in ("seeds", "epochs"):
        value = getattr(parsed, key)
        if value is not None and value < 1:
            raise ValueError(f"--{key} must be at least 1, got {value}")
    if parsed.seeds is not None:
        content["seeds"] = parsed.seeds
    if parsed.epochs is not None:
        for recipe in content["forms"].values():
            recipe["epochs"] = parsed.epochs
    if parsed.pretrain is not None and isinstance(config, TextConfig):
        content[PRETRAINING] = _pretraining(config, parsed.pretrain)
    return type(config).model_validate(content)


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
    options = RunOptions(parsed.device, parsed.checkpoint_every)
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


def _records(results: Path) -> list[dict[str, Any]]:
    """The records at hand, in the order of the experiments."""
    paths = [results / f"text_{name}.json" for name in EXPERIMENTS]
    return [json.loads(path.read_text("utf-8")) for path in paths if path.is_file()]

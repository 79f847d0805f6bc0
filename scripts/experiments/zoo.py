"""Makes the packed models of ``bitgnn.models.pretrained``, each with its card.

Every model is trained with several seeds, a float teacher and a binary student each; the seed with
the best validation score is packed. A folder that is there is made anew. ``--times`` measures calls
of teacher and frozen model, on the device and on one thread of the CPU: for a quiet machine alone.
``--times-only`` adds them to the cards of models that are there, whose teachers have fresh weights.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import statistics
import tempfile
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from zoo_tasks import TASKS, Task, sentences

import bitgnn
from bitgnn.measure.report import environment, write_json
from bitgnn.measure.timing import compare
from bitgnn.models.packed import CARD, ZOO

ROOT = Path(__file__).resolve().parents[2]
WEIGHTS_LICENCE = "MIT"
TEACHER, REPEATS = "teacher.safetensors", 15
TEXTS = "bert-sst2"
Job = tuple[str, int, str | None, str, int | None, Path]
"""Model, seed, data folder, device, epochs and folder for the results."""


def train(job: Job) -> dict[str, Any]:
    """One teacher and its student; both are written into a folder."""
    name, seed, root, device, epochs, folder = job
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    task, start = TASKS[name], time.perf_counter()
    torch.manual_seed(seed)
    model, data, options = task.make(root, device)
    if epochs is not None:
        options["epochs"] = epochs
    result = bitgnn.distill(model, data, seed=seed, trained=False, **options)
    frozen = bitgnn.freeze(task.part(result.model))
    bitgnn.save(frozen, folder)
    loaded = bitgnn.load(folder).to(device)
    state = {key: t.detach().cpu().contiguous() for key, t in result.teacher.state_dict().items()}
    safetensors.torch.save_file(state, folder / TEACHER)
    found = {
        "seed": seed, "val": result.scores.val,
        "fp32": task.score(result.teacher, root, device),
        "bits": task.score(loaded, root, device),
        "seconds": time.perf_counter() - start,
    }  # fmt: skip
    print(f"{name}, seed {seed}: {found['fp32']:.4f} {found['bits']:.4f}", flush=True)
    return found


def alone(job: Job) -> dict[str, Any]:
    """:func:`train` in a process of its own, whose end takes no other along."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(train, job).result()


def timed(task: Task, folder: Path, root: str | None, device: str) -> dict[str, float]:
    """Median seconds of a call, result on the host: teacher and frozen model."""
    torch.set_num_threads(1)
    model, _, _ = task.make(root, device)
    if (folder / TEACHER).exists():  # times do not depend on weights
        model.load_state_dict(safetensors.torch.load_file(folder / TEACHER))
    example = task.example(root, device)
    models = {"fp32": task.part(model).eval(), "bits": bitgnn.load(folder).to(device)}

    def once(called: Any) -> Any:
        found = called(**example) if isinstance(example, dict) else called(*example)
        return getattr(found, "logits", found).cpu()

    with torch.no_grad():
        calls = {name: (lambda one=one: once(one)) for name, one in models.items()}
        found = compare(calls, repeats=REPEATS)
    return {name: timing.median for name, timing in found.items()}


def card(name: str, runs: list[dict[str, Any]], folder: Path, epochs: int | None) -> dict[str, Any]:
    """What is said about a model, without times."""
    task = TASKS[name]
    chosen = max(runs, key=lambda run: run["val"])
    scores = {form: [run[form] for run in runs] for form in ("fp32", "bits")}
    teacher = safetensors.torch.load_file(folder / TEACHER)
    files = [file for file in folder.iterdir() if file.name != TEACHER]
    return {
        "name": name, "kind": task.kind, "network": task.network, "call": task.call,
        "data": task.data, "licence": {"data": task.licence, "weights": WEIGHTS_LICENCE},
        "metric": task.metric, "seeds": [run["seed"] for run in runs], "seed": chosen["seed"],
        "scores": scores, "score": chosen["bits"],
        "mean": {form: statistics.mean(own) for form, own in scores.items()},
        "std": {
            form: statistics.stdev(own) if len(own) > 1 else None for form, own in scores.items()
        },
        "bytes": {
            "fp32": sum(t.numel() * t.element_size() for t in teacher.values()),
            "bits": sum(file.stat().st_size for file in files),
        },
        "seconds_of_a_call": None,
        "command": f"python scripts/experiments/zoo.py --models {name} --seeds {len(runs)}"
        + ("" if epochs is None else f" --epochs {epochs}"),
        "environment": environment(ROOT),
    }  # fmt: skip


def pack(name: str, runs: list[dict[str, Any]], scratch: str, arguments: Any) -> Path:
    """Put the best model and its card where they belong; the folder with its teacher, too."""
    runs.sort(key=lambda run: run["seed"])
    best = max(runs, key=lambda run: run["val"])
    made = Path(scratch, f"{name}-{best['seed']}")
    if name == TEXTS:
        (made / "tokenizer.json").write_text(sentences(arguments.data)[2])
    said, packed = card(name, runs, made, arguments.epochs), arguments.output / name
    shutil.rmtree(packed, ignore_errors=True)
    shutil.copytree(made, packed, ignore=shutil.ignore_patterns(TEACHER))
    write_json(packed / CARD, said)
    print(json.dumps({key: said[key] for key in ("name", "mean", "bytes")}), flush=True)
    return made


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=os.environ.get("BITGNN_DATA"), help="data folder")
    parser.add_argument("--output", type=Path, default=ZOO)
    parser.add_argument("--models", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--seeds", type=int, help="trainings of each (default: 3 or 2)")
    parser.add_argument("--epochs", type=int, help="default: those that distill() chooses")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--times", action="store_true", help="measure calls, too")
    parser.add_argument("--times-only", action="store_true", help="measure calls, train nothing")
    arguments = parser.parse_args()
    if arguments.times_only:
        known = {name: arguments.output / name for name in arguments.models}
        add_times({name: one for name, one in known.items() if one.is_dir()}, arguments)
        return 0
    seeds = {name: arguments.seeds or TASKS[name].seeds for name in arguments.models}
    for name in seeds:
        if TASKS[name].kind in ("classes of nodes", "links"):
            TASKS[name].example(arguments.data, "cpu")  # PyG's files are made once, not by all
    folders = {}
    with tempfile.TemporaryDirectory() as scratch:
        jobs = [
            (name, seed, arguments.data, arguments.device, arguments.epochs,
             Path(scratch, f"{name}-{seed}"))
            for name in sorted(seeds, key=lambda name: seeds[name])  # those of long trainings first
            for seed in range(seeds[name])
        ]  # fmt: skip
        runs: dict[str, list[dict[str, Any]]] = {name: [] for name in seeds}
        with ThreadPoolExecutor(arguments.workers) as pool:
            futures = {pool.submit(alone, job): job[0] for job in jobs}
            for future in as_completed(futures):
                name, error = futures[future], future.exception()
                if error is not None:
                    print(f"{name}: {error!r}", flush=True)
                    continue
                runs[name].append(future.result())
                if len(runs[name]) == seeds[name]:
                    folders[name] = pack(name, runs[name], scratch, arguments)
        if arguments.times:
            add_times(folders, arguments)
    return 0 if set(folders) == set(seeds) else 1


def add_times(folders: dict[str, Path], arguments: Any) -> None:
    """Measure calls and put their times into the cards."""
    for name, folder in folders.items():
        file = arguments.output / name / CARD
        said = json.loads(file.read_text())
        said["seconds_of_a_call"] = {
            device: timed(TASKS[name], folder, arguments.data, device)
            for device in dict.fromkeys((arguments.device, "cpu"))
        }
        write_json(file, said)
        print(name, said["seconds_of_a_call"], flush=True)


if __name__ == "__main__":
    raise SystemExit(main())

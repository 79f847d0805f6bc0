"""Trains the predictor of layout, method and executor on scripts/results/tune_*.json."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.tasks import MODELS
from bench.tuner.graphs import GRAPHS, load_graph
from bench.tuner.predictor import write_predictor
from bench.tuner.recorder import Recorder
from bench.tuner.recording import Recording, Size
from bench.tuner.structures import write_structures
from bitgnn.data import DataError
from bitgnn.inference.predictor import FILE

RESULTS = Path("scripts") / "results"
DEVICES = ("cpu", "cuda")
SECONDS = 60.0
LEAST_GRAPHS = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Record, merge, write structures, or train; the exit status is 1 where that fails."""
    arguments = _parser().parse_args(argv)
    run: Callable[[argparse.Namespace], int] = arguments.run
    try:
        return run(arguments)
    except (DataError, OSError, ValueError) as error:
        print(f"error: {error}")
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Trains the predictor of layout, method and executor on recorded latencies."
    )
    parts = parser.add_subparsers(required=True, metavar="COMMAND")
    training = parts.add_parser("train", help="train on the recordings of every kind of device")
    training.add_argument("--results", type=Path, default=RESULTS, help="folder of tune_*.json")
    training.add_argument("--output", type=Path, default=FILE, help="the predictor's file")
    training.set_defaults(run=_train)

    recording = parts.add_parser("record", help="record graphs and models that a recording lacks")
    recording.add_argument("device", choices=DEVICES)
    recording.add_argument("--output", type=Path, help="the recording; by default that to train on")
    recording.add_argument("--graphs", nargs="+", choices=GRAPHS, help="which; all by default")
    recording.add_argument("--models", nargs="+", choices=MODELS, default=MODELS, help="which")
    recording.add_argument("--plans", type=int, help="plans of each graph and model, about")
    recording.add_argument(
        "--seconds", type=float, default=SECONDS, help="for the forwards of each"
    )
    recording.add_argument("--data-root", type=Path, help="folder of the data sets")
    recording.add_argument(
        "--structures", type=Path, help="take the graphs of this file from it, features made up"
    )
    recording.set_defaults(run=_record)

    merging = parts.add_parser(
        "merge", help="take what processes of one machine recorded into one recording"
    )
    merging.add_argument("output", type=Path, help="the recording; what it holds alone stays")
    merging.add_argument("files", nargs="+", type=Path, help="recordings to take in")
    merging.set_defaults(run=_merge)

    structures = parts.add_parser(
        "structures", help="write graphs without features, for machines without their data sets"
    )
    structures.add_argument("output", type=Path, help="the .npz file")
    structures.add_argument("--graphs", nargs="+", choices=GRAPHS, required=True)
    structures.add_argument("--data-root", type=Path, help="folder of the data sets")
    structures.set_defaults(run=_write_structures)
    return parser


def _record(arguments: argparse.Namespace) -> int:
    Recorder(
        arguments.output or RESULTS / f"tune_{arguments.device}.json",
        arguments.device,
        Size(arguments.seconds),
        arguments.plans,
        arguments.data_root,
        arguments.structures,
        lambda text: print(text, flush=True),
    ).run(arguments.graphs, arguments.models)
    return 0


def _merge(arguments: argparse.Namespace) -> int:
    missing = [str(path) for path in arguments.files if not path.exists()]
    if missing:
        raise ValueError(f"no recording at {', '.join(missing)}")
    Recording(arguments.output).merge(map(Recording, arguments.files))
    return 0


def _write_structures(arguments: argparse.Namespace) -> int:
    tasks = {key: load_graph(key, root=arguments.data_root) for key in arguments.graphs}
    write_structures(arguments.output, tasks)
    return 0


def _train(arguments: argparse.Namespace) -> int:
    recordings = {}
    for device in DEVICES:
        path = arguments.results / f"tune_{device}.json"
        held = Recording(path)
        if len(held.graph_keys) >= LEAST_GRAPHS:
            recordings[device] = held.graphs
        else:
            print(f"{path}: {len(held.graph_keys)} graphs are too few, {device} is left out")
    if not recordings:
        print(f"nothing to train on in {arguments.results}")
        return 1
    for device, regret in write_predictor(arguments.output, recordings).items():
        print(f"{device}, graphs left out of training: {regret.mean:.3f} times the best latency")
        print(f"  on average, {regret.worst:.2f} times at worst")
        for graph, mean in regret.by_graph.items():
            print(f"  {graph}: {mean:.3f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

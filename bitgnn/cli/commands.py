"""The commands and their options."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Annotated

import typer

from bitgnn.cli.base import LIMITS_MISSED, app, running

DEMO_FOLDER = Path("bitgnn-demo")
DISTILL_FOLDER = Path("bitgnn-distill")
TUNE_FOLDER = Path("bitgnn-tune")
PARTITION_FOLDER = Path("bitgnn-partition")
INFER_FOLDER = Path("bitgnn-infer")
GRAPH = "Graph: the name of a data set, an .npz file, or a class of PyG as package.module:Class"

Output = Annotated[Path | None, typer.Option("--output", "-o", help="Folder for the results.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads of torch (default: all).")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors alone.")]
DataRoot = Annotated[
    str | None,
    typer.Option(help="Folder of the data sets (default: BITGNN_DATA, else ./data)."),
]
Data = Annotated[str, typer.Option(help=f"{GRAPH}.")]
Model = Annotated[
    str,
    typer.Option(
        help="Float model: gcn, sage or graphconv of PyG, a graph model of bitgnn.models such "
        "as GraphSAGE, or package.module:Name, a class or function that takes in_channels, "
        "hidden_channels, out_channels and num_layers or some of them."
    ),
]
Hidden = Annotated[int | None, typer.Option(min=1, help="Width of hidden layers (default: 64).")]
Layers = Annotated[int | None, typer.Option(min=1, help="Number of layers (default: 2).")]
State = Annotated[
    Path | None,
    typer.Option(help="Trained weights of the model, a safetensors file (default: train it)."),
]
Epochs = Annotated[
    int | None, typer.Option(min=1, help="Epochs of each training (default: by the data).")
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of all random numbers.")]
TrainDevice = Annotated[str, typer.Option(help="Device to train on: cpu, cuda or auto.")]


@app.command(short_help="Train, freeze and measure a small GCN.")
def demo(
    output: Output = None,
    seeds: Annotated[int, typer.Option(min=1, help="Repeats of each form.")] = 3,
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Train a GCN on a graph of digits in three precisions, freeze, check and measure it."""
    with running(threads, quiet) as console:
        from bitgnn.distillation.demo import run_demo

        run_demo(output or DEMO_FOLDER, seeds, console)


@app.command(short_help="Teach a binary model by a float one.")
def distill(
    data: Data,
    model: Model = "gcn",
    hidden: Hidden = None,
    layers: Layers = None,
    state: State = None,
    precision: Annotated[
        str, typer.Option(help="Precision of the binary model: bin, full, or letters.")
    ] = "bin",
    widen: Annotated[
        float | None, typer.Option(min=1, help="Times as many hidden channels as the model has.")
    ] = None,
    epochs: Epochs = None,
    budget: Annotated[
        str | None, typer.Option(help="Time for all training, such as 60s (default: no limit).")
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(min=1, help="Nodes of a step on each rank (default: the whole graph)."),
    ] = None,
    num_neighbors: Annotated[
        list[int] | None,
        typer.Option(
            min=-1, help="Neighbours that a batch draws, an option a hop (default: 10 a layer)."
        ),
    ] = None,
    seed: Seed = 0,
    device: TrainDevice = "auto",
    output: Output = None,
    data_root: DataRoot = None,
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Distill a float model into a binary one, freeze it and compare the two.

    A model that is not trained yet is trained first. The output folder gets the frozen model, the
    epochs as CSV and as a picture, and a report as JSON. Checkpoints stay in it; the same command
    goes on where it was stopped or killed. Under torchrun all ranks train together in batches.
    """
    is_other = os.environ.get("RANK", "0") != "0"
    with running(threads, quiet or is_other) as console:
        from bitgnn.distillation.command import DistillCommand, run_distill
        from bitgnn.distillation.named import NamedModel, parse_seconds

        folder = output or DISTILL_FOLDER / _folder_name(model, data)
        seconds = None if budget is None else parse_seconds(budget)
        command = DistillCommand(
            data, NamedModel(model, hidden, layers, state), precision, widen, epochs, seconds, seed,
            device, folder, data_root, batch_size, num_neighbors,
        )  # fmt: skip
        run_distill(command, console)


@app.command(short_help="Find the precision of each layer.")
def tune(
    data: Data,
    model: Model = "gcn",
    hidden: Hidden = None,
    layers: Layers = None,
    state: State = None,
    objective: Annotated[
        str, typer.Option(help="Quantity to optimise: latency, memory or accuracy.")
    ] = "latency",
    constraint: Annotated[
        list[str] | None,
        typer.Option(
            help="Limit such as 'latency <= 2 ms', 'memory <= 10 MB' or 'accuracy drop <= 1%', "
            "counted in points below the float model; repeatable (default: accuracy drop <= 1%)."
        ),
    ] = None,
    precision: Annotated[
        list[str] | None,
        typer.Option(
            help="Precision that layers may take, a name or letters; repeatable (default: bin, "
            "full and fp32)."
        ),
    ] = None,
    pin: Annotated[
        list[str] | None,
        typer.Option(help="Precision of a layer, such as 'convs.0=fp32'; repeatable."),
    ] = None,
    widen: Annotated[
        list[float] | None,
        typer.Option(
            min=1, help="Multiple of the hidden channels to try; repeatable (default: 1, 2 and 4)."
        ),
    ] = None,
    epochs: Epochs = None,
    budget: Annotated[
        str | None, typer.Option(help="Total time, such as 60s (default: no limit).")
    ] = None,
    seed: Seed = 0,
    device: Annotated[str, typer.Option(help="Device to run on: cpu, cuda or auto.")] = "cpu",
    output: Output = None,
    data_root: DataRoot = None,
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Find the precision of each layer and the width that suit a model best.

    A float model that is not trained yet is trained first: it teaches, and losses of accuracy count
    from it. All combinations of few layers, else one layer at a time, are distilled in every width,
    as `bitgnn distill` does it, and measured in turns. The first line printed says what to take;
    where nothing keeps the limits it says so, and the model written is the nearest one. What was
    finished stays in the output folder; the same command goes on where it was stopped or killed.

    Exit status: 0 the limits are kept, 1 an error, 3 nothing keeps them, 130 interrupted.
    """
    begin = time.perf_counter()
    with running(threads, quiet) as console:
        from bitgnn.distillation.named import NamedModel
        from bitgnn.tune.command import run_tune

        options = {
            "constraints": constraint, "precisions": precision, "pins": pin, "widen": widen,
            "epochs": epochs,
        }  # fmt: skip
        result = run_tune(
            data, NamedModel(model, hidden, layers, state), console,
            output=output or TUNE_FOLDER / _folder_name(model, data), data_root=data_root,
            device=device, seed=seed, budget=budget, begin=begin, objective=objective,
            **{name: value for name, value in options.items() if value},
        )  # fmt: skip
        if result.missed is not None:
            raise typer.Exit(LIMITS_MISSED)


@app.command(short_help="Write a graph as parts for many ranks.")
def partition(
    data: Annotated[
        list[str],
        typer.Option(
            help="Edges: an .npy file [2, E], or two of [E] by two options; a folder of OGB's raw "
            "files; synthetic:NAME, made up in the size of arxiv, products or papers100M; else as "
            "for distill."
        ),
    ],
    parts: Annotated[
        int, typer.Option(min=1, help="Parts, a multiple of the ranks that will read them.")
    ] = 256,
    order: Annotated[
        str, typer.Option(help="Order of the rows: range, or dealt (by degree, in turn).")
    ] = "range",
    undirected: Annotated[
        bool, typer.Option("--undirected", help="Add reverse edges and hold each edge once.")
    ] = False,
    self_loops: Annotated[
        bool, typer.Option("--self-loops", help="One loop at each node.")
    ] = False,
    normalize: Annotated[
        str | None, typer.Option(help="Factors to store: sym or mean (default: none).")
    ] = None,
    features: Annotated[
        Path | None,
        typer.Option(help="Floats [N, F] in an .npy file, or a file of PackedFeatureStore."),
    ] = None,
    nodes: Annotated[
        int | None, typer.Option(min=0, help="Number of nodes (default: as the source tells).")
    ] = None,
    seed: Seed = 0,
    output: Output = None,
    data_root: DataRoot = None,
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Write a graph as row chunks and META.json, from which any number of ranks map their rows.

    The edges are read twice and never held in memory. Finished parts stay in the output folder; the
    same command goes on where it was stopped or killed.
    """
    with running(threads, quiet) as console:
        from bitgnn.distributed.command import PartitionCommand, run_partition

        folder = output or PARTITION_FOLDER / _folder_name(order, data[0].replace(":", "-"))
        command = PartitionCommand(
            data, parts, order, undirected, self_loops, normalize, features, nodes, seed, folder,
            data_root,
        )  # fmt: skip
        run_partition(command, console)


@app.command(short_help="Run a saved model on a partition, on many ranks.")
def infer(
    root: Annotated[Path, typer.Argument(help="Folder of the partition, with features.")],
    model: Annotated[Path, typer.Option(help="Folder of the model, as bitgnn.save wrote it.")],
    output: Output = None,
    device: Annotated[str, typer.Option(help="Device of each rank: cpu, cuda or auto.")] = "auto",
    timeout: Annotated[
        int, typer.Option(min=1, help="Seconds after which a rank that does not answer is lost.")
    ] = 600,
    threads: Threads = None,
) -> None:
    """Run a saved model on the nodes of a partition; each rank writes those of its own.

    Start it by torchrun: `torchrun --nproc-per-node 2 -m bitgnn infer ROOT --model FOLDER`. The
    output folder gets nodes-RANK-of-RANKS.npy, the user's numbers of the rank's nodes, and
    result-RANK-of-RANKS.npy, their classes or scores.
    """
    with running(threads) as console:
        from bitgnn.distributed.command import InferCommand, run_infer

        folder = output or INFER_FOLDER / _folder_name(model.name, root.name)
        run_infer(InferCommand(root, model, folder, device, timeout), console)


def _folder_name(model: str, data: str) -> str:
    from bitgnn.data.own_graphs import graph_title

    return f"{graph_title(model)}-{graph_title(data)}".lower()


@app.command(short_help="List the packed models of the package.")
def zoo(
    as_json: Annotated[bool, typer.Option("--json", help="Print the cards as JSON.")] = False,
) -> None:
    """List the packed models of the package; predict, evaluate and the others take their names."""
    with running():
        from bitgnn.models import pretrained_card, pretrained_names

        cards = [pretrained_card(name) for name in pretrained_names()]
        lines = [
            f"{card['name']:16s}{card['score']:8.4f} {card['metric']:10s}"
            f"{card['bytes']['bits']:8d} bytes  {card['kind']}, {card['data']}"
            for card in cards
        ]
        typer.echo(json.dumps(cards) if as_json else "\n".join(lines))


@app.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print versions, build, hardware and what is missing; exit status 1 where something is."""
    with running():
        from bitgnn.doctor import facts, is_well, report

        found = facts()
        typer.echo(json.dumps(found) if as_json else report(found))
        if not is_well(found):
            raise typer.Exit(1)

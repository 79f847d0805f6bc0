"""Command lines of the loading scripts: statistics of a graph, then a frozen forward on it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from tqdm import trange

from bench.command import data_folder, exits_with_status, threads_of_torch
from bitgnn.convert import freeze
from bitgnn.data import DataError, load, synthetic
from bitgnn.data.splits import MASKS
from bitgnn.measure.timing import compare
from bitgnn.models import GCN, GraphSAGE

CORA_HIDDEN, CORA_LEARNING_RATE, CORA_EPOCHS = 64, 5e-3, 200
REDDIT_HIDDEN, REDDIT_LEARNING_RATE = 128, 1e-2
REPEATS = 15
EDGES_AT_ONCE = 1 << 24
"""Edges looked at together; bounds the memory on large graphs."""


def graph_statistics(data: Any) -> dict[str, str]:
    """Statistics of a graph for node classification, each figure as text."""
    nodes, (x, y, edges) = data.x.size(0), (data.x, data.y, data.edge_index)
    degrees = torch.zeros(nodes, dtype=torch.int64)
    touched = torch.zeros(nodes, dtype=torch.bool)
    loops = same = known = 0
    for source, target in edges.split(EDGES_AT_ONCE, dim=1):
        degrees += torch.bincount(target, minlength=nodes)
        is_loop = source == target
        loops += int(is_loop.sum())
        touched[source[~is_loop]] = touched[target[~is_loop]] = True
        labelled = (y[source] >= 0) & (y[target] >= 0)
        known += int(labelled.sum())
        same += int(((y[source] == y[target]) & labelled).sum())
    finders = (torch.min, torch.median, torch.max)
    least, median, most = (int(find(degrees)) if nodes else 0 for find in finders)
    parts = (getattr(data, name, None) for name in MASKS)
    density = int(torch.count_nonzero(x)) / max(x.numel(), 1)
    return {
        "graph": str(getattr(data, "name", None) or "graph"),
        "nodes": f"{nodes:,} ({int((~touched).sum()):,} isolated)",
        "edges": f"{edges.size(1):,} ({loops:,} self loops)",
        "in-degree": f"min {least}, median {median}, mean {edges.size(1) / max(nodes, 1):.1f}, "
        f"max {most:,}",
        "features": f"{x.size(1):,} ({density:.1%} not 0)",
        "classes": f"{_classes(data)} ({int((y < 0).sum()):,} nodes without label)",
        "edge homophily": f"{same / known if known else float('nan'):.3f}",
        "train / val / test": " / ".join(
            "none" if mask is None else f"{int(mask.sum()):,}" for mask in parts
        ),
    }


def _classes(data: Any) -> int:
    return int(data.y.max()) + 1 if data.y.numel() else 0


@exits_with_status
def cora_main(argv: Sequence[str] | None = None) -> int:
    """Cora and a binary GCN; the exit status."""
    parser = _parser("Statistics of Cora, and the time of a frozen binary GCN on it.", CORA_EPOCHS)
    arguments = _parse(parser, argv)
    return _show(
        partial(load, "Cora", arguments.data_root),
        lambda inputs, classes: GCN(
            inputs,
            CORA_HIDDEN,
            classes,
            precision="bin",
            dropout=0.4,
            hidden_norm="batch",
            output_norm="batch",
        ),
        CORA_LEARNING_RATE,
        arguments,
    )


@exits_with_status
def reddit_main(argv: Sequence[str] | None = None) -> int:
    """Reddit, or a synthetic graph of its size, and a binary GraphSAGE; the exit status."""
    parser = _parser("Statistics of Reddit, and the time of a frozen binary GraphSAGE on it.", 0)
    parser.add_argument(
        "--synthetic",
        nargs="?",
        type=float,
        const=1.0,
        metavar="SCALE",
        help="a synthetic graph of SCALE (default 1) times Reddit's size instead",
    )
    arguments = _parse(parser, argv)
    scale = arguments.synthetic
    if scale is not None and not scale > 0:
        parser.error(f"--synthetic must be above 0, got {scale:g}")
    return _show(
        partial(load, "Reddit", arguments.data_root)
        if scale is None
        else partial(synthetic, "reddit", scale=scale),
        lambda inputs, classes: GraphSAGE(inputs, REDDIT_HIDDEN, classes, precision="bin"),
        REDDIT_LEARNING_RATE,
        arguments,
        advice="" if scale is not None else "; or run with --synthetic for a made-up graph",
    )


def _parser(description: str, epochs: int) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    data_folder(parser)
    parser.add_argument(
        "--epochs",
        type=int,
        default=epochs,
        help=f"full-graph epochs of training first; 0 for random weights (default {epochs})",
    )
    threads_of_torch(parser)
    return parser


def _parse(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> argparse.Namespace:
    arguments = parser.parse_args(argv)
    if arguments.epochs < 0:
        parser.error(f"--epochs must be at least 0, got {arguments.epochs}")
    torch.set_num_threads(arguments.threads)
    return arguments


def _show(
    load_graph: Callable[[], Any],
    build: Callable[[int, int], nn.Module],
    learning_rate: float,
    arguments: argparse.Namespace,
    advice: str = "",
) -> int:
    try:
        data = load_graph()
    except DataError as error:
        raise DataError(f"{error}{advice}") from error
    for label, text in graph_statistics(data).items():
        print(f"{label:<18}  {text}", flush=True)
    torch.manual_seed(0)
    model = build(data.x.size(1), _classes(data))
    _train(model, data, arguments.epochs, learning_rate)
    _time_frozen(model, data, arguments)
    return 0


def _train(model: nn.Module, data: Any, epochs: int, learning_rate: float) -> None:
    """A short training, or one pass that gives norms the statistics of the data."""
    if epochs == 0:
        with torch.no_grad():
            model.train()(data.x, data.edge_index)
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    # Signs of small sums settle, and norms catch up with them, only as the rate falls.
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(epochs, 1))
    mask = data.train_mask
    for _ in trange(epochs, desc="training", unit="epoch", disable=epochs == 0):
        optimizer.zero_grad()
        scores = model(data.x, data.edge_index)
        functional.cross_entropy(scores[mask], data.y[mask]).backward()
        optimizer.step()
        schedule.step()
    model.eval()


@torch.inference_mode()
def _time_frozen(model: nn.Module, data: Any, arguments: argparse.Namespace) -> None:

    frozen = freeze(model, check=arguments.epochs > 0)
    graph = frozen.prepare_graph(data.edge_index, data.x.size(0))
    packed = frozen.pack_features(data.x)
    emulated = model(data.x, data.edge_index)
    scores = frozen(packed, graph)
    weights = f"{arguments.epochs} epochs of training" if arguments.epochs else "random weights"
    print(f"\nmodel: {model}, {weights}")
    print(f"test accuracy: {_accuracy(scores, data)}")
    same = (scores.argmax(-1) == emulated.argmax(-1)).float().mean().item()
    print(f"frozen and trainable form choose the same class on {same:.2%} of the nodes")
    times = compare(
        {
            "frozen, packed features": partial(frozen, packed, graph),
            "frozen, float features": partial(frozen, data.x, graph),
            "trainable form": partial(model, data.x, data.edge_index),
        },
        repeats=REPEATS,
    )
    print(f"one forward over the whole graph, median of {REPEATS}, {arguments.threads} threads:")
    for name, timing in times.items():
        low, median, high = (1e3 * timing.quantile(q) for q in (0.1, 0.5, 0.9))
        print(f"  {name:<24} {median:>10.3f} ms  ({low:.3f} to {high:.3f})")


def _accuracy(scores: Tensor, data: Any) -> str:
    chosen = scores[data.test_mask].argmax(-1)
    if chosen.numel() == 0:
        return "no test nodes"
    return f"{(chosen == data.y[data.test_mask]).float().mean().item():.1%}"

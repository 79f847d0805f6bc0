"""Writes what an experiment found: JSON record, CSV table, chart, and the packed models."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from torch_geometric.data import Data

from bitgnn.bench.environment import environment
from bitgnn.bench.report import format_bytes, format_seconds, write_json
from bitgnn.inference import save
from bitgnn.train.chart import draw_chart
from bitgnn.train.config import ExperimentConfig
from bitgnn.train.deploy import FormResult
from bitgnn.train.store import write_atomically

__all__ = ["LABELS", "result_record", "result_table", "write_results"]

LABELS = {"fp32": "PyG fp32", "full": "bitgnn full", "bin": "bitgnn bin"}
COLUMNS = (
    "form",
    "seeds",
    "accuracy_mean_percent",
    "accuracy_std_points",
    "model_bytes",
    "activation_bytes",
    "feature_bytes",
    "graph_bytes",
    "peak_bytes",
    "latency_median_ms",
    "latency_of",
    "float_features_latency_median_ms",
)


def result_record(
    config: ExperimentConfig, data: Data, results: Sequence[FormResult]
) -> dict[str, Any]:
    """Everything in plain values: configuration, machine, sizes, every run and every repeat."""
    return {
        "experiment": config.name,
        "config": config.model_dump(mode="json"),
        "environment": environment(),
        "graph": {
            "name": config.dataset.title,
            "nodes": data.x.size(0),
            "edges": data.edge_index.size(1),
            "features": data.x.size(1),
            "classes": int(data.y.max()) + 1,
            "train_nodes": int(data.train_mask.sum()),
            "val_nodes": int(data.val_mask.sum()),
            "test_nodes": int(data.test_mask.sum()),
        },
        "forms": {
            result.form: {
                "accuracy_mean_percent": result.mean,
                "accuracy_std_points": result.std,
                "runs": [asdict(run) for run in result.runs],
                "memory_bytes": result.memory.to_dict(),
                "latency": {way: timing.to_dict() for way, timing in result.timings.items()},
                # evaluate() raises where a frozen model differs, so reaching this is the proof.
                "frozen_equals_trained": None if result.frozen is None else True,
            }
            for result in results
        },
    }


def write_results(
    folder: Path, config: ExperimentConfig, data: Data, results: Sequence[FormResult]
) -> list[Path]:
    """Write ``results.json``, ``results.csv``, ``results.png`` and ``model-<form>/``.

    Args:
        folder: existing output folder.
        config: the experiment.
        data: its graph.
        results: what :func:`~bitgnn.train.evaluate` returned.

    Returns:
        The files and folders written.

    Raises:
        OSError: something cannot be written; what was there before stays whole.
    """
    record, table, chart = (folder / f"results.{ending}" for ending in ("json", "csv", "png"))
    write_json(record, result_record(config, data, results))
    write_atomically(table, _csv(results).encode())
    write_atomically(chart, draw_chart(config.dataset.title, LABELS, results))
    models = [
        save(result.frozen, folder / f"model-{result.form}")
        for result in results
        if result.frozen is not None
    ]
    return [record, table, chart, *models]


def _csv(results: Sequence[FormResult]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for result in results:
        way, timing = result.fastest
        from_floats = result.timings.get("float features", timing)
        use = result.memory
        writer.writerow(
            [
                LABELS[result.form],
                len(result.runs),
                f"{result.mean:.2f}",
                f"{result.std:.2f}",
                use.weights,
                use.activations,
                use.features,
                use.adjacency,
                use.peak,
                f"{1e3 * timing.median:.4f}",
                way,
                f"{1e3 * from_floats.median:.4f}",
            ]
        )
    return text.getvalue()


def result_table(title: str, results: Sequence[FormResult]) -> Table:
    """The results for a terminal."""
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    for name in ("", "accuracy %", "model", "working", "peak", "latency", "speed"):
        table.add_column(name, justify="left" if not name else "right", no_wrap=True)
    baseline = next((r for r in results if r.form == "fp32"), None)
    for result in results:
        timing = result.fastest[1]
        ratio = "" if baseline is None else baseline.fastest[1].median / timing.median
        table.add_row(
            LABELS[result.form],
            f"{result.mean:.1f} ± {result.std:.1f}",
            format_bytes(result.memory.weights),
            format_bytes(result.memory.activations),
            format_bytes(result.memory.peak),
            format_seconds(timing.median),
            f"{ratio:.2f}x" if ratio else "",
        )
    return table

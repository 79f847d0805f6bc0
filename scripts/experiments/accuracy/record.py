"""The record of an accuracy table: mean and spread by graph and form, goals, cost, proof."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bitgnn.measure.environment import environment
from bitgnn.train.config import ExperimentConfig
from bitgnn.train.workers import Finished

__all__ = ["PAPER", "Table", "accuracy_record"]

FLOAT_FORM = "fp32"
PAPER_TOLERANCE = 0.3
"""Points a mean may stay below the paper's and still reproduce it."""


@dataclass(frozen=True)
class PaperRow:
    """Accuracies in per cent that the BitGNN paper prints for one graph (its table 3).

    Attributes:
        fp32: full precision.
        full: binary products, full-precision aggregation.
        bin: binary aggregation too.
        gap: points the binary forms may stay behind full precision.
    """

    fp32: float
    full: float
    bin: float
    gap: float


PAPER = {
    "Cora": PaperRow(81.4, 81.2, 81.2, 0.2),
    "PubMed": PaperRow(79.0, 78.2, 78.1, 0.9),
    "CiteSeer": PaperRow(70.9, 68.8, 68.7, 2.0),
}


@dataclass(frozen=True)
class Table:
    """Which experiments make a table.

    Attributes:
        name: of the record.
        configs: names of the configurations, slowest first.
        seeds: repeats.
        mean_gap: points that the mean over the graphs of the form bin may stay behind full
            precision; None for no such goal.
        close_gap: the same for every graph alone, with the best form on bits.
    """

    name: str
    configs: tuple[str, ...]
    seeds: int
    mean_gap: float | None = None
    close_gap: float | None = None


def accuracy_record(
    table: Table,
    experiments: Sequence[tuple[ExperimentConfig, Mapping[str, Any], Sequence[Finished]]],
    before: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Everything a table shows and what it rests on, in plain values.

    Args:
        table: the table.
        experiments: configuration, sizes of the graph and finished runs of each.
        before: an earlier record of the table, whose other graphs are kept; each with the
            environment it was recorded in.
    """
    graphs = {}
    for config, graph, finished in experiments:
        forms = _forms(config, finished)
        graphs[config.dataset.title] = {
            "experiment": config.name,
            "config": config.model_dump(mode="json"),
            "graph": dict(graph),
            "metric": config.metric,
            "paper": _paper(config.dataset.name),
            "forms": forms,
            "goals": _graph_goals(table, config.dataset.name, forms),
        }
    if before is not None:
        graphs = _with_kept(table, graphs, before)
    return {
        "benchmark": f"accuracy {table.name}",
        "environment": environment(Path(__file__).resolve().parents[3]),
        "note": "scores in per cent, mean and sample standard deviation over seeds; seconds are "
        "those of runs side by side that share one device: training_cost.json measures the cost",
        "graphs": graphs,
        "goals": _table_goals(table, graphs),
    }


def _with_kept(
    table: Table, graphs: Mapping[str, Any], before: Mapping[str, Any]
) -> dict[str, Any]:
    """New graphs and those of an earlier record that are not among them, quickest first."""
    kept = {
        title: {"environment": before["environment"], **entry}
        for title, entry in before["graphs"].items()
        if title not in graphs and entry["experiment"] in table.configs
    }
    every = {**graphs, **kept}
    places = {name: place for place, name in enumerate(table.configs)}
    order = sorted(every, key=lambda title: -places[every[title]["experiment"]])
    return {title: every[title] for title in order}


def _paper(name: str) -> dict[str, float] | None:
    """What the paper prints for a graph, by form."""
    row = PAPER.get(name)
    return None if row is None else {"fp32": row.fp32, "full": row.full, "bin": row.bin}


def _forms(config: ExperimentConfig, finished: Sequence[Finished]) -> dict[str, Any]:
    forms: dict[str, Any] = {}
    for form in config.forms:
        ours = [one for one in finished if one.run.form == form]
        scores = [100 * one.run.test_score for one in ours]
        forms[form] = {
            "precision": config.precision(form),
            "score_mean_percent": statistics.mean(scores),
            "score_std_points": statistics.stdev(scores) if len(scores) > 1 else 0.0,
            "seconds_mean": statistics.mean(one.run.seconds for one in ours),
            "epochs_mean": statistics.mean(one.run.epochs for one in ours),
            "frozen": _frozen(config, form, ours),
            "runs": [asdict(one.run) for one in ours],
        }
    for form, entry in forms.items():
        before = config.all_needs(form)
        entry["needs"] = before
        for measure in ("seconds", "epochs"):
            chain = sum(forms[name][f"{measure}_mean"] for name in (form, *before))
            entry[f"{measure}_with_needs"] = chain
            if FLOAT_FORM in forms:
                entry[f"{measure}_ratio"] = chain / forms[FLOAT_FORM][f"{measure}_mean"]
    return forms


def _frozen(config: ExperimentConfig, form: str, ours: Sequence[Finished]) -> dict[str, Any] | None:
    """What freezing every run of a form gave; None for floats."""
    if not config.is_binary(form):
        return None
    differences = [one.difference for one in ours if one.difference is not None]
    return {
        "checked": len(ours),
        "equal_on_every_node": len(differences),
        "largest_logit_difference": max(differences, default=None),
        "mismatches": [one.mismatch for one in ours if one.mismatch is not None],
    }


def _goal(text: str, value: float, least: float) -> dict[str, Any]:
    return {"goal": text, "value": value, "limit": least, "met": value >= least}


def _graph_goals(table: Table, name: str, forms: Mapping[str, Any]) -> list[dict[str, Any]]:
    means = {form: entry["score_mean_percent"] for form, entry in forms.items()}
    goals = []
    paper = PAPER.get(name)
    if paper is not None:
        for form in (name for name in ("full", "bin") if name in means):
            limit = getattr(paper, form) - PAPER_TOLERANCE
            goals.append(_goal(f"{form}: the paper's mean less {PAPER_TOLERANCE}",
                               means[form], limit))  # fmt: skip
            goals.append(_goal(f"{form}: at most {paper.gap} behind fp32",
                               means[form] - means[FLOAT_FORM], -paper.gap))  # fmt: skip
    if table.close_gap is not None:
        best = _best_bits(forms)
        goals.append(_goal(f"{best} (best form on bits): at most {table.close_gap} behind fp32",
                           means[best] - means[FLOAT_FORM], -table.close_gap))  # fmt: skip
    return goals


def _best_bits(forms: Mapping[str, Any]) -> str:
    """The form with the highest mean among those that aggregate bits."""
    bits = [form for form in forms if form.startswith("bin")]
    return max(bits, key=lambda form: forms[form]["score_mean_percent"])


def _table_goals(table: Table, graphs: Mapping[str, Any]) -> list[dict[str, Any]]:
    if table.mean_gap is None:
        return []
    gaps = [
        entry["forms"]["bin"]["score_mean_percent"]
        - entry["forms"][FLOAT_FORM]["score_mean_percent"]
        for entry in graphs.values()
    ]
    text = f"bin: at most {table.mean_gap} behind fp32 on the mean of the graphs"
    return [_goal(text, statistics.mean(gaps), -table.mean_gap)]

"""Tables of trained networks: accuracies on graphs, images and text, and equality when frozen."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence

from bench.report import Record, shown, table, trained_on, verdict
from bitgnn.measure.report import format_seconds

ORDER = ("binary", "bwta_bit", "bwta_level")
"""BWTA's paper has them in this order, the last one best."""
NOT_MEASURED = "Not measured yet.\n"


def accuracies_table(record: Record) -> str:
    """Markdown of a record of ``scripts/reproduce_table3.py``: one row a graph, goals below."""
    graphs = record["graphs"]
    forms = dict.fromkeys(form for entry in graphs.values() for form in entry["forms"])

    def frozen(entry: Record) -> str:
        found = [form["frozen"] for form in entry["forms"].values() if form["frozen"] is not None]
        equal, checked = (
            sum(one[name] for one in found) for name in ("equal_on_every_node", "checked")
        )
        return f"{equal} of {checked}"

    def paper(entry: Record) -> str:
        return shown(entry["paper"], lambda p: " / ".join(f"{value:.1f}" for value in p.values()))

    def score(entry: Record, form: str) -> str:
        return shown(
            entry["forms"].get(form),
            lambda f: f"{f['score_mean_percent']:.1f} ± {f['score_std_points']:.1f}",
        )

    has_paper = any(entry["paper"] for entry in graphs.values())
    found = table(
        graphs.items(),
        ("graph", lambda g: g[0] + ("" if g[1]["metric"] == "accuracy" else " (ROC AUC)")),
        ("seeds", lambda g: str(len(next(iter(g[1]["forms"].values()))["runs"]))),
        *((f"{form}, %", lambda g, form=form: score(g[1], form)) for form in forms),
        *[("paper: fp32 / full / bin", lambda g: paper(g[1]))] * has_paper,
        ("frozen equals trained", lambda g: frozen(g[1])),
    )
    goals = [(title, goal) for title, entry in graphs.items() for goal in entry["goals"]]
    lines = [
        f"- {verdict(goal['met'])}: {title}: {goal['goal']}: "
        f"{goal['value']:.2f}, limit {goal['limit']:.2f}\n"
        for title, goal in [*goals, *(("all graphs", goal) for goal in record["goals"])]
    ]
    return f"{_training_line(record)}\n\n{found}\n{''.join(lines)}"


def _training_line(record: Record) -> str:
    """One sentence on where the models were trained, and what was recorded before."""
    graphs = record["graphs"]
    forms = [form for entry in graphs.values() for form in entry["forms"].values()]
    machines = Counter(run["machine"] for f in forms for run in f["runs"] if "machine" in run)
    device = record["environment"]["gpu"] or record["environment"]["cpu"]
    if len(machines) > 1:
        places = ", ".join(f"{count} runs on {name}" for name, count in machines.most_common())
        device = f"several machines ({places}); recorded on {device}"
    by_commit: dict[str, list[str]] = {}
    for title, entry in graphs.items():
        if "environment" in entry:
            commit = (entry["environment"]["commit"] or "unknown")[:10]
            by_commit.setdefault(commit, []).append(title)
    kept = (f"; {' and '.join(titles)} of commit {c}" for c, titles in by_commit.items())
    return f"{trained_on(record, pyg=True, device=device)}{''.join(kept)}."


def images_table(records: Sequence[Record]) -> str:
    """Markdown of records of trainings on images: one row a network, goals below."""

    def both(record: Record) -> Iterator[Record]:
        yield from (record["forms"][f] for f in ("fp32", "binary") if f in record["forms"])

    def accuracy(record: Record, form: str) -> str:
        return shown(
            record["forms"].get(form),
            lambda f: f"{f['accuracy_mean_percent']:.1f} ± {f['accuracy_std_points']:.1f}",
        )

    records = list(reversed(records))
    found = table(
        records,
        ("network", lambda r: r["config"]["title"]),
        ("seeds", lambda r: str(max(len(form["runs"]) for form in r["forms"].values()))),
        ("fp32, %", lambda r: accuracy(r, "fp32")),
        ("binary, %", lambda r: accuracy(r, "binary")),
        ("papers, %", lambda r: shown(r["config"]["published"], lambda p: f"{p[0]} to {p[1]}")),
        (
            "epochs: fp32, binary",
            lambda r: ", ".join(str(len(form["runs"][0]["history"])) for form in both(r)),
        ),
        (
            "one epoch: fp32, binary",
            lambda r: ", ".join(format_seconds(form["epoch_seconds_median"]) for form in both(r)),
        ),
        ("frozen equals trained", lambda r: _frozen_images(r["forms"].get("binary"))),
    )
    goals = []
    for record in records:
        form, published = record["forms"].get("binary"), record["config"]["published"]
        if form is not None and published is not None:
            lowest, mean = published[0], form["accuracy_mean_percent"]
            title = f"{verdict(mean >= lowest)}: {record['config']['title']}: binary"
            goals.append(f"- {title}: {mean:.2f}, the papers' {lowest} or more\n")
    return f"{trained_on(records[-1])}.\n\n{found}\n{''.join(goals)}"


def _frozen_images(form: Record | None) -> str:
    """On how many images of all test sets and seeds the classes are equal, by device."""
    equal: Counter[str] = Counter()
    images: Counter[str] = Counter()
    for run in [] if form is None else form["runs"]:
        for check in run["frozen"]:
            equal[check["device"]] += check["equal"]
            images[check["device"]] += check["images"]
    found = (f"{device}: {equal[device]} of {images[device]}" for device in sorted(images))
    return "; ".join(found) or "not compared"


def text_table(records: Sequence[Record]) -> str:
    """Markdown of records of trainings on text.

    One row a form of an experiment, and whether the paper's order of methods holds.
    """
    compared = [r for r in reversed(records) if not _is_perplexity(r) or ORDER[0] in r["forms"]]
    if not compared:
        return NOT_MEASURED
    compared.sort(key=_is_perplexity)

    def each_seed(record: Record, runs: Sequence[Record]) -> str:
        scores = (record["score_factor"] * run["test_score"] for run in runs)
        return ", ".join(_score(record, score) for score in scores)

    found = table(
        ((record, form, e) for record in compared for form, e in record["forms"].items()),
        ("task: form", lambda row: f"{row[0]['config']['title']}: {row[1]}"),
        ("seeds", lambda row: str(len(row[2]["runs"]))),
        ("levels", lambda row: _levels(row[0]["config"]["forms"][row[1]])),
        ("test score", lambda row: _score(row[0], row[2]["test_mean"], row[2]["test_std"])),
        ("of each seed", lambda row: each_seed(row[0], row[2]["runs"])),
        ("validation loss", lambda row: f"{row[2]['validation_loss_mean']:.3f}"),
        ("epochs", lambda row: f"{row[2]['epochs_median']:.0f}"),
    )
    by_line: dict[str, list[str]] = {}
    for record in compared:
        by_line.setdefault(f"{trained_on(record)}.", []).append(record["config"]["title"])
    lines = [f"{' and '.join(titles)}: {line}" for line, titles in by_line.items()]
    where = " ".join(lines) if len(lines) > 1 else next(iter(by_line))
    return f"{where}\n\n{found}\n{''.join(_order(record) for record in compared)}"


def decoder_table(records: Sequence[Record]) -> str:
    """One row a form of the decoder: perplexities, layers, and whether frozen ones answer alike."""
    record = next((r for r in records if _is_perplexity(r) and ORDER[0] not in r["forms"]), None)
    if record is None:
        return NOT_MEASURED
    frozen = record.get("frozen", {})
    found = table(
        record["forms"].items(),
        ("decoder", lambda row: row[0]),
        ("layers on bits", lambda row: str(len(row[1]["runs"][0]["layers"]) or "0")),
        ("test perplexity", lambda row: f"{row[1]['test_mean']:.3f}"),
        ("validation perplexity", lambda row: f"{row[1]['validation_mean']:.3f}"),
        ("epochs", lambda row: f"{row[1]['epochs_median']:.0f}"),
        (
            "frozen answers as trained",
            lambda row: shown(frozen.get(row[0]), lambda f: f"{f['equal']} of {f['answers']}"),
        ),
    )
    return f"{trained_on(record)}.\n\n{found}"


def _levels(recipe: Record) -> str:
    if recipe["precision"] == "bwta":
        return ", ".join(map(str, recipe["levels"])) + f" ({recipe['alignment']})"
    return {"fp32": "floats", "binary": "signs"}[recipe["precision"]]


def _is_perplexity(record: Record) -> bool:
    """Whether scores are perplexities, lower ones better, and no per cent."""
    return bool(record["metric"] == "perplexity")


def _score(record: Record, mean: float, std: float | None = None) -> str:
    digits = 3 if _is_perplexity(record) else 1
    return f"{mean:.{digits}f}" + shown(std, lambda spread: f" ± {spread:.{digits}f}")


def _order(record: Record) -> str:
    """Whether each form is better than the one before it in the paper's order."""
    forms, lower = record["forms"], _is_perplexity(record)
    unit, digits = ("in perplexity", 3) if lower else ("points", 1)
    lines = []
    for worse, better in itertools.pairwise(form for form in ORDER if form in forms):
        before, behind = (
            {run["seed"]: run["test_score"] for run in forms[form]["runs"]}
            for form in (worse, better)
        )
        gains = [behind[seed] - score for seed, score in before.items() if seed in behind]
        gain = forms[better]["test_mean"] - forms[worse]["test_mean"]
        spread = max(forms[form]["test_std"] for form in (worse, better))
        holds = "holds" if (gain < 0 if lower else gain > 0) else "does NOT hold"
        agreeing = sum(one < 0 if lower else one > 0 for one in gains)
        within = ", within one standard deviation" if abs(gain) <= spread else ""
        lines.append(
            f"- {record['config']['title']}: {better} above {worse} {holds}: "
            f"{gain:+.{digits}f} {unit}{within}; for {agreeing} of {len(gains)} seeds\n"
        )
    return "".join(lines)

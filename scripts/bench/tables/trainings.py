"""Tables of trained networks: accuracies on graphs, and equality when frozen."""

from __future__ import annotations

from collections import Counter

from bench.report import Record, shown, table, trained_on, verdict

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

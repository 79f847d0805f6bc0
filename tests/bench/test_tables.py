"""Tables of documents: made from the records, complete, and equal to what documents show."""

import json
from pathlib import Path

import pytest

from bench.cases import Case, run_cases
from bench.tables.accuracies import accuracies_table, training_cost_table
from bench.tables.documents import (
    NOT_MEASURED,
    TABLES,
    cases_table,
    documents,
    fill,
)

ROOT = Path(__file__).resolve().parents[2]
MACHINE = {
    "cpu": "Some CPU",
    "capability": "avx2",
    "threads": 2,
    "versions": {"torch": "2.13.0", "torch-geometric": "2.8.1"},
    "commit": "0123456789abcdef",
    "dirty": False,
    "date": "2026-01-02T03:04:05+00:00",
}
EMPTY = "".join(f"<!-- table:{name} -->\n<!-- /table:{name} -->\n" for name in TABLES)


def operators_record():
    case = Case("BMM", "BBF", lambda: None, {"torch": lambda: None}, target=20.0)
    body = run_cases([case], progress=lambda line: None, warmup=1, repeats=7)
    return {"environment": MACHINE, "settings": {"repeats": 7}, **body}


def test_operators_table_names_machine_result_and_goal():
    record = operators_record()
    record["results"][0]["ratio"] = 12.34
    record["skipped"].append({"group": "g", "name": "absent", "reason": "no data"})
    text = cases_table(record)
    assert "Some CPU (avx2), 2 threads, torch 2.13.0, PyG 2.8.1, commit 0123456789" in text
    assert "| BMM: BBF |" in text
    assert "| 12.3× | 20× |" in text
    assert "- not measured: absent: no data" in text


def test_fill_replaces_what_stands_between_the_markers(tmp_path):
    (tmp_path / "ops.json").write_text(json.dumps(operators_record()))
    old = EMPTY.replace("<!-- /table:ops", "old numbers\n<!-- /table:ops")
    text = fill(f"before\n{old}after\n", tmp_path)
    assert "old numbers" not in text
    assert "| BMM: BBF |" in text
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert text.count(NOT_MEASURED) == len(TABLES) - 1
    assert fill(text, tmp_path) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "no marker"), (EMPTY + EMPTY, "must each stand once"),
     (EMPTY.replace("<!-- /table:models -->", ""), "must each stand once"),
     (EMPTY + "<!-- table:other -->", "unknown tables")],
)  # fmt: skip
def test_wrong_markers_are_refused(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        fill(text, tmp_path)


def test_cases_without_a_baseline_have_no_ratio():
    record = operators_record()
    record["results"][0].update(best_baseline=None, ratio=None, target=2 / 3)
    text = cases_table(record, "layer")
    assert "| layer | bitgnn |" in text
    assert text.rstrip().endswith("|  |  | 0.667× |")


def accuracies_record(paper):
    frozen = {"checked": 20, "equal_on_every_node": 20}

    def form(mean, proof):
        return {
            "score_mean_percent": mean, "score_std_points": 0.5, "frozen": proof,
            "runs": [{}] * 20,
        }  # fmt: skip

    forms = {"fp32": form(82.04, None), "bin": form(81.96, frozen)}
    met = {"goal": "bin: near", "value": -0.08, "limit": -0.5, "met": True}
    missed = {"goal": "bin: nearer", "value": -0.08, "limit": 0.0, "met": False}
    graph = {"metric": "roc_auc", "paper": paper, "forms": forms, "goals": [met]}
    machine = {**MACHINE, "gpu": "Some GPU"}
    return {"environment": machine, "graphs": {"tolokers": graph}, "goals": [missed]}


def test_accuracies_show_the_paper_the_proof_and_the_goals():
    text = accuracies_table(accuracies_record({"fp32": 81.4, "full": 81.2, "bin": 81.0}))
    assert "Trained on Some GPU, torch 2.13.0, PyG 2.8.1, commit 0123456789, 2026-01-02." in text
    row = "| tolokers (ROC AUC) | 20 | 82.0 ± 0.5 | 82.0 ± 0.5 | 81.4 / 81.2 / 81.0 | 20 of 20 |"
    assert row in text
    assert "- met: tolokers: bin: near: -0.08, limit -0.50" in text
    assert "- MISSED: all graphs: bin: nearer: -0.08, limit 0.00" in text


def test_accuracies_without_a_paper_have_no_such_column():
    text = accuracies_table(accuracies_record(None))
    assert "paper" not in text
    assert "| 82.0 ± 0.5 | 20 of 20 |" in text


def test_training_cost_shows_each_form_and_its_goal():
    forms = {
        "fp32": {"seconds_per_epoch": 0.01, "epochs": 200, "needs": [], "cost_ratio": 1.0},
        "bin": {"seconds_per_epoch": 0.012, "epochs": 150, "needs": ["fp32"], "cost_ratio": 1.9},
    }
    goal = {"goal": "bin: cheap", "value": 1.9, "limit": 2.0, "met": True}
    graphs = {"Cora": {"forms": forms, "goals": [goal]}}
    record = {"environment": MACHINE, "settings": {"repeats": 9}, "graphs": graphs}
    text = training_cost_table(record)
    assert "| Cora fp32 | 10.0 ms | 200 |  | 1.00× |  |" in text
    assert "| Cora bin | 12.0 ms | 150 | fp32 | 1.90× | ≤ 2×: met |" in text


def test_tables_without_markers_are_left_out(tmp_path):
    (tmp_path / "ops.json").write_text(json.dumps(operators_record()))
    text = fill("<!-- table:ops -->\n<!-- /table:ops -->\n", tmp_path)
    assert "| BMM: BBF |" in text
    assert "table:models" not in text


def test_documents_show_the_recorded_results():
    shown = []
    for path in documents(ROOT):
        text = path.read_text(encoding="utf-8")
        assert fill(text, ROOT / "scripts" / "results") == text, path
        shown += [name for name in TABLES if f"<!-- table:{name} -->" in text]
    assert sorted(shown) == sorted(TABLES)


def test_accuracies_name_every_machine():
    runs = [{"machine": "a GPU"}, {"machine": "a CPU"}, {"machine": "a GPU"}]
    form = {"score_mean_percent": 80.0, "score_std_points": 1.0, "frozen": None, "runs": runs}
    entry = {"metric": "accuracy", "paper": None, "forms": {"fp32": form}, "goals": []}
    record = {"graphs": {"G": entry}, "goals": [], "environment": {**MACHINE, "gpu": None}}
    text = accuracies_table(record)
    assert "several machines (2 runs on a GPU, 1 runs on a CPU); recorded on Some CPU" in text

"""Tables of documents: made from the records, complete, and equal to what documents show."""

import json
from pathlib import Path

from bench.operators.case import OperatorCase
from bench.tables.documents import FROM_ALL, NOT_MEASURED, TABLES, documents, fill
from bench.tables.ensembles import ensembles_table
from bench.tables.figures import MISSING, UNMEASURED, filled
from bench.tables.operators import cases_table
from bench.tables.papers import PAPERS, paper_rows, read
from bench.tables.plain_loop import students_table, study_table
from bench.tables.variants import variants_table
from bitgnn.measure.report import format_ratio, format_seconds
from bitgnn.measure.timing import Clock

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


def test_ensembles_table_has_a_row_a_form_and_a_column_a_graph():
    tests = [{"fp32": 81.0, "seeds-3-hard": 79.0, "bin": 78.0}, {"fp32": 83.0}, {"fp32": 70.0}]
    places = [("Cora", 0), ("Cora", 1), ("PubMed", 0)]
    runs = [
        {"graph": graph, "seed": seed, "tests": {**tests[0], **one}, "differing_nodes": 0}
        for (graph, seed), one in zip(places, tests, strict=True)
    ]
    record = {"environment": {**MACHINE, "gpu": None}, "runs": runs}
    text = ensembles_table(record)
    assert "Trained on Some CPU" in text
    assert "1 to 2 seeds. Frozen ensembles equal trained ones on every node." in text
    rows = text.splitlines()[-3:]
    assert rows[0] == "| fp32, one model | 82.0 ± 1.0 | 70.0 |"
    assert rows[1] == "| binary, one model | 78.0 ± 0.0 | 78.0 |"
    assert rows[2] == "| 3 members, all labels, hard votes | 79.0 ± 0.0 | 79.0 |"
    runs[1]["differing_nodes"] = 2
    assert "all but 2 nodes" in ensembles_table(record)


def operators_record():
    case = OperatorCase("BMM", "BBF", lambda: None, {"torch": lambda: None}, target=20.0)
    result = {"group": case.group, "name": case.name, **case.run(Clock("cpu"), 7)}
    body = {"results": [result], "skipped": []}
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


def test_a_study_judges_forms_on_graphs_that_did_not_choose_them():
    gaps = {
        "bin": {"a": 1.0, "b": 2.0, "c": 0.0},
        "bin:1:sharpen=1": {"a": -4.0, "b": 3.0, "c": 0.5},
        "bin:1:epochs=400": {"a": -9.0, "b": -9.0, "c": -9.0},
        "full": {"a": -9.0, "b": -9.0, "c": -9.0},
    }
    rows = [
        {"model": "GCNConv", "form": form, "gaps": of, "mean_gap": sum(of.values()) / 3,
         "worst_gap": max(of.values())}
        for form, of in gaps.items()
    ]  # fmt: skip
    machine = MACHINE | {"gpu": "Some GPU"}
    text = study_table(
        {"environment": machine, "runs": [{"seed": 0}, {"seed": 1}], "summary": rows}
    )
    assert "| GCNConv | bin:1:sharpen=1 | -0.2 | 3.0 | -4.0 | 3.0 | 0.5 |" in text
    assert "seeds: 2." in text
    # Without a, "bin" is better (1.0 there); without b and c the other one (3.0 and 0.5).
    assert "is 1.5 points behind on the mean of the graphs left out" in text


def test_variants_stand_beside_the_recipe_by_kind():
    gaps = {
        "bin": {"a": 1.0, "b": 2.0},
        "bin:1:surrogate=reste": {"a": 0.5, "b": 0.5},
        "bin:1:init=teacher": {"b": 3.0},
        "bin:1:surrogate=ede": {"a": 1.0, "b": 2.0},
    }
    forms = {"surrogate": ["bin", "bin:1:surrogate=reste", "bin:1:surrogate=ede"],
             "init": ["bin", "bin:1:init=teacher"]}  # fmt: skip
    student = {"differing_nodes": 0}
    runs = [
        {"graph": kind[:1], "seed": 0, "study": kind, "forms": mine,
         "students": dict.fromkeys(mine, student)}
        for kind, mine in forms.items()
    ]  # fmt: skip
    runs[0]["commit"], runs[1]["commit"] = "fedcba9876543210", MACHINE["commit"]
    summary = [
        {"model": "GCNConv", "form": form, "gaps": of, "mean_gap": sum(of.values()) / len(of),
         "worst_gap": max(of.values())}
        for form, of in gaps.items()
    ]  # fmt: skip
    machine = MACHINE | {"gpu": "Some GPU"}
    text = variants_table({"environment": machine, "runs": runs, "summary": summary})
    assert "in 5 of 5 students" in text
    assert "; s of commit fedcba9876; GCNConv; seeds: 1." in text
    rows = [line for line in text.splitlines() if line.startswith("|")][2:]
    assert rows == [
        "| recipe | bin | 1.5 | 2.0 |  | 1.0 | 2.0 |",
        "| surrogate | reste | 0.5 | 0.5 | -1.0 ± 0.5 | 0.5 | 0.5 |",
        "| surrogate | ede | 1.5 | 2.0 | +0.0 ± 0.0 | 1.0 | 2.0 |",
        "| init | teacher | 3.0 | 3.0 | +1.0 |  | 3.0 |",
    ]


def test_students_of_texts_have_a_row_for_each_task_and_form():
    row = {"form": "bwta", "epochs": 8, "runs": 2, "teacher": 0.8, "test": 0.79}
    row |= {"gap": 1.0, "gap_std": 0.25}
    record = {"environment": MACHINE | {"gpu": "Some GPU"}, "summary": [{**row, "cost": 1.5}]}
    assert "| bwta | 8 | 2 | 80.0 | 79.0 | 1.0 ± 0.2 | 1.5× |" in students_table(record)
    record["summary"] = [{"task": "sst2", **row, "runs": 1, "gap_std": None, "cost": 1.5}]
    assert "| sst2 | bwta | 8 | 1 | 80.0 | 79.0 | 1.0 | 1.5× |" in students_table(record)


def test_fill_replaces_what_stands_between_the_markers(tmp_path):
    (tmp_path / "ops.json").write_text(json.dumps(operators_record()))
    old = EMPTY.replace("<!-- /table:ops", "old numbers\n<!-- /table:ops")
    text = fill(f"before\n{old}after\n", tmp_path)
    assert "old numbers" not in text
    assert "| BMM: BBF |" in text
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert text.count(NOT_MEASURED) == len(TABLES) - len(FROM_ALL) - 1
    assert fill(text, tmp_path) == text


def test_rows_of_the_papers_are_all_there_with_their_figures(tmp_path):
    assert [len(read(name)[1]) for name in PAPERS] == [36, 36, 26, 19, 36]
    for name in PAPERS:
        assert MISSING not in paper_rows(name, ROOT / "scripts" / "results")
    record = operators_record()
    (tmp_path / "ops.json").write_text(json.dumps(record))
    time = format_seconds(record["results"][0]["ours"]["median"])
    ratio = format_ratio(record["results"][0]["ratio"])
    text = filled("{{ops: BMM: BBF}}, {{ops: no such case}}, {{table3: Cora / bin}}", tmp_path)
    assert text == f"{time} ({ratio}), {MISSING}, {UNMEASURED}"


def test_documents_show_the_recorded_results():
    shown = []
    for path in documents(ROOT):
        text = path.read_text(encoding="utf-8")
        assert fill(text, ROOT / "scripts" / "results") == text, path
        shown += [name for name in TABLES if f"<!-- table:{name} -->" in text]
    assert sorted(shown) == sorted(TABLES)

"""The whole-model benchmark on the CPU: records, resuming, failures and tables."""

import csv
import json

import pytest
import torch
from rates import FixedRates

import bench_models as models_command
from bench.models import case as cases
from bench.models import contenders as models_contenders
from bench.models.case import Settings, run_case
from bench.models.contenders import Contender, best
from bench.models.peers import Peer, peers
from bench.tables.models import memory_table, models_table
from bench.tasks import synthetic_task
from bench_models import models_main
from bitgnn.measure.timing import Timing
from bitgnn.tune.clock import Clock, Ready, rounds

BROKEN = Peer("PyG", "broken", lambda: (_ for _ in ()).throw(RuntimeError("no such kernel\nmore")))


@pytest.fixture(autouse=True)
def few_peers_and_fixed_rates(monkeypatch):
    """Two of PyG's forms and one that fails, as all are treated alike; no compiled ceilings."""

    def chosen(kind, task):
        for peer in peers(kind, task):
            if peer.family == "PyG" and peer.name in ("edge_index fp32", "torch CSR fp32"):
                yield peer
        yield BROKEN

    monkeypatch.setattr(cases, "peers", chosen)
    monkeypatch.setattr(cases, "LONG_SECONDS", 3600.0)  # a busy machine's peers are slow, too
    monkeypatch.setattr(models_command, "_rates", lambda arguments: ([], FixedRates(), None))
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def main(folder, *arguments, models=("GCN",)):
    output = folder / "models.json"
    options = ["--quick", "--repeats", "7", "--threads", "1", "--output", str(output)]
    status = models_main([*options, "--models", *models, *arguments])
    return status, json.loads(output.read_text()) if output.exists() else None


def test_a_run_leaves_record_table_and_chart(tmp_path, capsys):
    status, record = main(tmp_path)
    assert status == 0
    assert record["benchmark"] == "models_cpu"
    (result,) = record["results"]
    assert (result["model"], result["graph"], result["checked"]) == ("GCN", "tiny", True)
    timed = [c for c in result["contenders"] if c["timing"] is not None]
    assert {c["family"] for c in timed} == {"PyG", "bitgnn unfrozen", "bitgnn"}
    assert all(len(c["timing"]["seconds"]) == 7 for c in timed)
    assert all(c["memory"]["total"] > 0 for c in timed)
    assert all(c["cold"]["cold"] for c in timed if c["family"] == "bitgnn")
    for ours in result["ours"]:
        assert ours["ratio"] == pytest.approx(ours["peer_seconds"] / ours["seconds"])
        assert ours["predicted_memory"]["peak"] > 0
        assert ours["goals"] == []
    assert "GCN bin, synthetic (300 nodes)" in capsys.readouterr().out
    with (tmp_path / "models.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(result["contenders"])
    assert (tmp_path / "models.png").read_bytes().startswith(b"\x89PNG")


def test_a_failing_contender_is_recorded_with_its_reason(tmp_path):
    _, record = main(tmp_path)
    failed = [c for c in record["results"][0]["contenders"] if c["failure"] is not None]
    assert [(c["form"], c["failure"]) for c in failed] == [
        ("broken", "RuntimeError: no such kernel")
    ]
    assert failed[0]["timing"] is None


def test_a_wrong_frozen_model_gets_no_times(tmp_path, monkeypatch, capsys):
    real = cases.check

    def check(network, features, task):
        return {**real(network, features, task), "passed": features != "packed"}

    monkeypatch.setattr(cases, "check", check)
    status, record = main(tmp_path)
    assert status == 1
    assert "bench: GCN on tiny: wrong" in capsys.readouterr().err
    (result,) = record["results"]
    assert not result["checked"]
    for contender in result["contenders"]:
        if contender["family"] == "bitgnn":
            wrong = contender["features"] == "packed"
            assert (contender["timing"] is None) == wrong
            assert contender["failure"] == ("gives a wrong result" if wrong else None)


def test_an_executor_that_differs_is_wrong(monkeypatch):
    def lazy(model, name):
        return lambda x, graph: model(x, graph) + 1

    monkeypatch.setattr(models_contenders, "make_executor", lazy)
    result = run_case("GCN", "tiny", synthetic_task(), Settings("cpu", 7))
    assert not result["checked"]
    failures = {c["failure"] for c in result["contenders"] if c["family"] == "bitgnn"}
    assert failures == {"gives a wrong result"}


def test_resume_keeps_finished_cases(tmp_path):
    main(tmp_path)
    _, first = main(tmp_path)
    _, both = main(tmp_path, "--resume", models=("GCN", "GraphSAGE"))
    assert both["results"][0] == first["results"][0]
    assert [result["model"] for result in both["results"]] == ["GCN", "GraphSAGE"]


@pytest.mark.parametrize("what", ["commit", "repeats"])
def test_resume_refuses_cases_of_another_run(tmp_path, capsys, what):
    _, record = main(tmp_path)
    (record["environment"] if what == "commit" else record["settings"])[what] = 99
    path = tmp_path / "models.json"
    path.write_text(json.dumps(record))
    before = path.read_text()
    status, _ = main(tmp_path, "--resume")
    assert status == 2
    error = capsys.readouterr().err
    assert "do not belong to this run" in error
    assert what in error
    assert path.read_text() == before


@pytest.mark.parametrize("stop", [KeyboardInterrupt, torch.AcceleratorError])
def test_an_interrupted_run_keeps_what_is_done(tmp_path, monkeypatch, stop):
    def interrupted(kind, *rest):
        if kind == "GraphSAGE":
            raise stop("the device is lost")
        return run_case(kind, *rest)

    monkeypatch.setattr(models_command, "run_case", interrupted)
    with pytest.raises(stop):
        main(tmp_path, models=("GCN", "GraphSAGE"))
    record = json.loads((tmp_path / "models.json").read_text())
    assert [result["model"] for result in record["results"]] == ["GCN"]


def test_a_case_that_fails_leaves_the_others(tmp_path, monkeypatch, capsys):
    def failing(kind, *rest):
        if kind == "GCN":
            raise ValueError("no room")
        return run_case(kind, *rest)

    monkeypatch.setattr(models_command, "run_case", failing)
    status, record = main(tmp_path, models=("GCN", "GraphSAGE"))
    assert status == 1
    assert [result["model"] for result in record["results"]] == ["GraphSAGE"]
    assert [entry["reason"] for entry in record["failed"]] == ["ValueError: no room"]
    printed = capsys.readouterr()
    assert "bench: GCN on tiny: ValueError: no room" in printed.err
    assert "- not measured: GCN on tiny: ValueError: no room" in printed.out


def test_an_absent_graph_is_named(tmp_path, capsys):
    status, record = main(tmp_path, "--graphs", "flickr", "--data-root", str(tmp_path))
    assert status == 0
    assert record["results"] == []
    assert any(entry["name"] == "flickr" for entry in record["skipped"])
    assert "not measured: flickr" in capsys.readouterr().out


def test_best_takes_measured_ones_with_the_attributes():
    def contender(family, seconds):
        timing = None if seconds is None else Timing((seconds,))
        return Contender(family, "form", "floats", "eager", timing=timing)

    found = [contender("PyG", 3.0), contender("PyG", 2.0), contender("PyG", None)]
    found.append(contender("bitgnn", 1.0))
    assert best(found, family="PyG") is found[1]
    assert best(found, family="Bi-GCN emulated") is None


def test_slow_peers_are_called_once(monkeypatch):
    monkeypatch.setattr(cases, "LONG_SECONDS", 0.0)
    monkeypatch.setattr(cases, "SCREENED_RATIO", 0.0)
    result = run_case("GCN", "tiny", synthetic_task(), Settings("cpu", 7))
    repeats = {
        c["family"]: len(c["timing"]["seconds"]) for c in result["contenders"] if c["timing"]
    }
    assert repeats == {"PyG": 1, "bitgnn unfrozen": 1, "bitgnn": 7}


def test_a_call_that_fails_in_a_round_leaves_the_others():
    calls = []

    def fragile():
        calls.append(None)
        if len(calls) > 3:
            raise RuntimeError("worn out")

    def ready(fn):
        return Ready(fn, fn, 1, 0.0, fn)

    found, failed = rounds({"a": ready(fragile), "b": ready(lambda: None)}, Clock("cpu"), 7)
    assert list(found) == ["b"]
    assert len(found["b"].seconds) == 7
    assert str(failed["a"]) == "worn out"
    assert len(calls) == 4


def test_tables_show_goals_and_the_smallest_memory(tmp_path):
    _, record = main(tmp_path)
    result = record["results"][0]
    entry = next(o for o in result["ours"] if o["form"] == "bin" and o["features"] == "packed")
    entry.update(seconds=1e-6, ratio=30.0, times_the_floor=2.5)
    entry["goals"] = [
        {"kind": "ratio", "value": 20.0, "features": "packed", "reached": 1.5},
        {"kind": "bytes", "value": 600_000.0, "features": "packed", "reached": 2.0},
    ]
    text = models_table(record)
    assert "1.00 µs (eager) | 30.0× | 2.50× |" in text
    assert "| 20×: 150% packed |" in text
    memory = memory_table([record])
    assert "cpu: synthetic (300 nodes), bin" in memory
    assert "≤ 586 KiB" in memory

"""The whole-model benchmark on the CPU: records, resuming, failures, floors, goals and tables."""

import argparse
import csv
import json
import time

import pytest
import torch
from torch import nn

from bitgnn.bench import models as cases
from bitgnn.bench import models_command, models_contenders, models_ours, models_peers
from bitgnn.bench.models import Settings, run_case
from bitgnn.bench.models_command import models_main
from bitgnn.bench.models_contenders import Contender, best
from bitgnn.bench.models_floor import Aggregation, aggregations, floor
from bitgnn.bench.models_goals import ModelGoal, goals, reached
from bitgnn.bench.models_networks import published_bi_gcn
from bitgnn.bench.models_ours import freeze_network
from bitgnn.bench.models_peers import (
    Peer,
    fp32_forwards,
    peers,
    time_limit,
)
from bitgnn.bench.models_tables import memory_table, models_table
from bitgnn.bench.models_tasks import MODELS, synthetic_task
from bitgnn.bench.models_timing import Clock, Ready, rounds
from bitgnn.bench.timing import Timing
from bitgnn.models import GCN

MEASURED_RATES = models_command._rates
BROKEN = Peer("PyG", "broken", lambda: (_ for _ in ()).throw(RuntimeError("no such kernel\nmore")))


class FixedRates:
    launch_seconds = 1.0

    def memory_seconds(self, read, written):
        return (read + written) / 10

    def gather_seconds(self, edges, nodes, row_bytes):
        return edges * row_bytes / 100


@pytest.fixture(autouse=True)
def few_peers_and_fixed_rates(monkeypatch):
    """Two of PyG's forms and one that fails, as all are treated alike; no compiled ceilings."""

    def chosen(kind, task):
        for peer in peers(kind, task):
            if peer.family == "PyG" and peer.name in ("edge_index fp32", "torch CSR fp32"):
                yield peer
        yield BROKEN

    monkeypatch.setattr(cases, "peers", chosen)
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


def test_check_sees_a_changed_weight():
    task = synthetic_task()
    network = freeze_network("GCN", "bin", task)
    assert cases.check(network, "packed", task)["passed"]
    with torch.no_grad():
        network.emulated.convs[0].lin.weight.neg_()
    found = cases.check(network, "packed", task)
    assert not found["passed"]
    assert found["different_bits"] > 0


@pytest.mark.parametrize(("share", "passed"), [(1e-3, True), (1e-7, False)])
def test_check_allows_few_signs_of_float_sums_to_differ(monkeypatch, share, passed):
    monkeypatch.setattr(models_ours, "FLIPPED_BITS", share)
    monkeypatch.setattr(models_ours, "FLIPPED_NODES", 1.0)
    task = synthetic_task()
    network = freeze_network("GraphSAGE", "bin", task)
    real = network.emulated.convs[0].forward

    def flipped(*arguments):
        out = real(*arguments).clone()
        out[0, 0] *= -1
        return out

    monkeypatch.setattr(network.emulated.convs[0], "forward", flipped)
    found = cases.check(network, "floats", task)
    assert (found["passed"], found["exact"]) == (passed, False)
    assert found["different_bits"] == 1
    assert found["hidden_bits"] == task.num_nodes * task.hidden
    assert found["different_nodes"] >= 1


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


@pytest.mark.parametrize("kind", MODELS)
def test_forms_of_the_baseline_agree(kind):
    scores = [forward() for forward in fp32_forwards(kind, synthetic_task()).values()]
    assert len(scores) >= 2
    for other in scores[1:]:
        torch.testing.assert_close(other, scores[0], rtol=1e-5, atol=1e-5)


def test_published_bi_gcn_is_our_full_form():
    task = synthetic_task()
    published = published_bi_gcn("GCN", task)
    ours = GCN(task.x.size(1), task.hidden, task.num_classes, precision="full")
    with torch.no_grad():
        for mine, theirs in zip(ours.convs, published.model.convs, strict=True):
            mine.lin.weight.copy_(theirs.lin.weight)
            mine.bias.copy_(theirs.bias.normal_())
        ours.norm.running_mean.copy_(published.norm.running_mean)
        ours.norm.running_var.copy_(published.norm.running_var)
        expected = ours.eval()(task.x, task.edge_index)
        found = published(task.x, task.edge_index)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", MODELS)
def test_every_peer_says_why_it_is_missing_or_gives_scores(kind, monkeypatch):
    monkeypatch.setattr(models_peers, "WITH_TORCH_SPARSE", False)
    task = synthetic_task()
    found = {f"{peer.family} {peer.name}": peer for peer in peers(kind, task)}
    assert found["PyG SparseTensor"].missing == "torch-sparse is not installed"
    compiled = found["PyG torch.compile, edge_index fp32"]
    assert (compiled.make is None) == (kind != "GCN")
    forward, kept = found["PyG edge_index bf16"].make()
    assert forward().dtype == torch.bfloat16
    assert any(isinstance(part, nn.Module) for part in kept)


def test_messages_that_do_not_fit_are_left_out(monkeypatch):
    monkeypatch.setattr(models_peers, "FREE_MEMORY_SHARE", 0.0)
    found = {peer.name: peer for peer in peers("GraphSAGE", synthetic_task())}
    assert found["edge_index fp32"].make is None
    assert found["edge_index fp32"].missing.startswith("messages of all edges take")
    assert found["torch CSR fp32"].make is not None


def test_time_limit_ends_what_takes_too_long():
    with pytest.raises(TimeoutError, match=r"longer than 0\.01 s"), time_limit(0.01):
        time.sleep(5)
    with time_limit(0.05):
        pass
    time.sleep(0.1)  # nothing is left to go off


def test_floor_adds_the_longer_of_bytes_and_gathers():
    parts = [Aggregation(1000, 10, 4.0, 100), Aggregation(10, 10, 2.0, 100)]
    found = floor(50, 30, 20, parts, FixedRates())
    # (100 + 2 tables of 40) / 10 = 18 below 40 of gathers; (100 + 40) / 10 = 14 above 0.2.
    assert found.seconds == pytest.approx(1.0 + 10.0 + 40.0 + 14.0)
    assert found.bytes == 50 + 30 + 20 + 180 + 140
    assert found.gathered_bytes == 4020


def test_rates_of_the_cpu_are_measured():
    entries, rates, problem = MEASURED_RATES(argparse.Namespace(device="cpu", threads=1))
    if rates is None:
        pytest.skip(problem)
    assert rates.memory_seconds(2e9, 1e9) == pytest.approx(3e9 / entries[0]["rate"])
    rows = rates.gather_seconds(1000, 100, 16.0)
    assert rows > 0
    # A row of two cache lines takes twice as long, one of a part of a line as long as a line.
    assert rates.gather_seconds(1000, 100, 128.0) == pytest.approx(2 * rows)
    assert rates.gather_seconds(0, 0, 16.0) == 0


@pytest.mark.parametrize(("form", "row_bytes"), [("bin", [8.0, 7.0]), ("full", [132.0, 11.0])])
def test_aggregations_follow_the_letters(form, row_bytes):
    # 1433 features leave 64 bits or 16-bit sums; 64 leave 7 sums of 8 bits; "full" has scales.
    task = synthetic_task(features=1433)
    network = freeze_network("GCN", form, task)
    found = aggregations(network.model, [1433, 64, 7], task.num_nodes, network.graph)
    assert [part.row_bytes for part in found] == row_bytes
    assert all(part.edges == task.num_edges + task.num_nodes for part in found)


def test_goals_of_a_device():
    (goal,) = goals("cpu", "GCN", "cora", "bin", "packed")
    assert (goal.kind, goal.value) == ("ratio", 20.0)
    assert goals("cuda", "GCN", "tiny", "full", "floats") == []
    assert [g.value for g in goals("cuda", "GraphSAINT", "flickr", "bin", "floats")] == [10.0]
    assert [g.value for g in goals("cuda", "GCN", "citeseer", "full", "packed")] == [2.0]


def test_parts_of_goals():
    assert reached(ModelGoal("seconds", 2.0, "bin"), 4.0, None, None) == 0.5
    assert reached(ModelGoal("ratio", 2.0, "bin"), 1.0, 8.0, None) == 4.0
    assert reached(ModelGoal("ratio", 2.0, "bin"), 1.0, None, None) is None
    assert reached(ModelGoal("bytes", 10.0, "bin"), None, None, 5.0) == 2.0
    assert reached(ModelGoal("seconds", 2.0, "bin"), None, 1.0, 1.0) is None


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

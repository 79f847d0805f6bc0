"""The benchmark of default networks: a CPU run, trainings that are kept, tables and chart."""

import json

import pytest
import torch

import bench_default
from bench.default_chart import defaults_chart
from bench.experiments import plain_loop
from bench.models import case as cases
from bench.models import defaults
from bench.models.peers import Peer, peers
from bench.tables.defaults import default_table, headline_table

GRAPH = "block model, 5 classes"


@pytest.fixture
def small(monkeypatch):
    """A small labelled graph, few epochs, two of PyG's forms and one that fails."""

    def chosen(kind, task):
        for peer in peers(kind, task):
            if peer.family == "PyG" and peer.name in ("edge_index fp32", "torch CSR fp32"):
                yield peer
        yield Peer(
            "PyG", "broken fp32", lambda: (_ for _ in ()).throw(RuntimeError("no such kernel"))
        )

    monkeypatch.setattr(cases, "peers", chosen)
    monkeypatch.setattr(cases, "LONG_SECONDS", 3600.0)
    monkeypatch.setattr(plain_loop, "EPOCHS", 3)
    monkeypatch.setattr(plain_loop, "BLOCK_NODES", 300)
    monkeypatch.setattr(plain_loop, "BLOCK_DEGREE", 4.0)
    monkeypatch.setattr(bench_default, "OWN_FEATURES", (GRAPH,))
    monkeypatch.setattr(bench_default, "DENSE", ())
    monkeypatch.setattr(bench_default, "LARGE", {"cpu": ("tiny",)})


def run(folder, *options):
    output = folder / "default_cpu.json"
    arguments = ["--repeats", "7", "--threads", "1", "--output", str(output), *options]
    return bench_default.main(arguments), json.loads(output.read_text())


def test_a_run_leaves_models_with_accuracy_time_and_bytes(tmp_path, capsys, small):
    status, record = run(tmp_path, "--thread-counts", "1", "2", "--only", "GCN")
    assert status == 0
    labelled, *_ = models = [r for r in record["results"] if r["group"] == "models"]
    assert [(r["graph"], r["threads"]) for r in models] == [
        (GRAPH, 1), (GRAPH, 2), ("tiny", 1), ("tiny", 2),
    ]  # fmt: skip
    assert torch.get_num_threads() == 1
    assert labelled["training"]["bin"]["differing_nodes"] == 0
    assert {c["family"] for c in labelled["contenders"]} == {"PyG", "bitgnn"}
    assert not any(c["form"].startswith("edge_index") for c in labelled["contenders"])
    for check in labelled["checks"]["bin"].values():
        assert check["passed"]
        assert check["test"] == pytest.approx(labelled["training"]["bin"]["test"])
    assert models[0]["training"] == models[1]["training"]  # one model at each number of threads
    assert models[2]["training"] == {"bin": {}}
    floats, packed = labelled["ours"]
    assert 0 < packed["feature_bytes"] < floats["feature_bytes"]
    assert 0 < floats["weight_bytes"] < labelled["peer_weight_bytes"]
    (product,) = [r for r in record["results"] if r["group"] == "first product"]
    assert all(c["timing"] is not None for c in product["contenders"])
    text = default_table(record)
    assert f"| GCN, {GRAPH} |  | {labelled['training']['bin']['test']:.1f} | " in text
    assert "| network | PyG, % | bits, % | 1 thread: PyG's best | from floats | " in text
    assert "| 2 threads: PyG's best |" in text
    assert "| first layer's product alone |" in text
    assert "Frozen equals trained on every node in 2 of 2 models." in text
    assert text in capsys.readouterr().out
    assert defaults_chart(record).axes


def test_trainings_become_part_of_the_record(tmp_path, monkeypatch, small):
    done = []

    def trained(left, run, summary, output, data, device, workers):
        done.extend(left)
        runs = [{**case, "test": 50.0 + case["seed"], "differing_nodes": 0} for case in left]
        output.write_text(json.dumps({"runs": runs}))
        return 0

    monkeypatch.setattr(bench_default.kept_runs, "run_and_keep", trained)
    options = "--only", "GCN on block"
    _, first = run(tmp_path, *options, "--seeds", "1")
    assert [(case["form"], case["seed"]) for case in done] == [("fp32", 0)]
    status, record = run(tmp_path, *options, "--seeds", "3", "--resume")
    assert status == 0
    assert record["results"] == first["results"]
    assert [(case["form"], case["seed"]) for case in done[1:]] == [
        ("fp32", 1), ("fp32", 2), ("bin", 1), ("bin", 2),
    ]  # fmt: skip
    assert list(tmp_path.iterdir()) == [tmp_path / "default_cpu.json"]
    text = headline_table([record, {**record, "benchmark": "default_cuda"}])
    assert f"| GCN, {GRAPH} | 51.0 ± 0.6 | " in text
    calls = "a call: PyG's best | from floats"
    assert f"| GPU: PyG's best | from floats | packed | {calls} | CPU: PyG's best |" in text


def test_a_changed_weight_gives_a_frozen_model_no_times(small):
    task = defaults.load_default("tiny", "cpu", None)
    network = defaults.freeze_default("GCN", "bin", task)
    assert defaults.check_default(network, "packed", task)["exact"]
    with torch.no_grad():
        network.emulated.convs[0].lin.weight.neg_()
    found = defaults.check_default(network, "packed", task)
    assert not found["passed"]
    assert found["differing_nodes"] > 0

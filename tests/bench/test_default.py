"""The benchmark of default networks: a run on the CPU, what is left to train, tables and chart."""

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
from bench.tables.plain_loop import papers_networks_table

GRAPH = "block model, 5 classes"
MACHINE = {
    "gpu": "Some GPU",
    "versions": {"torch": "2.13.0", "torch-geometric": "2.8.1"},
    "commit": "0123456789abcdef",
    "date": "2026-01-02T03:04:05+00:00",
}


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


@pytest.mark.parametrize(
    ("name", "on_cpu", "on_cuda"),
    [
        ("torch CSR int32 fp32", True, True),
        ("SparseTensor fp16", False, True),
        ("edge_index bf16", True, False),
        ("edge_index fp32", False, False),
        ("torch.compile, edge_index fp32", False, True),
    ],
)
def test_peers_that_may_be_the_fastest_are_timed(name, on_cpu, on_cuda):
    peer = Peer("PyG", name, None)
    assert (defaults.is_contender(False, peer), defaults.is_contender(True, peer)) == (
        on_cpu,
        on_cuda,
    )
    assert not defaults.is_contender(True, Peer("Bi-GCN emulated", name, None))


def test_trainings_that_are_left_follow_the_timed_graphs():
    timed = {**defaults.plain_case("GCN", "Cora", "bin", 0), "test": 80.0}
    done = {**defaults.plain_case("GCN", "Cora", "fp32", 1), "test": 81.0}
    results = [{"training": {"bin": timed}}, {"training": {"bin": {}}}, {"name": "a product"}]
    left = list(bench_default._left({"results": results, "trainings": [done]}, 2))
    assert left == [
        defaults.plain_case("GCN", "Cora", "fp32", 0),
        defaults.plain_case("GCN", "Cora", "bin", 1),
    ]


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


def test_trainings_of_plain_loops_count_where_the_model_is_the_same():
    same = {**defaults.plain_case("GraphSAGE", "CS, dense 128", "fp32", 3), "test": 90.0}
    others = [{**same, name: value} for name, value in (
        ("layers", 3), ("layer", "GraphConv"), ("form", "full"), ("weight_decay", 0.0),
        ("graph", "Tolokers"),
    )]  # fmt: skip
    assert bench_default._of_interest([*others, same]) == [same]


def test_the_papers_networks_are_trained_by_their_recipe(small, monkeypatch):
    monkeypatch.setitem(plain_loop.RECIPES["GCNConv"], "epochs", 2)
    cases = [{**defaults.plain_case("GCN", GRAPH, f"papers-{form}", 0)} for form in ("fp32", "bin")]
    runs = [plain_loop.run((case, None, "cpu")) for case in cases]
    assert "differing_nodes" not in runs[0]
    assert runs[1]["differing_nodes"] == 0
    runs.append({**runs[1], "seed": 1, "test": runs[1]["test"] + 2.0})
    text = papers_networks_table({"environment": MACHINE, "runs": runs})
    row = f"| GCNConv, {GRAPH} | {runs[0]['test']:.1f} |  | {runs[1]['test'] + 1:.1f} ± 1.0 |  |"
    assert row in text


def test_a_changed_weight_gives_a_frozen_model_no_times(small):
    task = defaults.load_default("tiny", "cpu", None)
    network = defaults.freeze_default("GCN", "bin", task)
    assert defaults.check_default(network, "packed", task)["exact"]
    with torch.no_grad():
        network.emulated.convs[0].lin.weight.neg_()
    found = defaults.check_default(network, "packed", task)
    assert not found["passed"]
    assert found["differing_nodes"] > 0

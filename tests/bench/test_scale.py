"""The benchmark of sharded graphs: records of a small one, and their picture."""

import json

import pytest
import torch

import bench_scale
from bench import node_orders
from bench.tables.scale import orders_table, scale_cpu_table
from bitgnn import BitAdjacency
from bitgnn.bits.layouts import row_indices
from bitgnn.distributed import power_law


@pytest.mark.parametrize("model", bench_scale.MODELS)
def test_a_small_size_leaves_its_record_and_picture(model, tmp_path, capsys):
    output = tmp_path / "scale.json"
    options = ["--sizes", "small", "--repeats", "1", "--model", model]
    assert bench_scale.main([*options, "--output", str(output)]) == 0
    record = json.loads(output.read_text())
    (found,) = record["records"]
    assert record["made_up"]
    assert json.loads(capsys.readouterr().out) == found
    assert (found["size"], found["ranks"], found["model"]) == ("small", 1, model)
    assert found["edges_of_ranks"][0] == pytest.approx(found["edges"], rel=0.01)
    assert found["ms"] > 0
    assert found["floor"]["ms"] > 0
    picture = tmp_path / "scale.png"
    assert bench_scale.main(["--plot", str(output), "--output", str(picture)]) == 0
    assert picture.stat().st_size > 1000


def test_floors_fall_with_ranks_and_name_what_binds():
    size = bench_scale.SIZES["papers100M"]
    one, two = (bench_scale.floor_of(size, ranks) for ranks in (1, 2))
    assert one["exchange_ms"] == 0
    assert two["ms"] == pytest.approx(one["ms"] / 2)
    # Half of 1.78 GB at 370 GB/s, three times.
    assert two["exchange_ms"] == pytest.approx(3 * 2.4, rel=0.01)
    assert one["bound"] == "random sectors of memory"
    assert bench_scale.floor_of(bench_scale.SIZES["reddit"], 1)["bound"] == "L2 cache"


def test_training_and_scores_leave_records(monkeypatch, tmp_path):
    monkeypatch.setitem(bench_scale.SIZES, "small", bench_scale.Size(300, 2000, 32, 32, 2, 5))
    output = tmp_path / "training.json"
    options = ["--device", "cpu", "--repeats", "2", "--output", str(output)]
    assert bench_scale.main(["--case", "training", "--sizes", "small", *options]) == 0
    records = json.loads(output.read_text())["records"]
    assert len(records) == len(bench_scale.LAYERS) * len(bench_scale.MESSAGES)
    for record in records:
        assert record["losses"][-1] < record["losses"][0]
        assert record["ms"] > 0
    assert bench_scale.main(["--case", "scores", *options]) == 0
    (scores,) = json.loads(output.read_text())["records"]
    assert scores["called_us"] > 0


def test_replays_tell_what_differs(monkeypatch, tmp_path):
    monkeypatch.setitem(bench_scale.SIZES, "small", bench_scale.Size(300, 2000, 32, 32, 2, 5))
    output = tmp_path / "replays.json"
    options = ["--case", "replays", "--device", "cpu", "--sizes", "small", "--replays", "7"]
    assert bench_scale.main([*options, "--output", str(output)]) == 0
    (record,) = json.loads(output.read_text())["records"]
    assert (record["replays"], record["differing"], record["bytes_lost"]) == (7, 0, 0)
    assert record["ms"] > 0
    makes_runner = bench_scale._runner

    def changing(*arguments):
        run, calls = makes_runner(*arguments), []

        def changed():
            calls.append(1)
            result = run().clone()
            result[3] += len(calls) == 4
            return result

        return changed

    monkeypatch.setattr(bench_scale, "_runner", changing)
    assert bench_scale.main([*options, "--output", str(output)]) == 0
    (record,) = json.loads(output.read_text())["records"]
    assert record["differing"] == 1


def test_orders_keep_the_graph_and_find_its_parts(monkeypatch, tmp_path):
    generator = torch.Generator().manual_seed(0)
    part = torch.randint(0, 20, (2, 400), generator=generator)
    mixed = torch.randperm(40, generator=generator)
    edges = mixed[torch.cat([part, part + 20], 1)]
    graph = BitAdjacency.from_edge_index(edges, 40)
    rows, columns, dense = row_indices(graph.rowptr), graph.indices.long(), graph.to_dense()
    for name, order in node_orders.ORDERS.items():
        found = order(rows, columns, 40)
        assert torch.equal(found.sort().values, torch.arange(40)), name
        again = node_orders.reordered(graph, found).to_dense()
        assert torch.equal(again, dense[found][:, found]), name
        if name in ("label propagation", "reverse Cuthill-McKee"):
            assert not again[:20, 20:].any(), name
    monkeypatch.setattr(node_orders, "REAL", ("no such graph",))
    monkeypatch.setitem(node_orders.MADE_UP, "cpu", ((50, 300),))
    output = tmp_path / "orders.json"
    options = ["--case", "orders", "--device", "cpu", "--repeats", "7", "--output", str(output)]
    assert bench_scale.main(options) == 0
    text = orders_table([json.loads(output.read_text())])
    assert "power law 50" in text
    assert "label propagation" in text


def test_a_cpu_runs_a_whole_graph_and_one_from_disk(monkeypatch, tmp_path):
    monkeypatch.setitem(power_law.SIZES, "arxiv", (500, 3000, 128))
    monkeypatch.setitem(power_law.SIZES, "products", (900, 5000, 100))
    output = tmp_path / "cpu.json"
    options = ["--case", "cpu", "--device", "cpu", "--repeats", "7", "--output", str(output)]
    assert bench_scale.main(options) == 0
    record = json.loads(output.read_text())
    whole, disk = record["records"]
    assert (whole["nodes"], whole["edges"], disk["nodes"]) == (500, 3000, 900)
    assert 2**26 < disk["peak_bytes"] < 2**34
    assert disk["forward_s"] > 0
    assert f"{whole['times_faster']:.1f} times as fast" in scale_cpu_table(record)

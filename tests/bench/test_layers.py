"""The benchmark of training steps: every layer and form is there, right, and against PyG's."""

import json

import bench_layers as layers
from bench.tasks import synthetic_task
from bitgnn.data import DataError


def test_cases_cover_every_layer_and_are_right():
    found = list(layers.cases([synthetic_task(nodes=40, edges=90, features=33)]))
    assert len(found) == 3 * 4 * 2 * 2
    assert len({(case.group, case.name) for case in found}) == len(found)
    for case in found:
        assert case.check()
        assert {"PyG edge_index", "PyG torch CSR"} <= set(case.baselines)
        assert case.target is None  # The goal is for the real graph.


def test_a_wrong_layer_is_noticed():
    task = synthetic_task(nodes=40, edges=90, features=33)
    found = {case.name: case for case in layers.cases([task])}
    layer = found["FBF+FBF, edge_index"].ours.args[0]
    layer.letters = layers.bitgnn.nn.LayerPrecision.parse("FFF+FBF")
    assert not found["FBF+FBF, edge_index"].check()
    layer = found["full, edge_index"].ours.args[0]
    layer.set_role("hidden")  # has a norm, which the formula has not
    assert not found["full, edge_index"].check()


def test_a_missing_graph_is_named(tmp_path, monkeypatch):
    def missing(*_):
        raise DataError("Cora: no files")

    monkeypatch.setattr(layers, "load_task", missing)
    output = tmp_path / "layers.json"
    assert layers.main(["--repeats", "7", "--threads", "1", "--output", str(output)]) == 0
    (skipped,) = json.loads(output.read_text())["skipped"]
    assert (skipped["name"], skipped["reason"]) == ("Cora", "Cora: no files")


def test_quick_run_writes_a_record(tmp_path, capsys):
    output = tmp_path / "out" / "layers.json"
    arguments = ["--quick", "--repeats", "7", "--threads", "1", "--output", str(output)]
    assert layers.main(arguments) == 0
    record = json.loads(output.read_text())
    assert record["benchmark"] == "layers"
    assert record["settings"] == {"threads": 1, "repeats": 7, "quick": True}
    assert len(record["results"]) == 48
    for result in record["results"]:
        assert result["target"] is None
        assert len(result["ours"]["seconds"]) == 7
    table = capsys.readouterr().out
    assert "GraphConv" in table

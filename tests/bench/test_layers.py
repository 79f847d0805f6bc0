"""The benchmark of training steps: every layer and form is there, right, and against PyG's."""

import json

import bench_layers as layers
from bench.tasks import synthetic_task


def test_a_wrong_layer_is_noticed():
    task = synthetic_task(nodes=40, edges=90, features=33)
    found = {case.name: case for case in layers.cases([task])}
    layer = found["FBF+FBF, edge_index"].ours.args[0]
    layer.letters = layers.bitgnn.nn.LayerPrecision.parse("FFF+FBF")
    assert not found["FBF+FBF, edge_index"].check()
    layer = found["full, edge_index"].ours.args[0]
    layer.set_role("hidden")  # has a norm, which the formula has not
    assert not found["full, edge_index"].check()


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

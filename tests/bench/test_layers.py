"""The benchmark of training steps: a quick run checks every layer and leaves a record."""

import json

import bench_layers as layers


def test_quick_run_writes_a_record(tmp_path, capsys):
    output = tmp_path / "out" / "layers.json"
    arguments = ["--quick", "--repeats", "7", "--threads", "1", "--output", str(output)]
    assert layers.main(arguments) == 0
    record = json.loads(output.read_text())
    assert record["benchmark"] == "layers"
    assert record["settings"] == {"threads": 1, "repeats": 7, "quick": True}
    assert len(record["results"]) == 24
    for result in record["results"]:
        assert result["target"] is None
        assert len(result["ours"]["seconds"]) == 7
    table = capsys.readouterr().out
    assert "GraphConv" in table

"""The benchmark of calls: what a quick run leaves."""

import json

from bench_calls import main


def test_quick_run(tmp_path, capsys):
    output = tmp_path / "calls_cpu.json"
    assert main(["--quick", "--threads", "1", "--repeats", "7", "--output", str(output)]) == 0
    record = json.loads(output.read_text())
    assert record["benchmark"] == "calls_cpu"
    names = [f"{result['group']}: {result['name']}" for result in record["results"]]
    assert names == [
        "GCN bin: tiny, packed",
        "GCN bin: tiny, floats",
        "images: ResNet-18",
        "operators: small, eager",
    ]
    for result in record["results"]:
        assert not result["failures"]
        for times in result["contenders"].values():
            assert all(len(times[way]["seconds"]) == 7 for way in ("call", "queued"))
    assert {"model", "auto, pinned", "PyG, edge_index"} <= record["results"][0]["contenders"].keys()
    assert "call to result" in capsys.readouterr().out

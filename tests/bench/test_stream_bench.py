"""The benchmark of mini-batches: what a quick run leaves."""

import json

from bench_stream import main as stream_main


def test_quick_run(tmp_path, capsys):
    output = tmp_path / "stream_cpu.json"
    assert stream_main(["--quick", "--repeats", "7", "--output", str(output)]) == 0
    record = json.loads(output.read_text())
    assert record["benchmark"] == "stream_cpu"
    assert [result["model"] for result in record["results"]] == ["GCN", "GraphSAGE"]
    for result in record["results"]:
        assert result["checked"]
        assert result["contenders"].keys() == {
            "bitgnn, packed rows", "bitgnn, float rows", "PyG fp32, float rows",
        }  # fmt: skip
        for entry in [*result["contenders"].values(), *result["parts"].values()]:
            assert len(entry["seconds"]) == 7
    assert "conversion" in capsys.readouterr().out

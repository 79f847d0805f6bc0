"""The benchmark of calls: what a quick run leaves."""

import json

from bench.call_times import time_calls
from bench.calls import call_cases
from bench_calls import main
from bitgnn.measure.timing import Clock


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


def test_a_call_that_fails_leaves_the_others():
    def fails():
        raise RuntimeError("no such kernel\nmore")

    times, failures = time_calls([("bad", fails), ("good", int)], Clock("cpu"), 3, ["call"])
    assert failures == {"bad": "RuntimeError: no such kernel"}
    assert len(times["good"]["call"].seconds) == 3
    assert times.keys() == {"good"}


def test_a_gpu_has_a_floor_below_all_calls():
    first, *others = call_cases("cuda")
    assert first.group == "floor"
    assert [case.name for case in others] == [case.name for case in call_cases("cpu")]

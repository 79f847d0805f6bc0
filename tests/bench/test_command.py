"""Arguments of benchmarks, and a quick run of the operators."""

import json

import pytest
import torch

from bench_ops import main as operators_main


def test_quick_run_of_the_operators(tmp_path, capsys):
    output = tmp_path / "out" / "ops.json"
    arguments = ["--quick", "--repeats", "7", "--threads", "1", "--output", str(output)]
    assert operators_main([*arguments, "--data-root", str(tmp_path)]) == 1
    record = json.loads(output.read_text())
    assert record["benchmark"] == "ops"
    assert record["settings"] == {"threads": 1, "repeats": 7, "quick": True}
    assert record["environment"]["threads"] == 1
    for result in record["results"]:
        assert len(result["ours"]["seconds"]) == 7
        assert result["target"] is None
        assert result["best_baseline"] in result["baselines"]
    table = capsys.readouterr().out
    assert all(result["name"] in table for result in record["results"])
    assert output.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert [entry["name"] for entry in record["skipped"]] == ["Flickr"]


NO_DEVICE = pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is there")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--repeats", "3"), "--repeats must be at least 7, got 3"),
        (("--threads", "0"), "--threads: must be at least 1, got 0"),
        (("--nonsense",), "unrecognized arguments: --nonsense"),
        pytest.param(("--device", "cuda"), "torch sees no CUDA device", marks=NO_DEVICE),
    ],
)
def test_bad_arguments(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        operators_main(arguments)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []

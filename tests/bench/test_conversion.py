"""The conversion benchmark: a quick run leaves a whole record; graphs it cannot use are refused."""

import json

import pytest
import torch

from bench_conversion import MODELS, QUICK_EDGES, STAGES, ConversionCase, conversion_table
from bench_conversion import main as conversion_main
from bitgnn.measure.timing import Clock


def test_quick_run_leaves_a_record(tmp_path, capsys):
    output = tmp_path / "out" / "conversion.json"
    arguments = ["--quick", "--repeats", "7", "--threads", "1", "--output", str(output)]
    assert conversion_main(arguments) == 0
    record = json.loads(output.read_text())
    assert record["benchmark"] == "conversion"
    assert len(record["results"]) == len(MODELS)
    for result in record["results"]:
        assert "synthetic" in result["name"]
        assert result["reached"] is None
        assert list(result["stages"]) == list(STAGES)
        assert all(len(seconds) == 7 for seconds in result["stages"].values())
        parts = [sum(p) for p in zip(*result["stages"].values(), strict=True)]
        assert result["seconds"] == pytest.approx(parts)
        assert f"{QUICK_EDGES} edges" in result["name"]
    table = conversion_table(record)
    assert all(result["name"] in table for result in record["results"])
    assert table in capsys.readouterr().out


def test_duplicate_edges_are_refused():
    edge_index = torch.tensor([[0, 0, 1], [1, 1, 2]])
    with pytest.raises(ValueError, match="must be free of duplicates"):
        ConversionCase("GCN", 3, edge_index).run(Clock("cpu"), 7)

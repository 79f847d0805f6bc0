"""The benchmark of BWTA layers: record, table, CSV and chart; wrong results get no time."""

import csv
import json

import pytest
import torch

from bench.bwta import cases as bwta_cases
from bench.bwta.cases import attention_cases, gemv_cases, linear_cases, product_cases
from bench.cases import WrongResultError
from bench_bwta import main as bwta_main
from bitgnn.measure.timing import Clock


def main(folder, *arguments):
    output = folder / "bwta.json"
    options = ["--quick", "--repeats", "7", "--threads", "1", "--output", str(output)]
    status = bwta_main([*options, *arguments])
    return status, json.loads(output.read_text()) if output.exists() else None


def test_a_run_leaves_record_table_and_chart(tmp_path, capsys):
    status, record = main(tmp_path)
    assert status == 0
    assert record["benchmark"] == "bwta_cpu"
    (result,) = record["results"]
    assert result["checked"]
    assert result["form"] == "packing and product"  # the others are not ranked
    assert {c["name"]: c["ours"] for c in result["contenders"]} == {
        "torch fp32": False,
        "packing and product": True,
        "product of packed rows, fp32 out": True,
        "packing alone": True,
    }
    assert "| [9, 64] to 32 |" in capsys.readouterr().out
    with (tmp_path / "bwta.csv").open() as file:
        assert len(list(csv.DictReader(file))) == len(result["contenders"])
    assert (tmp_path / "bwta.png").read_bytes().startswith(b"\x89PNG")
    assert main(tmp_path, "--resume")[1]["results"] == record["results"]


def test_a_wrong_layer_gets_no_time(monkeypatch):
    monkeypatch.setattr(bwta_cases.ternary, "linear", lambda x, w, s, dtype: torch.zeros(9, 32))
    (case,) = linear_cases("cpu", quick=True)
    (ours,) = [entry for entry in case.contenders() if entry.name == "packing and product"]
    with pytest.raises(WrongResultError):
        ours.make()


@pytest.mark.cuda
@pytest.mark.parametrize("cases", [gemv_cases, product_cases, attention_cases])
def test_cases_of_a_gpu(cases):
    for case in cases(quick=True):
        result = case.run(Clock("cuda"), 7)
        assert result["checked"]
        assert result["ratio"] is not None

"""The benchmark of BWTA layers: record, table, CSV, chart; which cases there are; wrong results."""

import csv
import json

import pytest
import torch

from bitgnn.bench import bwta_cases
from bitgnn.bench.bnn_cases import GraphClock, WrongResultError, run_case
from bitgnn.bench.bwta_cases import attention_cases, gemv_cases, linear_cases, product_cases
from bitgnn.bench.bwta_command import bwta_main
from bitgnn.bits import BitTensor

ON_GPU = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


@pytest.fixture(autouse=True)
def same_threads():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


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


def test_goals_are_those_of_the_shapes():
    goals = {case.name: case.goals for case in linear_cases("cuda")}
    assert goals["[128, 768] to 3072"][0].value == pytest.approx(2.6e-6)
    assert goals["[128, 3072] to 768"][0].value == pytest.approx(3.5e-6)
    (row,) = [case for case in gemv_cases() if case.name.startswith("[1, 2560] to 13824")]
    layers = row.details["layers"]
    assert layers * 2560 * 13824 / 8 >= bwta_cases.CACHE_BYTES
    assert row.goals[0].value == pytest.approx(4.5e-6 * layers)
    assert [g.kind for case in linear_cases("cpu") for g in case.goals] == ["ratio", "ratio"]


def test_a_wrong_layer_gets_no_time(monkeypatch):
    monkeypatch.setattr(bwta_cases.ternary, "linear", lambda x, w, s, dtype: torch.zeros(9, 32))
    (case,) = linear_cases("cpu", quick=True)
    (ours,) = [entry for entry in case.entries() if entry.name == "packing and product"]
    with pytest.raises(WrongResultError):
        ours.make()


def test_emulated_layer():
    x = torch.tensor([[0.5, -0.5, 0.1, float("nan")]])
    weight = BitTensor.from_float(torch.tensor([[1.0, 1.0, -1.0, 1.0], [2.0, -2.0, 2.0, 2.0]]))
    weight = BitTensor(weight.words, 4, torch.tensor([1.0, 2.0]))
    expected = torch.tensor([[0.0, 4.0 * bwta_cases.SCALE]])
    assert torch.allclose(bwta_cases._emulated(x, weight), expected)


@pytest.mark.parametrize("cases", [gemv_cases, product_cases, attention_cases])
@pytest.mark.parametrize("device", [pytest.param("cuda", marks=ON_GPU)])
def test_cases_of_a_gpu(cases, device):
    for case in cases(quick=True):
        result = run_case(case, GraphClock(device), 7)
        assert result["checked"]
        assert result["ratio"] is not None

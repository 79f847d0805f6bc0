"""The benchmark of BWTA layers: record, table, CSV, chart; which cases there are; wrong results."""

import csv
import json
import sys
import types

import pytest
import torch

from bench.bwta import cases as bwta_cases
from bench.bwta import peers as bwta_peers
from bench.bwta.cases import attention_cases, gemv_cases, linear_cases, product_cases
from bench.bwta.peers import int8_linear_entries
from bench.networks.cases import WrongResultError, graph_clock, run_case
from bench_bwta import main as bwta_main
from bitgnn.bits import BitTensor

ON_GPU = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


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


class Int8Params(torch.nn.Parameter):
    """Stands in for that of bitsandbytes: int8 in rows, made when it is moved from the CPU."""

    def __new__(cls, data, requires_grad, has_fp16_weights):
        assert not has_fp16_weights
        return torch.nn.Parameter(data, requires_grad)


class Linear8bitLt(torch.nn.Linear):
    """Stands in for that of bitsandbytes."""

    def __init__(self, inputs, outputs, bias, has_fp16_weights):
        assert not has_fp16_weights
        super().__init__(inputs, outputs, bias)


def test_bitsandbytes_is_a_peer_where_it_is_installed(monkeypatch):
    x = torch.randn(3, 64)
    weights = [torch.randn(8, 64) for _ in range(2)]
    layers = types.SimpleNamespace(Linear8bitLt=Linear8bitLt, Int8Params=Int8Params)
    monkeypatch.setitem(sys.modules, "bitsandbytes", types.SimpleNamespace(nn=layers))
    monkeypatch.setitem(sys.modules, "bitsandbytes.nn", layers)
    for count, last in ((1, 0), (4, 1)):
        (entry,) = int8_linear_entries(x, weights, count)
        assert (entry.name, entry.ours) == ("bitsandbytes Linear8bitLt", False)
        torch.testing.assert_close(entry.make()(), x @ weights[last].t())


def test_bitsandbytes_may_be_absent_or_broken(monkeypatch):
    x, weights = torch.randn(3, 64), [torch.randn(8, 64)]
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    monkeypatch.delitem(sys.modules, "bitsandbytes.nn", raising=False)
    assert not list(int8_linear_entries(x, weights, 1))

    def broken(name):
        raise OSError("libcudart.so.12: cannot open")

    monkeypatch.setattr(bwta_peers.importlib, "import_module", broken)
    with pytest.warns(RuntimeWarning, match="bitsandbytes does not load: libcudart"):
        assert not list(int8_linear_entries(x, weights, 1))


@pytest.mark.parametrize("cases", [gemv_cases, product_cases, attention_cases])
@pytest.mark.parametrize("device", [pytest.param("cuda", marks=ON_GPU)])
def test_cases_of_a_gpu(cases, device):
    for case in cases(quick=True):
        result = run_case(case, graph_clock(device), 7)
        assert result["checked"]
        assert result["ratio"] is not None

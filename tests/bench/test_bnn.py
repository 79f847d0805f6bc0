"""The benchmark of binary networks: record, table, CSV and chart; failures; weights; kernels."""

import csv
import json

import pytest
import torch

from bench.networks import networks as bnn_networks
from bench.networks import peers as bnn_peers
from bench.networks.cases import BnnCase, Entry, WrongResultError, describe, graph_clock, run_case
from bench.networks.kernels import Kernel, kernels_of_calls
from bench.networks.structures import STRUCTURES
from bench_bnn import main as bnn_main

CPU = graph_clock("cpu")


def main(folder, *arguments):
    output = folder / "bnn.json"
    options = ["--quick", "--repeats", "7", "--threads", "1", "--output", str(output)]
    status = bnn_main([*options, "--parts", "convolutions", *arguments])
    return status, json.loads(output.read_text()) if output.exists() else None


def case(*entries, **options):
    return BnnCase("group", "case", lambda: entries, **options)


def entry(name, ours, make=None, **options):
    return Entry(name, ours, make or (lambda: lambda: torch.ones(8)), **options)


def raising(error):
    def make():
        raise error

    return make


def test_a_run_leaves_record_table_and_chart(tmp_path, capsys):
    status, record = main(tmp_path)
    assert status == 0
    assert record["benchmark"] == "bnn_cpu"
    (result,) = record["results"]
    assert result["checked"]
    assert all(len(c["timing"]["seconds"]) == 7 for c in result["contenders"])
    assert {c["name"]: c["ours"] for c in result["contenders"]} == {
        "torch fp32 contiguous": False,
        "torch fp32 channels_last": False,
        "bits in and out": True,
        "bits in, int32 out": True,
        "floats in and out": True,
    }
    assert result["form"] == "bits in and out"  # the others are not ranked
    assert result["ratio"] == pytest.approx(result["peer_seconds"] / result["seconds"])
    assert "| 32 to 32, 3x3, 8x8 |" in capsys.readouterr().out
    with (tmp_path / "bnn.csv").open() as file:
        assert len(list(csv.DictReader(file))) == len(result["contenders"])
    assert (tmp_path / "bnn.png").read_bytes().startswith(b"\x89PNG")


def test_entries_that_fail_or_are_wrong_get_no_times():
    result = run_case(
        case(
            entry("peer", False),
            entry("ours", True),
            entry("wrong", True, raising(WrongResultError())),
            entry("broken", False, raising(RuntimeError("no such kernel\nmore"))),
        ),
        CPU,
        7,
    )
    failures = {c["name"]: c["failure"] for c in result["contenders"]}
    assert failures == {
        "peer": None,
        "ours": None,
        "wrong": "gives a wrong result",
        "broken": "RuntimeError: no such kernel",
    }
    assert not result["checked"]
    assert (result["form"], result["peer"]) == ("ours", "peer")
    assert "broken: RuntimeError: no such kernel" in describe(result)


@pytest.mark.parametrize("key", list(STRUCTURES))
def test_binary_networks_have_the_weights_of_the_plain_ones(key):
    with torch.device("meta"):
        plain, ours = STRUCTURES[key].build(), bnn_networks.binary_network(STRUCTURES[key])
    assert bnn_networks.weights_of(ours) == bnn_networks.weights_of(plain)


def test_a_wrong_frozen_network_is_refused():
    structure = STRUCTURES["mlp"]
    network, frozen = bnn_networks.frozen_network(structure, "cpu")
    x = bnn_peers.images_of(structure, 4, "cpu")
    with torch.no_grad():
        scores = bnn_networks.our_call(structure, network, frozen, x)()
        assert scores.shape == (4, 10)
        with pytest.raises(WrongResultError):
            bnn_networks.our_call(structure, network, lambda x: -frozen(x), x)
        with pytest.raises(WrongResultError):
            bnn_networks.our_call(structure, network, lambda x: frozen(x)[:, 1:], x)


def test_kernels_are_medians_over_calls():
    begins = [0.0, 10.0, 100.0, 111.0, 200.0, 212.0]
    kernels = [
        Kernel(
            "void (anonymous namespace)::a<1>(int)" if place % 2 == 0 else "b",
            begin,
            begin + 5.0 + place,
        )
        for place, begin in enumerate(begins)
    ]
    found = kernels_of_calls(kernels[::-1], 3)
    assert [kernel["name"] for kernel in found] == ["a<1>", "b"]
    assert [kernel["seconds"] for kernel in found] == pytest.approx([7e-6, 8e-6])
    assert [kernel["step"] for kernel in found] == pytest.approx([7e-6, 12e-6])
    assert kernels_of_calls([], 3) == []
    with pytest.raises(ValueError, match="6 kernels are not those of 4 like calls"):
        kernels_of_calls(kernels, 4)


@pytest.mark.cuda
def test_a_run_on_a_gpu(tmp_path):
    output = tmp_path / "bnn.json"
    options = ["--quick", "--repeats", "7", "--device", "cuda", "--output", str(output)]
    assert bnn_main([*options, "--networks", "mlp", "--compile-modes"]) == 0
    record = json.loads(output.read_text())
    groups = {result["group"] for result in record["results"]}
    assert {"network, latency", "linear, bits in and out"} <= groups
    for result in record["results"]:
        assert [c["failure"] for c in result["contenders"]] == [None] * len(result["contenders"])

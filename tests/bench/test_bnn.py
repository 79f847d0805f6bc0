"""The benchmark of binary networks: record, table, CSV, chart; failures; the peers' networks."""

import csv
import json
import time

import pytest
import torch

from bench.cases import Goal
from bench.networks import networks as bnn_networks
from bench.networks import peers as bnn_peers
from bench.networks.cases import (
    NETWORK_GOALS,
    BnnCase,
    Entry,
    WrongResultError,
    describe,
    graph_clock,
    run_case,
)
from bench.networks.kernels import Kernel, kernels_of_calls, parts_of
from bench.networks.layers import ConvShape, conv_cases, linear_cases
from bench.networks.networks import network_cases
from bench.networks.structures import STRUCTURES
from bench.tables.networks import bnn_csv, bnn_table, format_rate, parts_table
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


def test_a_goal_may_name_its_baseline():
    def slow():
        time.sleep(2e-3)

    goals = (Goal("ratio", 2.0, "slow"), Goal("ratio", 2.0, "absent"))
    result = run_case(
        case(
            entry("fast", False),
            entry("slow", False, lambda: slow),
            entry("ours", True),
            goals=goals,
        ),
        CPU,
        7,
    )
    assert result["peer"] == "fast"
    seconds = {c["name"]: c["timing"]["median"] for c in result["contenders"]}
    reached = [goal["reached"] for goal in result["goals"]]
    assert reached == [pytest.approx(seconds["slow"] / seconds["ours"] / 2.0), None]


def test_parts_of_goals_come_from_the_times_of_the_run():
    goals = (Goal("seconds", 1.0), Goal("rate", 2.0), Goal("ratio", 4.0))
    slow = entry("unranked", True, lambda: lambda: None, ranked=False)
    result = run_case(
        case(entry("peer", False), entry("ours", True), slow, goals=goals, work=8, cold=True),
        CPU,
        7,
    )
    seconds = result["seconds"]
    assert result["form"] == "ours"
    assert [goal["reached"] for goal in result["goals"]] == pytest.approx(
        [1.0 / seconds, 8 / seconds / 2.0, result["ratio"] / 4.0]
    )
    assert all(c["cold"]["cold"] for c in result["contenders"])


def record_of(results):
    machine = {
        "cpu": "Some CPU", "gpu": "Some GPU", "capability": "avx2", "threads": 2, "cuda": "13.0",
        "versions": {"torch": "2.13.0", "torch-geometric": "2.8.1"}, "commit": "0123",
        "dirty": False, "date": "2026-01-02T03:04:05",
    }  # fmt: skip
    return {
        "benchmark": "bnn_cuda", "environment": machine, "settings": {"repeats": 9},
        "results": results, "skipped": [],
        "failed": [{"group": "g", "name": "g: broken", "reason": "no room"}],
    }  # fmt: skip


def result_of(group, name, seconds, peer_seconds, goals, **details):
    def contender(name, ours, value):
        timing = {"median": value, "p10": value, "p90": value, "seconds": [value]}
        return {
            "name": name, "ours": ours, "ranked": True, "in_graph": True, "failure": None,
            "timing": timing, "cold": None, "launched": None, "kernels": None,
        }  # fmt: skip

    return {
        "group": group, "name": name, "seconds": seconds, "form": "frozen", "peer": "torch fp16",
        "peer_seconds": peer_seconds, "ratio": peer_seconds / seconds, "goals": goals,
        "contenders": [contender("frozen", True, seconds), contender("fp16", False, peer_seconds)],
        "work": 1024, "checked": True, **details,
    }  # fmt: skip


@pytest.fixture
def record():
    rate = [{"kind": "rate", "value": 1e6, "baseline": None, "reached": 1.28}]
    time = [
        {"kind": "seconds", "value": 35e-6, "baseline": None, "reached": 0.5},
        {"kind": "ratio", "value": 3.0, "baseline": "fp16", "reached": None},
    ]
    sweep = [
        result_of("BConv, 16 images", f"{c} to {c}", c * 1e-7, c * 1e-6, [], channels=c, outputs=c)
        for c in (128, 256)
    ]
    return record_of(
        [
            result_of("network, latency", "VGG, 8 images", 70e-6, 103e-6, time),
            result_of("network, throughput", "VGG, 1024 images", 0.8e-3, 3e-3, rate),
            *sweep,
            result_of(
                "BConv, 1 image, 64 outputs", "128 to 64", 2e-6, 4e-6, [], channels=128, outputs=64
            ),
        ]
    )


def test_table_shows_times_rates_and_goals(record):
    text = bnn_table(record)
    assert "Some GPU, CUDA 13.0" in text
    assert (
        "| VGG, 8 images | 70.0 µs | 103 µs (torch fp16) | 1.47× | ≤ 35.0 µs: 50%; 3× fp16 |"
        in text
    )
    assert "| 1.28 M/s | 341 k/s (torch fp16) | 3.75× | 1.00 M/s: 128% |" in text
    assert "| 256 to 256 |" in text
    assert "128 to 64" not in text  # in the chart
    assert text.endswith("- not measured: g: broken: no room\n")


def test_a_case_measured_from_floats_too_has_a_row_for_that(record):
    latency = record["results"][0]
    assert bnn_table(record).count(", packing included") == 0
    timing = {"median": 84e-6}
    latency["contenders"].append({"name": "packing included", "ours": True, "timing": timing})
    text = bnn_table(record)
    # A time to reach is one that counts the packing.
    assert "| VGG, 8 images | 70.0 µs | 103 µs (torch fp16) | 1.47× | 3× fp16 |" in text
    packing = "| VGG, 8 images, packing included | 84.0 µs | 103 µs (torch fp16) | 1.23× | "
    assert f"{packing}≤ 35.0 µs: 41% |" in text


def test_parts_are_shares_of_the_steps(record):
    kernels = [
        {"name": "bitgnn::cuda::fixed_conv_kernel<float>", "seconds": 9.0, "step": 2.0},
        {"name": "bitgnn::cuda::conv_wgmma_kernel<1>", "seconds": 9.0, "step": 4.0},
        {"name": "bitgnn::cuda::pool_bits_kernel<4, 2>", "seconds": 9.0, "step": 1.0},
        {"name": "bitgnn::cuda::bmm_few_kernel<8>", "seconds": 9.0, "step": 2.0},
        {"name": "memset", "seconds": 9.0, "step": 1.0},
    ]
    assert list(parts_of(kernels).values()) == [2.0, 4.0, 1.0, 2.0, 1.0]
    record["results"][0]["contenders"][0]["kernels"] = kernels
    text = parts_table(record)
    assert "| VGG, 8 images | 70.0 µs | 5 | 20% | 40% | 10% | 20% |" in text
    assert text.count("\n") == 3


def test_csv_has_a_line_for_each_contender(record):
    rows = list(csv.DictReader(bnn_csv(record).splitlines()))
    assert len(rows) == 10
    assert (rows[0]["contender"], rows[0]["timing_median"]) == ("frozen", "7e-05")
    assert rows[0]["cold_median"] == ""


@pytest.mark.parametrize(
    ("rate", "text"), [(12.0, "12 /s"), (341_234.0, "341 k/s"), (1.6e6, "1.60 M/s")]
)
def test_rates(rate, text):
    assert format_rate(rate) == text


def test_sizes_inside_the_plain_networks():
    def inputs_of_the_first_linear(key):
        with torch.device("meta"):
            layers = STRUCTURES[key].build().modules()
        return next(layer for layer in layers if isinstance(layer, torch.nn.Linear)).in_features

    found = {key: inputs_of_the_first_linear(key) for key in STRUCTURES}
    assert found == {
        "mlp": 784, "vgg": 8192, "resnet14": 8192, "alexnet": 12544, "vgg16": 25088,
        "resnet18": 25088, "resnet50": 100352,
    }  # fmt: skip


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


def test_a_plain_network_runs_compiled_as_it_does_eagerly(monkeypatch):
    structure = STRUCTURES["mlp"]
    with torch.no_grad():
        x, network = (
            bnn_peers.images_of(structure, 2, "cpu"),
            bnn_peers.plain_network(structure, "cpu"),
        )
        assert torch.equal((x * 64).round(), x * 64)
        scores = bnn_peers.eager_call(structure, network, x)()
        assert scores.dtype == torch.float16
        monkeypatch.setattr(torch, "compile", lambda network, **options: network)
        assert torch.equal(bnn_peers.compiled_call(structure, network, x)(), scores)
        monkeypatch.setattr(torch, "compile", lambda network, **options: lambda x: scores * 2)
        with pytest.raises(RuntimeError, match="far from eager ones"):
            bnn_peers.compiled_call(structure, network, x)
        network[0].bias.data.fill_(torch.inf)
        with pytest.raises(RuntimeError, match="scores must be finite"):
            bnn_peers.eager_call(structure, network, x)


def test_the_cases_of_a_gpu_are_those_of_the_papers():
    cases = list(network_cases(list(STRUCTURES), ["default"]))
    assert len(cases) == 2 * len(STRUCTURES)
    images = [c.details["images"] for c in cases]
    assert images == [8, 1024] * 3 + [8, 512] * 4
    assert set(NETWORK_GOALS) == set(STRUCTURES) - {"resnet50"}
    sweep = [c for c in conv_cases() if c.group == "BConv, 16 images, bits in and out"]
    assert [c.details["channels"] for c in sweep] == list(range(128, 2049, 128))
    assert [len(c.goals) for c in sweep if c.goals] == [1, 2, 1]
    keys = [c.key for c in (*cases, *conv_cases(), *linear_cases())]
    assert len(keys) == len(set(keys))


def test_operations_of_a_convolution_with_stride():
    shape = ConvShape(2, 7, 3, 5, kernel=3, stride=2)
    assert shape.out_size == 4
    assert shape.operations == 2.0 * 2 * 16 * 9 * 3 * 5
    assert shape.name == "3 to 5, 3x3/2, 7x7"


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
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_run_on_a_gpu(tmp_path):
    output = tmp_path / "bnn.json"
    options = ["--quick", "--repeats", "7", "--device", "cuda", "--output", str(output)]
    assert bnn_main([*options, "--networks", "mlp", "--compile-modes"]) == 0
    record = json.loads(output.read_text())
    groups = {result["group"] for result in record["results"]}
    assert {"network, latency", "linear, bits in and out"} <= groups
    for result in record["results"]:
        assert [c["failure"] for c in result["contenders"]] == [None] * len(result["contenders"])

"""What variants win: each can be left out, results stay, and the table reads the record."""

import importlib
import json

import pytest
import torch

from bench.operators.recorded import Operands, calls
from bench.operators.wins import WATCHED, alternatives, leave_out
from bench.tables.wins import wins_table
from bitgnn._library import load_for_dry_runs
from bitgnn.ops.route import route

PROBLEM = load_for_dry_runs()
needs_library = pytest.mark.skipif(bool(PROBLEM), reason=f"no dry runs: {PROBLEM}")
MACHINE = {
    "cpu": "Some CPU", "gpu": "Some GPU", "capability": "avx2", "threads": 2, "cuda": "13.0",
    "versions": {"torch": "2.13.0", "torch-geometric": "2.8.1"},
    "commit": "0123456789abcdef", "dirty": False, "date": "2026-01-02T03:04:05+00:00",
}  # fmt: skip


def contender(name, seconds, *kernels):
    timing = None if seconds is None else {"median": seconds}
    return {"name": name, "timing": timing, "failure": None, "next": list(kernels)}


def test_table_shows_each_variant_on_the_shape_where_it_wins_most():
    def result(name, chosen, *others):
        return {"group": "BMM", "name": name, "contenders": [contender("chosen", chosen), *others]}

    record = {
        "benchmark": "wins_cuda", "environment": MACHINE, "settings": {"repeats": 7},
        "results": [
            result("a", 2e-6, contender("fast", 3e-6, "ns::slow_kernel<2>"),
                   contender("even", 2e-6, "ns::other_kernel")),
            result("b", 1e-6, contender("fast", 4e-6, "ns::slow_kernel<2>", "ns::slow_kernel<3>"),
                   contender("unmeasured", None, "ns::other_kernel")),
        ],
    }  # fmt: skip
    text = wins_table(record)
    assert "Some GPU, CUDA 13.0" in text
    assert "Below 5 % on all shapes: `even`." in text
    first, second = text.splitlines()[-2:]
    assert first.startswith("| `even` | +0% | BMM: a |")
    assert second == "| `fast` | +300% | BMM: b | 1.00 µs | 4.00 µs | `slow_kernel` | 2 |"


@needs_library
def test_every_variant_that_a_call_takes_can_be_left_out():
    operands = Operands("meta")
    taken = set()
    for call in calls():
        given = call.operands(operands)
        kernels = [k.kernel for k in route(call.operator, *given, **dict(call.keywords)).launches]
        assert kernels, call.name
        for variant, others in alternatives(call, given, "H200").items():
            assert others, f"{call.name} without {variant}"
            assert others != kernels
            taken.add(variant)
    assert len(taken) >= 20, sorted(taken)


@needs_library
def test_nothing_is_noted_or_left_out_after_a_watch():
    operands = Operands("meta")
    call = next(call for call in calls() if call.operator == "bmm_bbb")
    given = call.operands(operands)
    before = route(call.operator, *given)
    leave_out(WATCHED)
    route(call.operator, *given)
    taken = leave_out("")
    assert taken
    leave_out(taken[0])
    assert route(call.operator, *given) != before
    assert taken[0] not in leave_out("")
    assert route(call.operator, *given) == before
    assert leave_out("") == []


@pytest.mark.cuda
def test_a_run_leaves_its_record_and_no_wrong_result(tmp_path):
    output = tmp_path / "wins.json"
    only = ["[1024, 1024]", "Cora", "8 of 512", "8 of 3", "[128, 768]", "length 128"]
    script = importlib.import_module("bench_wins")
    assert script.main(["--output", str(output), "--only", *only]) == 0
    record = json.loads(output.read_text())
    assert torch.cuda.get_device_name() == record["environment"]["gpu"]
    assert record["failed"] == []
    assert len(record["results"]) >= 10
    measured = [c for result in record["results"] for c in result["contenders"]]
    assert all(c["failure"] is None and c["timing"] for c in measured)

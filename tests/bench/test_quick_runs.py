"""Every benchmark, with tiny sizes: a whole record, its table, every repeat of every contender."""

import importlib
import json

import pytest

BITS = {"bits in and out", "bits in, int32 out", "floats in and out"}
PACKED = {"packing and product", "product of packed rows, fp32 out", "packing alone"}
RUNS = {
    "bench_bnn": (
        "bnn_cpu", ("--only", "BinaryConv2d"),
        {"torch fp32 contiguous", "torch fp32 channels_last", *BITS},
    ),
    "bench_attention": ("attention_cpu", (), None),
    "bench_bwta": ("bwta_cpu", (), {"torch fp32", *PACKED}),
    "bench_conversion": ("conversion", (), None),
    "bench_hamming": ("hamming_cpu", (), None),
    "bench_layers": ("layers", (), None),
    "bench_ops": ("ops", (), None),
    "bench_papers": (
        "papers_cpu", ("--only", "MLP, 1 image"),
        {"torch fp32 contiguous", "torch fp32 channels_last", "frozen, float32 contiguous"},
    ),
    "bench_stream": (
        "stream_cpu", (),
        {"bitgnn, packed rows", "bitgnn, float rows", "PyG fp32, float rows"},
    ),
}  # fmt: skip
"""By script: the record's name, options, and the contenders of each case."""
RESULTS = {"bench_bnn": 1, "bench_bwta": 1, "bench_conversion": 2, "bench_layers": 24}
RANKED = {"bench_bnn": "bits in and out", "bench_bwta": "packing and product"}
GOALS = ("target", "goal", "goal_seconds", "reached", "goals")


def repeats(entry):
    """How many repeats each timing in a record has."""
    if isinstance(entry, list):
        return set().union(*map(repeats, entry))
    if not isinstance(entry, dict):
        return set()
    if isinstance(entry.get("seconds"), list):
        return {len(entry["seconds"])}
    return set().union(*map(repeats, entry.values()))


@pytest.mark.parametrize("script", RUNS)
def test_a_quick_run_leaves_its_record_and_table(script, tmp_path, capsys):
    benchmark, options, contenders = RUNS[script]
    output = tmp_path / "out" / "record.json"
    arguments = ["--quick", "--repeats", "7", "--threads", "1", "--output", str(output), *options]
    if script == "bench_ops":
        arguments += ["--data-root", str(tmp_path)]
    status = importlib.import_module(script).main(arguments)
    record = json.loads(output.read_text())
    assert record["benchmark"] == benchmark
    assert record["settings"] == {"threads": 1, "repeats": 7, "quick": True}
    assert record["environment"]["threads"] == 1
    assert [entry["name"] for entry in record["skipped"]] == ["Flickr"] * (script == "bench_ops")
    assert status == len(record["skipped"])
    assert record["failed"] == []
    assert len(record["results"]) == RESULTS.get(script, len(record["results"])) > 0
    table = capsys.readouterr().out.partition("\n\n")[2]
    for result in record["results"]:
        assert result["name"] in table
        assert repeats(result) == {7}
        assert not any(result.get(goal) for goal in GOALS)
        if contenders is not None:
            assert result["checked"]
            found = result["contenders"]
            found = found if isinstance(found, dict) else {c["name"]: c for c in found}
            assert found.keys() == contenders
        if script in RANKED:  # the other forms are not ranked
            assert result["form"] == RANKED[script]
            ratio = result["peer_seconds"] / result["seconds"]
            assert result["ratio"] == pytest.approx(ratio)

"""The whole-model benchmark on the CPU: record and tables."""

import json

import pytest
from rates import FixedRates

import bench_models as models_command
from bench.models import case as cases
from bench.models.peers import Peer, peers
from bench.tables.models import memory_table, models_table
from bench_models import main as models_main

BROKEN = Peer("PyG", "broken", lambda: (_ for _ in ()).throw(RuntimeError("no such kernel\nmore")))


@pytest.fixture(autouse=True)
def few_peers_and_fixed_rates(monkeypatch):
    """Two of PyG's forms and one that fails, as all are treated alike; no compiled ceilings."""

    def chosen(kind, task):
        for peer in peers(kind, task):
            if peer.family == "PyG" and peer.name in ("edge_index fp32", "torch CSR fp32"):
                yield peer
        yield BROKEN

    monkeypatch.setattr(cases, "peers", chosen)
    monkeypatch.setattr(cases, "LONG_SECONDS", 3600.0)  # a busy machine's peers are slow, too
    monkeypatch.setattr(models_command, "_rates", lambda arguments: ([], FixedRates(), None))


def main(folder):
    output = folder / "models.json"
    options = ["--quick", "--repeats", "7", "--threads", "1", "--output", str(output)]
    status = models_main([*options, "--only", "GCN"])
    return status, json.loads(output.read_text()) if output.exists() else None


def test_a_run_leaves_record_and_table(tmp_path, capsys):
    status, record = main(tmp_path)
    assert status == 0
    assert record["benchmark"] == "models_cpu"
    (result,) = record["results"]
    assert (result["model"], result["graph"], result["checked"]) == ("GCN", "tiny", True)
    timed = [c for c in result["contenders"] if c["timing"] is not None]
    assert {c["family"] for c in timed} == {"PyG", "bitgnn unfrozen", "bitgnn"}
    assert all(len(c["timing"]["seconds"]) == 7 for c in timed)
    assert all(c["memory"]["total"] > 0 for c in timed)
    assert all(c["cold"]["cold"] for c in timed if c["family"] == "bitgnn")
    assert not result["peer_calls"]["failures"]
    called = [*result["peer_calls"]["calls"].values()]
    called += [ours["calls"][name] for ours in result["ours"] for name in ("model", "pinned")]
    assert all(len(call["seconds"]) == 7 for call in called)
    for ours in result["ours"]:
        assert ours["ratio"] == pytest.approx(ours["peer_seconds"] / ours["seconds"])
        assert ours["goals"] == []
    assert "GCN bin, synthetic (300 nodes)" in capsys.readouterr().out
    failed = [(c["form"], c["failure"]) for c in result["contenders"] if c["failure"]]
    assert failed == [("broken", "RuntimeError: no such kernel")]
    entry = next(o for o in result["ours"] if o["form"] == "bin" and o["features"] == "packed")
    entry.update(seconds=1e-6, ratio=30.0, times_the_floor=2.5)
    entry["goals"] = [
        {"kind": "ratio", "value": 20.0, "features": "packed", "reached": 1.5},
        {"kind": "bytes", "value": 600_000.0, "features": "packed", "reached": 2.0},
    ]
    entry["calls"] = {"model": {"median": 4e-6}, "pinned": {"median": 2e-6}}
    text = models_table(record)
    assert "1.00 µs (eager) | model 4.00 µs, pinned 2.00 µs | 30.0× | 2.50× |" in text
    for ours in result["ours"]:
        del ours["calls"]
    del result["peer_calls"]
    assert "1.00 µs (eager) | 30.0× | 2.50× |" in models_table(record)
    assert "a call" not in models_table(record)
    assert "| 20×: 150% packed |" in text
    memory = memory_table([record])
    assert "cpu: synthetic (300 nodes), bin" in memory
    assert "≤ 586 KiB" in memory

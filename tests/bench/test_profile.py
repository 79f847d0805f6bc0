"""The profile: the machine's own rates, a quick run's record, and what a missing compiler does."""

import json
import shutil

import pytest

from bench import ceilings as ceilings_module
from bench.ceilings import Ceilings, CeilingsError, compiler
from bench.tables.operators import profile_table
from profile_cpu import main as profile_main

needs_compiler = pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")


@pytest.fixture(scope="module")
def ceilings():
    return Ceilings()


@needs_compiler
def test_quick_run_leaves_a_record_that_the_table_shows(tmp_path):
    output = tmp_path / "profile.json"
    status = profile_main(["--quick", "--repeats", "7", "--output", str(output)])
    assert status == 0
    record = json.loads(output.read_text())
    assert len(record["figures"]) == 5
    for figure in record["figures"]:
        assert figure["ratio"] > 0
    table = profile_table(record)
    assert all(figure["name"] in table for figure in record["figures"])
    assert "GHz" in table
    assert "call 1: pack, " in table
    floats, packed = record["figures"][-2:]
    assert floats["bounds"]["read of features"]["amount"] == 300 * 100 * 4
    assert packed["bounds"]["read of features"]["amount"] == 300 * 4 * 4
    # Every edge and the loop of every node, in both layers.
    for layer in (1, 2):
        bound = floats["bounds"][f"gathers of layer {layer}"]
        assert bound["amount"] == floats["edges"] + floats["nodes"]
    for figure in (floats, packed):
        assert sum(stage["share"] for stage in figure["stages"].values()) >= 1 - 1e-9
        assert figure["bound"] in figure["floor"]


def test_a_missing_compiler_is_named(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(ceilings_module.shutil, "which", lambda command: None)
    with pytest.raises(CeilingsError, match=r"no C\+\+ compiler found: install g\+\+ or clang"):
        compiler()
    assert profile_main(["--quick", "--output", str(tmp_path / "profile.json")]) == 1
    assert "no C++ compiler found" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []

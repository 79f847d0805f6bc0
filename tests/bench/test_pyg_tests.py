"""The runner of PyG's tests: what it reports and what it leaves alone."""

import json

import run_pyg_tests as pyg_tests

# A stand-in for PyG's tests: passing, failing, skipped and excepted ones.
GCN = """
import pytest
import torch
from torch_geometric.nn import GCNConv

def test_repr():
    conv = GCNConv(16, 32)
    assert str(conv) == 'GCNConv(16, 32)'
    assert GCNConv.__module__.startswith('bitgnn.')
    assert conv.precision == PRECISION

def test_wrong():
    assert GCNConv(2, 2).out_channels == 3

@pytest.mark.skip(reason='not today')
def test_skipped():
    pass

def test_gcn_conv_with_decomposed_layers():
    torch.jit.script(GCNConv(4, 4))
"""
OTHER = """
from torch_geometric.nn import {name}

def test_in_place():
    assert {name}.__module__.startswith('bitgnn.')
"""


def _source(folder, precision):
    tests = folder / "pyg" / "test" / "nn" / "conv"
    tests.mkdir(parents=True)
    (tests / "test_gcn_conv.py").write_text(GCN.replace("PRECISION", repr(precision)))
    for name in ("SAGEConv", "GraphConv"):
        file = f"test_{name.removesuffix('Conv').lower()}_conv.py"
        (tests / file).write_text(OTHER.format(name=name))
    package = folder / "pyg" / "torch_geometric"
    package.mkdir()
    content = "raise RuntimeError('never imported')\n__version__ = '9.8'"
    (package / "__init__.py").write_text(content)
    return folder / "pyg"


def _listing(folder):
    return sorted(str(path) for path in folder.rglob("*"))


def test_outcomes_are_sorted_the_source_left_alone_and_other_runs_kept(tmp_path, capsys):
    source = _source(tmp_path, "FBF+FBF")
    before = _listing(source)
    output = tmp_path / "out" / "pyg_tests.json"
    output.parent.mkdir()
    foreign = {"precision": "fp32", "torch_sparse": not pyg_tests.Run("full", False).torch_sparse}
    output.write_text(json.dumps({"runs": [foreign]}))
    arguments = ["--pyg-source", str(source), "--precision", "FBF+FBF", "--output", str(output)]
    assert pyg_tests.main(arguments) == 1  # test_wrong fails
    assert _listing(source) == before
    assert "FBF+FBF: 3 passed, 1 failed, 1 excepted, 1 skipped" in capsys.readouterr().out
    record = json.loads(output.read_text())
    assert record["pyg_source"] == "9.8"
    assert record["exceptions"] == pyg_tests.EXCEPTIONS
    assert foreign in record["runs"]
    (ours,) = (run for run in record["runs"] if run != foreign)
    assert ours["precision"] == "FBF+FBF"
    assert sorted(ours["passed"]) == ["test_in_place", "test_in_place", "test_repr"]
    assert list(ours["failed"]) == ["test_wrong"]
    assert ours["excepted"] == pyg_tests.EXCEPTIONS
    assert ours["skipped"] == {"test_skipped": "not today"}

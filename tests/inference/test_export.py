"""Frozen models as programs of PyTorch: exported whole, and left whole by torch.compile."""

import shutil

import pytest
import torch

from bitgnn.convert import freeze


def operators(program):
    """Names of the operators that an exported program calls."""
    nodes = (node for node in program.graph.nodes if node.op == "call_function")
    return [str(node.target) for node in nodes]


@pytest.mark.parametrize("form", ["floats", "words"])
@pytest.mark.parametrize("precision", ["full", "bin"])
def test_exported_program_runs(make_model, graph, features, precision, form):
    frozen = freeze(make_model(precision))
    adjacency = frozen.prepare_graph(graph, len(features))
    x = features if form == "floats" else frozen.pack_features(features, layout="dense")
    program = torch.export.export(frozen, (x, adjacency))
    called = operators(program)
    assert called
    assert all(name.startswith("bitgnn.") for name in called)
    assert program.module()(x, adjacency).equal(frozen(x, adjacency))
    # Another graph of the same size, other features: nothing of the first ones is baked in.
    other = frozen.prepare_graph(graph.flip(0), len(features))
    changed = features.flip(0)
    y = changed if form == "floats" else frozen.pack_features(changed, layout="dense")
    assert program.module()(y, other).equal(frozen(y, other))
    assert not frozen(y, other).equal(frozen(x, adjacency))


@pytest.mark.parametrize("precision", ["full", "bin"])
def test_compiled_model_is_one_graph(make_model, graph, features, precision):
    frozen = freeze(make_model(precision))
    adjacency = frozen.prepare_graph(graph, len(features))
    compiled = torch.compile(frozen, fullgraph=True, backend="aot_eager")
    assert compiled(features, adjacency).equal(frozen(features, adjacency))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="AOTInductor needs a C++ compiler")
def test_packaged_program_runs(make_model, graph, features, tmp_path):
    frozen = freeze(make_model("bin"))
    adjacency = frozen.prepare_graph(graph, len(features))
    program = torch.export.export(frozen, (features, adjacency))
    package = torch._inductor.aoti_compile_and_package(
        program, package_path=str(tmp_path / "model.pt2")
    )
    run = torch._inductor.aoti_load_package(package)
    assert run(features, adjacency).equal(frozen(features, adjacency))

"""Frozen models as programs of PyTorch: exported whole, and left whole by torch.compile."""

import shutil

import pytest
import torch

from bitgnn.convert import freeze
from bitgnn.models import GCN, GraphSAGE


def operators(program):
    """Names of the operators that an exported program calls."""
    nodes = (node for node in program.graph.nodes if node.op == "call_function")
    return [str(node.target) for node in nodes]


@pytest.mark.parametrize("form", ["floats", "words"])
@pytest.mark.parametrize("precision", ["full", "bin"])
def test_exported_and_compiled_programs_run(make_model, graph, features, precision, form):
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
    compiled = torch.compile(frozen, fullgraph=True, backend="aot_eager")
    assert compiled(x, adjacency).equal(frozen(x, adjacency))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_an_edge_index_is_refused_in_one_sentence(make_model, graph, features):
    model = make_model("bin")
    frozen = freeze(model)
    whole = r"BitAdjacency \(prepare_graph of a frozen model\) in place of the edges"
    for network in (model, frozen):
        with pytest.raises(RuntimeError, match=f"torch.export cannot follow .* {whole}"):
            torch.export.export(network, (features, graph))
        with pytest.raises(RuntimeError, match=f"torch.jit.trace would fix .* {whole}"):
            torch.jit.trace(network, (features, graph))
        torch._dynamo.reset()
        with pytest.raises(torch._dynamo.exc.Unsupported, match="fullgraph needs a BitAdjacency"):
            torch.compile(network, fullgraph=True, backend="eager")(features, graph)
    with pytest.raises(RuntimeError, match="TorchScript does not compile frozen models"):
        torch.jit.script(frozen)


def frozen_on_bits(features):
    """A GCN that aggregates nothing but packed rows, so that it takes a graph in any layout."""
    torch.manual_seed(0)
    return freeze(GCN(features.size(1), 40, 5, precision="FBB+BBB, BBB+BBF").eval())


@pytest.mark.parametrize("layout", ["csr", "sliced"])
def test_graphs_in_every_layout_are_exported(layout, graph, features):
    """Slices are left out: the program reads the CSR beside them."""
    frozen = frozen_on_bits(features)
    adjacency = frozen.prepare_graph(graph, len(features), layout=layout)
    program = torch.export.export(frozen, (features, adjacency))
    called = [name for name in operators(program) if "bspmm" in name]
    assert called[-1] == "bitgnn.bmm_bspmm.default"
    other = frozen.prepare_graph(graph.flip(0), len(features), layout=layout)
    for held in (adjacency, other):
        assert program.module()(features, held).equal(frozen(features, held))


class Both(torch.nn.Module):
    """Two frozen models in one program, which is compiled once."""

    def __init__(self, gcn, sage):
        super().__init__()
        self.gcn, self.sage = gcn, sage

    def forward(self, x, for_gcn, for_sage):
        return self.gcn(x, for_gcn), self.sage(x, for_sage)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="AOTInductor needs a C++ compiler")
def test_packaged_program_runs(graph, features, tmp_path):
    sage = freeze(GraphSAGE(features.size(1), 40, 5, precision="bin").eval())
    both = Both(frozen_on_bits(features), sage)
    graphs = [model.prepare_graph(graph, len(features)) for model in (both.gcn, both.sage)]
    program = torch.export.export(both, (features, *graphs))
    package = torch._inductor.aoti_compile_and_package(
        program, package_path=str(tmp_path / "model.pt2")
    )
    run = torch._inductor.aoti_load_package(package)
    for found, expected in zip(run(features, *graphs), both(features, *graphs), strict=True):
        assert found.equal(expected)

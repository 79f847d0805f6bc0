"""One kernel for whole models: its stages and tables anywhere, its results on a CUDA device."""

import cooperative_model
import pytest
import torch
from graphs import odd_graph

from bitgnn import BitAdjacency
from bitgnn._library import library_info
from bitgnn.convert import freeze
from bitgnn.inference.cooperative import CooperativeExecutor
from bitgnn.inference.cooperative_stages import find_stages
from bitgnn.inference.cooperative_tables import share_graph, state_words, tables_of
from bitgnn.models import GCN, GraphSAGE
from bitgnn.ops.reference.pack import from_words

CPU = torch.device("cpu")
NORMS = {"hidden_norm": "batch", "output_norm": "batch"}


def stages_of(frozen, packed=False):
    return find_stages(frozen.program, dict(frozen.named_buffers()), packed)


def test_the_step_without_a_stage_is_named():
    frozen = freeze(GraphSAGE(20, 33, 3, precision="full").eval())
    with pytest.raises(ValueError, match=r"step \d+ \(.+ of '.+'\) has no stage"):
        stages_of(frozen)


@pytest.mark.parametrize("blocks", [1, 7, 120])
@pytest.mark.parametrize(
    ("precision", "options"), [("bin", {}), ("bin", NORMS), ("full", {})], ids=str
)
def test_tables_compute_the_model(make_model, graph, features, precision, options, blocks):
    frozen = freeze(make_model(precision, num_layers=3, **options))
    adjacency = frozen.prepare_graph(graph, len(features))
    shares = share_graph(adjacency, blocks)
    assert shares.most_degree == int(adjacency.rowptr.diff().max())
    expected = frozen(features, adjacency)
    tables = tables_of(stages_of(frozen).stages, CPU)
    assert tables.image.dtype == torch.int32
    found = cooperative_model.run(tables, shares, features)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    packed = frozen.pack_features(features, layout="dense")
    tables = tables_of(stages_of(frozen, True).stages, CPU)
    bits = from_words(packed.words, packed.size)
    found = cooperative_model.run(tables, shares, bits, packed.scale)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_shares_of_uneven_blocks():
    edges = torch.tensor([[0, 1, 2, 3, 4, 0, 1], [1, 1, 1, 4, 0, 0, 4]])
    adjacency = BitAdjacency.from_edge_index(edges, 5, normalize="mean")
    rowptr, indices, row, col = cooperative_model.read_shares(share_graph(adjacency, 3), 5)
    assert rowptr.equal(adjacency.rowptr.long())
    assert indices.equal(adjacency.indices)
    assert row.equal(adjacency.row_scale)
    assert col.equal(torch.ones(5))
    with pytest.raises(ValueError, match=r"must be square, got \[5, 9\]"):
        share_graph(BitAdjacency.from_edge_index(edges, (5, 9)), 2)


def operands(make_model, graph, features, device):
    """Arguments of the operator for a binary model."""
    frozen = freeze(make_model("bin")).to(device)
    stages = stages_of(frozen).stages
    shares = share_graph(frozen.prepare_graph(graph.to(device), len(features)), 7)
    tables = tables_of(stages, device)
    state = torch.zeros(state_words(stages, len(features)), dtype=torch.int32, device=device)
    x = features.to(device)
    return x, None, tables.image, shares.slices, state, tables.numbers, shares.most_degree


@pytest.mark.skipif(library_info().cpu_library is None, reason="no compiled library is loaded")
def test_the_operator_needs_cuda(make_model, graph, features):
    with pytest.raises(RuntimeError, match="x must be on a CUDA device, got the CPU"):
        torch.ops.bitgnn.run_stages(*operands(make_model, graph, features, CPU))


WRONG = {
    "stages of a size": lambda a: (*a[:5], a[5][1:], a[6]),
    "an unknown source": lambda a: (*a[:5], [7, *a[5][1:]], a[6]),
    "a wider stage than x": lambda a: (*a[:5], [*a[5][:2], 76, *a[5][3:]], a[6]),
    "weights outside of the image": lambda a: (*a[:5], [*a[5][:5], len(a[2]), *a[5][6:]], a[6]),
    "a shorter image": lambda a: (*a[:2], a[2][:-4], *a[3:]),
    "slices of other widths": lambda a: (*a[:3], a[3][:, 1:].contiguous(), *a[4:]),
    "more blocks than rows": lambda a: (*a[:3], a[3][:1].repeat(121, 1), *a[4:]),
    "a shorter state": lambda a: (*a[:4], a[4][:-4], *a[5:]),
    "a longer row than there are edges": lambda a: (*a[:6], 10**6),
    "a scale of floats": lambda a: (a[0], a[0][:, 0].contiguous(), *a[2:]),
    "doubles": lambda a: (a[0].double(), *a[1:]),
}


@pytest.mark.skipif(library_info().cpu_library is None, reason="no compiled library is loaded")
@pytest.mark.parametrize("what", WRONG)
def test_wrong_tables_are_refused(make_model, graph, features, what):
    """By every backend before anything runs: the one that can run them, or not, is asked last."""
    wrong = WRONG[what](operands(make_model, graph, features, CPU))
    with pytest.raises(RuntimeError, match=r"run_stages: (?!x must be on a CUDA device)"):
        torch.ops.bitgnn.run_stages(*wrong)


@pytest.mark.cuda
class TestOnCuda:
    """Bit for bit the eager results."""

    @pytest.mark.parametrize("layers", [1, 2, 3, 4])
    @pytest.mark.parametrize("precision", ["bin", "full"])
    def test_depths(self, precision, layers):
        compare(700, 75, 40, 5, precision, layers)

    @pytest.mark.parametrize("hidden", [1, 32, 33, 64, 128, 256])
    @pytest.mark.parametrize("precision", ["bin", "full"])
    def test_widths_of_layers(self, precision, hidden):
        edges = odd_graph(1000, 3000, seed=2)
        compare(1000, 70, hidden, 7, precision, 3, edges=edges)

    @pytest.mark.parametrize("nodes", [1, 2, 17, 131, 132, 133, 5000])
    def test_nodes(self, nodes):
        compare(nodes, 33, 64, 3, "bin")
        compare(nodes, 33, 64, 3, "full")

    def test_long_rows(self):
        """Rows past every way to add them up, of all nodes and of duplicate edges."""
        nodes = 3000
        hubs = torch.tensor([5, 2999, 1500])
        sources = [torch.arange(nodes), torch.arange(700).repeat(2), torch.arange(40)]
        edges = torch.cat(
            [torch.stack([s, hub.expand(len(s))]) for s, hub in zip(sources, hubs, strict=True)], 1
        )
        compare(nodes, 50, 64, 7, "bin", edges=edges)
        compare(nodes, 50, 64, 7, "full", edges=edges[:, -1440:])

    def test_a_captured_call(self, make_model, graph, features):
        frozen = freeze(make_model("bin")).to("cuda")
        x, adjacency = features.cuda(), frozen.prepare_graph(graph.cuda(), len(features))
        run = CooperativeExecutor(frozen)
        captured = torch.cuda.CUDAGraph()
        run(x, adjacency)
        with torch.cuda.graph(captured):
            found = run(x, adjacency)
        for seed in range(5):
            x.copy_(torch.randn(x.shape, generator=torch.Generator().manual_seed(seed)))
            captured.replay()
            assert found.equal(frozen(x, adjacency))
            assert run(x, adjacency).equal(found)

    def test_changes_are_followed(self, make_model, graph, features):
        frozen = freeze(make_model("bin")).to("cuda")
        x, adjacency = features.cuda(), frozen.prepare_graph(graph.cuda(), len(features))
        run = CooperativeExecutor(frozen, max_graphs=1)
        first = run(x, adjacency)
        adjacency.row_scale.neg_()
        assert run(x, adjacency).equal(frozen(x, adjacency))
        other = frozen.prepare_graph(odd_graph(len(x), 400, seed=9).cuda(), len(x))
        assert run(x, other).equal(frozen(x, other))
        assert run.num_graphs == 1
        state = frozen.state_dict()
        state = {name: -value if "scale" in name else value for name, value in state.items()}
        frozen.load_state_dict(state)
        assert run(x, adjacency).equal(frozen(x, adjacency))
        assert not run(x, adjacency).equal(first)

    def test_opcheck(self, make_model, graph, features):
        given = operands(make_model, graph, features, torch.device("cuda"))
        results = torch.library.opcheck(torch.ops.bitgnn.run_stages.default, given)
        assert set(results.values()) == {"SUCCESS"}


def compare(nodes, features, hidden, classes, precision, layers=2, edges=None):
    """A random GCN on a random graph with a hub, isolated nodes and duplicate edges."""
    torch.manual_seed(nodes + features)
    frozen = freeze(GCN(features, hidden, classes, layers, precision).eval()).to("cuda")
    if edges is None:
        edges = torch.randint(nodes, (2, 3 * nodes))
        edges[1, : min(nodes // 2, 600)] = nodes // 3
    adjacency = frozen.prepare_graph(edges.cuda(), nodes)
    check(frozen, torch.randn(nodes, features, device="cuda"), adjacency)


def check(frozen, x, adjacency, packed=True):
    """A hundred calls in each form of the features."""
    run = CooperativeExecutor(frozen)
    for form in [x, frozen.pack_features(x, layout="dense")] if packed else [x]:
        expected = frozen(form, adjacency)
        found = [run(form, adjacency) for _ in range(100)]
        assert all(scores.equal(expected) for scores in found)

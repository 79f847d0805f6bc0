"""Frozen models over graphs in each layout: the same bits, less memory, and clear refusals."""

import pytest
import torch
from graphs import odd_graph
from torch.utils._python_dispatch import TorchDispatchMode

from bitgnn import load, save
from bitgnn.bits import BitAdjacency, BlockedAdjacency, compact
from bitgnn.convert import freeze
from bitgnn.inference import PreparedGraph
from bitgnn.inference import layout as layout_module
from bitgnn.models import GCN, GraphSAGE, GraphSAINT

N, FEATURES, CLASSES = 120, 75, 5
BITS_ALONE = "FBB+BBB, BBB+BBB, BBB+BBF"
MODELS = {
    "bits": (GCN, {"num_layers": 3, "precision": BITS_ALONE}),
    "bin": (GCN, {"precision": "bin"}),
    "full": (GCN, {"precision": "full"}),
    "floats": (GCN, {"precision": "FBF+FBB, BBF+FBF"}),
    "sage": (GraphSAGE, {"precision": "bin"}),
    "saint": (GraphSAINT, {"precision": "bin"}),
}

COMPACT = {"bits", "bin", "full", "sage"}
"""Models that need no more of a graph than column blocks."""


def make(name, hidden=150):
    torch.manual_seed(0)
    model, options = MODELS[name]
    return freeze(model(FEATURES, hidden, CLASSES, **options).eval())


def forms(frozen, x):
    """Features in every form the model takes."""
    return [x, frozen.pack_features(x, layout="dense"), frozen.pack_features(x)]


@pytest.mark.parametrize("layout", ["auto", "sliced", "blocked"])
@pytest.mark.parametrize("name", MODELS)
def test_every_layout_gives_the_same(name, layout, graph, features, device):
    frozen = make(name).to(device)
    x, edge_index = features.to(device), graph.to(device)
    plain = frozen.prepare_graph(edge_index, N, layout="csr")
    if layout == "blocked" and name not in COMPACT:
        with pytest.raises(ValueError, match="can aggregate from column blocks"):
            frozen.prepare_graph(edge_index, N, layout=layout)
        return
    adjacency = frozen.prepare_graph(edge_index, N, layout=layout)
    for form in forms(frozen, x):
        assert frozen(form, adjacency).equal(frozen(form, plain))
    for (step, _, found), (_, _, expected) in zip(
        frozen.steps(x, adjacency), frozen.steps(x, plain), strict=True
    ):
        held = getattr(found, "words", found)
        assert held.equal(getattr(expected, "words", expected)), step


class Called(TorchDispatchMode):
    """Names of the operators of this package that are called."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "bitgnn":
            self.names.append(func.__name__.removesuffix(".default"))
        return func(*args, **(kwargs or {}))


def test_slices_and_blocks_are_used(graph, features):
    frozen = make("bits")
    called = {}
    for layout in ("csr", "sliced", "blocked"):
        adjacency = frozen.prepare_graph(graph, N, layout=layout)
        with Called() as calls:
            frozen(features, adjacency)
        called[layout] = [name for name in calls.names if "bspmm" in name]
    assert called == {
        "csr": ["bmm_bspmm"] * 3,
        "sliced": ["bspmm_bbb_sliced", "bspmm_bbb_sliced", "bspmm_bbf_sliced"],
        "blocked": ["bspmm_bbb_blocked", "bspmm_bbb_blocked", "bspmm_bbf_blocked"],
    }


def test_slices_are_planned_for_the_widths_in_use(graph):
    sliced = make("bits").prepare_graph(graph, N, layout="sliced")
    assert sliced.planned_layout(5) == "sliced"  # 150 features
    assert sliced.planned_layout(1) == "sliced"  # 5 classes
    assert sliced.planned_layout(4) == "csr"


def test_blocks_take_two_bytes_an_edge(graph):
    frozen = make("bits")
    plain = frozen.prepare_graph(graph, N, layout="csr")
    blocked = frozen.prepare_graph(graph, N, layout="blocked")
    assert isinstance(blocked, BlockedAdjacency)
    assert blocked.nbytes == plain.nbytes - 2 * plain.nnz


def test_a_sliced_graph_moves_to_csr(graph, features):
    frozen = make("bin")
    sliced = frozen.prepare_graph(graph, N, layout="sliced")
    moved = sliced.to("cpu")
    assert moved.planned_layout(5) == "csr"
    assert frozen(features, moved).equal(frozen(features, sliced))
    blocked = make("bits").prepare_graph(graph, N, layout="blocked").to("cpu")
    assert make("bits")(features, blocked).equal(make("bits")(features, graph))


@pytest.mark.parametrize("name", ["bits", "bin", "full", "sage"])
def test_small_blocks_of_odd_graphs(name, features, device):
    frozen = make(name).to(device)
    x = features.to(device)
    for edges in (odd_graph(N, 300, seed=5), torch.zeros(2, 0, dtype=torch.int64)):
        plain = frozen.prepare_graph(edges.to(device), N, layout="csr")
        for size in (1, 31, 64, N):
            adjacency = BlockedAdjacency.from_adjacency(plain, size)
            assert frozen(x, adjacency).equal(frozen(x, plain))


@pytest.mark.parametrize("parts", [1, 5, 1000])
def test_floats_alone_are_summed_by_parts(parts, graph, features, monkeypatch):
    monkeypatch.setattr(compact, "PARTS", parts)
    monkeypatch.setattr(compact, "LEAST_PART_EDGES", 1)
    frozen = make("bin")
    plain = frozen.prepare_graph(graph, N, layout="csr")
    blocked = BlockedAdjacency.from_adjacency(plain, 37)
    for (_, _, found), (_, _, expected) in zip(
        frozen.steps(features, blocked), frozen.steps(features, plain), strict=True
    ):
        assert getattr(found, "words", found).equal(getattr(expected, "words", expected))


def test_no_csr_is_made_of_blocks(graph, features):
    for name in ("bin", "full"):
        frozen = make(name)
        adjacency = frozen.prepare_graph(graph, N, layout="blocked")
        with Called() as calls:
            frozen(features, adjacency)
        assert calls.names[-1] == "bmm_bspmm_narrow_blocked"
        assert not [
            called for called in calls.names if "spmm" in called and "blocked" not in called
        ]


@pytest.mark.parametrize("name", ["bits", "bin"])
@pytest.mark.parametrize("layout", ["csr", "sliced", "blocked"])
def test_no_nodes(layout, name):
    frozen = make(name)
    adjacency = frozen.prepare_graph(torch.zeros(2, 0, dtype=torch.int64), 0, layout=layout)
    assert frozen(torch.zeros(0, FEATURES), adjacency).shape == (0, CLASSES)


def test_blocked_for_a_model_of_floats_is_refused(graph, features):
    frozen = make("floats")
    with pytest.raises(ValueError, match=r"prepare_graph: layout must not be 'blocked' .*convs"):
        frozen.prepare_graph(graph, N, layout="blocked")
    blocked = BlockedAdjacency.from_adjacency(frozen.prepare_graph(graph, N))
    with pytest.raises(ValueError, match="layout of adjacency must not be 'blocked'"):
        frozen(features, blocked)
    held = PreparedGraph((blocked,), graph, None, N)
    with pytest.raises(ValueError, match="layout of adjacency must not be 'blocked'"):
        frozen(features, held)


def test_parts_of_column_blocks(graph, monkeypatch):
    monkeypatch.setattr(compact, "LEAST_PART_EDGES", 16)
    plain = make("bin").prepare_graph(graph, N, layout="csr")
    parts = list(BlockedAdjacency.from_adjacency(plain, 37).row_parts())
    assert len(parts) > 10
    assert [first for first, _ in parts] == [
        sum(part.shape[0] for _, part in parts[:place]) for place in range(len(parts))
    ]
    assert torch.cat([part.indices for _, part in parts]).equal(plain.indices)
    assert torch.cat([part.rowptr.diff() for _, part in parts]).equal(plain.rowptr.diff())
    assert torch.cat([part.row_scale for _, part in parts]).equal(plain.row_scale)
    hub = plain.rowptr.diff().max()
    assert all(part.nnz <= max(16, hub) for _, part in parts)


def test_column_blocks_changed_in_place(graph, features):
    frozen = make("bin")
    blocked = frozen.prepare_graph(graph, N, layout="blocked")
    before = frozen(features, blocked)
    other = frozen.prepare_graph(graph.flip(0), N, layout="blocked")
    blocked.blocked().block_rowptr.copy_(other.blocked().block_rowptr)
    blocked.blocked().local_indices.copy_(other.blocked().local_indices)
    blocked.row_scale, blocked.col_scale = other.row_scale, other.col_scale
    assert frozen(features, blocked).equal(frozen(features, other))
    assert not frozen(features, blocked).equal(before)


def test_unknown_layout(graph):
    with pytest.raises(ValueError, match=r"layout must be one of .* got 'tiles'"):
        make("bin").prepare_graph(graph, N, layout="tiles")


def test_a_compact_graph_of_another_size(graph, features):
    frozen = make("bits")
    adjacency = frozen.prepare_graph(graph, N + 1, layout="blocked")
    with pytest.raises(ValueError, match="adjacency has 121 nodes, x has 120"):
        frozen(features, adjacency)


def test_float_weights_stay_as_they_are(graph, features):
    """A layer with float weights keeps its matrix beside patterns in any layout."""
    torch.manual_seed(0)
    frozen = freeze(GCN(FEATURES, 150, CLASSES, precision="FBB+BFB, BBF+FBF").eval())
    plain = frozen.prepare_graph(graph, N, layout="csr")
    sliced = frozen.prepare_graph(graph, N, layout="sliced")
    assert frozen(features, sliced).equal(frozen(features, plain))


def test_auto_without_memory_for_slices_stays_in_csr(graph, monkeypatch):
    def fail(self, words, layout):
        raise torch.OutOfMemoryError("no memory")

    monkeypatch.setattr(layout_module, "default_layout", lambda words, adjacency: "sliced")
    monkeypatch.setattr(BitAdjacency, "plan_layout", fail)
    frozen = make("bin")
    with pytest.warns(ResourceWarning, match="no memory to build the sliced layout"):
        adjacency = frozen.prepare_graph(graph, N)
    assert adjacency.planned_layout(5) == "csr"
    with pytest.raises(torch.OutOfMemoryError):
        frozen.prepare_graph(graph, N, layout="sliced")


def test_checkpoints_know_nothing_of_layouts(graph, features, tmp_path):
    frozen = make("bits")
    before = frozen.description()
    adjacency = frozen.prepare_graph(graph, N, layout="sliced")
    expected = frozen(features, adjacency)
    assert frozen.description() == before
    loaded = load(save(frozen, tmp_path / "model"))
    assert loaded(features, adjacency).equal(expected)


@pytest.mark.parametrize("mode", ["ordinary", "inference"])
@pytest.mark.parametrize("layout", ["csr", "sliced"])
def test_a_graph_changed_in_place(layout, mode, graph, features, device):
    frozen = make("bin").to(device)
    x, edge_index = features.to(device), graph.to(device)
    with torch.inference_mode(mode == "inference"):
        adjacency = frozen.prepare_graph(edge_index, N, layout=layout)
        before = frozen(x, adjacency)
        adjacency.indices.copy_((adjacency.indices + 7) % N)
    plain = BitAdjacency(
        adjacency.rowptr.clone(),
        adjacency.indices.clone(),
        N,
        adjacency.row_scale,
        adjacency.col_scale,
    )
    after = frozen(x, adjacency)
    assert after.equal(frozen(x, plain))
    assert not after.equal(before)
    adjacency.indices = (adjacency.indices + 11) % N
    plain.indices = adjacency.indices.clone()
    assert frozen(x, adjacency).equal(frozen(x, plain))


@pytest.mark.parametrize("name", ["bin", "full", "sage", "saint"])
def test_weights_changed_in_place(name, graph, features, device):
    frozen = make(name).to(device)
    x, edge_index = features.to(device), graph.to(device)
    adjacency = frozen.prepare_graph(edge_index, N)
    other = {key: tensor.flip(0) for key, tensor in frozen.state_dict().items()}
    packed = forms(frozen, x)
    before = [frozen(form, adjacency) for form in packed]
    for change in ("copied into", "replaced"):
        for key, buffer in dict(frozen.named_buffers()).items():
            if key not in other:
                continue
            if change == "replaced":
                setattr(frozen, key, buffer.flip(0))
            else:
                buffer.copy_(other[key])
        after = [frozen(form, adjacency) for form in packed]
        fresh = make(name).to(device)
        fresh.load_state_dict(frozen.state_dict())
        for form, found, old in zip(packed, after, before, strict=True):
            assert found.equal(fresh(form, adjacency))
            assert not found.equal(old)
        before = after

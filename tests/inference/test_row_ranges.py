"""Large graphs run by ranges of rows, with the bits of all rows at once."""

import pytest
import torch

import bitgnn
from bitgnn import BitAdjacency
from bitgnn.inference import row_ranges
from bitgnn.models import GCN, GraphSAGE

NODES = 500
LETTERS = ["FBB+BBB", "BBB+BBB", "BBB+BBF"]
MODELS = [
    lambda: GCN(33, 40, 7, 3, precision=LETTERS),
    lambda: GCN(33, 40, 70, 3, precision="bin"),
    lambda: GraphSAGE(33, 40, 7, 3, precision=LETTERS),
    lambda: GraphSAGE(33, 40, 70, 2, precision="bin"),
    lambda: bitgnn.binarize(_pyg("GCN")),
    lambda: bitgnn.binarize(_pyg("GraphSAGE")),
]


def _pyg(name):
    import torch_geometric.nn

    return getattr(torch_geometric.nn, name)(33, 40, 3, 7, norm="batch_norm")


def graph(seed=0):
    """Edges with duplicates, a hub and isolated nodes."""
    generator = torch.Generator().manual_seed(seed)
    edges = torch.randint(NODES - 20, (2, 6 * NODES), generator=generator)
    edges[1, :NODES] = 3
    return edges


def trained(make, seed=0):
    torch.manual_seed(seed)
    model, x, edges = make(), torch.randn(NODES, 33), graph()
    model.train()
    model(x, edges)
    return model.eval(), x, edges


@pytest.fixture
def small(monkeypatch):
    """Ranges of a few rows, and counts of them."""
    counts = []

    def counted(self, size, whole=BitAdjacency.row_ranges):
        counts.append(size)
        return whole(self, size)

    def enter(range_bytes=3000):
        monkeypatch.setattr(row_ranges, "WHOLE_BYTES", 1)
        monkeypatch.setattr(row_ranges, "RANGE_BYTES", range_bytes)
        monkeypatch.setattr(BitAdjacency, "row_ranges", counted)
        return counts

    return enter


@pytest.mark.parametrize("output", [None, "classes", "log_softmax"])
@pytest.mark.parametrize("make", MODELS)
def test_ranges_give_the_bits_of_all_rows(make, output, small):
    model, x, edges = trained(make)
    options = {} if output is None else {"output": output}
    whole = bitgnn.freeze(model, **options)
    prepared = whole.prepare_graph(edges, NODES)
    expected = [whole(given, prepared) for given in (x, whole.pack_features(x, layout="dense"))]
    counts = small()
    ranged = bitgnn.freeze(model, **options)
    for given, wanted in zip((x, ranged.pack_features(x, layout="dense")), expected, strict=True):
        for _ in range(3):
            assert torch.equal(ranged(given, prepared), wanted)
    assert counts
    assert max(counts) < NODES


@pytest.mark.cuda
@pytest.mark.parametrize("make", MODELS)
def test_ranges_on_a_gpu(make, small):
    model, x, edges = trained(make)
    whole, x = bitgnn.freeze(model).cuda(), x.cuda()
    graph = whole.prepare_graph(edges.cuda(), NODES, layout="csr")
    expected = whole(x, graph)
    small()
    ranged, out = bitgnn.freeze(model).cuda(), torch.empty(expected.shape)
    assert torch.equal(ranged(x, graph), expected)
    assert ranged(x, graph, out=out) is out
    assert torch.equal(out, expected.cpu())
    captured = bitgnn.capture(ranged, x, graph)
    assert torch.equal(captured(), expected)


@pytest.mark.parametrize("range_bytes", [1, 400, 10**9])
def test_scores_go_to_a_mapped_file(range_bytes, small, tmp_path):
    np = pytest.importorskip("numpy")
    model, x, edges = trained(MODELS[0])
    frozen = bitgnn.freeze(model)
    expected = frozen(x, edges)
    small(range_bytes)
    frozen = bitgnn.freeze(model)
    file = np.memmap(tmp_path / "scores", np.float32, "w+", shape=(NODES, 7))
    out = torch.from_numpy(file)
    assert frozen(x, edges, out=out) is out
    file.flush()
    found = np.fromfile(tmp_path / "scores", np.float32).reshape(NODES, 7)
    assert torch.equal(torch.from_numpy(found), expected)
    with pytest.raises(ValueError, match=r"out must have shape \[500, 7\]"):
        frozen(x, edges, out=torch.empty(NODES, 6))
    with pytest.raises(TypeError, match=r"out must be torch.float32, got torch.float64"):
        frozen(x, edges, out=torch.empty(NODES, 7, dtype=torch.float64))


def test_weights_of_edges(small):
    torch.manual_seed(0)
    model, x, edges = GCN(33, 40, 7, 2, precision=LETTERS[1:]), torch.randn(NODES, 33), graph()
    weight = torch.rand(edges.size(1))
    model.train()
    model(x, edges, weight)
    expected = bitgnn.freeze(model.eval())(x, edges, weight)
    counts = small()
    assert torch.equal(bitgnn.freeze(model)(x, edges, weight), expected)
    assert counts


def test_writes_to_the_graph_and_the_weights_are_seen(small):
    model, x, edges = trained(MODELS[0])
    small()
    frozen = bitgnn.freeze(model)
    adjacency = frozen.prepare_graph(edges, NODES)
    before = frozen(x, adjacency)
    adjacency.indices[: NODES // 2] = 0
    after = frozen(x, adjacency)
    assert not torch.equal(before, after)
    again = BitAdjacency(adjacency.rowptr, adjacency.indices, NODES, *adjacency.tensors[2:4])
    assert torch.equal(frozen(x, again), after)

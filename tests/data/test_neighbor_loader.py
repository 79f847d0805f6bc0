"""NeighborLoader and NeighborSampler: batches as PyG's loaders make them, without its libraries."""

import pytest
import torch
import torch_geometric.loader
import torch_geometric.sampler
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import LinkLoader, LinkNeighborLoader, NodeLoader
from torch_geometric.nn import GraphSAGE
from torch_geometric.sampler import NegativeSampling, NumNeighbors
from torch_geometric.utils import k_hop_subgraph

from bitgnn import BitTensor, binarize
from bitgnn.bits import BitFeatures, Int8Features, Int8Tensor
from bitgnn.data import NeighborLoader, NeighborSampler, PackedFeatureStore

NODES, EDGES, SIZE = 60, 400, 40
COUNTS = {"paper": NODES, "author": 20}
WRITES = ("author", "writes", "paper")
CITES = ("paper", "cites", "paper")
REV = ("paper", "rev_writes", "author")


@pytest.fixture
def data():
    generator = torch.Generator().manual_seed(0)
    edge_index = torch.randint(NODES - 2, (2, EDGES), generator=generator)  # two nodes alone
    x = torch.randn(NODES, SIZE, generator=generator)
    return Data(x=x, edge_index=edge_index, edge_attr=torch.arange(EDGES), y=torch.arange(NODES))


@pytest.fixture
def hetero():
    generator = torch.Generator().manual_seed(0)
    data = HeteroData()
    floats = torch.randn(NODES, SIZE, generator=generator)
    data["paper"].x = BitTensor.from_float(floats).as_features()
    data["author"].x = torch.randn(20, 3, generator=generator)
    papers = torch.randint(NODES, (EDGES,), generator=generator)
    authors = torch.randint(20, (EDGES,), generator=generator)
    data[WRITES].edge_index = torch.stack([authors, papers])
    data[CITES].edge_index = torch.stack([papers.roll(3), papers])
    data[REV].edge_index = torch.stack([papers, authors])
    return data


def pairs(edge_index):
    return sorted(map(tuple, edge_index.t().tolist()))


def check_batch(batch, data):
    """Features, labels, edges and their numbers are those of the graph."""
    assert torch.equal(batch.x, data.x[batch.n_id])
    assert torch.equal(batch.y, batch.n_id)
    assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
    assert torch.equal(batch.edge_attr, batch.e_id)
    assert torch.equal(batch.n_id[: batch.batch_size], batch.input_id)


def check_edges(batch, data, kind):
    """Edges of a type are those of the graph."""
    source, into = batch[kind].edge_index
    ends = torch.stack([batch[kind[0]].n_id[source], batch[kind[-1]].n_id[into]])
    assert torch.equal(ends, data[kind].edge_index[:, batch[kind].e_id])


def test_batches_are_parts_of_the_graph(data):
    def number(batch):
        batch.number = batch.num_nodes
        return batch

    def note(found):
        noted.append(len(found.node))
        return found

    noted, seen = [], []
    transforms = {"transform": number, "transform_sampler_output": note}
    loader = NeighborLoader(data, [3, 2], batch_size=16, shuffle=True, **transforms)
    assert len(loader) == 4
    for batch in loader:
        check_batch(batch, data)
        seen.append(batch.input_id)
        assert batch.number == noted[-1] == sum(batch.num_sampled_nodes)
        assert sum(batch.num_sampled_edges) == batch.num_edges
        assert batch.num_sampled_nodes[0] == batch.batch_size
        assert batch.batch is None
    assert torch.equal(torch.cat(seen).sort().values, torch.arange(NODES))


@pytest.mark.parametrize("subgraph_type", ["directional", "induced"])
def test_all_neighbours_are_the_neighbourhood(data, subgraph_type):
    seeds = torch.tensor([5, 0, NODES - 1])
    (batch,) = NeighborLoader(data, [-1, -1], seeds, batch_size=3, subgraph_type=subgraph_type)
    nodes, among, _, _ = k_hop_subgraph(seeds, 2, data.edge_index, num_nodes=NODES)
    assert torch.equal(batch.n_id.sort().values, nodes)
    inner = k_hop_subgraph(seeds, 1, data.edge_index, num_nodes=NODES)[0]
    into_inner = data.edge_index[:, torch.isin(data.edge_index[1], inner)]
    expected = among if subgraph_type == "induced" else into_inner
    assert pairs(batch.n_id[batch.edge_index]) == pairs(expected)
    assert ("num_sampled_nodes" in batch) == (subgraph_type == "directional")


def test_masks_numbers_and_sorted_edges(data):
    mask = torch.arange(NODES) % 3 == 0
    order = data.edge_index[1].argsort(stable=True)
    ordered = Data(edge_index=data.edge_index[:, order], num_nodes=NODES)
    for graph, options in ((data, {}), (ordered, {"is_sorted": True})):
        found = []
        for seeds in (mask, mask.nonzero().flatten(), mask.nonzero().flatten().int()):
            torch.manual_seed(3)
            loader = NeighborLoader(graph, [2], seeds, batch_size=7, **options)
            found.append([(b.n_id.tolist(), b.edge_index.tolist()) for b in loader])
        assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}], ids=["alone", "workers"])
def test_batches_follow_the_seed_of_torch(data, options):
    def batches(seed):
        torch.manual_seed(seed)
        loader = NeighborLoader(data, [3, 3], batch_size=20, shuffle=True, **options)
        return [batch.e_id.tolist() for batch in loader]

    assert batches(1) == batches(1)
    assert batches(1) != batches(2)


KINDS = pytest.mark.parametrize("kind", [BitFeatures, Int8Features])


def packed(x, kind=BitFeatures):
    if kind is BitFeatures:
        return BitTensor.from_float(x).as_features()
    return Int8Tensor.from_float(x, x.mean(0), x.abs().amax(0) / 127).as_features()


@pytest.mark.parametrize(
    ("kind", "context", "in_worker"),
    [
        (BitFeatures, "fork", False),
        (BitFeatures, "spawn", True),
        (Int8Features, "fork", True),
        (Int8Features, "spawn", False),
    ],
)
def test_workers(data, kind, context, in_worker):
    data.x = packed(data.x, kind)
    options = {"num_workers": 1, "multiprocessing_context": context}
    loader = NeighborLoader(data, [3, 2], batch_size=30, filter_per_worker=in_worker, **options)
    for batch in loader:
        assert batch.x.equal(data.x[batch.n_id])
        assert type(batch.x) is kind
        assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])


def test_disjoint_and_bidirectional(data):
    for batch in NeighborLoader(data, [4, 4], batch_size=10, disjoint=True):
        check_batch(batch, data)
        source, into = batch.batch[batch.edge_index]
        assert torch.equal(source, into)
        assert torch.equal(batch.batch[:10], torch.arange(10))
    for batch in NeighborLoader(data, [4, 4], batch_size=10, subgraph_type="bidirectional"):
        assert pairs(batch.edge_index) == pairs(batch.edge_index.flip(0))


def test_graphs_without_edges():
    (batch,) = NeighborLoader(Data(num_nodes=4), [3], batch_size=4)
    assert batch.n_id.tolist() == [0, 1, 2, 3]
    edges = torch.zeros(2, 0, dtype=torch.int64)
    (batch,) = NeighborLoader(Data(edge_index=edges, num_nodes=2), [3, 3], batch_size=2)
    assert batch.edge_index.shape == (2, 0)


def test_backward_samples_destinations(data, hetero):
    sampler = NeighborSampler(data, [2], sample_direction="backward")
    for batch in NodeLoader(data, sampler, batch_size=15):
        check_batch(batch, data)
        assert bool((batch.edge_index[0] < batch.batch_size).all())
    sampler = NeighborSampler(hetero, [-1], sample_direction="backward")
    (batch,) = NodeLoader(hetero, sampler, input_nodes=("author", torch.tensor([3])), batch_size=1)
    wanted = hetero[WRITES].edge_index[1][hetero[WRITES].edge_index[0] == 3]
    found = batch["paper"].n_id[batch[WRITES].edge_index[1]]
    assert torch.equal(found.sort().values, wanted.sort().values)
    assert batch[WRITES].edge_index[0].tolist() == [0] * len(wanted)


@pytest.mark.parametrize("neighbors", [[3, 2], {WRITES: [2, 1], CITES: [3, 0], REV: [0, 2]}])
def test_heterogeneous_graphs(hetero, neighbors):
    for batch in NeighborLoader(hetero, neighbors, ("paper", torch.arange(12)), batch_size=5):
        paper, author = batch["paper"], batch["author"]
        assert torch.equal(paper.n_id[: paper.batch_size], paper.input_id)
        assert paper.x.equal(hetero["paper"].x[paper.n_id])
        assert torch.equal(author.x, hetero["author"].x[author.n_id])
        for part in (paper, author):
            assert sum(part.num_sampled_nodes) == part.num_nodes
        for kind in hetero.edge_types:
            check_edges(batch, hetero, kind)
            assert sum(batch[kind].num_sampled_edges) == batch[kind].num_edges
        if isinstance(neighbors, dict):
            counts = [batch[kind].num_sampled_edges for kind in (CITES, REV)]
            assert counts[0][1] == counts[1][0] == 0


def test_heterogeneous_options(hetero):
    seeds = ("paper", torch.arange(8))
    (batch,) = NeighborLoader(hetero, [2, 2], seeds, batch_size=8, disjoint=True)
    for kind in hetero.edge_types:
        source, into = batch[kind].edge_index
        assert torch.equal(batch[kind[0]].batch[source], batch[kind[-1]].batch[into])
    (batch,) = NeighborLoader(hetero, [2, 2], seeds, batch_size=8, subgraph_type="induced")
    nodes = {kind: batch[kind].n_id for kind in hetero.node_types}
    for kind, part in hetero.subgraph(nodes).edge_items():
        assert part.edge_index.size(1) == batch[kind].edge_index.size(1)


@pytest.mark.parametrize("negatives", ["binary", "triplet"])
@pytest.mark.parametrize("disjoint", [False, True])
def test_links(data, negatives, disjoint):
    sampler = NeighborSampler(data, [2, 2], disjoint=disjoint)
    options = {"edge_label_index": data.edge_index[:, :50], "batch_size": 25}
    options["neg_sampling"] = NegativeSampling(negatives)
    for loader in (
        LinkLoader(data, sampler, **options),
        LinkNeighborLoader(data, [2, 2], neighbor_sampler=sampler, **options),
    ):
        for i, batch in enumerate(loader):
            if negatives == "binary":
                found = batch.n_id[batch.edge_label_index[:, :25]]
                assert batch.edge_label.tolist() == [1.0] * 25 + [0.0] * 25
            else:
                found = torch.stack([batch.n_id[batch.src_index], batch.n_id[batch.dst_pos_index]])
            assert torch.equal(found, data.edge_index[:, 25 * i : 25 * i + 25])


def test_links_between_types(hetero):
    sampler = NeighborSampler(hetero, NumNeighbors({WRITES: [2]}, default=[1]))
    links = (WRITES, hetero[WRITES].edge_index[:, :30])
    options = {"edge_label_index": links, "neg_sampling": "binary", "batch_size": 30}
    (batch,) = LinkLoader(hetero, sampler, **options)
    source, into = batch[WRITES].edge_label_index
    found = torch.stack([batch["author"].n_id[source], batch["paper"].n_id[into]])
    assert torch.equal(found[:, :30], links[1])


@KINDS
def test_packed_features_in_a_file(tmp_path, data, kind):
    rows = packed(data.x, kind)
    PackedFeatureStore.write(tmp_path / "x", [rows], data.edge_index)
    store = PackedFeatureStore(tmp_path / "x")
    store.put_edge_index(data.edge_index, edge_type=None, layout="coo", size=(NODES, NODES))
    store.put_tensor(data.y, group_name=None, attr_name="y", index=None)
    seeds = torch.arange(NODES)
    for workers in (0, 1):
        options = {"batch_size": 25, "num_workers": workers}
        for batch in NeighborLoader((store, store), [3, 2], seeds, **options):
            assert batch.x.equal(rows[batch.n_id])
            assert torch.equal(batch.y, batch.n_id)
            assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])


def test_stores_with_types(tmp_path, hetero):
    hetero["author"].x = packed(hetero["author"].x, Int8Features)
    for name in COUNTS:
        PackedFeatureStore.write(tmp_path / name, [hetero[name].x])
    store = PackedFeatureStore({name: tmp_path / name for name in COUNTS})
    for kind in (WRITES, CITES, REV):
        size, edges = (COUNTS[kind[0]], COUNTS[kind[-1]]), hetero[kind].edge_index
        store.put_edge_index(edges, edge_type=kind, layout="coo", size=size)
    for source in (hetero, (store, store)):
        for batch in NeighborLoader(source, [3, 2], ("paper", torch.arange(9)), batch_size=4):
            for name in COUNTS:
                assert batch[name].x.equal(hetero[name].x[batch[name].n_id])
            check_edges(batch, hetero, WRITES)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"time_attr": "y"}, NotImplementedError, "time_attr asks for temporal .* with pyg-lib"),
        ({"input_time": torch.zeros(2)}, NotImplementedError, "input_time asks for temporal"),
        ({"temporal_strategy": "last"}, NotImplementedError, "strategy asks for temporal"),
        ({"weight_attr": "edge_attr"}, NotImplementedError, "weight_attr asks for weighted"),
        ({"subgraph_type": "sideways"}, ValueError, "'sideways' is not a valid SubgraphType"),
        ({"directed": False}, TypeError, "unexpected keyword argument 'directed'"),
        ({"input_nodes": torch.tensor([NODES])}, ValueError, r"seeds\[0\] must"),
        ({"input_nodes": torch.tensor([-1])}, ValueError, r"seeds\[0\] must"),
        ({"num_neighbors": [-2]}, ValueError, "fanouts must be from -1"),
    ],
)
def test_wrong_calls(data, options, error, message):
    with pytest.raises((error, RuntimeError), match=message):
        list(NeighborLoader(data, **{"num_neighbors": [2], **options}))


def test_wrong_samplers(data):
    with pytest.raises(ValueError, match="sample_direction must be"):
        NeighborSampler(data, [2], sample_direction="both")
    timed = NodeLoader(data, NeighborSampler(data, [2]), input_time=torch.zeros(NODES))
    with pytest.raises(NotImplementedError, match="temporal sampling is not supported"):
        list(timed)


@pytest.mark.parametrize("workers", [0, 1])
def test_packed_rows_of_every_attribute_are_cut(data, hetero, workers):
    rows = BitTensor.from_float(data.x, scale="mean")
    graph = Data(x=rows, seen=rows, edge_index=data.edge_index)
    for batch in NeighborLoader(graph, [5, 5], batch_size=32, num_workers=workers):
        assert batch.x.equal(rows[batch.n_id])
        assert batch.seen.equal(rows[batch.n_id])
    author = hetero["author"].seen = BitTensor.from_float(torch.randn(20, 7))
    edges = hetero[WRITES].edge_attr = BitTensor.from_float(torch.randn(EDGES, 9))
    for batch in NeighborLoader(hetero, [4, 4], "paper", batch_size=20, num_workers=workers):
        assert batch["author"].seen.equal(author[batch["author"].n_id])
        assert batch[WRITES].edge_attr.equal(edges[batch[WRITES].e_id])


@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("cache", [False, True])
def test_layers_run_one_by_one_over_a_loader(data, is_packed, cache):
    model = binarize(GraphSAGE(SIZE, 16, 2, 4), example=data).eval()
    if is_packed:
        data.x = BitTensor.from_float(data.x)
    loader = NeighborLoader(data, [-1], batch_size=16)
    assert isinstance(loader, torch_geometric.loader.NeighborLoader)
    assert isinstance(loader.node_sampler, torch_geometric.sampler.NeighborSampler)
    with torch.no_grad():
        expected = model(data.x, data.edge_index)
        torch.testing.assert_close(model.inference(loader, cache=cache), expected)


def test_loader_takes_a_sampler(data):
    sampler = NeighborSampler(data, [3, 2])
    loader = NeighborLoader(data, [9, 9, 9], neighbor_sampler=sampler, batch_size=16)
    assert loader.node_sampler is sampler
    batch = next(iter(loader))
    check_batch(batch, data)
    assert len(batch.num_sampled_edges) == 2

"""Frozen models on several ranks give what one process gives, to the bit."""

import gloo_ranks
import pytest
import torch
import torch_geometric.nn as pyg

import bitgnn
from bitgnn import freeze
from bitgnn.distributed import parallelize, shard_graph
from bitgnn.models import GCN, GraphSAGE, GraphSAINT
from bitgnn.nn import GATConv, GATv2Conv, GraphConv

FEATURES, HIDDEN = 33, 40


class Convolutions(torch.nn.Module):
    """Two layers of sums, with a map of the features beside them."""

    def __init__(self, out):
        super().__init__()
        self.first, self.last = GraphConv(FEATURES, HIDDEN), GraphConv(HIDDEN, out)
        self.beside = torch.nn.Linear(FEATURES, out)

    def forward(self, x, edge_index):
        hidden = self.first(x, edge_index)
        return (self.last(hidden, edge_index) + self.beside(x) * 0).log_softmax(-1)


class Attention(torch.nn.Module):
    """A layer of attention in front of one of sums."""

    def __init__(self, layer):
        super().__init__()
        self.first, self.last = layer(FEATURES, 16, heads=2), GraphConv(32, 5)

    def forward(self, x, edge_index):
        return self.last(self.first(x, edge_index), edge_index)


def frozen(model, graph, x, **options):
    """The model frozen after a step that settles its layers."""
    torch.manual_seed(1)
    model.train()
    model(x, graph)
    return freeze(model.eval(), **options)


def models(graph, x):
    """Frozen models: sums of narrow and of wide scores, floats between, 8-bit rows, classes."""
    torch.manual_seed(0)
    made = {
        f"{kind.__name__} {precision} {out}": kind(FEATURES, HIDDEN, out, 2, precision=precision)
        for kind in (GCN, GraphSAGE)
        for precision, out in (("bin", 3), ("bin", 60), ("full", 60))
    }
    made["GraphConv"] = Convolutions(60)
    made["GraphSAINT"] = GraphSAINT(FEATURES, HIDDEN, 7, "bin")  # sums of float maps of bits
    made["PyG's GCN"] = bitgnn.binarize(pyg.GCN(FEATURES, HIDDEN, 2, 60))
    made |= {layer.__name__: Attention(layer) for layer in (GATConv, GATv2Conv)}
    found = {name: frozen(model, graph, x) for name, model in made.items()}
    found["classes"] = frozen(GraphSAGE(FEATURES, 32, 60, 3, precision="bin"), graph, x,
                              output="classes")  # fmt: skip
    return found


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_ranks_compute_what_one_process_does(graph, write, tmp_path, spawn, world_size):
    x = torch.randn(40, FEATURES, generator=torch.Generator().manual_seed(3))
    cases, expected = {}, {}
    for name, model in models(graph, x).items():
        folder = str(tmp_path / name)
        bitgnn.save(model, folder)
        for order, chunk_rows in (("range", 5), ("dealt", None)):
            options = {"num_nodes": 40, "order": order, "chunk_rows": chunk_rows}
            cases[f"{name} {order}"] = folder, x, graph, options
            expected[f"{name} {order}"] = model(x, graph)
    # Fewer parts than ranks leave ranks without rows; the features are packed on disk.
    sage = bitgnn.load(tmp_path / "classes")
    packed = sage.pack_features(x)
    for order, parts in (("range", 2), ("dealt", 5)):
        root = str(write(graph, parts, num_nodes=40, x=packed, order=order))
        cases[f"files {order}"] = str(tmp_path / "classes"), None, root, {"chunk_rows": 3}
        expected[f"files {order}"] = sage(packed, sage.prepare_graph(graph, 40))
    gcn = bitgnn.load(tmp_path / "GCN bin 3")
    root = str(write(graph, 4, num_nodes=40, normalize="sym", add_self_loops=True))
    cases["prepared files"] = str(tmp_path / "GCN bin 3"), x, root, {}
    cases["prepared"] = str(tmp_path / "GCN bin 3"), x, gcn.prepare_graph(graph, 40), {}
    expected["prepared files"] = expected["prepared"] = gcn(x, graph)
    alone = torch.ones(1, FEATURES), torch.tensor([[0, 0], [0, 0]])
    cases["one node"] = str(tmp_path / "classes"), *alone, {"num_nodes": 1}
    expected["one node"] = sage(*alone)
    nobody = torch.ones(0, FEATURES), torch.empty(2, 0, dtype=torch.int64)
    cases["no node"] = str(tmp_path / "classes"), *nobody, {"num_nodes": 0}
    expected["no node"] = sage(*nobody)

    spawn(gloo_ranks.run_models, world_size, cases, str(tmp_path))
    found = [torch.load(tmp_path / f"rank-{rank}.pt") for rank in range(world_size)]
    for name, result in expected.items():
        for rank in found:
            assert torch.equal(rank[f"{name}.0"], result), name
            assert torch.equal(rank[f"{name}.1"], result), name
            assert torch.equal(rank[f"{name}.own"], result[rank[f"{name}.nodes"]]), name
    if world_size == 4:
        assert [len(rank["files range.nodes"]) for rank in found].count(0) == 2


def test_ranks_that_lose_one_end_with_an_error(graph, tmp_path, spawn):
    x = torch.randn(40, FEATURES)
    bitgnn.save(frozen(GCN(FEATURES, HIDDEN, 3, 2, precision="bin"), graph, x), tmp_path / "gcn")
    spawn(gloo_ranks.lose_one, 3, str(tmp_path / "gcn"), x, graph, str(tmp_path))
    for rank in (0, 2):
        told = (tmp_path / f"error-{rank}").read_text()
        assert told.startswith(
            f"rank {rank} of 3: rows cannot be exchanged, another rank has ended"
        )


@pytest.fixture
def alone(tmp_path):
    """A group of this process alone."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/alone", rank=0, world_size=1
    )
    yield
    torch.distributed.destroy_process_group()


class Pooled(torch.nn.Module):
    """A layer and a mean over all nodes."""

    def __init__(self):
        super().__init__()
        self.conv = GraphConv(FEATURES, HIDDEN, precision="bin")

    def forward(self, x, edge_index):
        x = self.conv(x, edge_index)
        return x - x.mean(0)


def test_calls_that_cannot_be_sharded_are_refused(graph, alone):
    x = torch.randn(40, FEATURES)
    with pytest.raises(TypeError, match=r"model must be a FrozenModel.*got a Tensor"):
        parallelize(x)
    with pytest.raises(ValueError, match="parallelize: every part must treat nodes one by one"):
        parallelize(frozen(Pooled(), graph, x))
    model = frozen(GCN(FEATURES, HIDDEN, 3, 2, precision="bin"), graph, x)
    sharded, parallel = shard_graph(graph, num_nodes=40), parallelize(model)
    assert torch.equal(parallel(x, sharded), model(x, graph))
    for wrong in (x[:39], x[:, :32], x[0]):
        with pytest.raises(ValueError, match=r"x must be \[40, 33\]|x must be \[N, 33\]"):
            parallel(wrong, sharded)
    with pytest.raises(TypeError, match="x must be dense or packed"):
        parallel(x.to_sparse(), sharded)
    with pytest.raises(TypeError, match="graph must come from shard_graph, got a Tensor"):
        parallel(x, graph)
    with pytest.raises(ValueError, match=r"out must have 40 rows, got \[39, 33\]"):
        sharded.full_tensor(x[:39])
    with pytest.raises(ValueError, match="chunk_rows must be 1 or more, got 0"):
        shard_graph(graph, num_nodes=40, chunk_rows=0)


def test_networks_without_a_graph_run_on_their_rows(graph, alone):
    x = torch.randn(40, FEATURES)
    layers = bitgnn.binarize(pyg.MLP([FEATURES, 64, 64, 5])).train()
    layers(x)
    model = freeze(layers.eval())
    found = parallelize(model)(x, shard_graph(graph, num_nodes=40))
    torch.testing.assert_close(found, model(x))


def test_weights_of_edges_are_refused(graph, alone):
    x, weight = torch.randn(40, FEATURES), torch.rand(graph.size(1))
    layer = bitgnn.nn.GCNConv(FEATURES, 3, precision="FBF+FFF")
    layer(x, graph, weight)
    model = freeze(layer.eval())
    with pytest.raises(ValueError, match="weights of single edges"):
        parallelize(model)(x, shard_graph(graph, num_nodes=40))


def test_weights_that_are_replaced_count(graph, alone):
    x = torch.randn(40, FEATURES)
    first = frozen(GCN(FEATURES, HIDDEN, 3, 2, precision="bin"), graph, x)
    torch.manual_seed(5)
    second = frozen(GCN(FEATURES, HIDDEN, 3, 2, precision="bin"), graph, x * 2)
    parallel, sharded = parallelize(first), shard_graph(graph, num_nodes=40)
    parallel(x, sharded)
    first.load_state_dict(second.state_dict())
    assert torch.equal(parallel(x, sharded), second(x, graph))


def test_types_of_features_are_kept_and_progress_is_told(graph, alone):
    x = torch.randn(40, FEATURES, dtype=torch.float64)
    model = frozen(GraphSAGE(FEATURES, HIDDEN, 3, 2, precision="bin"), graph, x.float())
    told = []
    found = parallelize(model)(
        x, shard_graph(graph, num_nodes=40, chunk_rows=16), lambda *done: told.append(done)
    )
    assert found.dtype == torch.float64
    assert torch.equal(found, model(x, graph))
    assert told == [(number, 9) for number in range(1, 10)]

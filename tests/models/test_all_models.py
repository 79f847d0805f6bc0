"""What holds for every model: shapes, precisions, copies, tracing, odd graphs, refusals."""

import pytest
import torch
from torch import fx
from torch.nn import functional
from torch_geometric.data import Data
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import k_hop_subgraph

from bitgnn import freeze
from bitgnn.bits import BitAdjacency
from bitgnn.data import NeighborLoader
from bitgnn.models import GCN, GraphSAGE, GraphSAINT
from bitgnn.nn import LayerPrecision

PRECISIONS = ["fp32", "full", "bin"]
NORMS = {"hidden_norm": "batch", "output_norm": "batch"}
in_all = pytest.mark.parametrize("precision", PRECISIONS)


class LayerTracer(fx.Tracer):
    """Keeps message passing whole, as every tracer of PyG models does."""

    def is_leaf_module(self, module, name):
        return isinstance(module, MessagePassing) or super().is_leaf_module(module, name)


@pytest.mark.parametrize("precision", [*PRECISIONS, "FBB+BBF, FBF+FBF"])
def test_scores_of_every_node(build, x, edges, precision):
    model = build(precision).eval()
    none = torch.empty((2, 0), dtype=torch.int64)
    for rows, graph in ((x, edges), (x, none), (x[:1], none), (x[:0], none)):
        scores = model(rows, graph)
        assert scores.shape == (len(rows), 3)
        assert scores.isfinite().all()


@in_all
def test_training_lowers_the_loss(build, precision):
    generator = torch.Generator().manual_seed(3)
    y = torch.arange(40) % 3
    x = functional.one_hot(y, 31) * 4.0 + torch.randn(40, 31, generator=generator)
    # Three neighbours of the node's own class, so that the inductive form sees something.
    edges = torch.stack([(torch.arange(120) + 3) % 40, torch.arange(120) % 40])
    model = build(precision, dropout=0.1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x, edges), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.6 * losses[0]


def test_with_precision_keeps_keys_weights_and_options(build, x, edges):
    model = build("full", dropout=0.3, bias=False, surrogate="approx").eval()
    copy = model.with_precision("bin")
    assert (copy.precision, copy.training, copy.dropout) == ("bin", False, 0.3)
    assert copy.precisions[0].surrogate == "approx"
    for other in (copy, model.with_precision("fp32")):
        assert list(other.state_dict()) == list(model.state_dict())
    for name, tensor in model.state_dict().items():
        assert torch.equal(copy.state_dict()[name], tensor)
        assert copy.state_dict()[name].data_ptr() != tensor.data_ptr()
    assert torch.equal(copy.with_precision("full")(x, edges), model(x, edges))


def test_with_precision_of_a_model_with_norms(build, x, edges):
    model = build("bin", **NORMS)
    model(x, edges)
    norms = [name for name in model.state_dict() if "hidden_norm" in name or "output_norm" in name]
    assert norms
    plain = model.with_precision("fp32")
    assert not set(norms) & set(plain.state_dict())
    again = plain.with_precision("bin")
    assert list(again.state_dict()) == list(model.state_dict())
    for name in plain.state_dict():
        assert torch.equal(again.state_dict()[name], model.state_dict()[name])


def test_reset_parameters_draws_anew(build, x, edges):
    model = build("bin", hidden_norm="batch")
    model(x, edges)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.reset_parameters()
    changed = [n for n, tensor in model.state_dict().items() if not torch.equal(before[n], tensor)]
    for name in before:
        if "running_mean" in name or ("weight" in name and "norm" not in name):
            assert name in changed


@in_all
def test_traceable(build, x, edges, precision):
    model = build(precision, dropout=0.2, output_norm="batch").eval()
    traced = fx.GraphModule(model, LayerTracer().trace(model))
    assert torch.equal(traced(x, edges), model(x, edges))
    targets = [node.target for node in traced.graph.nodes if node.op == "call_module"]
    assert [name for name in targets if name.startswith("convs.")] == ["convs.0", "convs.1"]


@pytest.mark.parametrize(("precision", "are_bits"), [("bin", True), ("full", False)])
def test_bin_hands_over_bits_and_full_floats(build, x, edges, precision, are_bits):
    hidden = []
    model = build(precision).eval()
    model.convs[1].register_forward_pre_hook(lambda _, inputs: hidden.append(inputs[0]))
    model(x, edges)
    assert (set(hidden[0].unique().tolist()) <= {-1.0, 1.0}) == are_bits


def test_edge_weights_and_a_ready_adjacency(build, x, edges):
    weight = torch.rand(edges.size(1))
    model = build("full").eval()
    if build.name in ("inductive GCN", "GraphSAGE"):
        with pytest.raises(ValueError, match="edge_weight must be None, since the mean"):
            model(x, edges, weight)
    else:
        weighted = model(x, edges, weight)
        assert not torch.allclose(weighted, model(x, edges))
    is_gcn = build.name == "GCN"
    options = {"normalize": "sym" if is_gcn else "mean", "add_self_loops": is_gcn}
    adjacency = BitAdjacency.from_edge_index(edges, len(x), **options)
    assert torch.equal(model(x, adjacency), model(x, edges))


@in_all
def test_a_node_without_neighbours_does_not_depend_on_the_others(build, x, edges, precision):
    model = build(precision, input_norm=False).eval()
    other = torch.cat([torch.randn_like(x[:-1]), x[-1:]])
    assert torch.equal(model(x, edges)[-1], model(other, edges)[-1])


@in_all
@pytest.mark.parametrize("kind", [GCN, GraphSAGE, GraphSAINT])
def test_one_node_one_feature_one_class_width_one(kind, precision):
    for options in ({}, {"inductive": True})[: 1 + (kind is GCN)]:
        model = kind(1, 1, 1, **options).with_precision(precision).eval()
        scores = model(torch.ones(1, 1), torch.tensor([[0], [0]]))
        assert scores.shape == (1, 1)
        assert scores.isfinite().all()


@in_all
def test_samples(build, x, edges, precision):
    model = build(precision).eval()
    seeds = torch.tensor([0, 5, len(x) - 1])
    if build.name != "GCN":  # whose symmetric normalisation takes degrees that a sample cuts off
        nodes, sampled, places, _ = k_hop_subgraph(
            seeds, 2, edges, relabel_nodes=True, num_nodes=len(x)
        )
        torch.testing.assert_close(model(x[nodes], sampled)[places], model(x, edges)[seeds])
    data = Data(x=x, edge_index=edges)
    for batch in NeighborLoader(data, num_neighbors=[2, 2], batch_size=7):
        assert model(batch.x, batch.edge_index).shape == (batch.num_nodes, 3)


@pytest.mark.parametrize("options", [{}, NORMS])
@pytest.mark.parametrize("precision", ["full", "bin", "FBB+BBF, BBF+FBF"])
def test_the_frozen_form_gives_the_same_scores(build, x, edges, precision, options):
    model = build(precision, **options)
    for _ in range(3):  # statistics of the norms
        model(x, edges)
    model.eval()
    frozen = freeze(model)
    scores = frozen(frozen.pack_features(x), frozen.prepare_graph(edges, len(x)))
    expected = model(x, edges)
    assert torch.equal(scores.argmax(-1), expected.argmax(-1))
    torch.testing.assert_close(scores, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"precision": "half"}, ValueError, "got 'half'"),
        ({"precision": ["full"] * 3}, ValueError, "one entry for each of 2 layers, got 3"),
        ({"dropout": 1.0}, ValueError, r"dropout must be in \[0, 1\), got 1.0"),
        ({"window": 2}, TypeError, r"unknown options \['window'\]"),
        ({"precision": "bin", "hidden_norm": "layer"}, ValueError, "hidden_norm must be one of"),
    ],
)
def test_bad_arguments(build, options, error, message):
    with pytest.raises(error, match=message):
        build(**options)


def test_bad_features(build, x, edges):
    model = build("bin")
    for wrong, message in (
        (x[:, 1:], r"x must be \[N, 31\], got \[33, 30\]"),
        (x[:, 0], r"x must be \[N, 31\], got \[33\]"),
        ((x, x), r"x must be \[N, 31\], got tuple"),
    ):
        with pytest.raises(ValueError, match=message):
            model(wrong, edges)
    with pytest.raises(TypeError, match=r"x must hold floats, got torch\.int64"):
        model(x.long(), edges)


def test_sequences_of_precisions_read_as_one_string(build):
    model = build([LayerPrecision("FBB", "BBF", surrogate="approx"), "full"])
    assert model.precision == "bin, full"
    assert model.precisions[0].surrogate == "approx"
    assert f"precision={model.precision!r}" in repr(model)

"""Models that train on rows of several ranks equal those of one process."""

import copy
from functools import partial

import gloo_ranks
import pytest
import torch
import torch_geometric.nn
from sharded_models import CLASSES, FEATURES, HIDDEN, Stack

from bitgnn import freeze
from bitgnn.distributed import parallelize, shard_graph
from bitgnn.models import GCN, GraphSAGE
from bitgnn.nn import GATConv, GCNConv, GraphConv, SAGEConv


def models():
    torch.manual_seed(0)
    letters = "FBB+BBB, BBB+BBB, BBF+FBF"
    return {
        "GCN bin": Stack(GCNConv, precision="bin"),
        "GCN full": Stack(GCNConv, precision="full"),
        "sums bin": Stack(GCNConv, normalize=False, add_self_loops=False, precision="bin"),
        "GCN fp32": Stack(GCNConv, precision="fp32"),
        "SAGE bin": Stack(SAGEConv, precision="bin"),
        "GraphConv bin": Stack(GraphConv, precision="bin"),
        "letters": GCN(FEATURES, HIDDEN, CLASSES, 3, precision=letters),
        "dropout bin": Stack(SAGEConv, precision="bin", dropout=0.3),
    }


def data(num_nodes, seed=3):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(num_nodes, FEATURES, generator=generator)
    return x, torch.randint(-1, CLASSES, (num_nodes,), generator=generator)


def one_process(model, x, y, graph):
    return gloo_ranks.step(model, model, x, y, graph, lambda value: value, lambda value: value)


def check_gradients(found, wanted, share):
    """Each differs by less than a share of the largest; those in front of a norm are noise of 0."""
    most = max(float(grad.abs().max()) for grad in wanted.values())
    assert found.keys() == wanted.keys()
    for name, grad in found.items():
        torch.testing.assert_close(grad, wanted[name], rtol=share, atol=share * most, msg=name)


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_ranks_train_as_one_process(graph, write, tmp_path, spawn, world_size):
    x, y = data(40)
    many, large = data(300), torch.cat([graph, graph * 7, graph + 250], 1)  # enough for plain norms
    cases, expected, plain = {}, {}, {}
    for number, (name, model) in enumerate(models().items()):
        order, chunk_rows = (("range", 5), ("dealt", None))[number % 2]
        options = {"order": order, "chunk_rows": chunk_rows}
        for nodes, given, edges in ((40, (x, y), graph), (300, many, large)):
            key = f"{name} {nodes}"
            plain[key] = copy.deepcopy(model), given[0], edges
            cases[key] = (
                copy.deepcopy(model), *given, edges, {"num_nodes": nodes, **options}, torch.float32
            )  # fmt: skip
            expected[key] = one_process(copy.deepcopy(model), *given, edges)
    model = models()["SAGE bin"]
    cases["bf16"] = copy.deepcopy(model), x, y, graph, {"num_nodes": 40}, torch.bfloat16
    # Fewer parts than ranks leave a rank without rows.
    root = str(write(graph, 2, num_nodes=40))
    cases["parts"] = copy.deepcopy(model), x, y, root, {}, torch.float32
    for name in ("bf16", "parts"):
        expected[name], plain[name] = expected["SAGE bin 40"], (model, x, graph)
    torch.save(cases, tmp_path / "cases.pt")
    spawn(gloo_ranks.step_sharded, world_size, str(tmp_path))
    ranks = [torch.load(tmp_path / f"rank-{rank}.pt") for rank in range(world_size)]
    assert [rank["parts"]["rows"] for rank in ranks].count(0) == (world_size == 3)
    for name, (model, features, edges) in plain.items():
        wanted, first = expected[name], ranks[0][name]
        for rank in ranks:
            found = rank[name]
            for key, value in found["state"].items():
                assert torch.equal(value, first["state"][key]), (name, key)
            assert torch.equal(found["evaluated"], first["evaluated"]), name
            step = -(-len(features) // 7)
            assert torch.equal(found["sample"], features[::step]), name
        if "dropout" in name:
            continue
        is_exact = "fp32" not in name
        match = torch.equal if is_exact else partial(torch.allclose, rtol=1e-4, atol=1e-5)
        assert match(first["out"], wanted["out"]), name
        torch.testing.assert_close(first["loss"], wanted["loss"], msg=name)
        rough = name == "bf16" and world_size > 1
        check_gradients(first["grads"], wanted["grads"], 2e-2 if rough else 1e-5)
        for key, value in first["state"].items():
            if "running" in key or "input_bits" in key:
                torch.testing.assert_close(value, wanted["state"][key], msg=f"{name} {key}")
        # The same state gives the same scores in one process.
        model.load_state_dict(first["state"])
        with torch.no_grad():
            alone = model.eval()(features, edges)
        assert match(first["evaluated"], alone), name


def test_a_rank_that_ends_in_training_is_named(graph, tmp_path, spawn):
    torch.manual_seed(0)
    model = GraphSAGE(FEATURES, HIDDEN, CLASSES, 2, precision="bin")
    torch.save((model, data(40)[0], graph), tmp_path / "model.pt")
    spawn(gloo_ranks.lose_one_in_training, 3, str(tmp_path))
    for rank in (0, 2):
        error = (tmp_path / f"error-{rank}").read_text()
        assert error.startswith(f"rank {rank} of 3: rows cannot be exchanged, another rank has")


def test_any_number_of_ranks_goes_on_from_a_checkpoint(graph, tmp_path, spawn):
    torch.manual_seed(0)
    model = Stack(GCNConv, precision="bin")
    torch.save((model, data(40)[0], graph), tmp_path / "model.pt")
    states = {}
    for world_size, reads in ((2, False), (1, True), (3, True)):
        spawn(gloo_ranks.go_on_sharded, world_size, str(tmp_path), reads)
        states[world_size] = torch.load(tmp_path / f"state-{reads}-{world_size}-0.pt")
    saved = torch.load(tmp_path / "state-False-2-0.pt")
    weight = "convs.1.lin.weight"
    assert not torch.equal(saved[weight], states[1][weight])
    for key, value in states[1].items():
        torch.testing.assert_close(states[3][key], value, rtol=1e-3, atol=1e-4, msg=key)


@pytest.fixture
def alone(tmp_path):
    """A group of this process alone."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/alone", rank=0, world_size=1
    )
    yield
    torch.distributed.destroy_process_group()


class Wrapped(torch.nn.Module):
    """A part in a model."""

    def __init__(self, part):
        super().__init__()
        self.part = part


@pytest.mark.parametrize(
    "part",
    [
        GATConv(4, 4),
        torch_geometric.nn.GCNConv(4, 4),
        torch_geometric.nn.GraphNorm(4),
        GCNConv(4, 4, precision="TBF+FBF"),
    ],
)
def test_parts_that_read_other_nodes_are_refused(alone, part):
    with pytest.raises(ValueError, match=r"parallelize: part.* cannot train on several ranks"):
        parallelize(Wrapped(part))


def test_wrong_calls_are_refused(graph, alone):
    x = data(40)[0]
    model = GCNConv(FEATURES, 3, precision="bin")
    parallel, sharded = parallelize(model), shard_graph(graph, num_nodes=40)
    for wrong in (graph, None):
        with pytest.raises(TypeError, match="with one graph of shard_graph, got 0"):
            parallel(x, wrong)
    with pytest.raises(ValueError, match=r"x must be \[40, K\], the rows of this rank, got \[39"):
        parallel(x[:39], sharded)
    with pytest.raises(ValueError, match="edge_weight must be None"):
        parallel(x, sharded, torch.rand(graph.size(1)))
    with pytest.raises(ValueError, match="messages must be one of"):
        parallelize(model, messages=torch.float16)
    with pytest.raises(ValueError, match="capture must be False for a model to train"):
        parallelize(model, capture=True)
    with pytest.raises(ValueError, match="has no size yet"):
        parallelize(GCNConv(-1, 3, precision="bin"))
    with pytest.raises(ValueError, match="aggregates messages, got a TrainingRows"):
        parallelize(GCNConv(FEATURES, 3, precision="full", aggr="max"))(x, sharded)
    with pytest.raises(TypeError, match=r"model must be a FrozenModel.*or a module to train"):
        parallelize(freeze(model.eval()).state_dict())


def test_weights_train_alone_once_the_parallel_model_is_gone(graph, alone):
    x = data(40)[0]
    model = GCNConv(FEATURES, 3, precision="bin")
    parallel = parallelize(model)
    parallel(x, shard_graph(graph, num_nodes=40)).sum().backward()
    del parallel
    torch.distributed.destroy_process_group()
    try:
        model(x, graph).sum().backward()
    finally:
        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0,
                                             world_size=1)  # fmt: skip

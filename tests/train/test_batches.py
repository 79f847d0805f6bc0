"""Training on samples: neighbourhoods and random walks, and what is said without the extra."""

import io

import pytest
import torch
from rich.console import Console
from torch_geometric import typing as pyg

from bitgnn.train import LoaderError, RunOptions, RunStore, batches, evaluate, train_all
from bitgnn.train.batches import make_batches
from bitgnn.train.build import build_model, make_task
from bitgnn.train.keeping import Keeping
from bitgnn.train.loop import train_model
from bitgnn.train.recipe import FullGraph, Neighbors, RandomWalks

QUIET = Console(file=io.StringIO())
NEIGHBORS = Neighbors(kind="neighbor", neighbors=(4, 3), batch_size=11)
WALKS = RandomWalks(kind="saint_rw", roots=20, walk_length=2, steps=3)
needs_sparse = pytest.mark.skipif(not pyg.WITH_TORCH_SPARSE, reason="needs torch-sparse")
LOADERS = [
    ("gcn", NEIGHBORS),
    ("graphsage", NEIGHBORS),
    pytest.param("graphsaint", WALKS, marks=needs_sparse),
]


def sampled(config, model, loader):
    changes = {"model": model, "inductive": model == "gcn", "loader": loader}
    return config.model_copy(update=changes)


def test_the_whole_graph_is_one_batch(config, data):
    task = make_task(config, "full", data)
    (batch,) = make_batches(FullGraph(), task)()
    assert batch.x is task.x
    assert batch.nodes is None
    assert torch.equal(batch.train, data.train_mask.nonzero().flatten())


def test_missing_library_is_named(config, data, monkeypatch):
    monkeypatch.setattr(batches.pyg, "WITH_TORCH_SPARSE", False)
    message = "loader saint_rw: .* needs torch-sparse: pip install .*sparse"
    with pytest.raises(LoaderError, match=message):
        make_batches(WALKS, make_task(config, "full", data))


def test_neighbourhoods_cover_the_training_nodes_once(config, data):
    config = sampled(config, "graphsage", NEIGHBORS)
    task = make_task(config, "full", data)
    seen = []
    for batch in make_batches(NEIGHBORS, task)():
        assert torch.equal(batch.x, data.x[batch.nodes])
        assert torch.equal(batch.y, data.y[batch.nodes])
        seen.append(batch.nodes[batch.train])
        # Every edge of a sample is one of the graph.
        edges = batch.nodes[batch.edge_index]
        known = set(map(tuple, data.edge_index.t().tolist()))
        assert set(map(tuple, edges.t().tolist())) <= known
    assert torch.equal(torch.cat(seen).sort().values, task.train)


@needs_sparse
def test_walks_give_the_graph_among_their_nodes(config, data):
    task = make_task(sampled(config, "graphsaint", WALKS), "full", data)
    found = list(make_batches(WALKS, task)())
    assert 0 < len(found) <= WALKS.steps
    for batch in found:
        assert bool(data.train_mask[batch.nodes[batch.train]].all())
        assert torch.equal(batch.x, data.x[batch.nodes])


@pytest.mark.parametrize(("model", "loader"), LOADERS)
def test_all_forms_train_freeze_and_agree(config, graphs, tmp_path, model, loader):
    config = sampled(config, model, loader)
    store = RunStore(tmp_path, config)
    runs = train_all(config, graphs, store, QUIET, RunOptions(checkpoint_seconds=0))
    assert len(runs) == 6
    results = evaluate(config, graphs, store, runs, repeats=7)
    assert [result.form for result in results] == ["fp32", "full", "bin"]
    assert results[2].frozen is not None


@pytest.mark.parametrize(("model", "loader"), LOADERS)
def test_resumed_sampling_is_bit_identical(config, data, tmp_path, model, loader):
    config = sampled(config, model, loader)
    recipe = config.forms["full"].model_copy(update={"epochs": 5, "dropout": 0.3})

    def train(name, stop=None):
        torch.manual_seed(5)
        done = []

        def on_epochs(count):
            done.append(count)
            if stop is not None and sum(done) >= stop:
                raise KeyboardInterrupt

        task = make_task(config, "full", data)
        keeping = Keeping(tmp_path / name, None, 0.0)
        net = build_model(config, "full", data)
        return train_model(net, task, recipe, loader=loader, keeping=keeping, on_epochs=on_epochs)

    whole = train("whole")
    with pytest.raises(KeyboardInterrupt):
        train("parts", stop=2)
    parts = train("parts")
    for name, tensor in whole.state.items():
        assert torch.equal(tensor, parts.state[name])
    assert whole.val_loss == parts.val_loss

"""What the whole-model benchmark compares with: the check of results, peers and floors."""

import pytest
import torch
from rates import FixedRates
from torch import nn

from bench.models import case as cases
from bench.models import peers as models_peers
from bench.models.floor import Aggregation, aggregations, floor
from bench.models.networks import published_bi_gcn
from bench.models.ours import freeze_network
from bench.models.peers import peers
from bench.tasks import MODELS, synthetic_task
from bitgnn.models import GCN


def test_check_sees_a_changed_weight():
    task = synthetic_task()
    network = freeze_network("GCN", "bin", task)
    assert cases.check(network, "packed", task)["passed"]
    with torch.no_grad():
        network.emulated.convs[0].lin.weight.neg_()
    found = cases.check(network, "packed", task)
    assert not found["passed"]
    assert found["different_bits"] > 0


def test_published_bi_gcn_is_our_full_form():
    task = synthetic_task()
    published = published_bi_gcn("GCN", task)
    ours = GCN(task.x.size(1), task.hidden, task.num_classes, precision="full")
    with torch.no_grad():
        for mine, theirs in zip(ours.convs, published.model.convs, strict=True):
            mine.lin.weight.copy_(theirs.lin.weight)
            mine.bias.copy_(theirs.bias.normal_())
        ours.norm.running_mean.copy_(published.norm.running_mean)
        ours.norm.running_var.copy_(published.norm.running_var)
        expected = ours.eval()(task.x, task.edge_index)
        found = published(task.x, task.edge_index)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", MODELS)
def test_every_peer_says_why_it_is_missing_or_gives_scores(kind, monkeypatch):
    monkeypatch.setattr(models_peers, "WITH_TORCH_SPARSE", False)
    task = synthetic_task()
    found = {f"{peer.family} {peer.name}": peer for peer in peers(kind, task)}
    assert found["PyG SparseTensor"].missing == "torch-sparse is not installed"
    compiled = found["PyG torch.compile, edge_index fp32"]
    assert (compiled.make is None) == (kind != "GCN")
    forward, kept = found["PyG edge_index bf16"].make()
    assert forward().dtype == torch.bfloat16
    assert any(isinstance(part, nn.Module) for part in kept)


def test_floor_adds_the_longer_of_bytes_and_gathers():
    parts = [Aggregation(1000, 10, 4.0, 100), Aggregation(10, 10, 2.0, 100)]
    found = floor(50, 30, 20, parts, FixedRates())
    # (100 + 2 tables of 40) / 10 = 18 below 40 of gathers; (100 + 40) / 10 = 14 above 0.2.
    assert found.seconds == pytest.approx(1.0 + 10.0 + 40.0 + 14.0)
    assert found.bytes == 50 + 30 + 20 + 180 + 140
    assert found.gathered_bytes == 4020


@pytest.mark.parametrize(("form", "row_bytes"), [("bin", [8.0, 7.0]), ("full", [132.0, 11.0])])
def test_aggregations_follow_the_letters(form, row_bytes):
    # 1433 features leave 64 bits or 16-bit sums; 64 leave 7 sums of 8 bits; "full" has scales.
    task = synthetic_task(features=1433)
    network = freeze_network("GCN", form, task)
    found = aggregations(network.model, [1433, 64, 7], task.num_nodes, network.graph)
    assert [part.row_bytes for part in found] == row_bytes
    assert all(part.edges == task.num_edges + task.num_nodes for part in found)

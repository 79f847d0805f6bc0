"""What the whole-model benchmark compares with: the check of results, peers and floors."""

import pytest
import torch
from rates import FixedRates

from bench.models import case as cases
from bench.models.floor import Aggregation, floor
from bench.models.networks import published_bi_gcn
from bench.models.ours import freeze_network
from bench.tasks import synthetic_task
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


def test_floor_adds_the_longer_of_bytes_and_gathers():
    parts = [Aggregation(1000, 10, 4.0, 100), Aggregation(10, 10, 2.0, 100)]
    found = floor(50, 30, 20, parts, FixedRates())
    # (100 + 2 tables of 40) / 10 = 18 below 40 of gathers; (100 + 40) / 10 = 14 above 0.2.
    assert found.seconds == pytest.approx(1.0 + 10.0 + 40.0 + 14.0)
    assert found.bytes == 50 + 30 + 20 + 180 + 140
    assert found.gathered_bytes == 4020

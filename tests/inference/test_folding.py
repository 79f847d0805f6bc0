"""Linear maps composed when freezing: the same scores, less work, and nothing in front of signs."""

import random

import pytest
import torch
from chains import CLASSES, FEATURES, HIDDEN, assert_frozen_equals, shake
from torch import nn

from bitgnn import freeze
from bitgnn.inference import FreezeReport, load, save
from bitgnn.models import GraphSAINT
from bitgnn.nn import GCNConv, GraphConv, SAGEConv


def kinds(frozen):
    return [step.kind for step in frozen.program.steps]


def close(found, expected):
    expected = expected.detach()
    scale = expected.abs().max().clamp(min=1)
    torch.testing.assert_close(found / scale, expected / scale, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("precision", ["bin", "full", "FBB+BBB, BBF+FFF"])
@pytest.mark.parametrize("aggr", ["mean", "add"])
def test_graph_saint_aggregates_class_scores(precision, aggr, x, edges, tmp_path):
    model = shake(GraphSAINT(FEATURES, HIDDEN, CLASSES, precision, aggr=aggr), x, edges)
    frozen, apart = freeze(model), freeze(model, fold=False)
    assert "cat" in kinds(apart)
    assert apart.report.folded == {}
    assert "cat" not in kinds(frozen)
    assert kinds(frozen).count("bits_linear") == 2
    assert frozen.report.folded == {"lin": "composed with convs.1"}
    assert "lin: composed with convs.1" in str(frozen.report)
    assert frozen.report.letters == apart.report.letters
    sums = [step for step in frozen.program.steps if step.kind.startswith("bspmm_f")]
    assert sums[-1].attributes["size"] == CLASSES
    close(frozen(x, edges), model(x, edges))
    close(frozen(x, edges), apart(x, edges))
    assert torch.equal(frozen(x, edges), frozen(x, edges))
    path = save(frozen, tmp_path / "model")
    assert torch.equal(load(path)(x, edges), frozen(x, edges))
    assert load(path).report == frozen.report


class InFront(nn.Module):
    """Two float maps, the second of which meets a sign."""

    def __init__(self):
        super().__init__()
        self.conv = GraphConv(FEATURES, HIDDEN, precision="FBF+FBF")
        self.lin = nn.Linear(HIDDEN, 24)
        self.last = SAGEConv(24, CLASSES, precision="FBF+FBF")

    def forward(self, x, edge_index):
        return self.last(self.lin(self.conv(x, edge_index)), edge_index)


def test_nothing_in_front_of_a_sign_is_touched(x, edges):
    frozen = assert_frozen_equals(shake(InFront(), x, edges), x, edges)
    assert frozen.report.folded == {}
    assert "linear" in kinds(frozen)


class Expanding(nn.Module):
    """A full-precision layer with more outputs than inputs behind a binary one."""

    def __init__(self, out):
        super().__init__()
        self.first = GCNConv(FEATURES, 12, precision="FBB+BBF")
        self.last = GCNConv(12, out, precision="fp32")

    def forward(self, x, edge_index):
        return self.last(self.first(x, edge_index).tanh(), edge_index)


@pytest.mark.parametrize("out", [5, 40])
def test_aggregation_meets_the_fewer_columns(out, x, edges):
    model = shake(Expanding(out), x, edges)
    frozen = freeze(model)
    sums = [step for step in frozen.program.steps if step.kind.startswith("bspmm_")]
    assert sums[-1].attributes["size"] == min(12, out)
    close(frozen(x, edges), model(x, edges))


class Tail(nn.Module):
    """Random linear structure behind binary layers."""

    def __init__(self, draw):
        super().__init__()
        self.draw = draw.getstate()
        self.first = GraphConv(FEATURES, 32, precision=draw.choice(["FBB+BBB", "FBB+BBF"]))
        self.second = GraphConv(32, 24, precision=draw.choice(["BBF+FBF", "FBF+FBF"]))
        self.branches = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm1d(width) if draw.random() < 0.5 else nn.Identity(),
                nn.Linear(width, 16, bias=draw.random() < 0.5),
            )
            for width in (32, 24, 56)
        )
        self.shares = draw.random() < 0.5
        self.negates = draw.random() < 0.5
        self.vector = nn.Parameter(torch.randn(16))
        self.last = nn.Linear(48, CLASSES)

    def forward(self, x, edge_index):
        first = self.first(x, edge_index)
        second = self.second(first, edge_index)
        outs = [
            branch(value)
            for branch, value in zip(
                self.branches, (first, second, torch.cat([first, second], 1)), strict=True
            )
        ]
        outs[1] = outs[1] + outs[2] if self.shares else outs[1] * 2.0
        outs[0] = -outs[0] if self.negates else outs[0] + self.vector
        return self.last(torch.cat(outs, dim=1))


@pytest.mark.parametrize("seed", range(12))
def test_random_structures(seed, x, edges):
    torch.manual_seed(seed)
    model = shake(Tail(random.Random(seed)), x, edges)
    frozen, apart = freeze(model), freeze(model, fold=False)
    assert "last" in frozen.report.folded
    expected = model(x, edges)
    close(apart(x, edges), expected)
    close(frozen(x, edges), expected)


def test_reports_of_earlier_versions_are_read():
    description = FreezeReport({"a": "FBB+BBB"}, {"a": "bits"}, {}).description()
    del description["folded"]
    assert FreezeReport.from_description(description).folded == {}

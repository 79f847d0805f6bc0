"""What no trace can follow runs as the user's own code, its binary layers packed one by one."""

import pytest
import torch
import torch_geometric.nn
from chains import CLASSES, FEATURES, HIDDEN, Around, N, agree
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import global_mean_pool

from bitgnn.convert import freeze
from bitgnn.inference import FrozenModel, load, save
from bitgnn.nn import GCNConv, GraphConv, Linear, SAGEConv


class Deciding(nn.Module):
    """A block that looks at values."""

    def __init__(self):
        super().__init__()
        self.conv = GCNConv(HIDDEN, HIDDEN, precision="FBB+BBF")
        self.map = Linear(HIDDEN, HIDDEN, precision="FBF")

    def forward(self, x, edge_index):
        x = self.conv(x, edge_index)
        if x.mean() > 0:
            x = -x
        return self.map(x)


def test_a_block_that_decides_by_values(x, edges, tmp_path):
    model = Around(Deciding(), "graph", "FBB+BBB").eval()
    reason = (
        r"block: .*test_kept_forwards\.py, line \d+, `if x.mean\(\) > 0:`: it decides by values"
    )
    with pytest.warns(UserWarning, match=reason):
        frozen = freeze(model)
    assert isinstance(frozen, FrozenModel)
    for given in (edges, frozen.prepare_graph(edges, N)):
        agree(frozen(x, given), model(x, edges))
    assert list(frozen.report.letters) == ["first", "block.conv", "block.map", "last"]
    assert [step.kind for step in frozen.program.calls].count("call") == 1
    packed = [m for m in frozen.modules() if type(m) is FrozenModel]
    assert len(packed) == 3  # itself and two layers of the block
    read = load(save(frozen, tmp_path), Around(Deciding(), "graph", "FBB+BBB"))
    assert read(x, edges).equal(frozen(x, edges))
    with pytest.raises(ValueError, match="model must be a model of the architecture that"):
        load(tmp_path)


class Whole(nn.Module):
    """A forward that decides by values itself, over layers of every kind."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.gcn = GCNConv(FEATURES, HIDDEN, precision="FBB+BBB")
        self.sage = SAGEConv(HIDDEN, HIDDEN, precision="BBF+FBF")
        self.norm = torch_geometric.nn.GraphNorm(HIDDEN)
        self.graph = GraphConv(HIDDEN, HIDDEN, precision="FBB+BBF")
        self.own = SAGEConv(HIDDEN, HIDDEN, aggr="max", precision="full")
        self.map = Linear(HIDDEN, CLASSES, precision="FBF")

    def forward(self, data, twice=False):
        x = self.gcn(data.x, data.edge_index, data.edge_weight)
        if x.size(0) > 10:
            x = self.norm(self.sage(x, data.edge_index), data.batch)
        x = self.graph(x, data.edge_index, data.edge_weight)
        x = self.map(self.own(x, data.edge_index))
        for _ in range(int(x.size(1) > 2)):
            x = x * 2
        if twice:
            x = 2 * x
        return {"nodes": x, "graphs": global_mean_pool(x, data.batch)}


@pytest.mark.filterwarnings("ignore:SAGEConv. aggr")
def test_a_whole_forward(x, edges, tmp_path):
    model, weight = Whole(), torch.rand(edges.size(1)) + 0.2
    data = Data(x=x, edge_index=edges, edge_weight=weight, batch=torch.arange(N) // 40)
    model(data)  # Layers of named precision look at their input in it.
    model.eval()
    with pytest.warns(UserWarning, match=r"forward of Whole: .* line \d+, `if x.size\(0\) > 10:`"):
        frozen = freeze(model)
    assert frozen.kind == "layers"
    assert list(frozen.report.letters) == ["gcn", "sage", "graph", "map"]
    assert "own" in frozen.report.floats
    for options in ({}, {"twice": True}):
        agree(frozen(data, **options), model(data, **options))
    small = data.subgraph(torch.arange(9))
    agree(frozen(small), model(small))
    assert not frozen.training
    assert not frozen.train().training
    other = Whole()
    for parameter in other.parameters():
        nn.init.constant_(parameter, 0.5)
    read = load(save(frozen, tmp_path), model=other)
    assert read(data)["nodes"].equal(frozen(data)["nodes"])
    assert str(read.report) == str(frozen.report)
    assert {p.mean().item() for p in other.parameters()} == {0.5}
    with pytest.raises(ValueError, match="damaged checkpoint or another model"):
        load(tmp_path, model=Around(Deciding(), "graph", "FBB+BBB"))
    with pytest.raises(TypeError, match="model is frozen already, a FrozenModel"):
        freeze(frozen)

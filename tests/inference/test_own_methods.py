"""Methods of the trained model, and other ways through its forward, on a frozen program."""

import copy
import pickle

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn

import bitgnn
from bitgnn.inference import FrozenModel

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
WIDTH, CLASSES = 12, 3
NODES, LINKS = [10, 20, 30], [100, 140]
"""Nodes and edges of each hop of a sampled neighbourhood."""
torch.manual_seed(0)
X = torch.randn(sum(NODES), WIDTH)
EDGES = torch.cat(
    [
        torch.stack([torch.randint(30, (LINKS[0],)), torch.randint(10, (LINKS[0],))]),
        torch.stack([torch.randint(60, (LINKS[1],)), torch.randint(10, 30, (LINKS[1],))]),
    ],
    dim=1,
)
SAMPLED = {"num_sampled_nodes_per_hop": NODES, "num_sampled_edges_per_hop": LINKS}


class Sage(nn.Module):
    """PyG's examples have such methods."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList([pyg.SAGEConv(WIDTH, 16), pyg.SAGEConv(16, CLASSES)])
        self.counted = 0

    def reset_parameters(self):
        for conv in self.convs:
            conv.reset_parameters()

    def forward(self, x, edge_index):
        return self.convs[1](self.convs[0](x, edge_index).relu(), edge_index)

    def encode(self, x, edge_index):
        return self.convs[0](x, edge_index).relu()

    def decode(self, z, pairs):
        return (z[pairs[0]] * z[pairs[1]]).sum(-1)

    def inference(self, x, batches):
        for conv in self.convs:
            x = torch.cat([conv(x, edges)[ids] for ids, edges in batches]).tanh()
        return x


def trained(model):
    binary = bitgnn.binarize(model)
    for _ in range(4):
        binary(X, EDGES).square().mean().backward()
    return binary.eval()


@pytest.fixture(scope="module")
def sage():
    return trained(Sage())


def test_methods_run_as_trained(sage):
    frozen = bitgnn.freeze(sage, check=False)
    assert isinstance(frozen, FrozenModel)
    batches = [(torch.arange(30), EDGES), (torch.arange(30, 60), EDGES)]
    for model in (frozen, copy.deepcopy(frozen), pickle.loads(pickle.dumps(frozen))):
        assert torch.equal(model.encode(X, EDGES), sage.encode(X, EDGES))
        assert torch.equal(model.inference(X, batches), sage.inference(X, batches))
        z = model.encode(X, EDGES)
        assert torch.equal(model.decode(z, EDGES), sage.decode(z, EDGES))
        assert not z.requires_grad
        assert torch.equal(model(X, EDGES), sage(X, EDGES))


def test_the_own_form_is_no_part_of_the_model(sage, tmp_path):
    frozen = bitgnn.freeze(sage, check=False)
    assert not [name for name, _ in frozen.named_modules() if name]
    assert frozen.nbytes == sum(tensor.nbytes for tensor in frozen.state_dict().values())
    read = bitgnn.load(bitgnn.save(frozen, tmp_path))
    assert torch.equal(read(X, EDGES), frozen(X, EDGES))
    for model, name in ((read, "encode"), (frozen, "reset_parameters"), (frozen, "counted")):
        with pytest.raises(AttributeError, match=f"no attribute '{name}'"):
            getattr(model, name)
    assert all(t.is_meta for t in frozen.to("meta").own_form.state_dict().values())


@pytest.mark.parametrize("kind", [pyg.GraphSAGE, pyg.GCN, pyg.GIN])
def test_sampled_neighbourhoods(kind):
    torch.manual_seed(1)
    model = trained(kind(WIDTH, 16, 2, CLASSES))
    frozen = bitgnn.freeze(model, check=False)
    assert isinstance(frozen, FrozenModel)
    with torch.no_grad():
        whole, trimmed = model(X, EDGES), model(X, EDGES, **SAMPLED)
    assert trimmed.shape == (30, CLASSES)
    torch.testing.assert_close(frozen(X, EDGES, **SAMPLED), trimmed, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(frozen(x=X, edge_index=EDGES, **SAMPLED), trimmed)
    torch.testing.assert_close(frozen(X, EDGES), whole, rtol=1e-6, atol=1e-6)


def test_a_prepared_graph_has_one_way_alone():
    frozen = bitgnn.freeze(trained(pyg.GraphSAGE(WIDTH, 16, 2, CLASSES)), check=False)
    graph = frozen.prepare_graph(EDGES, len(X))
    with pytest.raises(ValueError, match="num_sampled_nodes_per_hop must be None"):
        frozen(X, graph, **SAMPLED)
    packed = bitgnn.freeze(
        trained(pyg.GraphSAGE(WIDTH, 16, 2, CLASSES)), features="packed", check=False
    )
    assert packed.own_form is None

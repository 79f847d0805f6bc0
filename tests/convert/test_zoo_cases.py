"""Models of PyG's examples whose forms freeze() has to tell apart."""

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch_geometric.utils import to_dense_adj, to_dense_batch

import bitgnn

NODES, WIDTH, CLASSES = 40, 32, 5
EDGES = torch.randint(NODES, (2, 160), generator=torch.Generator().manual_seed(0))
X = torch.randn(NODES, WIDTH, generator=torch.Generator().manual_seed(1))
pytestmark = pytest.mark.filterwarnings("ignore:freeze. parts of", "ignore:binarize")


def check(model, given, folder, again=None):
    """Frozen equals trained, and so does what is read from a file."""
    model = bitgnn.binarize(model)
    for _ in range(3):
        found = model.train()(*given)
        leaves = found.values() if isinstance(found, dict) else [found]
        sum(leaf.square().sum() for leaf in leaves).backward()
    with torch.no_grad():
        expected = model.eval()(*given)
    frozen = bitgnn.freeze(model)
    bitgnn.save(frozen, folder)
    read = bitgnn.load(folder, again)
    for held in (frozen, read):
        torch.testing.assert_close(held(*given), expected, rtol=1e-5, atol=1e-5)
    return frozen


@pytest.mark.parametrize("kind", [pyg.APPNP, pyg.LGConv])
def test_a_graph_of_any_name(kind, tmp_path):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(WIDTH, 64), nn.Linear(64, CLASSES)
            self.sums = kind(3, 0.1) if kind is pyg.APPNP else kind()

        def forward(self, x, ei, w):
            return self.last(self.sums(self.first(x).relu(), ei, w))

    frozen = check(Net(), (X, EDGES, torch.rand(160)), tmp_path)
    roles = {a.name: a.role for a in frozen.own_call.arguments}
    assert (roles["ei"], roles["w"]) == ("edge_index", "edge_weight")


def test_dense_batches_have_three_dimensions(tmp_path):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.assign = pyg.GCNConv(WIDTH, 32), nn.Linear(32, 20)
            self.dense, self.last = pyg.DenseGraphConv(32, 32), nn.Linear(32, CLASSES)

        def forward(self, x, edge_index, batch):
            x, mask = to_dense_batch(self.conv(x, edge_index).relu(), batch)
            adj = to_dense_adj(edge_index, batch)
            x, adj, *_ = pyg.dense_mincut_pool(x, adj, self.assign(x), mask)
            return self.last(self.dense(x, adj).relu().mean(dim=1))

    check(Net(), (X, EDGES, torch.arange(NODES) // 20), tmp_path, Net())


def test_a_pool_scored_by_another_matrix(tmp_path):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.last = pyg.GraphConv(WIDTH, 64), nn.Linear(64, CLASSES)
            self.pool = pyg.TopKPooling(WIDTH, ratio=0.5)

        def forward(self, x, edge_index, batch):
            out = self.conv(x, edge_index).relu()
            out, _, _, batch, _, _ = self.pool(out, edge_index, None, batch, attn=x)
            return self.last(pyg.global_add_pool(out, batch))

    check(Net(), (X, EDGES, torch.arange(NODES) // 20), tmp_path)


def test_a_decoder_of_links_is_no_network_of_images(tmp_path):
    frozen = check(pyg.ARLinkPredictor(WIDTH, 64), (X, EDGES), tmp_path)
    assert frozen.kind == "program"


def test_widths_that_the_first_input_gave(tmp_path):
    sizes = {"a": 30, "b": 20}
    x = {name: torch.randn(size, WIDTH) for name, size in sizes.items()}
    kinds = [("a", "to", "b"), ("b", "rev", "a")]
    edges = {
        key: torch.stack([torch.randint(sizes[key[0]], (90,)), torch.randint(sizes[key[2]], (90,))])
        for key in kinds
    }
    model = pyg.to_hetero(pyg.GAT((-1, -1), 32, 2, CLASSES, add_self_loops=False), (list(x), kinds))
    with torch.no_grad():
        model(x, edges)
    check(model, (x, edges), tmp_path)

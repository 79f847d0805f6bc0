"""Networks trained on dense features, which enter their first layers as 8-bit rows."""

import itertools

import torch
from graphs import odd_graph
from torch import nn
from torch.nn import functional

from bitgnn.nn import GCNConv, GraphConv, SAGEConv

KINDS = {"gcn": GCNConv, "sage": SAGEConv, "graph": GraphConv}
NODES, HIDDEN, CLASSES = 90, 35, 6


def dense_features(size=37, seed=0):
    """Columns of very different scale and centre, one of them constant."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(NODES, size, generator=generator)
    scale = torch.logspace(-3, 3, size)
    x = x * scale + scale * torch.randn(size, generator=generator)
    x[:, 0] = 5.0
    return x


def dense_graph():
    """Edges of the nodes."""
    return odd_graph(NODES, 300, seed=1)


class Network(nn.Module):
    """Layers with ReLU and dropout between them, perhaps behind batch norms of the user's."""

    def __init__(self, kind, precision, size, num_layers=2, norm=False):
        super().__init__()
        sizes = [size, *[HIDDEN] * (num_layers - 1), CLASSES]
        self.convs = nn.ModuleList(
            KINDS[kind](a, b, precision=precision) for a, b in itertools.pairwise(sizes)
        )
        norms = [nn.BatchNorm1d(HIDDEN) if norm else nn.Identity() for _ in sizes[2:]]
        self.norms = nn.ModuleList(norms)

    def forward(self, x, edge_index):
        for conv, norm in zip(self.convs, self.norms, strict=False):
            x = functional.relu(norm(conv(x, edge_index)))
            x = functional.dropout(x, 0.3, self.training)
        return self.convs[-1](x, edge_index)


def trained(model, x, edges, steps=6):
    """The model behind a few steps, in evaluation; gains of norms have both signs."""
    torch.manual_seed(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(steps):
        optimizer.zero_grad()
        functional.cross_entropy(model(x, edges), torch.arange(NODES) % CLASSES).backward()
        optimizer.step()
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm1d):
                module.weight[::5] *= -1.0
                module.weight[3] = 0.0
    return model.eval()


def network(kind, precision, size=37, **options):
    """A trained network, its features and its edges."""
    torch.manual_seed(1)
    x, edges = dense_features(size), dense_graph()
    return trained(Network(kind, precision, size, **options), x, edges), x, edges

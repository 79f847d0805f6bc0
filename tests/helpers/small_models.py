"""Models of layers by name with a forward given as a function, and a graph for them."""

import torch
from torch import nn

N, K, H, C = 30, 12, 8, 3
X = torch.randn(N, K, generator=torch.Generator().manual_seed(0))
WORDS = (X > 0.8).float()
EDGES = torch.randint(0, N, (2, 90), generator=torch.Generator().manual_seed(1))
Y = torch.arange(N) % C


class Net(nn.Module):
    """Layers by name and a forward that uses them."""

    def __init__(self, way, **layers):
        super().__init__()
        for name, layer in layers.items():
            self.add_module(name, layer)
        self.way = way

    def forward(self, x, edges):
        return self.way(self, x, edges)


def chain(net, x, edges):
    """``first``, a ReLU, ``last``."""
    return net.last(net.first(x, edges).relu(), edges)


def two(kind, width=K, hidden=H, **options):
    """A network of two layers."""
    torch.manual_seed(0)
    return Net(chain, first=kind(width, hidden, **options), last=kind(hidden, C, **options))


def steps(model, number, *inputs, lr=0.01):
    """So many steps of Adam."""
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    for _ in range(number):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(*inputs), Y).backward()
        optimizer.step()
    return model


def roles(*layers):
    """Roles of layers."""
    return [layer.role for layer in layers]

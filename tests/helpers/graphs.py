"""Small graphs with every odd case."""

import torch


def odd_graph(num_nodes, num_edges, seed):
    """Random edges, one of them twice, and a self loop; the last node is isolated."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(0, num_nodes - 1, (2, num_edges), generator=generator)
    return torch.cat([drawn, drawn[:, :1], torch.tensor([[4], [4]])], dim=1)

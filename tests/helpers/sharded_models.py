"""A model that ranks train together: processes that are started anew import it by name."""

import torch

FEATURES, HIDDEN, CLASSES = 33, 40, 5


class Stack(torch.nn.Module):
    """Three layers, with a batch norm of torch's and a linear layer."""

    def __init__(self, layer, **options):
        super().__init__()
        sizes = (FEATURES, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, CLASSES)
        self.convs = torch.nn.ModuleList(layer(*pair, **options) for pair in sizes)
        self.norm, self.beside = torch.nn.BatchNorm1d(HIDDEN), torch.nn.Linear(FEATURES, HIDDEN)

    def forward(self, x, edge_index):
        hidden = self.convs[0](x, edge_index)
        hidden = self.convs[1](self.norm(hidden + self.beside(x)).relu(), edge_index)
        return self.convs[2](hidden, edge_index)

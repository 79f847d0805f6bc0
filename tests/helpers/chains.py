"""Networks that look trained, and the check that their frozen forms decide as they do."""

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_structure

from bitgnn.convert import freeze
from bitgnn.nn import GCNConv, GraphConv, LayerPrecision, SAGEConv

N, FEATURES, HIDDEN, CLASSES = 90, 37, 41, 4
CONVS = {"gcn": GCNConv, "sage": SAGEConv, "graph": GraphConv}


def shake(model, *inputs, seed=0):
    """Parameters and statistics as after some training: gains of both signs, some of them 0."""
    generator = torch.Generator().manual_seed(seed)
    model.train()
    model(*inputs)  # Layers of named precision find their role and their input's bits in it.
    with torch.no_grad():
        for _ in range(3):
            model(*inputs)
        for module in model.modules():
            if isinstance(module, nn.BatchNorm1d) and module.affine:
                module.weight.copy_(torch.randn(module.num_features, generator=generator))
                module.weight[::7] = 0.0
                module.bias.copy_(0.5 * torch.randn(module.num_features, generator=generator))
                module.running_mean += 0.1
            bias = getattr(module, "bias", None)
            if isinstance(bias, nn.Parameter) and not isinstance(module, nn.BatchNorm1d):
                bias.copy_(0.3 * torch.randn(bias.shape, generator=generator))
    return model.eval()


def assert_frozen_equals(model, *inputs, weight=None, atol=1e-4):
    """Same class and logits for features in each form; returns the frozen model."""
    features, edge_index, *rest = inputs
    with torch.no_grad():
        expected = model(*inputs)
    assert expected.std(0).max() > 0  # equality of constants would prove nothing
    frozen = freeze(model, check=False)
    graph = frozen.prepare_graph(edge_index, len(features), *rest)
    forms = [features]
    if frozen.program.entry is not None:
        forms += [frozen.pack_features(features), frozen.pack_features(features, layout="dense")]
    for form in forms:
        found = frozen(form, graph)
        torch.testing.assert_close(found, expected, atol=atol, rtol=1e-4)
        assert torch.equal(found.argmax(1), expected.argmax(1))
    if not rest:
        assert torch.equal(frozen(features, edge_index), frozen(features, graph))
    return frozen


class Chain(nn.Module):
    """Layers one after the other."""

    def __init__(self, kind, precisions, dropout=0.3, **options):
        super().__init__()
        sizes = [FEATURES, *[HIDDEN] * (len(precisions) - 1), CLASSES]
        self.convs = nn.ModuleList(
            CONVS[kind](a, b, precision=precision, dropout=dropout, **options)
            for a, b, precision in zip(sizes[:-1], sizes[1:], precisions, strict=True)
        )

    def forward(self, x, edge_index):
        for conv in self.convs:
            x = conv(x, edge_index)
        return x


def precision(letters, **options):
    bmm, bspmm = letters.split("+")
    return LayerPrecision(bmm, bspmm, **options)


class Around(nn.Module):
    """Two binary layers with a block of the user's between them, which may read the graph."""

    def __init__(self, block, takes="", letters="FBB+BBF"):
        super().__init__()
        torch.manual_seed(0)
        self.first = GCNConv(FEATURES, HIDDEN, precision=letters)
        self.block, self.takes = block, takes
        self.last = GCNConv(HIDDEN, CLASSES, precision="BBF+FBF")

    def forward(self, x, edge_index, batch=None):
        x = self.first(x, edge_index)
        if self.takes == "batch":
            x = self.block(x, batch)
        elif self.takes == "graph":
            x = self.block(x, edge_index)
        else:
            x = self.block(x)
        return self.last(x, edge_index)


def agree(found, expected):
    """Structures of the same form, with tensors that are equal but for rounding."""
    assert tree_structure(found) == tree_structure(expected)
    for a, b in zip(tree_leaves(found), tree_leaves(expected), strict=True):
        if isinstance(b, torch.Tensor):
            torch.testing.assert_close(a, b.detach(), atol=1e-5, rtol=1e-5)
        else:
            assert a == b

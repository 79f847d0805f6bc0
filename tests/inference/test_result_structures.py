"""Frozen models return what the trained forward returns: tuples, lists, dicts; node ids."""

from typing import NamedTuple

import pytest
import torch
from chains import CLASSES, FEATURES, HIDDEN, N, agree
from torch import nn
from torch_geometric.nn import GAE, VGAE

from bitgnn.convert import freeze
from bitgnn.inference import FrozenModel, capture, load, save
from bitgnn.nn import GCNConv


class Named(NamedTuple):
    mean: torch.Tensor
    spread: torch.Tensor


FORMS = {
    "tuple": lambda a, b, x: (a, b),
    "list": lambda a, b, x: [a, b, 3],
    "dict": lambda a, b, x: {"mean": a, "more": (b, None), "x": x},
    "named": lambda a, b, x: Named(a, b),
    "one": lambda a, b, x: (a,),
}


class Encoder(nn.Module):
    def __init__(self, form="tuple", width=16):
        super().__init__()
        torch.manual_seed(0)
        self.form = form
        self.first = GCNConv(FEATURES, HIDDEN, precision="FBB+BBB")
        self.mean = GCNConv(HIDDEN, width, precision="BBF+FBF")
        self.spread = GCNConv(HIDDEN, width, precision="BBF+FBF")
        self.eval()

    def forward(self, x, edge_index):
        hidden = self.first(x, edge_index)
        mean, spread = self.mean(hidden, edge_index), self.spread(hidden, edge_index)
        return FORMS[self.form](mean, spread, x)


@pytest.mark.parametrize("form", FORMS)
def test_structures_of_results(form, x, edges, tmp_path):
    model = Encoder(form)
    frozen = freeze(model)
    assert isinstance(frozen, FrozenModel)
    expected, graph = model(x, edges), frozen.prepare_graph(edges, N)
    for found in (frozen(x, edges), frozen(x, graph), capture(frozen, x, graph)()):
        agree(found, expected)
    if form != "named":
        read = load(save(frozen, tmp_path))
        agree(read(x, edges), expected)
        with pytest.raises(ValueError, match="must be None, got 'classes': the forward returns"):
            freeze(model, output="classes")


def test_auto_encoders(x, edges):
    for kind in (GAE, VGAE):
        encoder = Encoder() if kind is VGAE else Encoder().first
        model = kind(encoder).eval()
        loss = model.encode(x, edges).sum()
        loss.backward()  # a VGAE keeps results of its last step
        with pytest.warns(UserWarning, match="it takes .args and ..kwargs"):
            frozen = freeze(model)
        assert frozen.kind == "layers"
        agree(frozen.encode(x, edges), model.encode(x, edges))
        agree(frozen(x, edges), model(x, edges))
        z = frozen.encode(x, edges)
        agree(frozen.decode(z, edges), model.decode(z, edges))
        agree(frozen.recon_loss(z, edges, edges), model.recon_loss(z, edges, edges))
        assert not z.requires_grad
        assert [type(layer.frozen) for layer in frozen.layers.values()] == [FrozenModel]
        assert len(frozen.letters) == (3 if kind is VGAE else 1)


class Lookup(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.emb = nn.Embedding(N, FEATURES)
        self.conv = GCNConv(FEATURES, HIDDEN, precision="FBB+BBB")
        self.head = GCNConv(HIDDEN, CLASSES, precision="BBF+FBF")
        self.eval()

    def forward(self, node_id, edge_index):
        x = self.emb(node_id)
        return self.head(self.conv(x, edge_index), edge_index)


def test_node_ids(edges, tmp_path):
    model, ids = Lookup(), torch.randperm(N)
    frozen = freeze(model)
    assert isinstance(frozen, FrozenModel)
    graph = frozen.prepare_graph(edges, N)
    for found in (
        frozen(ids, edges), frozen(node_id=ids, edge_index=edges), frozen(ids, graph),
        frozen(ids.numpy(), edges.numpy()), capture(frozen, ids, graph)(),
    ):  # fmt: skip
        agree(found, model(ids, edges))
    assert load(save(frozen, tmp_path))(ids, edges).equal(frozen(ids, edges))

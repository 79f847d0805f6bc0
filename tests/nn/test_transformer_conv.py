"""TransformerConv: PyG's behaviour in fp32, binary forms trained, frozen and saved; GPSConv."""

import pytest
import torch
import torch_geometric.nn as pyg
from torch.nn import functional
from torch_geometric.utils import to_torch_coo_tensor

import bitgnn
import bitgnn.nn
from bitgnn import BitAdjacency

N, IN, CLASSES = 50, 40, 5
OPTIONS = [{}, {"beta": True}, {"concat": False}, {"root_weight": False}, {"edge_dim": 3}]


def _data(options=()):
    generator = torch.Generator().manual_seed(0)
    x = (torch.rand(N, IN, generator=generator) < 0.2).float()
    edges = torch.randint(0, N, (2, 300), generator=generator)
    attributes = torch.randn(300, 3, generator=generator)
    return (x, edges, attributes) if "edge_dim" in options else (x, edges)


class Net(torch.nn.Module):
    """Two layers."""

    def __init__(self, owner=bitgnn.nn, **options):
        super().__init__()
        width = 32 if options.get("concat", True) else 8
        self.c1 = owner.TransformerConv(IN, 8, heads=4, dropout=0.2, **options)
        self.c2 = owner.TransformerConv(width, CLASSES, **{**options, "concat": False})

    def forward(self, x, edge_index, edge_attr=None):
        return self.c2(self.c1(x, edge_index, edge_attr).relu(), edge_index, edge_attr)


def _trained(net, x, edges, *rest):
    torch.manual_seed(1)
    labels = torch.randint(0, CLASSES, (N,)).to(x.device)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    losses = []
    for _ in range(12):
        net.train()
        optimizer.zero_grad()
        loss = functional.cross_entropy(net(x, edges, *rest), labels)
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    assert losses[-1] < losses[0]
    return net.eval()


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_fp32_is_pyg(options):
    given = _data(options)
    theirs = pyg.TransformerConv(IN, 6, heads=2, **options)
    mine = bitgnn.nn.TransformerConv(IN, 6, heads=2, precision="fp32", **options)
    mine.load_state_dict(theirs.state_dict())
    assert torch.equal(mine(*given), theirs(*given))
    assert repr(mine) == repr(theirs)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_frozen_is_trained(options, device, tmp_path):
    given = [part.to(device) for part in _data(options)]
    torch.manual_seed(0)
    net = _trained(Net(precision="bin", **options).to(device), *given)
    assert (net.c1.has_bits, net.c2.has_bits) == (True, False)
    with torch.no_grad():
        expected, hidden = net(*given), net.c1(*given)
        # PyG's messages of the same bits, by the coefficients that are returned.
        shown, (_, alpha) = net.c1(*given, return_attention_weights=True)
    torch.testing.assert_close(net(*given), expected)
    torch.testing.assert_close(shown, hidden, rtol=1e-5, atol=1e-5)
    assert alpha.shape == (300, 4)
    frozen = bitgnn.freeze(net)
    bitgnn.save(frozen, tmp_path / "model.bitgnn")
    for made in (frozen, bitgnn.load(tmp_path / "model.bitgnn").to(device)):
        if device.type == "cpu":
            assert torch.equal(made(*given), expected)
        else:  # the last layer's messages are PyG's, which a GPU sums in no fixed order
            torch.testing.assert_close(made(*given), expected)


def test_messages_are_signs():
    x, edges = _data()
    net = _trained(Net(precision="bin", root_weight=False), x, edges)
    conv = net.c1
    with torch.no_grad():
        query, key, value = (
            m(x).view(N, 4, 8) for m in (conv.lin_query, conv.lin_key, conv.lin_value)
        )
        source, target = edges
        scores = (query[target] * key[source]).sum(2) / 8**0.5
        expected = torch.zeros(N, 4, 8)
        for node in range(N):
            own = target == node
            weights = scores[own].softmax(0).unsqueeze(2)
            expected[node] = (weights * torch.where(value[source[own]] >= 0, 1.0, -1.0)).sum(0)
        torch.testing.assert_close(conv(x, edges), expected.flatten(1), rtol=1e-5, atol=1e-5)
        ready = BitAdjacency.from_edge_index(edges, N)
        torch.testing.assert_close(conv(x, ready), conv(x, edges), rtol=1e-5, atol=1e-6)
        sparse = to_torch_coo_tensor(edges.flip(0), size=N)
        coalesced = edges.unique(dim=1)
        torch.testing.assert_close(conv(x, sparse), conv(x, coalesced), rtol=1e-5, atol=1e-5)
    gradients = conv(x, edges).square().sum()
    gradients.backward()
    assert all(m.weight.grad is not None for m in (conv.lin_query, conv.lin_key, conv.lin_value))


@pytest.mark.parametrize("precision", ["bin", "full"])
def test_binarize_swaps(precision):
    x, edges = _data()
    net = Net(pyg, beta=True)
    binary = bitgnn.binarize(net, bitgnn.GraphConfig(precision))
    assert isinstance(binary.c1, bitgnn.nn.TransformerConv)
    assert (binary.c1.heads, binary.c1.dropout, binary.c1.beta) == (4, 0.2, True)
    assert torch.equal(binary.c1.lin_key.weight, net.c1.lin_key.weight)
    assert "c1.lin_value" in bitgnn.report_of(binary).swapped
    net = _trained(binary, x, edges)
    assert net.c1.has_bits == (precision == "bin")
    with torch.no_grad():
        expected = net(x, edges)
    assert torch.equal(bitgnn.freeze(net)(x, edges), expected)


def test_bipartite_pairs_and_bad_input():
    layer = bitgnn.nn.TransformerConv((IN, 12), 8, heads=2, precision="bin")
    source, edges = _data()
    target = torch.randn(9, 12)
    pairs = torch.stack([torch.randint(0, N, (30,)), torch.randint(0, 9, (30,))])
    layer((source, target), pairs).sum().backward()
    assert layer.eval()((source, target), pairs).shape == (9, 16)
    with pytest.raises(ValueError, match="x must hold the features of sources and destinations"):
        layer((source, None), pairs)
    with pytest.raises(ValueError, match="precision must be 'fp32', 'full' or 'bin', got 'FBF"):
        bitgnn.nn.TransformerConv(IN, 8, precision="FBF+FBF")
    lazy = bitgnn.nn.TransformerConv(-1, 8, heads=2, precision="bin")
    lazy(source, edges).sum().backward()
    with pytest.raises(ValueError, match=rf"x must be \[N, {IN}\], got \[{N}, 3\]"):
        lazy(source[:, :3], edges)
    lazy.eval()
    with torch.no_grad():
        assert lazy(source[:1], torch.zeros(2, 0, dtype=torch.long)).shape == (1, 16)
        assert lazy(source[:0], torch.zeros(2, 0, dtype=torch.long)).shape == (0, 16)


class GPS(torch.nn.Module):
    """Two GPS layers between linear ones."""

    def __init__(self, **options):
        super().__init__()
        mlp = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 32))
        self.first, self.last = torch.nn.Linear(IN, 32), torch.nn.Linear(32, CLASSES)
        self.c1 = pyg.GPSConv(32, pyg.GCNConv(32, 32), heads=4, **options)
        self.c2 = pyg.GPSConv(32, pyg.GINConv(mlp), heads=4, **options)

    def forward(self, x, edge_index):
        return self.last(self.c2(self.c1(self.first(x), edge_index), edge_index))


@pytest.mark.parametrize("kind", ["multihead", "performer"])
@pytest.mark.parametrize("linear", [None, False])
def test_gps(kind, linear, tmp_path):
    x, edges = _data()
    torch.manual_seed(0)
    net = bitgnn.binarize(GPS(attn_type=kind, dropout=0.1), bitgnn.GraphConfig(linear=linear))
    assert isinstance(net.c1.conv, bitgnn.nn.GCNConv)
    assert isinstance(net.c2.conv, bitgnn.nn.GINConv)
    if kind == "performer":  # whose linear maps are modules
        assert isinstance(net.c1.attn.q, bitgnn.nn.Linear) == (linear is None)
    _trained(net, x, edges)
    with torch.no_grad():
        expected = net(x, edges)
    frozen = bitgnn.freeze(net)
    torch.testing.assert_close(frozen(x, edges), expected, rtol=1e-5, atol=1e-5)
    bitgnn.save(frozen, tmp_path / "gps.bitgnn")
    assert torch.equal(bitgnn.load(tmp_path / "gps.bitgnn")(x, edges), frozen(x, edges))

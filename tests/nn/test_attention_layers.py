"""GATConv and GATv2Conv: PyG's behaviour in fp32, binary forms trained, frozen and saved."""

import warnings

import pytest
import torch
import torch_geometric.nn
from torch.nn import functional
from torch_geometric.utils import to_torch_csr_tensor

import bitgnn
import bitgnn.nn
from bitgnn import BitAdjacency
from bitgnn.inference import FrozenModel

N, IN, CLASSES = 50, 40, 5
LAYERS = ["GATConv", "GATv2Conv"]
OPTIONS = [{}, {"concat": False}, {"residual": True}, {"bias": False}, {"add_self_loops": False}]


def _data(seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = (torch.rand(N, IN, generator=generator) < 0.2).float()
    return x, torch.randint(0, N, (2, 300), generator=generator)


class Net(torch.nn.Module):
    """Two attention layers."""

    def __init__(self, owner, name, heads=4, channels=8, **options):
        super().__init__()
        layer = getattr(owner, name)
        width = channels * (heads if options.get("concat", True) else 1)
        self.c1 = layer(IN, channels, heads=heads, dropout=0.2, **options)
        self.c2 = layer(width, CLASSES, concat=False)

    def forward(self, x, edge_index):
        return self.c2(functional.elu(self.c1(x, edge_index)), edge_index)


class EdgeNet(Net):
    """The same with features of edges in the first layer."""

    def forward(self, x, edge_index, edge_attr):
        return self.c2(functional.elu(self.c1(x, edge_index, edge_attr)), edge_index)


def _trained(net, x, edges, steps=12):
    torch.manual_seed(1)
    labels = torch.randint(0, CLASSES, (N,))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    losses = []
    for _ in range(steps):
        net.train()
        optimizer.zero_grad()
        loss = functional.cross_entropy(net(x, edges), labels.to(x.device))
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    assert losses[-1] < losses[0]
    return net.eval()


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("options", [{}, {"edge_dim": 3, "heads": 2}, {"residual": True}])
def test_fp32_is_pyg(name, options):
    x, edges = _data()
    attributes = {} if "edge_dim" not in options else {"edge_attr": torch.randn(300, 3)}
    theirs = getattr(torch_geometric.nn, name)(IN, 6, **options)
    mine = getattr(bitgnn.nn, name)(IN, 6, precision="fp32", **options)
    mine.load_state_dict(theirs.state_dict())
    assert torch.equal(mine(x, edges, **attributes), theirs(x, edges, **attributes))
    assert repr(mine) == repr(theirs)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_frozen_is_trained(name, options, device, tmp_path):
    x, edges = (part.to(device) for part in _data())
    torch.manual_seed(0)
    net = _trained(Net(bitgnn.nn, name, **options).to(device), x, edges)
    assert (net.c1.role, net.c2.role) == ("first", "last")
    with torch.no_grad():
        expected, hidden = net(x, edges), net.c1(x, edges)
    torch.testing.assert_close(net(x, edges), expected)
    frozen = bitgnn.freeze(net)
    assert isinstance(frozen, FrozenModel)
    found = frozen(x, edges)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    bitgnn.save(frozen, tmp_path / "model.bitgnn")
    assert torch.equal(bitgnn.load(tmp_path / "model.bitgnn").to(device)(x, edges), found)
    # PyG's messages of the same bits, by the coefficients that are returned.
    shown, _ = net.c1(x, edges, return_attention_weights=True)
    torch.testing.assert_close(shown, hidden, rtol=1e-5, atol=1e-5)
    own_code = options == {"add_self_loops": False} and name == "GATv2Conv"
    kinds = [call.kind for call in frozen.program.calls]
    assert kinds.count("gatv2_bits" if "2" in name else "gat_bits") == 2 - own_code


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("options", [{}, {"fill_value": 2.0}, {"add_self_loops": False}], ids=str)
def test_features_of_edges(name, options, device, tmp_path):
    x, edges = (part.to(device) for part in _data())
    for features in (torch.randn(300, 3, device=device), torch.randn(300, device=device)):
        torch.manual_seed(0)
        width = features[0].numel()
        net = EdgeNet(bitgnn.nn, name, edge_dim=width, **options).to(device)
        for _ in range(3):
            net(x, edges, features).square().sum().backward()
        conv = net.eval().c1
        with torch.no_grad(), torch.profiler.profile() as profile:
            found = conv(x, edges, features)
        assert "bitgnn::gat_bits" in {event.key for event in profile.key_averages()}
        shown, _ = conv(x, edges, features, return_attention_weights=True)
        torch.testing.assert_close(found, shown, rtol=1e-5, atol=1e-5)
        assert not torch.allclose(found, conv(x, edges, -3 * features), atol=1e-3)
        loops, looped = conv._looped(edges, features, N)
        order = loops[1].argsort(stable=True)
        counts = torch.bincount(loops[1], minlength=N).cumsum(0)
        ready = BitAdjacency(functional.pad(counts, (1, 0)), loops[0][order].int(), N)
        with torch.no_grad():
            again = conv(x, ready, looped[order])
        # Means of features, which loops get, are summed by a GPU in no fixed order.
        tolerance = 0 if device.type == "cpu" else 1e-5
        torch.testing.assert_close(again, found, rtol=tolerance, atol=tolerance)
        frozen = bitgnn.freeze(net)
        with torch.no_grad():
            expected = net(x, edges, features)
        given = frozen(x, edges, features)
        torch.testing.assert_close(given, expected, rtol=1e-4, atol=1e-5)
        bitgnn.save(frozen, tmp_path / "model.bitgnn")
        loaded = bitgnn.load(tmp_path / "model.bitgnn").to(device)
        tolerance = 0 if device.type == "cpu" else 1e-5
        torch.testing.assert_close(
            loaded(x, edges, features), given, rtol=tolerance, atol=tolerance
        )


@pytest.mark.parametrize("name", LAYERS)
def test_dense_features_and_full(name):
    x, edges = _data()
    x = torch.randn(N, IN, generator=torch.Generator().manual_seed(3))
    for precision in ("bin", "full"):
        net = _trained(Net(bitgnn.nn, name, precision=precision), x, edges)
        with torch.no_grad():
            expected = net(x, edges)
        torch.testing.assert_close(bitgnn.freeze(net)(x, edges), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", LAYERS)
def test_binarize_swaps(name):
    x, edges = _data()
    net = Net(torch_geometric.nn, name, negative_slope=0.1)
    binary = bitgnn.binarize(net, bitgnn.GraphConfig("bin"))
    assert all(isinstance(conv, getattr(bitgnn.nn, name)) for conv in (binary.c1, binary.c2))
    assert binary.c1.precision == "bin"
    assert (binary.c1.dropout, binary.c1.negative_slope, binary.c1.heads) == (0.2, 0.1, 4)
    assert torch.equal(binary.c1.bias, net.c1.bias)
    net = _trained(binary, x, edges)
    with torch.no_grad():
        expected = net(x, edges)
    torch.testing.assert_close(bitgnn.freeze(net)(x, edges), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("v2", [False, True])
def test_a_model_of_pyg_that_hands_on_edge_features(v2):
    """Layers without a map of theirs do not read them, and freeze to bits."""
    x, edges = _data()
    torch.manual_seed(0)
    net = torch_geometric.nn.GAT(IN, 32, 2, CLASSES, heads=4, v2=v2)
    net = _trained(bitgnn.binarize(net), x, edges)
    frozen = bitgnn.freeze(net)
    kinds = [call.kind for call in frozen.program.calls]
    assert kinds.count("gatv2_bits" if v2 else "gat_bits") == 2
    with torch.no_grad():
        expected = net(x, edges)
    torch.testing.assert_close(frozen(x, edges), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", LAYERS)
def test_forms_of_the_graph(name):
    x, edges = _data()
    edges = edges.unique(dim=1)
    net = _trained(Net(bitgnn.nn, name), x, edges)
    with torch.no_grad():
        expected = net(x, edges)
        loops = torch.arange(N).repeat(2, 1)
        whole = torch.cat([edges[:, edges[0] != edges[1]], loops], 1)
        ready = BitAdjacency.from_edge_index(whole, N)
        torch.testing.assert_close(net(x, ready), expected, rtol=1e-4, atol=1e-5)
        net.c1.add_self_loops = net.c2.add_self_loops = False
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch's sparse tensors
            sparse = to_torch_csr_tensor(whole.flip(0), size=(N, N))
        torch.testing.assert_close(net(x, sparse), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", LAYERS)
def test_bad_input(name):
    layer = getattr(bitgnn.nn, name)
    x, edges = _data()
    with pytest.raises(ValueError, match=r"dropout must be in \[0, 1\)"):
        layer(IN, 8, dropout=1.5)
    with pytest.raises(ValueError, match="must aggregate bits or floats"):
        layer(IN, 8, precision="FBF+TBF")
    conv = layer(IN, 8, heads=2)
    with pytest.raises(ValueError, match=rf"{name}: x must be \[N, {IN}\], got \[{N}, 3\]"):
        conv(x[:, :3], edges)
    with pytest.raises(TypeError, match="x must hold floats"):
        conv(x.long(), edges)
    edged = layer(IN, 8, edge_dim=3)
    for shape in ((300, 2), (299, 3), (301, 3), (300,)):
        for _ in range(2):
            with pytest.raises(ValueError, match=rf"{name}: edge_attr must be \[300, 3\] like"):
                edged(x, edges, torch.zeros(shape))
            edged.eval()
    conv.eval()
    with torch.no_grad():
        assert conv(x[:1], torch.zeros(2, 0, dtype=torch.long)).shape == (1, 16)
        assert conv(x, torch.zeros(2, 0, dtype=torch.long)).isfinite().all()
        assert conv(x[:0], torch.zeros(2, 0, dtype=torch.long)).shape == (0, 16)


@pytest.mark.parametrize("name", LAYERS)
def test_bipartite_pairs(name):
    layer = getattr(bitgnn.nn, name)((IN, 12), 8, heads=2, add_self_loops=False)
    source, _ = _data()
    target = torch.randn(9, 12)
    edges = torch.stack([torch.randint(0, N, (30,)), torch.randint(0, 9, (30,))])
    out = layer((source, target), edges)
    out.sum().backward()
    assert out.shape == (9, 16)
    assert all(map.weight.grad is not None for map in layer._products())

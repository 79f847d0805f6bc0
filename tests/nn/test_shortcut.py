"""Shortcuts of inner GCN layers: which layers have one, what it adds, and its frozen form."""

import pytest
import torch
from torch.nn import functional
from torch_geometric.nn import GCN

import bitgnn
from bitgnn.convert import report_of
from bitgnn.quantize.looked_up_linear import InputWords, centred_bits

N, K, C, H = 60, 40, 4, 33
X = (torch.rand(N, K, generator=torch.Generator().manual_seed(0)) < 0.1).float()
EDGES = torch.randint(N, (2, 240), generator=torch.Generator().manual_seed(1))


def trained(hidden=H, layers=3, form="bin", kind=GCN, **options):
    """A model that has seen its data once in training."""
    torch.manual_seed(0)
    model = bitgnn.binarize(kind(K, hidden, layers, C, dropout=0.5, **options), form)
    functional.cross_entropy(model(X, EDGES), torch.arange(N) % C).backward()
    return model.eval()


def shortcuts(model):
    return [getattr(layer, "has_shortcut", False) for layer in model.convs]


@pytest.mark.parametrize("form", ["bin", "full"])
def test_inner_layers_have_one(form):
    model = trained(layers=4, form=form)
    assert shortcuts(model) == [False, True, True, False]
    added = {layer.name: layer.added for layer in report_of(model).layers}
    assert [("shortcut" in added[f"convs.{k}"]) for k in range(4)] == [False, True, True, False]


@pytest.mark.parametrize("form", ["bin", "full"])
def test_adds_the_nodes_own_bits(form, monkeypatch):
    layer = trained(form=form).convs[1]
    h = torch.randn(N, H)
    with_own = layer(h, EDGES)
    monkeypatch.setattr(type(layer), "has_shortcut", False)
    own = torch.where(h > 0, 2.0, -2.0)
    assert torch.equal(with_own, layer(h, EDGES) + own)


@pytest.mark.parametrize("form", ["bin", "full"])
@pytest.mark.parametrize("options", [{}, {"norm": "batch"}, {"act": "elu"}, {"jk": "cat"}], ids=str)
def test_frozen_is_trained(form, options, tmp_path):
    model = trained(layers=4, form=form, **options)
    for module in model.modules():  # flipped channels, and constant ones
        if isinstance(module, torch.nn.BatchNorm1d):
            module.weight.data.normal_()
            module.weight.data[3] = 0.0
            module.bias.data.normal_()
    frozen = bitgnn.freeze(model, check=False)
    kinds = [step.kind for step in frozen.program.calls]
    assert kinds.count("bitwise_and") == (0 if "jk" in options else 2)
    assert torch.equal(frozen(X, EDGES), model(X, EDGES))
    loaded = bitgnn.load(bitgnn.save(frozen, tmp_path / "model"))
    assert torch.equal(loaded(X, EDGES), model(X, EDGES))


@pytest.mark.parametrize("shape", [(0, 5), (1, 31), (7, 32), (4, 33), (2, 3, 40)], ids=str)
@pytest.mark.parametrize("dropped", [False, True])
def test_centred_bits_of_a_dropped_activation(shape, dropped):
    torch.manual_seed(0)
    kept = torch.rand(shape) < (0.5 if dropped else 2.0)
    x = (torch.randn(shape) * kept).requires_grad_()
    words, raised = (
        torch.ops.bitgnn.pack(part.reshape(-1, shape[-1]), torch.full((shape[-1],), 1e-30))
        for part in (x.detach(), torch.where(kept, x.detach(), 1.0))
    )
    drop = (2.0, None, raised) if dropped else ()
    window = torch.tensor(1.0)
    kept_share = 0.5 if dropped else 1.0
    bits = InputWords(
        words, shape[-1], True, *drop, is_centred=True, window=window, kept=kept_share
    )
    values = centred_bits(x, bits)
    expected = torch.where(x > 0, 0.5, -0.5) * kept * (2.0 if dropped else 1.0)
    assert torch.equal(values, expected)
    grad = torch.randn(shape)
    values.backward(grad)
    assert torch.equal(x.grad, grad * (x.abs() <= 1.0))

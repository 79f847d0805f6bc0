"""models.GCN: presets, copies in another precision, input checks."""

import pytest
import torch

from bitgnn.models import GCN

EDGES = torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 4, 4]])


def test_fp32_is_two_pyg_layers_with_relu():
    from torch_geometric.nn import GCNConv

    model = GCN(6, 4, 3, input_norm=False).eval()
    first, second = GCNConv(6, 4), GCNConv(4, 3)
    first.load_state_dict(model.convs[0].state_dict())
    second.load_state_dict(model.convs[1].state_dict())
    x = torch.randn(5, 6)
    assert torch.equal(model(x, EDGES), second(first(x, EDGES).relu(), EDGES))


def test_bin_hidden_layer_returns_signs():
    model = GCN(6, 8, 3, precision="bin").eval()
    hidden = model.convs[0](torch.randn(5, 6), EDGES)
    assert set(hidden.unique().tolist()) <= {-1.0, 1.0}


def test_with_precision_keeps_the_weights():
    model = GCN(6, 4, 3, precision="full", dropout=0.3).eval()
    copy = model.with_precision("bin")
    assert copy.precision == "bin"
    assert not copy.training
    for name, tensor in model.state_dict().items():
        assert torch.equal(copy.state_dict()[name], tensor)
    assert copy.convs[0].lin.weight is not model.convs[0].lin.weight


def test_wrong_feature_count():
    with pytest.raises(ValueError, match=r"GCN: x must be \[N, 6\], got \[5, 7\]"):
        GCN(6, 4, 3)(torch.randn(5, 7), EDGES)

"""The precision of layers that name none, and the share that a dropout in front has kept."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from bitgnn.nn import GCNConv, GraphConv, LayerPrecision, SAGEConv, default_precision
from bitgnn.nn.roles import kept_entries

N, K, H = 30, 12, 8
X = torch.randn(N, K, generator=torch.Generator().manual_seed(0))
EDGES = torch.randint(0, N, (2, 90), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("layer", [GCNConv, SAGEConv, GraphConv])
def test_default_is_nested_and_restored(layer):
    assert layer(K, H).precision == "bin"
    with default_precision("fp32"):
        assert layer(K, H).letters.is_float
        with default_precision(LayerPrecision("FBF", "FBF", output_norm="batch")):
            assert layer(K, H).letters.output_norm == "batch"
            assert layer(K, H, precision="full").precision == "full"
        assert layer(K, H).letters.is_float
    assert layer(K, H).precision == "bin"


@pytest.mark.parametrize(
    ("bad", "error"),
    [("binary", ValueError), ("", ValueError), ("FBB+FBF", ValueError), (None, TypeError)],
)
def test_bad_names_are_refused_and_change_nothing(bad, error):
    with pytest.raises(error), default_precision(bad):
        pytest.fail("the block must not be entered")
    assert GCNConv(K, H).precision == "bin"


@pytest.mark.parametrize(
    ("way", "expected"),
    [
        (lambda x: x.relu(), 1.0),
        (lambda x: functional.dropout(x.relu(), 0.5), 0.5),
        (lambda x: functional.dropout(x, 0.25).relu(), 0.75),
        (lambda x: functional.dropout(functional.dropout(x, 0.5).relu(), 0.2), 0.4),
        (lambda x: functional.dropout(x.relu(), 0.5, training=False), 1.0),
        (lambda x: functional.dropout(x, 0.5).view(-1, 2 * H).reshape(N, H), 0.5),
        (lambda x: functional.dropout(functional.gelu(x).tanh(), 0.5).double(), 0.5),
        (lambda x: functional.dropout(x, 0.5) + 1.0, 1.0),
        (lambda x: nn.BatchNorm1d(H)(functional.dropout(x, 0.5)), 1.0),
        (lambda x: torch.cat([functional.dropout(x, 0.5)] * 2), 1.0),
        (lambda x: x * 2.0, 1.0),
        (lambda x: x * torch.rand(N, H), 1.0),
        (lambda x: x * torch.rand(N, 1).round().mul(2), 1.0),
    ],
)
@pytest.mark.parametrize("layer", [GCNConv, None], ids=["layer", "parameter"])
def test_kept_entries_are_read_from_the_graph(way, expected, layer):
    torch.manual_seed(0)
    x = torch.randn(N, H, requires_grad=True) if layer is None else layer(K, H)(X, EDGES)
    out = way(x)
    mask, share = kept_entries(out)
    assert share == pytest.approx(expected, rel=1e-6)
    if mask is not None:
        assert mask.shape == out.shape
        assert not bool(out[~mask].any())
        assert float(mask.float().mean()) == pytest.approx(expected, abs=0.15)
    assert (mask is None) == (share == 1.0)

"""Models frozen for features as deployment stores them."""

import pytest
import torch
from chains import Chain, shake
from torch import nn

from bitgnn.convert import freeze
from bitgnn.inference import load, save


@pytest.mark.parametrize("precision", ["full", "bin"])
def test_packed_features_only(make_model, graph, features, precision, tmp_path):
    model = make_model(precision)
    expected = freeze(model)(features, graph)
    frozen = freeze(model, features="packed")
    for held in (frozen, load(save(frozen, tmp_path / "model"))):
        assert held.features == "packed"
        assert torch.equal(held(held.pack_features(features), graph), expected)
        assert torch.equal(held(held.pack_features(features, layout="dense"), graph), expected)
        with pytest.raises(ValueError, match="x must be the result of pack_features, got floats"):
            held(features, graph)
        with pytest.raises(ValueError, match="frozen with features='packed'"):
            held.steps(features, held.prepare_graph(graph, len(features)))


def test_models_that_need_floats_refuse(x, edges):
    class Shortcut(nn.Module):
        """The features are read in floats as well as by their signs."""

        def __init__(self):
            super().__init__()
            self.chain = Chain("gcn", ["FBB+BBB", "BBF+FBF"])
            self.past = nn.Linear(x.size(1), 4)

        def forward(self, v, edge_index):
            return self.chain(v, edge_index) + self.past(v)

    model = shake(Shortcut(), x, edges)
    with pytest.raises(ValueError, match="must be 'floats', got 'packed', since not every part"):
        freeze(model, features="packed")
    with pytest.raises(ValueError, match=r"must be one of \['floats', 'packed'\], got 'bits'"):
        freeze(model, features="bits")


def test_bits_hide_what_is_not_finite(x, edges):
    model = shake(Chain("gcn", ["full", "full"]), x, edges)
    frozen, broken = freeze(model, check=False), x.clone()
    broken[3, 5] = torch.nan
    assert model(broken, edges).isnan().any()
    assert not frozen(broken, edges).isnan().any()
    with pytest.raises(ValueError, match="x must be finite, got NaN or infinity"):
        frozen.pack_features(broken, check_finite=True)

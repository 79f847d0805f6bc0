"""Models frozen for features as deployment stores them."""

import json

import pytest
import torch
from chains import Chain, shake
from torch import nn

from bitgnn._vouched import sealed
from bitgnn.bits import BitTensor
from bitgnn.convert import freeze
from bitgnn.inference import load, save
from bitgnn.nn import GCNConv


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


def test_older_checkpoints_take_any_features(make_model, graph, features, tmp_path):
    frozen = freeze(make_model("bin"))
    folder = save(frozen, tmp_path / "model")
    description = json.loads((folder / "model.json").read_text())
    assert description.pop("features") == "floats"
    (folder / "model.json").write_text(json.dumps(sealed(description)))
    assert torch.equal(load(folder)(features, graph), frozen(features, graph))


@pytest.mark.parametrize("form", ["bits", None, 3])
def test_damaged_checkpoint(make_model, tmp_path, form):
    folder = save(freeze(make_model("bin")), tmp_path / "model")
    description = json.loads((folder / "model.json").read_text())
    description["features"] = form
    (folder / "model.json").write_text(json.dumps(sealed(description)))
    with pytest.raises(ValueError, match=r"damaged checkpoint, .*features must be one of"):
        load(folder)


def test_a_form_can_be_chosen_later(make_model, graph, features):
    frozen = freeze(make_model("bin"), features="packed")
    expected = frozen(frozen.pack_features(features), graph)
    frozen.set_features("floats")
    assert torch.equal(frozen(features, graph), expected)


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


def test_features_packed_behind_a_float_map(graph, features):
    class Mapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.map, self.conv = nn.Linear(features.size(1), 40), GCNConv(40, 5, precision="full")

        def forward(self, x, edge_index):
            return self.conv(self.map(x), edge_index)

    torch.manual_seed(0)
    frozen = freeze(Mapped().eval(), check=False)
    packed = frozen.pack_features(features)
    assert packed.size == 40
    assert frozen(packed, graph).equal(frozen(features, graph))
    with pytest.raises(ValueError, match="x must have 40 features, got 75"):
        frozen(BitTensor.from_float(features), graph)
    with pytest.raises(ValueError, match="x must have 75 features, got 40"):
        frozen(features[:, :40], graph)

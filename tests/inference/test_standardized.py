"""Row standardisation in front of a sign freezes to one packing step, wherever that is exact."""

import pytest
import torch
from chains import N, assert_frozen_equals, shake
from torch import nn

from bitgnn import BitTensor, freeze, load, save
from bitgnn.models import GCN, GraphSAGE, GraphSAINT
from bitgnn.nn import LayerPrecision, Linear, NodeStandardize, SAGEConv

FEATURES = 33


def kinds(frozen):
    return [step.kind for step in frozen.program.steps]


@pytest.fixture
def features():
    return torch.randn(N, FEATURES, generator=torch.Generator().manual_seed(3)) + 0.5


@pytest.mark.parametrize("precision", ["bin", "full"])
@pytest.mark.parametrize("model", [GCN, GraphSAGE, GraphSAINT])
def test_models(model, precision, features, edges, tmp_path):
    torch.manual_seed(0)
    options = {"inductive": True} if model is GCN else {}
    trained = model(FEATURES, 40, 7, precision=precision, **options)
    frozen = assert_frozen_equals(shake(trained, features, edges), features, edges)
    assert kinds(frozen)[0] == "pack_standardized"
    assert "standardize" not in kinds(frozen)
    assert frozen.program.entry == 1
    assert isinstance(frozen.pack_features(features, layout="dense"), BitTensor)
    save(frozen, tmp_path / "model")
    assert torch.equal(load(tmp_path / "model")(features, edges), frozen(features, edges))


def test_relu_between_layers_is_part_of_the_step(features, edges):
    torch.manual_seed(2)
    trained = GraphSAGE(FEATURES, 40, 7, precision="full", dropout=0.5).eval()
    steps = [s for s in freeze(trained).program.steps if s.kind == "pack_standardized"]
    assert [step.attributes["relu"] for step in steps] == [False, True]
    assert "relu" not in kinds(freeze(trained))


class Branches(nn.Module):
    """Standardised rows read by their signs and, of ``reader``'s choice, in another way."""

    def __init__(self, reader):
        super().__init__()
        self.norm = NodeStandardize()
        self.left, self.right = (Linear(FEATURES, 6, precision="FBF") for _ in range(2))
        self.reader = reader

    def forward(self, x):
        rows = self.norm(x.relu())
        return self.left(rows) + self.right(self.reader(rows))


READERS = {
    "signs": (lambda rows: rows, ["pack_standardized"]),
    "clipped": (lambda rows: nn.functional.hardtanh(rows), ["pack_scaled", "pack_standardized"]),
    "shifted": (lambda rows: rows + 0.25, ["pack_scaled", "pack_standardized"]),
}


@pytest.mark.parametrize("name", READERS)
def test_several_readers(name, features):
    torch.manual_seed(4)
    reader, packings = READERS[name]
    model = Branches(reader).eval()
    frozen = freeze(model)
    assert sorted(kind for kind in kinds(frozen) if kind.startswith("pack")) == packings
    assert ("standardize" in kinds(frozen)) == (name != "signs")
    with torch.no_grad():
        torch.testing.assert_close(frozen(features), model(features), rtol=1e-5, atol=1e-5)


def test_layers_of_signs_alone_take_no_scale(features, edges):
    torch.manual_seed(5)
    letters = LayerPrecision("BBB", "BBB", input_norm="standardize")

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = SAGEConv(FEATURES, 40, precision=letters)
            self.last = SAGEConv(40, 7, precision="FBF+FBF")

        def forward(self, x, edge_index):
            return self.last(self.first(x, edge_index), edge_index)

    frozen = assert_frozen_equals(shake(Two(), features, edges), features, edges)
    assert not frozen.program.steps[0].attributes["scaled"]

"""Row standardisation in front of a sign freezes to one packing step, wherever that is exact."""

import pytest
import torch
from chains import N, assert_frozen_equals, shake

from bitgnn import BitTensor, freeze, load, save
from bitgnn.models import GCN, GraphSAGE, GraphSAINT

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

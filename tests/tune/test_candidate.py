"""Candidates share frozen models, prepared graphs and packed features."""

import pytest
import torch

from bitgnn.convert.plan import Plan
from bitgnn.tune.space import Candidates

LETTERS = {"convs.0": "FBB+BBB", "convs.1": "BBF+FBF"}
FLOATS = {"convs.0": "FBF+FBF", "convs.1": "FBF+FBF"}


@pytest.fixture
def candidates(workload):
    return Candidates(workload)


def test_run_gives_what_the_frozen_model_gives(candidates):
    for features in ("floats", "packed"):
        made = candidates.make(Plan(LETTERS, features=features))
        assert torch.equal(made.run(), made.frozen(made.x, made.graph))
        assert torch.equal(made.run(), made.kernels())


def test_forms_of_features_share_a_model_and_letters_share_a_graph(candidates):
    first = candidates.make(Plan(LETTERS))
    packed = candidates.make(Plan(LETTERS, features="packed"))
    assert packed.frozen is first.frozen
    assert packed.graph is first.graph
    assert packed.x.shape == first.x.shape
    assert not isinstance(packed.x, torch.Tensor)
    other = candidates.make(Plan({**LETTERS, "convs.1": "BBF+FFF"}))
    assert other.frozen is not first.frozen


def test_models_that_pack_alike_share_packed_features(candidates):
    bits, floats = ({**LETTERS, "convs.1": last} for last in ("BBF+FBF", "BBF+FFF"))
    one, two = (candidates.make(Plan(found, features="packed")) for found in (bits, floats))
    assert one.frozen is not two.frozen
    assert one.x is two.x
    scaled = candidates.make(Plan(FLOATS, features="packed"))
    assert scaled.x is not one.x
    assert scaled.run().equal(
        scaled.frozen(scaled.frozen.pack_features(candidates.workload.x), scaled.graph)
    )

"""Accuracy without training: once for equal results, on validation nodes alone."""

import pytest
import torch

from bitgnn import Plan, freeze
from bitgnn.tune.accuracy import Accuracy, score_logits
from bitgnn.tune.space import Space
from bitgnn.tune.workload import Workload


@pytest.fixture
def space(workload):
    return Space.from_workload(workload)


BITS = {"convs.0": "FBB+BBB", "convs.1": "BBF+FBF"}


def test_score_of_the_frozen_model(space, workload):
    accuracy = Accuracy(space)
    logits = freeze(workload.model, Plan(BITS))(workload.x, workload.edge_index)
    right = (logits.argmax(1) == workload.y)[workload.val_mask]
    found = accuracy.of(Plan(BITS))
    assert found.validation == pytest.approx(right.double().mean().item())
    assert found.test is None


def test_equal_results_are_measured_once(space, monkeypatch):
    accuracy = Accuracy(space)
    made = []
    make = space.candidates.make

    def counted(plan):
        made.append(plan)
        return make(plan)

    monkeypatch.setattr(space.candidates, "make", counted)
    plans = space.plans(BITS)
    scores = {accuracy.of(plan) for plan in plans}
    assert len(plans) == 2  # two forms of the features
    assert len(scores) == len(made) == 1
    floats = {"convs.0": "FFF+FFF", "convs.1": "FFF+FFF"}
    for plan in space.plans(floats):
        accuracy.of(plan)
    assert len(made) == 5  # four orders of the maps


def test_test_nodes_are_reported_beside(data, workload):
    data.test_mask = data.train_mask
    parts = Workload.of(workload.model, data)
    logits = torch.nn.functional.one_hot(data.y, 4).float()
    logits[data.test_mask] *= -1
    found = score_logits(parts, logits)
    assert (found.validation, found.test) == (1.0, 0.0)
    data.test_mask = torch.zeros_like(data.val_mask)
    assert score_logits(Workload.of(workload.model, data), logits).test is None


def test_a_plan_for_another_model(space):
    with pytest.raises(ValueError, match="are no choice of this space"):
        Accuracy(space).of(Plan({"conv1": "FBB+BBB"}))

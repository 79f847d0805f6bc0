"""Short fine-tuning: never worse, the same for a seed, stopped at will, nothing disturbed."""

import random

import pytest
import torch

from bitgnn import Plan, freeze
from bitgnn.convert.letters import own_letters
from bitgnn.models import GCN
from bitgnn.train.recipe import Recipe
from bitgnn.tune.accuracy import Score
from bitgnn.tune.finetune import fine_tune
from bitgnn.tune.workload import Workload

BITS = {"convs.0": "FBB+BBB", "convs.1": "BBF+FBF"}
BRIEF = Recipe(epochs=12, learning_rate=0.02, choose_by="score", distill=1.0)
CLASSES = 4


@pytest.fixture
def workload(data):
    """Labels that the features tell, and a model in floats that has not learned them yet."""
    torch.manual_seed(0)
    data.y = data.x[:, :CLASSES].argmax(1)
    model = GCN(data.x.size(1), 32, CLASSES, precision="fp32", dropout=0.1)
    model(data.x, data.edge_index)
    return Workload.of(model.eval(), data)


def state(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def test_a_better_model_in_the_letters(workload):
    given = state(workload.model)
    tuned = fine_tune(workload, BITS, recipe=BRIEF)
    assert own_letters(tuned.model) == BITS
    assert not tuned.model.training
    assert tuned.epochs == BRIEF.epochs
    assert tuned.score.validation > tuned.before.validation
    frozen = freeze(tuned.model, Plan(BITS))
    logits = frozen(workload.x, workload.edge_index)
    assert workload.score(logits) == pytest.approx(tuned.score.validation)
    with torch.no_grad():
        emulated = tuned.model(workload.x, workload.edge_index)
    torch.testing.assert_close(logits, emulated, rtol=1e-5, atol=1e-5)
    assert all(tensor.equal(given[name]) for name, tensor in workload.model.state_dict().items())


def test_norms_stand_in_front_of_signs(workload):
    first, second = fine_tune(workload, BITS, recipe=BRIEF).model.convs
    assert (first.letters.hidden_norm, first.letters.output_norm) == ("batch", "batch")
    assert (second.letters.hidden_norm, second.letters.output_norm) == (None, None)
    full = {"convs.0": "FBF+FBF", "convs.1": "FBF+FBF"}
    first, _ = fine_tune(workload, full, recipe=BRIEF).model.convs
    assert (first.letters.hidden_norm, first.letters.output_norm) == (None, "batch")


def test_seeds(workload):
    before = torch.get_rng_state(), random.getstate()
    one, same, other = (fine_tune(workload, BITS, recipe=BRIEF, seed=seed) for seed in (0, 0, 1))
    assert torch.get_rng_state().equal(before[0])
    assert random.getstate() == before[1]
    first, second, third = state(one.model), state(same.model), state(other.model)
    assert all(first[name].equal(second[name]) for name in first)
    assert not all(first[name].equal(third[name]) for name in first)


def test_stopping_between_epochs(workload):
    done = []

    def count(epochs):
        done.append(epochs)

    tuned = fine_tune(
        workload, BITS, recipe=BRIEF, on_epochs=count, should_stop=lambda: sum(done) >= 3
    )
    assert tuned.epochs == 3
    assert tuned.score.validation >= tuned.before.validation
    at_once = fine_tune(workload, BITS, recipe=BRIEF, should_stop=lambda: True)
    assert (at_once.epochs, at_once.score) == (0, at_once.before)
    assert own_letters(at_once.model) == BITS


def test_never_worse_than_before(workload, monkeypatch):
    """A training that harms is not taken."""
    wild = Recipe(epochs=3, learning_rate=1e4, choose_by="score")
    good = fine_tune(workload, BITS, recipe=BRIEF)
    start = Workload(good.model, workload.x, workload.edge_index, workload.y, workload.val_mask,
                     workload.train_mask)  # fmt: skip
    harmed = fine_tune(start, BITS, recipe=wild)
    assert harmed.score.validation >= harmed.before.validation == good.score.validation
    assert isinstance(harmed.score, Score)


def test_without_training_nodes(workload, data):
    for mask in (None, torch.zeros_like(data.train_mask)):
        data.train_mask = mask
        bare = Workload.of(workload.model, data)
        with pytest.raises(ValueError, match=r"no training mask \(train_mask\)"):
            fine_tune(bare, BITS)


def test_edge_weights_are_used(workload, data):
    data.edge_weight = torch.rand(data.edge_index.size(1))
    weighted = Workload.of(workload.model, data)
    one = fine_tune(weighted, BITS, recipe=BRIEF)
    plain = fine_tune(workload, BITS, recipe=BRIEF)
    with torch.no_grad():
        logits = weighted.model(data.x, data.edge_index, data.edge_weight)
    assert not logits.equal(workload.model(data.x, data.edge_index))
    assert any(
        not tensor.equal(state(plain.model)[name]) for name, tensor in state(one.model).items()
    )

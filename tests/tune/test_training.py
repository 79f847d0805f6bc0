"""The training in front of a search: forms, teachers, and what a budget leaves time for."""

import itertools

import pytest
import torch

from bitgnn.data import load
from bitgnn.train.loop import train_model
from bitgnn.train.store import RunStore
from bitgnn.tune import training
from bitgnn.tune.baselines import BI_GCN, PYG
from bitgnn.tune.budget import Budget
from bitgnn.tune.training import short_experiment, train_short

EPOCHS = 14


@pytest.fixture(scope="module")
def data():
    return load("digits")


def train(folder, data, budget, epochs=EPOCHS):
    config = short_experiment("gcn", "digits", 8, epochs)
    counts = []
    store = RunStore(folder, config)
    found = train_short(config, data, store, torch.device("cpu"), 0, budget, counts.append)
    assert sum(counts) == 3 * epochs
    runs = {form: store.load(form, 0) for form in config.forms}
    return found, {form: kept[0].epochs for form, kept in runs.items() if kept}


def ticking(seconds, tick):
    """A budget whose time goes on with each look at the clock."""
    ticks = itertools.count()
    return Budget(seconds, clock=lambda: tick * next(ticks))


def test_without_a_budget_everything_is_trained(data, tmp_path):
    found, epochs = train(tmp_path, data, Budget())
    assert list(found.baselines) == [PYG, BI_GCN]
    assert found.shortened == {}
    assert epochs["bin"] == epochs["full"] == EPOCHS
    assert epochs["fp32"] <= EPOCHS


def test_a_finished_training_is_taken_as_it_is(data, tmp_path, monkeypatch):
    first, _ = train(tmp_path, data, Budget(), 2)

    def fail(*_, **__):
        raise AssertionError("trained again")

    monkeypatch.setattr(training, "train_model", fail)
    again, _ = train(tmp_path, data, ticking(1.0, 1.0), 2)
    weights = first.model.state_dict()
    assert all(weights[name].equal(value) for name, value in again.model.state_dict().items())


def test_the_form_to_tune_has_the_epochs_that_fit(data, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "LEAST_EPOCHS", 3)
    for name in ("TEACHERS_BY", "CUT_AT"):
        monkeypatch.setattr(training, name, 10.0)
    schedules = []

    def counted(model, task, recipe, **options):
        schedules.append(recipe.epochs)
        return train_model(model, task, recipe, **options)

    monkeypatch.setattr(training, "train_model", counted)
    # The clock goes on by 1 a look; floats look once in front of every epoch.
    found, epochs = train(tmp_path, data, ticking(2.0 * (EPOCHS + 4), 1.0))
    done, wanted = found.shortened["bin"]
    assert 3 <= done < wanted == EPOCHS
    assert epochs["bin"] == done
    assert done in schedules  # the learning rate falls to 0 over these, it is not cut
    assert found.shortened["full"] == (0, EPOCHS)
    assert "full" not in epochs
    assert list(found.baselines) == [PYG]


def test_no_time_at_all_trains_a_little(data, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "LEAST_EPOCHS", 3)
    found, epochs = train(tmp_path, data, ticking(1e-3, 1.0))
    assert epochs == {"fp32": 1, "bin": 1}
    assert found.shortened == {"bin": (1, EPOCHS), "full": (0, EPOCHS)}

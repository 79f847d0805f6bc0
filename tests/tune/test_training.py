"""The training in front of a search: forms, teachers, and what a budget leaves time for."""

import itertools

import pytest
import torch

from bitgnn.convert import binarize
from bitgnn.convert.letters import own_letters
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
    for name in ("FLOATS_BY", "CUT_AT"):
        monkeypatch.setattr(training, name, 10.0)
    schedules = []

    def counted(model, task, recipe, **options):
        schedules.append(recipe.epochs)
        return train_model(model, task, recipe, **options)

    monkeypatch.setattr(training, "train_model", counted)
    # The clock goes on by 1 a look; trainings look once in front of every epoch but the first.
    found, epochs = train(tmp_path, data, ticking(2.7 * EPOCHS, 1.0))
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
    assert found.shortened == {"fp32": (1, EPOCHS), "bin": (1, EPOCHS), "full": (0, EPOCHS)}
    assert list(found.more()) == []


def test_a_budget_that_is_long_enough_trains_as_none_does(data, tmp_path):
    free, _ = train(tmp_path / "free", data, Budget())
    limited, _ = train(tmp_path / "limited", data, ticking(5.0 * EPOCHS, 1.0))
    assert limited.shortened == {}
    for one, other in ((free.model, limited.model), *zip(
        free.baselines.values(), limited.baselines.values(), strict=True
    )):  # fmt: skip
        weights = other.state_dict()
        assert all(weights[name].equal(value) for name, value in one.state_dict().items())


def test_time_left_over_is_for_the_epochs_that_are_missing_and_then_for_seeds(
    data, tmp_path, monkeypatch
):
    monkeypatch.setattr(training, "LEAST_EPOCHS", 3)
    now = [0.0]
    budget = Budget(100.0, clock=lambda: now[0])
    whole = train_model

    def slow(*arguments, should_stop, **options):
        def stop():
            now[0] += 5.0
            return should_stop()

        return whole(*arguments, should_stop=stop, **options)

    monkeypatch.setattr(training, "train_model", slow)
    monkeypatch.setattr(training, "FLOATS_BY", 0.1)
    found, _ = train(tmp_path, data, budget)
    done, wanted = found.shortened["bin"]
    assert done < wanted == EPOCHS
    now[0] = 0.0  # the search was quick
    titles = [title for title, _ in found.more()]
    assert titles[0] == f"trained for {EPOCHS} epochs"
    assert titles[1:] == []  # another seed would not end in time
    now[0] = -200.0
    assert [title for title, _ in found.more()][1:] == ["seed 1", "seed 2", "seed 3"]


def test_without_a_budget_nothing_is_trained_on(data, tmp_path):
    found, _ = train(tmp_path, data, Budget(), 2)
    assert list(found.more()) == []


def test_floats_that_were_cut_short_are_trained_anew(data, tmp_path):
    cut, _ = train(tmp_path, data, ticking(1e-3, 1.0))
    again, epochs = train(tmp_path, data, Budget())
    assert "fp32" in cut.shortened
    assert "fp32" not in again.shortened
    assert epochs["fp32"] > 1
    # What was searched before stays what it was.
    weights = again.model.state_dict()
    assert all(weights[name].equal(value) for name, value in cut.model.state_dict().items())


@pytest.mark.parametrize("kind", ["gcn", "graphsage", "graphsaint"])
def test_binary_forms_are_what_binarize_gives(data, monkeypatch, kind):
    asked = []

    def counted(model, precision):
        asked.append((set("".join(conv.precision for conv in model.convs)), precision))
        return binarize(model, precision)

    monkeypatch.setattr(training, "binarize", counted)
    config = short_experiment(kind, "digits", 8)
    found = {form: own_letters(training.form_model(config, form, data)) for form in config.forms}
    assert [precision for _, precision in asked] == ["bin", "full"]
    assert all(not letters & set("BT") for letters, _ in asked)
    assert not set("BT") & set("".join(found["fp32"].values()))
    assert all("B" in letters for letters in found["bin"].values())

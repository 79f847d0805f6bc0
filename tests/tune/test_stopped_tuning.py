"""tune() that is stopped, goes on, or has little time; files of trials."""

import contextlib
import re
import sqlite3

import pytest
from tuned_model import (
    DROP,
    SMALL,
    distilled,
    float_model,
    told_by_neighbours,
)

import bitgnn
from bitgnn.convert.swap.graphs import own_letters
from bitgnn.distillation import fitting, teaching
from bitgnn.tune import explore, search, stages, study
from bitgnn.tune.budget import Budget
from bitgnn.tune.objective import ObjectiveError
from bitgnn.tune.result import LimitsMissed
from bitgnn.tune.study import StorageError
from bitgnn.tune.tuner import TuneInterrupted


@pytest.fixture
def data(data):
    return told_by_neighbours(data)


@pytest.fixture
def model():
    return float_model()


def test_a_stopped_search_goes_on(model, data, tmp_path, monkeypatch):
    storage = tmp_path / "trials.db"
    monkeypatch.setattr(explore, "CHOICES_AT_ONCE", 3)
    done, whole = [], explore.Explorer._explore

    def stopping(self, letters, asked):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(letters)
        whole(self, letters, asked)

    monkeypatch.setattr(explore.Explorer, "_explore", stopping)
    with pytest.raises(TuneInterrupted, match=r"kept in .*trials.db .* the same call goes on") as e:
        bitgnn.tune(model, data, constraints=DROP, storage=storage, **SMALL)
    assert {str(t.plan.letters) for t in e.value.trials} == set(map(str, done))
    again = []

    def counted(self, letters, asked):
        again.append(letters)
        whole(self, letters, asked)

    monkeypatch.setattr(explore.Explorer, "_explore", counted)
    result = bitgnn.tune(model, data, constraints=DROP, storage=storage, **SMALL)
    assert not any(letters in done for letters in again)
    assert len(done) + len(again) == len({str(t.plan.letters) for t in result.trials})
    again.clear()
    third = bitgnn.tune(model, data, constraints=DROP, storage=storage, **SMALL)
    assert again == []
    assert third.measured >= result.measured


def test_interrupt_without_a_folder_says_so(model, data, monkeypatch):
    def stopped(self, *_):
        raise KeyboardInterrupt

    monkeypatch.setattr(search.Search, "measure", stopped)
    with pytest.raises(TuneInterrupted, match=r"students: 1, .* name an output") as error:
        bitgnn.tune(model, data, **SMALL)
    assert error.value.trials


@pytest.mark.slow
def test_finished_students_are_not_distilled_again(model, data, tmp_path, monkeypatch):
    epochs, whole, most = [], fitting.step_epoch, [5]

    def stopping(*arguments):
        if len(epochs) == most[0]:
            raise KeyboardInterrupt
        epochs.append(arguments)
        whole(*arguments)

    monkeypatch.setattr(fitting, "step_epoch", stopping)
    options = {**SMALL, "output": tmp_path, "constraints": []}
    # Two of the teacher, two of the first student, one of the first finalist.
    with pytest.raises(TuneInterrupted, match=r"kept in .* students: 1, .* the same call goes on"):
        bitgnn.tune(model, data, **options)
    assert not (tmp_path / "tune.json").exists()
    most[0] = 1000
    result = bitgnn.tune(model, data, **options)
    finalists = sum(point.plan is not None for point in result.points)
    assert finalists >= 2
    assert len(epochs) == 2 + 2 * finalists
    again = bitgnn.tune(model, data, **options)
    assert len(epochs) == 2 + 2 * finalists
    # Which form of the graph the float model runs fastest on, which its name says, may change.
    scores = [{p.name: p.score for p in distilled(found)} for found in (again, result)]
    assert scores[0] == scores[1]


def test_storage_of_another_model_is_refused(model, data, tmp_path):
    storage = tmp_path / "trials.db"
    bitgnn.tune(model, data, constraints=DROP, storage=storage, **SMALL)
    with pytest.raises(StorageError, match="another model, graph or machine"):
        bitgnn.tune(model, data, seed=1, storage=storage, **SMALL)


def test_foreign_files_are_no_storage_and_stay(model, data, tmp_path):
    text, foreign = tmp_path / "notes.txt", tmp_path / "other.db"
    text.write_text("mine")
    with sqlite3.connect(foreign) as connection:
        connection.execute("create table mine (a integer)")
    before = foreign.read_bytes()
    for path in (text, foreign):
        with pytest.raises(StorageError, match="is no file of trials"):
            bitgnn.tune(model, data, storage=path, **SMALL)
    assert text.read_text() == "mine"
    assert foreign.read_bytes() == before


def _altered(path, statement):
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(statement).rowcount != 0


def _with_value(name, text):
    return (
        "update trial_user_attributes set value_json = "
        f"""replace(value_json, '"{name}": ', '"{name}": {text}, "old": ') where key = 'plans'"""
    )


def test_a_damaged_file_of_trials_is_one_error(model, data, tmp_path):
    # Characters that have a meaning in a URL have none in the name of a file.
    storage = tmp_path / "a?mode=memory#b%41.db"
    bitgnn.tune(model, data, constraints=DROP, storage=storage, **SMALL)
    assert [path.name for path in tmp_path.iterdir()] == [storage.name]
    whole = storage.read_bytes()
    nested = "[" * 100_000 + "]" * 100_000
    for damage in (
        lambda: storage.write_bytes(whole[: len(whole) // 2]),
        lambda: storage.write_bytes(whole[:4096] + b"x" * (len(whole) - 4096)),
        lambda: _altered(storage, _with_value("validation", "NaN")),
        lambda: _altered(storage, _with_value("validation", "2")),
        lambda: _altered(storage, _with_value("memory", "-1")),
        lambda: _altered(storage, _with_value("estimate", '"x"')),
        lambda: _altered(storage, _with_value("plan", nested)),
        lambda: _altered(storage, f"update study_user_attributes set value_json = '{nested}'"),
        lambda: _altered(storage, "update trial_user_attributes set value_json = '{' "),
        lambda: _altered(storage, "drop table trial_user_attributes"),
    ):
        storage.write_bytes(whole)
        damage()
        with pytest.raises(StorageError, match=re.escape(str(storage))):
            bitgnn.tune(model, data, constraints=DROP, storage=storage, **SMALL)


def test_a_file_that_cannot_be_opened_is_one_error(model, data, tmp_path, monkeypatch):
    monkeypatch.setattr(study, "PAUSE_SECONDS", 0.0)
    with pytest.raises(StorageError, match="cannot be used"):
        bitgnn.tune(model, data, storage=tmp_path / "missing" / "trials.db", **SMALL)


def test_large_spaces_are_sampled_and_repeat(model, data, monkeypatch):
    monkeypatch.setattr(explore, "MOST_CHOICES", 6)
    monkeypatch.setattr(explore, "CHOICES_AT_ONCE", 2)
    options = {**SMALL, "pins": None, "constraints": []}
    found = [
        {str(t.plan.letters) for t in bitgnn.tune(model, data, **options).trials} for _ in range(2)
    ]
    assert 6 <= len(found[0]) <= 7  # the last batch may go a little beyond
    assert found[0] & found[1]
    other = bitgnn.tune(model, data, seed=3, **options)
    assert {str(t.plan.letters) for t in other.trials} != found[0]
    assert other.space > len(other.trials)


@pytest.mark.parametrize("most", [512, 2])
def test_no_time_leaves_the_rest_out_and_says_so(model, data, tmp_path, monkeypatch, most):
    monkeypatch.setattr(explore, "CHOICES_AT_ONCE", 2)
    monkeypatch.setattr(explore, "MOST_CHOICES", most)  # of more, a sampler proposes some
    monkeypatch.setattr(Budget, "fits", lambda budget, kind, share: False)
    monkeypatch.setattr(search, "MEASURED_BY", 0.0)
    monkeypatch.setattr(stages, "DISTILLED_BY", 0.0)
    storage = tmp_path / "trials.db"  # processes of one file begin at different letters
    options = {**SMALL, "budget": "10 min", "widen": (1, 2)}
    result = bitgnn.tune(model, data, constraints=DROP, storage=storage, **options)
    assert not result.complete
    assert result.measured == 1
    assert "The budget left no time for hidden channels × 2." in result.reasons
    assert "The time was up" in str(result)
    # The first student's own letters are looked at first: it is a finalist as it is.
    assert [point.plan.letters for point in distilled(result)] == [own_letters(result.model)]
    with pytest.raises(ObjectiveError, match=r"cannot be met: .* in the time there was"):
        bitgnn.tune(model, data, constraints=["latency <= 1 ns"], **options)


def test_a_budget_may_cut_the_teacher_short(model, data, monkeypatch):
    monkeypatch.setattr(teaching, "TEACHER_SHARE", 1e-9)
    with pytest.raises(LimitsMissed, match="ended the float model's training at epoch 1"):
        bitgnn.tune(model, data, constraints=DROP, budget="10 min", **SMALL)

"""tune() that is stopped, goes on, or has little time; files of trials."""

import contextlib
import re
import sqlite3

import pytest
import torch
from small_workload import small_data
from torch_geometric.nn import GCN
from tuned_model import DROP, SMALL, distilled, float_model, told_by_neighbours

import bitgnn
from bitgnn import FileError, Plan
from bitgnn.convert.swap.graphs import own_letters
from bitgnn.distillation import fitting, teaching
from bitgnn.tune import search, study, tuner
from bitgnn.tune.objective import Budget, ObjectiveError
from bitgnn.tune.result import LimitsMissed
from bitgnn.tune.students import Students
from bitgnn.tune.study import StorageError
from bitgnn.tune.tuner import TuneInterrupted
from bitgnn.tune.workload import Workload


@pytest.fixture
def data(data):
    return told_by_neighbours(data)


@pytest.fixture
def model():
    return float_model()


def planned(model):
    """A model's letters as plans have them, where B beside dense features stands for I."""
    return {name: letters.replace("FI", "FB", 1) for name, letters in own_letters(model).items()}


def test_a_stopped_search_goes_on(model, data, tmp_path, monkeypatch):
    storage = tmp_path / "trials.db"
    monkeypatch.setattr(search, "CHOICES_AT_ONCE", 3)
    explored, whole, most = [], search.Search._explore, [2]

    def counted(self, letters, asked):
        if len(explored) == most[0]:
            raise KeyboardInterrupt
        explored.append(letters)
        whole(self, letters, asked)

    monkeypatch.setattr(search.Search, "_explore", counted)
    with pytest.raises(TuneInterrupted, match=r"kept in .*trials.db .* the same call goes on") as e:
        bitgnn.tune(model, data, constraints=DROP, storage=storage, **SMALL)
    assert {str(t.plan.letters) for t in e.value.trials} == set(map(str, explored))
    most[0] = None
    result = bitgnn.tune(model, data, constraints=DROP, storage=storage, **SMALL)
    looked_at = {str(trial.plan.letters) for trial in result.trials}
    assert len(explored) == len(set(map(str, explored))) == len(looked_at)
    third = bitgnn.tune(model, data, constraints=DROP, storage=storage, **SMALL)
    assert len(explored) == len(looked_at)
    assert third.measured >= result.measured
    with pytest.raises(StorageError, match="another model, graph or machine"):
        bitgnn.tune(model, data, seed=1, storage=storage, **SMALL)


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


def test_foreign_files_are_no_storage_and_stay(model, data, tmp_path, monkeypatch):
    text, foreign = tmp_path / "notes.txt", tmp_path / "other.db"
    text.write_text("mine")
    with sqlite3.connect(foreign) as connection:
        connection.execute("create table mine (a integer)")
    before = foreign.read_bytes()
    for path in (text, foreign):
        with pytest.raises(StorageError, match="is no file of trials"):
            bitgnn.tune(model, data, storage=path, **SMALL)
    monkeypatch.setattr(study, "PAUSE_SECONDS", 0.0)
    with pytest.raises(StorageError, match="cannot be used"):
        bitgnn.tune(model, data, storage=tmp_path / "missing" / "trials.db", **SMALL)
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


def test_large_spaces_are_sampled_and_repeat(model, data, monkeypatch):
    monkeypatch.setattr(search, "MOST_CHOICES", 6)
    monkeypatch.setattr(search, "CHOICES_AT_ONCE", 2)
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
    monkeypatch.setattr(search, "CHOICES_AT_ONCE", 2)
    monkeypatch.setattr(search, "MOST_CHOICES", most)  # of more, a sampler proposes some
    monkeypatch.setattr(Budget, "fits", lambda budget, kind, share: False)
    monkeypatch.setattr(search, "MEASURED_BY", 0.0)
    monkeypatch.setattr(tuner, "DISTILLED_BY", 0.0)
    storage = tmp_path / "trials.db"  # processes of one file begin at different letters
    options = {**SMALL, "budget": "10 min", "widen": (1, 2)}
    result = bitgnn.tune(model, data, constraints=DROP, storage=storage, **options)
    assert not result.complete
    assert result.measured == 1
    assert "The budget left no time for hidden channels × 2." in result.reasons
    assert "The time was up" in str(result)
    # The first student's own letters are looked at first: it is a finalist as it is.
    assert [point.plan.letters for point in distilled(result)] == [planned(result.model)]
    with pytest.raises(ObjectiveError, match=r"cannot be met: .* in the time there was"):
        bitgnn.tune(model, data, constraints=["latency <= 1 ns"], **options)


def test_a_budget_may_cut_the_teacher_short(model, data, monkeypatch):
    monkeypatch.setattr(teaching, "TEACHER_SHARE", 1e-9)
    with pytest.raises(LimitsMissed, match="ended the float model's training at epoch 1"):
        bitgnn.tune(model, data, constraints=DROP, budget="10 min", **SMALL)


def test_another_budget_goes_on_with_the_first_one(tmp_path, monkeypatch):
    """Students: where they are kept, and that going on changes nothing."""
    torch.manual_seed(0)
    data, model = small_data(), GCN(70, 8, 2, 4)
    plan = Plan({"convs.0": "FBF+FFF", "convs.1": "FBF+FFF"})

    def students():
        return Students(Workload.of(model, data), data, tmp_path, epochs=2)

    found = []
    for seconds in (60.0, 1e-9):
        some = students()
        with pytest.warns(UserWarning, match="at chance"):  # its labels are drawn
            first = some.teach(1, budget=seconds)
        found.append((first, some.teach(2, plan)))
        assert some.taught == 2
    for one, again in zip(*found, strict=True):
        weights = again.model.state_dict()
        assert all(value.equal(weights[n]) for n, value in one.model.state_dict().items())
    other = found[0][1]
    assert planned(other.model) == plan.letters
    assert other.model.convs[0].out_channels == 16
    assert {path.name for path in tmp_path.iterdir()} == {"x1-bin", "x2-FBF-FFF_FBF-FFF"}
    (tmp_path / "x1-bin" / "budget.json").write_text('{"seconds": "x"}')
    with pytest.raises(FileError, match=r"budget\.json: is damaged"):
        students().teach(1)
    monkeypatch.setattr("bitgnn.tune.students.LONGEST", 3)  # beyond, a checksum tells letters
    some.teach(1, plan)
    assert [len(path.name) for path in tmp_path.iterdir()].count(len("x1-") + 64) == 1

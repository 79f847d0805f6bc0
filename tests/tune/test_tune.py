"""tune(): the best plan under limits, resumed searches, and errors that say what to mend."""

import contextlib
import csv
import json
import re
import sqlite3
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn

import bitgnn
from bitgnn.convert import Plan, freeze
from bitgnn.convert.letters import own_letters
from bitgnn.models import GraphSAGE, GraphSAINT
from bitgnn.nn import GCNConv, Linear
from bitgnn.tune import explore, search, study
from bitgnn.tune.accuracy import Accuracy
from bitgnn.tune.baselines import BI_GCN, PYG
from bitgnn.tune.objective import ObjectiveError
from bitgnn.tune.report import reasons_for
from bitgnn.tune.space import Space
from bitgnn.tune.study import StorageError
from bitgnn.tune.tuner import TuneInterrupted

FEATURES, CLASSES = 70, 4
SMALL = {"pins": {"convs.0": "F*B+BBB"}, "progress": False}


@pytest.fixture
def model(workload):
    return workload.model


_SHARED = {}


@pytest.fixture
def folder(model, data, tmp_path_factory):
    """Where one search that many tests look at has written its files."""
    if not _SHARED:
        place = tmp_path_factory.mktemp("tune") / "out"
        _SHARED[place] = bitgnn.tune(model, data, output=place, **SMALL)
    return next(iter(_SHARED))


@pytest.fixture
def result(folder):
    return _SHARED[folder]


def test_recommends_the_fastest_measured_plan_that_keeps_the_limit(result):
    kept = [p for p in result.points if p.plan is not None and result.meets(p)]
    assert result.recommended in kept
    assert result.recommended.timing.median == min(p.timing.median for p in kept)
    assert result.reference - result.recommended.score.validation <= 0.01
    assert result.space >= len(result.trials)
    assert 1 <= result.measured <= search.MEASURED_SHARE * result.space


def test_every_plan_of_accurate_letters_is_looked_at(result, workload):
    by_letters = {}
    for trial in result.trials:
        by_letters.setdefault(str(trial.plan.letters), []).append(trial)
    space = Space.from_workload(workload, SMALL["pins"])
    for trials in by_letters.values():
        plans = {trial.plan for trial in trials}
        if result.reference - trials[0].score.validation <= 0.01:
            assert plans == set(space.plans(trials[0].plan.letters))
        else:
            assert len({str(plan.order) for plan in plans}) == 1


def test_points_hold_both_baselines_and_the_front_is_not_dominated(result):
    names = [point.name for point in result.points if point.plan is None]
    assert [name.split(" (")[0] for name in names] == [PYG, BI_GCN]
    for point in result.front:
        assert not any(other.measures.dominates(point.measures) for other in result.points)


def test_writes_a_plan_that_freezes_to_what_was_scored(result, model, data, workload, folder):
    plan = Plan.load(folder / "plan.yaml")
    assert plan == result.recommended.plan
    assert plan.notes["reasons"] == list(result.reasons)
    for path in (folder / "plan.yaml", str(folder / "plan.yaml")):
        assert freeze(model, path).features == plan.features
    with pytest.raises(FileNotFoundError):
        freeze(model, "none.yaml")
    frozen = freeze(model, plan)
    x = frozen.pack_features(data.x) if plan.features == "packed" else data.x
    graph = frozen.prepare_graph(data.edge_index, data.num_nodes)
    assert workload.score(frozen(x, graph)) == result.recommended.score.validation


def test_files_hold_every_trial_and_repeat(result, folder):
    record = json.loads((folder / "tune.json").read_text())
    assert len(record["trials"]) == len(result.trials)
    assert {"cpu", "versions", "commit", "threads"} <= record["environment"].keys()
    assert all(point["latency"]["seconds"] for point in record["points"])
    rows = list(csv.DictReader((folder / "tune.csv").open()))
    assert len(rows) == len(result.trials) + 2
    assert sum(row["recommended"] == "x" for row in rows) == 1
    assert (folder / "tune.png").read_bytes().startswith(b"\x89PNG")


def test_reasons_name_plan_limits_and_baselines(result):
    text = str(result)
    assert result.recommended.plan.describe() in text
    assert "accuracy drop <= 1.00%" in text
    assert PYG in text
    assert BI_GCN in text
    assert result.table().row_count >= 3


class Own(nn.Module):
    """A user's own network: a graph layer, a norm, a sum, and a linear layer."""

    def __init__(self):
        super().__init__()
        self.graph, self.norm = GCNConv(FEATURES, 16, precision="bin"), nn.BatchNorm1d(16)
        self.skip, self.scores = Linear(FEATURES, 16), nn.Linear(16, CLASSES)

    def forward(self, x, edge_index):
        return self.scores(self.norm(self.graph(x, edge_index) + self.skip(x)))


@pytest.mark.parametrize(
    ("make", "pins"),
    [
        (Own, {"graph": "*B*+*BF", "skip": "FB*"}),
        (
            partial(GraphSAINT, FEATURES, 16, CLASSES, precision="bin"),
            {0: "FBB+BBB", 1: "BBB+BB*"},
        ),
        (partial(GraphSAGE, FEATURES, 16, CLASSES, precision="bin"), {0: "FBB+BBB", 1: "*BF+F*F"}),
    ],
)
def test_other_models_are_tuned_and_frozen_as_scored(make, pins, data):
    torch.manual_seed(0)
    model = make().eval()
    result = bitgnn.tune(model, data, "accuracy", [], pins=pins, progress=False)
    assert len({str(trial.plan.letters) for trial in result.trials}) > 1
    plan, frozen = result.plan, result.freeze()
    logits = frozen(*_inputs(frozen, data, plan.features))
    share = (logits.argmax(-1) == data.y)[data.val_mask].double().mean()
    assert float(share) == pytest.approx(result.recommended.score.validation)


def test_the_hosts_share_of_a_call_on_a_gpu_is_said(result):
    assert result.recommended.gpu_seconds is None
    assert "the GPU works" not in str(result)
    timed = replace(result.recommended, gpu_seconds=12e-6)
    said = " ".join(reasons_for(replace(result, recommended=timed)))
    assert "is there the GPU works 12.0 µs; the rest is the host's" in said


def test_least_memory(model, data):
    result = bitgnn.tune(model, data, "memory", ["accuracy drop <= 100%"], **SMALL)
    assert result.recommended.memory == min(trial.memory for trial in result.trials)


def test_best_accuracy_within_a_limit_of_memory(model, data):
    free = bitgnn.tune(model, data, "accuracy", [], **SMALL)
    assert free.recommended.score.validation == max(t.score.validation for t in free.trials)
    limit = min(trial.memory for trial in free.trials)
    tight = bitgnn.tune(model, data, "accuracy", [f"memory <= {int(limit)} B"], **SMALL)
    assert tight.recommended.memory <= limit
    within = [t.score.validation for t in free.trials if t.memory <= limit]
    assert tight.recommended.score.validation == max(within)


@pytest.mark.parametrize(
    ("constraint", "said"),
    [
        ("latency <= 1 ns", "latency <= 1 ns cannot be met: the nearest plan has"),
        ("memory <= 1 B", "memory <= 1 B cannot be met: the nearest plan has"),
    ],
)
def test_limits_that_nobody_can_keep(model, data, constraint, said):
    with pytest.raises(ObjectiveError, match=said):
        bitgnn.tune(model, data, constraints=[constraint], **SMALL)


def test_bad_arguments(model, data):
    with pytest.raises(ObjectiveError, match="objective must be one of"):
        bitgnn.tune(model, data, "speed")
    with pytest.raises(ObjectiveError, match="must have the form"):
        bitgnn.tune(model, data, constraints=["fast"])
    with pytest.raises(ObjectiveError, match="budget must be a time"):
        bitgnn.tune(model, data, budget="soon")
    with pytest.raises(ObjectiveError, match="finetune must be"):
        bitgnn.tune(model, data, finetune=-1)
    with pytest.raises(ValueError, match="nothing to tune"):
        bitgnn.tune(nn.Linear(3, 3), data)
    with pytest.raises(ValueError, match="baselines must be of"):
        bitgnn.tune(model, data, trained={"other": model}, **SMALL)
    data.train_mask = None
    with pytest.raises(ValueError, match="no training mask"):
        bitgnn.tune(model, data, finetune=1)
    data.val_mask = None
    with pytest.raises(ValueError, match="val_mask missing"):
        bitgnn.tune(model, data)


def test_a_stopped_search_goes_on(model, data, tmp_path, monkeypatch):
    storage = tmp_path / "trials.db"
    monkeypatch.setattr(explore, "CHAINS_AT_ONCE", 3)
    done, whole = [], explore.Explorer._explore

    def stopping(self, letters, asked):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(letters)
        whole(self, letters, asked)

    monkeypatch.setattr(explore.Explorer, "_explore", stopping)
    with pytest.raises(TuneInterrupted, match=r"kept in .*trials.db, the same call goes on") as e:
        bitgnn.tune(model, data, storage=storage, **SMALL)
    assert {str(t.plan.letters) for t in e.value.trials} == set(map(str, done))
    again = []

    def counted(self, letters, asked):
        again.append(letters)
        whole(self, letters, asked)

    monkeypatch.setattr(explore.Explorer, "_explore", counted)
    result = bitgnn.tune(model, data, storage=storage, **SMALL)
    assert not any(letters in done for letters in again)
    assert len(done) + len(again) == len({str(t.plan.letters) for t in result.trials})
    again.clear()
    third = bitgnn.tune(model, data, storage=storage, **SMALL)
    assert again == []
    assert third.measured >= result.measured


def test_interrupt_without_storage_says_so(model, data, monkeypatch):
    def stopped(self, *_):
        raise KeyboardInterrupt

    monkeypatch.setattr(search.Search, "measure", stopped)
    with pytest.raises(TuneInterrupted, match="name a storage") as error:
        bitgnn.tune(model, data, **SMALL)
    assert error.value.trials


def test_storage_of_another_model_is_refused(model, data, tmp_path):
    storage = tmp_path / "trials.db"
    bitgnn.tune(model, data, storage=storage, **SMALL)
    with torch.no_grad():
        model.convs[1].bias.add_(1.0)
    with pytest.raises(StorageError, match="another model, graph or machine"):
        bitgnn.tune(model, data, storage=storage, **SMALL)


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
    bitgnn.tune(model, data, storage=storage, **SMALL)
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
            bitgnn.tune(model, data, storage=storage, **SMALL)


def test_a_file_that_cannot_be_opened_is_one_error(model, data, tmp_path, monkeypatch):
    monkeypatch.setattr(study, "PAUSE_SECONDS", 0.0)
    with pytest.raises(StorageError, match="cannot be used"):
        bitgnn.tune(model, data, storage=tmp_path / "missing" / "trials.db", **SMALL)


def test_large_spaces_are_sampled_and_repeat(model, data, monkeypatch):
    monkeypatch.setattr(explore, "MOST_CHAINS", 6)
    monkeypatch.setattr(explore, "CHAINS_AT_ONCE", 2)
    options = {"progress": False, "constraints": []}
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
    monkeypatch.setattr(explore, "CHAINS_AT_ONCE", 2)
    monkeypatch.setattr(explore, "MOST_CHAINS", most)  # of more, a sampler proposes some
    storage = tmp_path / "trials.db"  # processes of one file begin at different letters
    result = bitgnn.tune(model, data, budget=1e-3, storage=storage, reference="given", **SMALL)
    assert not result.complete
    assert result.measured == 1
    assert "The time was up" in str(result)
    # The model's own letters are looked at first: they lose no accuracy.
    assert result.plan.letters == own_letters(model)
    with pytest.raises(ObjectiveError, match=r"cannot be met: .* in the time there was"):
        bitgnn.tune(
            model, data, constraints=["latency <= 1 ns"], budget=1e-3, reference="given", **SMALL
        )


def test_fine_tuned_finalists_count_with_their_own_weights(model, data):
    source, target = data.edge_index
    parts = data.x[:, :4]
    data.y = parts.index_add(0, target, parts[source]).argmax(1)
    result = bitgnn.tune(model, data, "accuracy", [], finetune=20, **SMALL)
    tuned = [point for point in result.points if point.epochs]
    assert tuned
    for point in tuned:
        given = next(p for p in result.points if p.plan == point.plan and not p.epochs)
        assert point.score.validation > given.score.validation
    best = result.recommended
    assert best.epochs
    assert result.model is not model
    logits = result.freeze().executor("eager")(*_inputs(result.freeze(), data, best.plan.features))
    share = (logits.argmax(-1) == data.y)[data.val_mask].double().mean()
    assert float(share) == pytest.approx(best.score.validation)


def _inputs(frozen, data, features):
    x = frozen.pack_features(data.x) if features == "packed" else data.x
    return x, frozen.prepare_graph(data.edge_index, data.num_nodes)


def test_scores_are_asked_once_for_equal_results(model, data, monkeypatch):
    measured, whole = [], Accuracy._measure

    def counted(self, plan):
        measured.append((tuple(plan.letters.items()), tuple(plan.order.items())))
        return whole(self, plan)

    monkeypatch.setattr(Accuracy, "_measure", counted)
    result = bitgnn.tune(model, data, **SMALL)
    plans = {(tuple(t.plan.letters.items()), tuple(t.plan.order.items())) for t in result.trials}
    assert len(measured) <= len(plans) + 1  # and the model as it was given

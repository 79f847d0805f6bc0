"""tune(): the best plan and width under limits, and errors that say what to mend."""

import csv
import json
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch_geometric.nn import GCNConv, GraphSAGE
from tuned_model import (
    CLASSES,
    DROP,
    FEATURES,
    HIDDEN,
    SMALL,
    distilled,
    float_model,
    told_by_neighbours,
)

import bitgnn
from bitgnn.convert import Plan, freeze
from bitgnn.convert.swap.graphs import own_letters
from bitgnn.models import GCN as OwnGCN
from bitgnn.tune import search
from bitgnn.tune.objective import ObjectiveError
from bitgnn.tune.students import PYG


@pytest.fixture
def data(data):
    return told_by_neighbours(data)


@pytest.fixture
def model():
    return float_model()


_SHARED = {}


@pytest.fixture
def folder(model, data, tmp_path_factory):
    """Where one search that many tests look at has written its files."""
    if not _SHARED:
        place = tmp_path_factory.mktemp("tune") / "out"
        options = {**SMALL, "widen": (2, 1), "epochs": 40}
        _SHARED[place] = bitgnn.tune(model, data, constraints=DROP, output=place, **options)
    return next(iter(_SHARED))


@pytest.fixture
def result(folder):
    return _SHARED[folder]


def test_recommends_the_fastest_distilled_plan_that_keeps_the_limit(result):
    kept = [point for point in distilled(result) if result.meets(point)]
    assert result.recommended in kept
    assert result.recommended.timing.median == min(point.timing.median for point in kept)
    assert [str(limit) for limit in result.constraints] == ["accuracy drop <= 100.00%"]
    assert result.space >= len(result.trials)
    assert 1 <= result.measured <= search.MEASURED_SHARE * result.space + 2
    assert [p.name.split(" (")[0] for p in result.points if p.plan is None] == [PYG]
    for point in result.front:
        assert not any(other.measures.dominates(point.measures) for other in result.points)


def test_both_widths_are_searched_and_distilled(result):
    assert {trial.widen for trial in result.trials} == {1, 2}
    assert {point.student.workload.widen for point in distilled(result)} == {1, 2}
    for point in distilled(result):
        hidden = point.student.model.convs[0].out_channels
        assert hidden == HIDDEN * point.student.workload.widen
    assert len(distilled(result)) > 2  # beside "bin" of each width


def scored(frozen, data, features):
    """Share of validation nodes that a frozen model gets right."""
    x = frozen.pack_features(data.x) if features == "packed" else data.x
    logits = frozen(x, frozen.prepare_graph(data.edge_index, data.num_nodes))
    return float((logits.argmax(-1) == data.y)[data.val_mask].double().mean())


def test_scores_are_those_of_the_frozen_students(result, data):
    for point in distilled(result):
        assert own_letters(point.student.model) == point.plan.letters
        share = scored(point.freeze(), data, point.plan.features)
        assert share == pytest.approx(point.score.validation)
    assert result.freeze().features == result.plan.features
    with pytest.raises(ValueError, match="has no plan to freeze"):
        result.points[0].freeze()


def test_all_learn_from_one_teacher(result, folder, data):
    trained = [path.parent.name for path in (folder / "students").rglob("teacher.checkpoint")]
    assert trained == ["x1-bin"]
    students = [path.name for path in (folder / "students").iterdir()]
    assert len(students) == len(distilled(result))
    with torch.no_grad():
        scores = result.teacher(data.x, data.edge_index)
    share = (scores.argmax(-1) == data.y)[data.val_mask].double().mean()
    assert result.reference == result.points[0].score.validation == pytest.approx(float(share))


def test_every_plan_of_accurate_letters_is_looked_at(result):
    by_letters = {}
    for trial in result.trials:
        by_letters.setdefault((trial.widen, str(trial.plan.letters)), []).append(trial)
    assert len(by_letters) == 2 * 16
    assert all(len({str(t.plan) for t in trials}) == len(trials) for trials in by_letters.values())


def test_writes_a_plan_that_freezes_to_what_was_scored(result, folder):
    plan = Plan.load(folder / "plan.yaml")
    assert plan == result.recommended.plan
    assert plan.notes["reasons"] == list(result.reasons)
    assert plan.notes["widen"] == result.recommended.student.workload.widen
    for path in (folder / "plan.yaml", str(folder / "plan.yaml")):
        assert freeze(result.model, path).features == plan.features
    with pytest.raises(FileNotFoundError):
        freeze(result.model, "none.yaml")
    text = (folder / "plan.yaml").read_text(encoding="utf-8")
    assert "µs" in text or " ms per forward pass" in text
    assert "\\x" not in text


def test_files_hold_every_point_trial_and_repeat(result, folder):
    record = json.loads((folder / "tune.json").read_text())
    assert len(record["trials"]) == len(result.trials)
    assert {"cpu", "versions", "commit", "threads"} <= record["environment"].keys()
    assert all(point["latency"]["seconds"] for point in record["points"])
    rows = list(csv.DictReader((folder / "tune.csv").open()))
    assert len(rows) == len(result.points) + len(result.trials)
    assert sum(row["recommended"] == "x" for row in rows) == 1
    assert (folder / "tune.png").read_bytes().startswith(b"\x89PNG")


def test_reasons_name_plan_limits_and_the_float_model(result):
    text = str(result)
    assert result.recommended.plan.describe() in text
    assert "accuracy drop <= 100.00%" in text
    assert PYG in text
    assert result.table().row_count == len(result.points)
    wide = next(p for p in distilled(result) if p.student.workload.widen == 2)
    assert ", 2 times the hidden channels." in replace(result, recommended=wide).reasons[0]
    assert result.recommended.gpu_seconds is None
    assert "the GPU works" not in text
    timed = replace(result, recommended=replace(result.recommended, gpu_seconds=12e-6))
    assert "is there the GPU works 12.0 µs; the rest is the host's" in str(timed)


class Own(nn.Module):
    """A user's own network: a graph layer, a norm, a sum, and a linear layer."""

    def __init__(self):
        super().__init__()
        self.graph, self.norm = GCNConv(FEATURES, 16), nn.BatchNorm1d(16)
        self.skip, self.scores = nn.Linear(FEATURES, 16), nn.Linear(16, CLASSES)

    def forward(self, x, edge_index):
        return self.scores(self.norm(self.graph(x, edge_index) + self.skip(x)))


@pytest.mark.parametrize(
    ("make", "pins"),
    [
        (Own, {"graph": "*B*+*BF"}),
        (lambda: OwnGCN(FEATURES, 16, CLASSES, precision="fp32"), {0: "FBB+BB*", 1: "*BF+F*F"}),
        (lambda: GraphSAGE(FEATURES, 16, 2, CLASSES), {0: "FBB+BBF", 1: "FBF+F*F"}),
    ],
)
def test_other_models_are_tuned_and_frozen_as_scored(make, pins, data):
    torch.manual_seed(0)
    result = bitgnn.tune(make(), data, "accuracy", [], **{**SMALL, "pins": pins})
    assert len({str(trial.plan.letters) for trial in result.trials}) > 1
    share = scored(result.freeze(), data, result.plan.features)
    assert share == pytest.approx(result.recommended.score.validation)


def test_least_memory_and_best_accuracy(model, data):
    found = bitgnn.tune(model, data, "memory", DROP, **SMALL)
    assert found.recommended.memory == min(point.memory for point in distilled(found))
    limit = int(found.recommended.memory)
    tight = bitgnn.tune(model, data, "accuracy", f"memory <= {limit} B", **SMALL)
    assert tight.recommended.memory <= limit
    within = [p.score.validation for p in distilled(tight) if p.memory <= limit]
    assert tight.recommended.score.validation == max(within)


def test_pins_may_forbid_the_letters_of_bin(model, data):
    pins = {"convs.0": "FFF+FFF", "convs.1": "F**+F*F"}
    result = bitgnn.tune(model, data, constraints=[], **{**SMALL, "pins": pins})
    assert distilled(result)
    assert {point.plan.letters["convs.0"] for point in distilled(result)} == {"FFF+FFF"}


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"objective": "speed"}, ObjectiveError, "objective must be one of"),
        ({"constraints": ["fast"]}, ObjectiveError, "must have the form"),
        ({"budget": "soon"}, ObjectiveError, "budget must be a time"),
        *(
            ({"widen": widen}, ValueError, "widen must be numbers of at least 1")
            for widen in (0.5, (), (1, float("inf")))
        ),
        ({"model": nn.Linear(3, 3)}, ValueError, "nothing to tune"),
        (
            {"model": OwnGCN(FEATURES, 16, CLASSES, precision="bin")},
            ValueError,
            "model must be in floats, got one with the letters",
        ),
        ({"constraints": ["latency <= 1 ns"], **SMALL}, ObjectiveError, "cannot be met: the near"),
    ],
)
def test_bad_arguments(model, data, options, error, message):
    with pytest.raises(error, match=message):
        bitgnn.tune(**{"model": model, "data": data, **options})


def test_masks_that_are_missing(model, data):
    for name in ("train_mask", "val_mask"):
        data[name] = None
        with pytest.raises(ValueError, match=f"{name}.* missing"):
            bitgnn.tune(model, data, **SMALL)


def test_a_teacher_that_the_budget_cut_short_proves_nothing(result):
    doubt = "the budget ended the float model's training at epoch 1"
    cut = replace(result, doubt=doubt)
    said = f"it is not known whether accuracy drop <= 100.00% is kept: {doubt}"
    assert cut.reasons[0] == f"No plan is recommended: {said}."
    assert {cut.verdict(point) for point in cut.points} == {"unknown"}
    assert replace(cut, constraints=()).missed is None

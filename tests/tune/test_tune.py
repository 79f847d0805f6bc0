"""tune(): candidates distilled, measured and chosen from; what stops goes on."""

import copy
import json
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch_geometric.nn import GCN, LGConv

import bitgnn
from bitgnn.distillation import DistillError, fitting, teaching
from bitgnn.distillation.checkpoint import CheckpointError
from bitgnn.models import GraphSAGE
from bitgnn.nn import GCNConv
from bitgnn.tune import LimitsMissed, tuner

DROP = "accuracy drop <= 100%"
SMALL = {"constraints": DROP, "widen": 1, "epochs": 2}
CANDIDATES = 4
"""Of the small model in one width."""


@pytest.fixture(scope="module")
def shared():
    """One call that many tests look at: its result and folder."""
    return {}


@pytest.fixture
def folder(shared, model, data, tmp_path_factory):
    if not shared:
        shared["folder"] = tmp_path_factory.mktemp("tune") / "out"
        options = {**SMALL, "widen": (2, 1), "epochs": 40, "output": shared["folder"]}
        shared["result"] = bitgnn.tune(model, data, **options)
    return shared["folder"]


@pytest.fixture
def result(shared, folder):
    return shared["result"]


def scored(frozen, data, mask):
    """Share of nodes that a frozen model gets right."""
    logits = frozen(data.x, data.edge_index)
    return float((logits.argmax(-1) == data.y)[mask].double().mean())


def test_every_candidate_is_trained_in_its_precisions_and_scored_frozen(result, data):
    assert len(result.points) == 2 * CANDIDATES
    assert {point.candidate.widen for point in result.points} == {1, 2}
    for point in result.points:
        assert point.model.convs[0].out_channels == 16 * point.candidate.widen
        floats = [layer.letters.is_float for layer in point.model.convs]
        assert floats == [name == "fp32" for name in point.candidate.precisions.values()]
        frozen = point.freeze()
        assert point.score == pytest.approx(scored(frozen, data, data.val_mask))
        assert point.test == pytest.approx(scored(frozen, data, data.test_mask))
        assert (point.epochs, point.ended) == (40, "after all epochs")
        assert point.memory > 0
        assert len(point.timing.seconds) == tuner.ROUNDS


def test_a_candidate_is_what_distill_gives(result, data):
    point = result.points[-1]
    again = bitgnn.distill(
        result.teacher, data, point.candidate.config, widen=point.candidate.widen, epochs=40,
        trained=True,
    )  # fmt: skip
    for name, value in again.model.state_dict().items():
        assert value.equal(point.model.state_dict()[name]), name


def test_the_best_is_the_fastest_that_keeps_the_limit_and_nothing_beats_the_front(result):
    assert result.missed is None
    assert result.best.latency == min(point.latency for point in result.points)
    assert result.best in result.front
    for point in result.points:
        beaten = any(other.measures.dominates(point.measures) for other in result.points)
        assert beaten == (point not in result.front)
    assert result.goal.reference == result.baseline.score
    assert {point.name for point in result.floats} >= {"float (edge_index)", "float (torch CSR)"}
    with pytest.raises(ValueError, match="is the float model"):
        result.baseline.freeze()


def test_all_learn_from_one_teacher(result, folder, data):
    taught = [path.parent.name for path in folder.rglob("teacher.checkpoint")]
    assert taught == [result.points[0].candidate.folder]
    with torch.no_grad():
        logits = result.teacher(data.x, data.edge_index)
    share = (logits.argmax(-1) == data.y)[data.val_mask].double().mean()
    assert result.goal.reference == pytest.approx(float(share))


def test_files_hold_every_point_and_the_packed_model(result, folder, data):
    record = json.loads((folder / "tune.json").read_text())
    assert len(record["points"]) == len(result.points)
    assert [point["name"] for point in record["points"] if point["best"]] == [result.best.name]
    assert sum(point["on_front"] for point in record["points"]) == len(result.front)
    assert all(len(point["latency"]["seconds"]) == tuner.ROUNDS for point in record["floats"])
    assert {"cpu", "versions", "threads"} <= record["environment"].keys()
    assert (folder / "tune.png").read_bytes().startswith(b"\x89PNG")
    loaded = bitgnn.load(folder / "model")
    assert loaded(data.x, data.edge_index).equal(result.freeze()(data.x, data.edge_index))


def test_the_report_names_the_best_and_every_point(result):
    text = str(result)
    assert text.startswith(f"Take {result.best.name}: the best latency of 8.\n")
    for point in (*result.points, *result.floats):
        assert point.name in text
    left = replace(result, left_out=(result.best.candidate,), failed={result.best.candidate: "why"})
    assert "The budget left no time for 1 candidates: " in str(left)
    assert f"{result.best.name} failed: why." in str(left)


class Own(nn.Module):
    """A user's own network whose forward no trace can follow."""

    def __init__(self):
        super().__init__()
        self.conv, self.last = GCNConv(70, 16, precision="fp32"), nn.Linear(16, 4)

    def forward(self, x, edge_index):
        h = self.conv(x, edge_index)
        return self.last(h if h.sum() > 0 else -h)


@pytest.mark.parametrize("make", [Own, lambda: GraphSAGE(70, 16, 4, precision="fp32")])
def test_other_models(make, data):
    torch.manual_seed(0)
    found = bitgnn.tune(make(), data, "accuracy", **SMALL)
    assert found.best.score == max(point.score for point in found.points)
    assert found.best.score == pytest.approx(scored(found.freeze(), data, data.val_mask))


def test_other_labels_and_sparse_graphs(model, data):
    """Labels of their own in columns; edge weights; no masks but that of training."""
    data.y = nn.functional.one_hot(data.y, 4).float()
    data.edge_weight = torch.rand(data.edge_index.size(1)) + 0.5
    data.test_mask = None
    del data.val_mask
    before = copy.deepcopy(model.state_dict())
    with pytest.warns(UserWarning, match="val_mask is missing") as said:
        found = bitgnn.tune(model, data, "memory", **SMALL, precisions=("bin", "full"))
    assert sum("val_mask is missing" in str(w.message) for w in said) == 1
    assert found.best.memory == min(point.memory for point in found.points)
    assert [point.name for point in found.floats] == ["float (as given)"]
    assert all(point.test is None for point in found.points)
    assert all(value.equal(before[name]) for name, value in model.state_dict().items())


def test_limits_that_nobody_keeps(model, data, tmp_path):
    with pytest.raises(LimitsMissed, match=r"no candidate keeps memory <= 1 B; the nearest, ") as e:
        bitgnn.tune(model, data, **{**SMALL, "constraints": "memory <= 1 B"}, output=tmp_path)
    found = e.value.result
    assert found.best.memory == min(point.memory for point in found.points)
    assert str(found).startswith(f"None is recommended: {found.missed}.")
    assert json.loads((tmp_path / "tune.json").read_text())["missed"] == found.missed


def counted(monkeypatch):
    """Epochs of all trainings; Ctrl-C comes in front of number ``most[0]``."""
    epochs, whole, most = [], fitting.step_epoch, [1000]

    def step(*arguments):
        if len(epochs) == most[0]:
            raise KeyboardInterrupt
        epochs.append(arguments)
        whole(*arguments)

    monkeypatch.setattr(fitting, "step_epoch", step)
    return epochs, most


@pytest.mark.parametrize("budget", [None, "10 min"])
def test_a_stopped_call_goes_on(model, data, tmp_path, monkeypatch, budget):
    epochs, most = counted(monkeypatch)
    options = {**SMALL, "output": tmp_path, "budget": budget}
    most[0] = 2 + 2 + 1  # of the teacher, the first candidate, and one of the second
    with pytest.raises(KeyboardInterrupt, match=r"1 of 4 candidates .* kept in .*the same call"):
        bitgnn.tune(model, data, **options)
    assert not (tmp_path / "tune.json").exists()
    most[0] = 1000
    found = bitgnn.tune(model, data, **options)
    # With a budget, the candidate that was stopped is begun anew.
    assert len(epochs) == 2 + 2 * CANDIDATES + (budget is not None)
    again = bitgnn.tune(model, data, **{**options, "budget": "5 min"})
    assert len(epochs) == 2 + 2 * CANDIDATES + (budget is not None)
    fresh = bitgnn.tune(model, data, **{**options, "output": None})
    scores = [{p.name: p.score for p in one.points} for one in (found, again, fresh)]
    assert scores[0] == scores[1] == scores[2]
    with pytest.raises(CheckpointError, match="checkpoint of another recipe"):
        bitgnn.tune(model, data, **{**options, "seed": 1})
    state = tmp_path / tuner.CANDIDATES / found.points[1].candidate.folder / tuner.BEGUN
    state.write_text('{"seconds": "x", "ended": true}')
    with pytest.raises(bitgnn.FileError, match=r"begun\.json: is damaged"):
        bitgnn.tune(model, data, **options)


def test_a_stopped_call_without_a_folder_says_so(model, data, monkeypatch):
    _, most = counted(monkeypatch)
    most[0] = 1
    with pytest.raises(KeyboardInterrupt, match=r"0 of 4 candidates .* name an output folder"):
        bitgnn.tune(model, data, **SMALL)


def test_candidates_without_time_are_named(model, data, tmp_path, monkeypatch):
    monkeypatch.setattr(tuner._Loop, "_expected", lambda loop, width: 1e9)
    options = {**SMALL, "budget": "10 min", "output": tmp_path}
    found = bitgnn.tune(model, data, **options)
    assert [point.candidate.folder for point in found.points] == ["x1-bin_bin"]
    assert len(found.left_out) == CANDIDATES - 1
    assert "The budget left no time for 3 candidates: bin, fp32 ×1; " in str(found)
    assert len(json.loads((tmp_path / "tune.json").read_text())["left_out"]) == 3
    monkeypatch.undo()
    assert not bitgnn.tune(model, data, **options).left_out


def test_the_expected_time_is_that_of_the_width_or_in_proportion(model, data, tmp_path):
    loop = tuner._Loop(tmp_path, model, data, None, 0.0, None, None, None, 0)
    assert loop._expected(2.0) == 0.0
    loop.took = {1.0: 3.0, 2.0: 4.0}
    assert [loop._expected(width) for width in (1.0, 2.0, 4.0)] == [3.0, 4.0, 12.0]


def test_a_budget_ends_trainings_in_time(model, data, monkeypatch):
    epochs, most = counted(monkeypatch)
    most[0] = -1  # a fast machine has time for any number
    with pytest.raises(ValueError, match="budget must leave time for the student"):
        bitgnn.tune(model, data, **{**SMALL, "epochs": 10**6}, budget=1e-6)
    assert len(epochs) == 1
    monkeypatch.setattr(teaching, "TEACHER_SHARE", 1e-9)
    options = {**SMALL, "epochs": 10**6, "precisions": "bin", "budget": 8}
    with pytest.raises(LimitsMissed, match="ended the float model's training at epoch 1") as e:
        bitgnn.tune(model, data, **options)
    assert "The budget cut trainings short: bin, bin ×1." in str(e.value.result)
    assert replace(e.value.result, doubt=None).missed is None


class Propagation(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = LGConv()

    def forward(self, x, edge_index):
        return self.conv(x, edge_index)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"objective": "speed"}, ValueError, "objective must be one of"),
        ({"constraints": ["fast"]}, ValueError, "must have the form"),
        ({"budget": "soon"}, ValueError, "budget must be a time"),
        ({"budget": 0}, ValueError, "budget must be a time"),
        ({"widen": 0.5}, ValueError, "widen must be numbers of at least 1"),
        ({"pins": {"x": "bin"}}, ValueError, "pins name the layer 'x'"),
        ({"epochs": 0}, ValueError, "epochs must be a positive integer"),
        ({"model": 3}, TypeError, r"model must be a torch.nn.Module, got int"),
        ({"data": [1]}, TypeError, "data must be a Data object of one graph, got list"),
        ({"model": nn.Linear(3, 3)}, ValueError, "must have a layer to tune .* Linear has none"),
        ({"model": Propagation()}, ValueError, "must have a layer to tune .* Propagation has none"),
        (
            {"model": bitgnn.models.GCN(70, 8, 4, precision="bin")},
            ValueError,
            "must be in floats, got one with",
        ),
        ({"model": GCN(69, 8, 2, 4)}, DistillError, "model does not take data"),
    ],
)
def test_bad_arguments_are_one_error_before_anything_is_trained(
    model, data, monkeypatch, options, error, message
):
    epochs, most = counted(monkeypatch)
    most[0] = 1
    with pytest.raises(error, match=message):
        bitgnn.tune(**{"model": model, "data": data, **options})
    assert not epochs


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train_mask": None}, "train_mask is missing"),
        ({"val_mask": torch.zeros(90, dtype=torch.bool)}, "val_mask is empty"),
        ({"x": torch.full((90, 70), float("nan"))}, "x must be finite"),
        ({"x": None}, "x is missing"),
        ({"y": None}, "y must have a row for each"),
        ({"edge_index": torch.tensor([[0], [90]])}, "edge_index must be nodes 0 to 89"),
        ({"edge_label_index": torch.tensor([[0], [1]])}, "must have labels of nodes"),
    ],
)
def test_bad_data(model, data, change, message):
    for name, value in change.items():
        data[name] = value
    with pytest.raises(ValueError, match=message):
        bitgnn.tune(model, data, **SMALL)

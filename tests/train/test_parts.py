"""Parts of training on their own: features, metrics, losses, rates, the choice of an epoch."""

import gc
import json
import math

import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import nn
from torch.nn import functional

from bitgnn.data import DataError
from bitgnn.train.build import _kept, model_input, row_normalized, thermometer
from bitgnn.train.keeping import RunLog
from bitgnn.train.loop import (
    TrainingError,
    divergence,
    propagated,
    teacher_log_probabilities,
    train_model,
)
from bitgnn.train.recipe import Recipe, TeacherPropagation
from bitgnn.train.session import BestState
from bitgnn.train.task import CountRight, NodeTask, RocAuc, check_data, roc_auc


def recipe(**changes):
    return Recipe(**{"epochs": 10, "learning_rate": 0.1, **changes})


def test_row_normalized_leaves_empty_rows():
    x = torch.tensor([[1.0, 3.0], [0.0, 0.0]])
    assert row_normalized(x).tolist() == [[0.25, 0.75], [0.0, 0.0]]


def test_thermometer_tells_quantiles_and_drops_constants():
    x = torch.stack([torch.arange(8.0), torch.full((8,), 3.0), (torch.arange(8) == 7).float()], 1)
    bits = thermometer(x, 3)
    # Quantiles 1.75, 3.5, 5.25 of the first column; all of the third are 0; the second is constant.
    expected = torch.stack([x[:, 0] > q for q in (1.75, 3.5, 5.25)] + [x[:, 2] > 0] * 3, dim=1)
    assert torch.equal(bits, expected.float())
    assert thermometer(torch.zeros(4, 2), 3).shape == (4, 0)


def test_thermometer_is_kept_as_long_as_the_features():
    before = len(_kept)
    x = torch.rand(6, 2)
    first = model_input(recipe(thermometer=2), x)
    assert model_input(recipe(thermometer=2), x) is first
    assert model_input(recipe(thermometer=1), x).size(1) == 2
    assert model_input(recipe(), x) is x
    del x
    gc.collect()
    assert len(_kept) == before


@pytest.mark.parametrize("levels", [2, 5, 1000])
def test_roc_auc_is_that_of_scikit_learn(levels):
    generator = torch.Generator().manual_seed(levels)
    scores = torch.randint(levels, (200,), generator=generator).float()
    y = torch.rand(200, generator=generator) < 0.3
    expected = roc_auc_score(y.numpy(), scores.numpy())
    assert float(roc_auc(scores[y], scores[~y])) == pytest.approx(expected, abs=1e-12)
    logits = torch.stack([torch.zeros(200), scores], dim=1)
    masks = [torch.arange(200) % 3 == part for part in range(3)]
    found = RocAuc(y.long(), masks)(logits)
    for mask, value in zip(masks, found.tolist(), strict=True):
        assert value == pytest.approx(roc_auc_score(y[mask], scores[mask]), abs=1e-12)


def test_accuracies_are_exact_shares():
    y = torch.tensor([0, 1, 1, 0, 1, 0])
    logits = functional.one_hot(torch.tensor([0, 1, 0, 0, 1, 1])).float()
    masks = [torch.tensor(mask).bool() for mask in ([1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 0, 0],
                                                    [0, 0, 0, 0, 1, 1])]  # fmt: skip
    assert CountRight(y, masks)(logits).tolist() == [2 / 3, 1.0, 0.5]


def test_learning_rates():
    constant = [recipe().rate(epoch) for epoch in range(10)]
    assert constant == [0.1] * 10
    warm = recipe(warmup=4, schedule="cosine")
    rates = [warm.rate(epoch) for epoch in range(10)]
    assert rates[:4] == pytest.approx([0.025, 0.05, 0.075, 0.1])
    assert rates[4] == pytest.approx(0.1)
    assert rates[7] == pytest.approx(0.05)
    assert 0 < rates[9] < 0.01
    assert recipe(warmup=20).rate(3) == pytest.approx(0.02)


def test_divergence_and_several_teachers():
    torch.manual_seed(0)
    student, first, second = torch.randn(3, 5, 4).unbind()
    log_mean = teacher_log_probabilities([first, second], 2.0)
    mean = (functional.softmax(first / 2, -1) + functional.softmax(second / 2, -1)) / 2
    torch.testing.assert_close(log_mean.exp(), mean)
    expected = 4 * (mean * (mean.log() - functional.log_softmax(student / 2, -1))).sum(1).mean()
    torch.testing.assert_close(divergence(student, log_mean, 2.0), expected)
    assert float(divergence(first, teacher_log_probabilities([first], 3.0), 3.0)) < 1e-6


def test_propagation_is_personalised_pagerank():
    edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    start = functional.softmax(torch.randn(4, 3, generator=torch.Generator().manual_seed(0)), -1)
    dense = torch.eye(4)
    dense[edges[0], edges[1]] = 1
    scale = dense.sum(1).rsqrt()
    dense = scale[:, None] * dense * scale
    found = start
    for _ in range(3):
        found = 0.8 * dense @ found + 0.2 * start
    expected = found / found.sum(1, keepdim=True)
    settings = TeacherPropagation(steps=3, alpha=0.2)
    torch.testing.assert_close(propagated(start.log(), edges, settings).exp(), expected)
    # The isolated node keeps its own.
    torch.testing.assert_close(expected[3], start[3])


def offered(values, patience):
    model = nn.Linear(1, 1, bias=False)
    best = BestState(model, patience)
    for epoch, value in enumerate(values):
        with torch.no_grad():
            model.weight.fill_(epoch)
        best.offer(epoch, torch.tensor(value, dtype=torch.float64))
    return best


@pytest.mark.parametrize(
    ("values", "patience", "epoch"),
    [
        ([3.0, 1.0, 1.0, 2.0], None, 1),
        ([math.nan, 2.0, math.nan, 1.0], None, 3),
        ([3.0, 4.0, 5.0, 1.0], 2, 0),  # a training stopped after epoch 2 never saw the last
        ([3.0, 4.0, 2.0, 5.0, 1.0], 2, 4),
        ([math.nan, math.nan, math.nan, 1.0], 1, 3),
        ([math.nan, math.inf], None, -1),
    ],
)
def test_the_first_best_epoch_within_patience_is_kept(values, patience, epoch):
    best = offered(values, patience)
    assert int(best.epoch) == epoch
    if epoch >= 0:
        assert float(best.state["weight"]) == epoch
        assert best.stop_after() == (None if patience is None else epoch + patience)


@pytest.mark.cuda
def test_choice_on_the_device_is_that_on_the_cpu():
    values = [3.0, math.nan, 2.0, 4.0, 5.0, 1.0]
    model = nn.Linear(1, 1, bias=False).cuda()
    best = BestState(model, 2)
    for epoch, value in enumerate(values):
        with torch.no_grad():
            model.weight.fill_(epoch)
        best.offer(epoch, torch.tensor(value, dtype=torch.float64, device="cuda"))
    assert int(best.epoch) == int(offered(values, 2).epoch)
    assert float(best.state["weight"]) == int(best.epoch)


def task_and_model(data, config, form="full", metric="accuracy"):
    from bitgnn.train.build import build_model

    return build_model(config, form, data), NodeTask.of(data, data.x, metric)


def test_early_stop_ends_after_patience(config, data):
    model, task = task_and_model(data, config)
    trained = train_model(model, task, recipe(epochs=200, learning_rate=0.5, patience=6))
    assert trained.epochs == trained.epoch + 7 < 200


def test_choice_by_score(config, data):
    model, task = task_and_model(data, config)
    trained = train_model(model, task, recipe(epochs=15, choose_by="score"))
    with torch.no_grad():
        right = model(data.x, data.edge_index).argmax(1) == data.y
    assert trained.val_score == pytest.approx(right[data.val_mask].float().mean().item())


def test_divergence_of_a_training_is_an_error(config, data):
    data = data.clone()
    data.x = data.x * math.nan
    model, task = task_and_model(data, config, "fp32")
    with pytest.raises(TrainingError, match="no epoch of 3 had a finite validation loss"):
        train_model(model, task, recipe(epochs=3))


def test_roc_auc_experiment(config, data):
    data = data.clone()
    data.y = data.y.clamp(max=1)
    check_data(data, "roc_auc")
    model, task = task_and_model(data, config, metric="roc_auc")
    trained = train_model(model, task, recipe(choose_by="score"))
    assert 0.5 < trained.val_score <= 1


def changed(data, **changes):
    data = data.clone()
    for name, value in changes.items():
        data[name] = value(data)
    return data


@pytest.mark.parametrize(
    ("changes", "metric", "message"),
    [
        ({"y": lambda data: None}, "accuracy", "graph: y missing; x, y and masks are needed"),
        ({"train_mask": lambda data: None}, "accuracy", "train_mask missing"),
        ({"val_mask": lambda data: data.val_mask & False}, "accuracy", "val_mask is empty"),
        ({"test_mask": lambda data: data.test_mask[:-1]}, "accuracy", r"test_mask must be bool"),
        ({"y": lambda data: data.y.float()}, "accuracy", "y must be int64"),
        ({"y": lambda data: data.y - 1}, "accuracy", "train_mask holds nodes without a label"),
        ({"x": lambda data: data.x / 0}, "accuracy", "x must be finite, found NaN or infinity"),
        ({"x": lambda data: data.x.long()}, "accuracy", "x must be a float matrix"),
        ({}, "roc_auc", "roc_auc needs the classes 0 and 1, y has 2"),
        ({"y": lambda data: (data.y > 0).long() * data.train_mask}, "roc_auc",
         "val_mask holds a single class"),
    ],
)  # fmt: skip
def test_unusable_graphs_are_refused(data, changes, metric, message):
    with pytest.raises(DataError, match=message):
        check_data(changed(data, **changes), metric, "graph")


def test_logs_hold_nan_as_null(tmp_path):
    log = RunLog(tmp_path / "run")
    log.restart([])
    log.append([{"epoch": 0, "val_loss": math.nan}])
    log.append([{"epoch": 1, "val_loss": 0.5}])
    rows = [json.loads(line) for line in log.jsonl.read_text().splitlines()]
    assert rows == [{"epoch": 0, "val_loss": None}, {"epoch": 1, "val_loss": 0.5}]
    assert log.csv.read_text() == "epoch,val_loss\n0,nan\n1,0.5\n"
    log.restart(rows[1:])
    assert log.csv.read_text() == "epoch,val_loss\n1,0.5\n"

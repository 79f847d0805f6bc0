"""Parts of distill(): losses, what a teacher asks for, its smoothing, wider models, the recipe."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from toy_problems import CLASSES, NODES, gcn, planted

from bitgnn.distillation import DistillError
from bitgnn.distillation.objectives import (
    Classes,
    Links,
    MultiLabel,
    Values,
    objective_of,
    smoothed,
)
from bitgnn.distillation.problems import Nodes
from bitgnn.distillation.recipe import DistillRecipe, dropout_for, recipe_for
from bitgnn.distillation.session import Fit
from bitgnn.nn import BWTALinear


def test_a_teacher_of_classes_is_sharpened():
    scores = torch.tensor([[0.0, 1.0, 2.0], [3.0, 0.0, 0.0]])
    shares = scores.softmax(1) ** 2
    wanted = shares / shares.sum(1, keepdim=True)
    asked = Classes().wanted(scores, 2.0)
    assert torch.allclose(asked.exp(), wanted)
    student = torch.randn(2, 3)
    expected = (wanted * (wanted.log() - student.log_softmax(1))).sum(1).mean()
    assert torch.allclose(Classes().teacher(student, asked), expected, atol=1e-6)


def test_labels_of_their_own_may_be_unknown():
    y = torch.tensor([[1.0, float("nan")], [0.0, 1.0]])
    scores = torch.tensor([[2.0, 5.0], [1.0, 1.0]])
    known = torch.tensor([2.0, -1.0, 1.0]).sigmoid()
    objective = MultiLabel()
    assert torch.allclose(objective.labels(scores, y), -known.log().mean())
    assert float(objective.score(scores, y)) == pytest.approx(2 * 2 / (3 + 2))
    wanted = objective.wanted(scores, 2.0)
    assert float(objective.teacher(2 * scores, wanted)) == pytest.approx(0.0, abs=1e-6)


def test_values_count_in_units_of_their_variance():
    y = torch.tensor([0.0, 2.0])
    objective = Values(y)
    assert float(objective.labels(torch.tensor([[1.0], [1.0]]), y)) == pytest.approx(1.0)
    assert float(objective.score(torch.tensor([[0.0], [2.0]]), y)) == 1.0
    with pytest.raises(DistillError, match="one value everywhere"):
        Values(torch.ones(3))


def test_links_are_scored_by_their_order():
    y = torch.tensor([[1.0], [1.0], [0.0]])
    assert float(Links().score(torch.tensor([[3.0], [1.0], [2.0]]), y)) == 0.5


@pytest.mark.parametrize(
    ("y", "outputs", "message"),
    [
        (torch.tensor([0, 3]), 3, "classes 0 to 2"),
        (torch.tensor([-1, 1]), 3, "classes 0 to 2"),
        (torch.tensor([1, 1]), 3, "two classes"),
        (torch.ones(4, 2), 3, "3 scores"),
        (torch.rand(4, 2), 3, "3 values"),
        (torch.tensor([0.5, float("inf")]), 1, "finite"),
    ],
)
def test_labels_that_say_nothing(y, outputs, message):
    with pytest.raises(DistillError, match=message):
        objective_of(y, outputs)


def test_smoothing_is_used_where_validation_nodes_gain():
    data = planted()
    train, val = (mask.nonzero().flatten() for mask in (data.train_mask, data.val_mask))
    torch.manual_seed(0)
    noisy = functional.one_hot(data.y, CLASSES) + 1.5 * torch.randn(NODES, CLASSES)
    logs, found = smoothed(noisy.log_softmax(1), data.edge_index, data.y, train, val)
    assert found.share < 1
    assert torch.allclose(logs.exp().sum(1), torch.ones(NODES))
    before = float((noisy.argmax(1) == data.y)[data.test_mask].float().mean())
    after = float((logs.argmax(1) == data.y)[data.test_mask].float().mean())
    assert after > before
    exact = (9.0 * functional.one_hot(data.y, CLASSES)).log_softmax(1)
    logs, found = smoothed(exact, data.edge_index, data.y, train, val)
    assert str(found) == "none"
    assert torch.allclose(logs, exact, atol=1e-4)


def test_dropout_follows_how_much_the_teacher_overfits():
    data, model = planted(), gcn().eval()
    right = (model(data.x, data.edge_index).argmax(1) == data.y).float()
    expected = float(right[data.train_mask].mean() - right[data.val_mask].mean())
    overfit, labelled = Nodes(data, model, None, None, 0).overfit(model)
    assert overfit == pytest.approx(expected)
    assert labelled == int(data.train_mask.sum())
    assert [dropout_for(value, 100) for value in (-0.1, 0.0, 0.5, 1.0)] == [0, 0, 1, 1]
    assert 0 < dropout_for(0.01, 100) < dropout_for(0.02, 100) < 1
    assert 0 < dropout_for(0.5, 100_000) < dropout_for(0.5, 10_000) < 1
    assert dropout_for(0.0, 100_000) == 0


def test_numbers_of_the_recipe_follow_from_the_data():
    recipe = DistillRecipe(epochs=4, learning_rate=0.01)
    assert recipe.rate(3) == 0.01
    cosine = recipe.model_copy(update={"schedule": "cosine"})
    assert [cosine.rate(epoch) for epoch in (0, 2, 4)] == pytest.approx([0.01, 0.005, 0.0])
    data = planted()
    whole = Nodes(data, gcn(), None, None, 0)
    teacher, student = recipe_for(whole, None)
    assert (teacher.epochs, student.epochs) == (200, 200)
    assert (student.teacher_weight, student.dropout) == (0.75, 1)  # a quarter is labelled
    assert (teacher.teacher_weight, teacher.dropout) == (0, 1)
    is_train = torch.arange(NODES) < 0.9 * NODES
    well_known = planted(train_mask=is_train, val_mask=~is_train, test_mask=None)
    student = recipe_for(Nodes(well_known, gcn(), None, None, 0), None)[1]
    assert student.teacher_weight == 0.3
    batches = Nodes(data, gcn(), [data] * 50, None, 0)
    assert recipe_for(batches, None)[1].epochs == 40
    assert recipe_for(Nodes(data, gcn(), [data] * 5000, None, 0), None)[1].epochs == 20
    assert recipe_for(whole, 7)[1].epochs == 7


def test_learnt_scales_move_in_units_of_where_they_start():
    starts = {0.0: 0.0, 0.3: 0.25, 0.26: 0.25, 5.0: 1.0, 2.0**-9: 2.0**-9}
    model = nn.Sequential(*(BWTALinear(4, 4) for _ in starts))
    scales = [layer.input_quantizer.scale for layer in model]
    with torch.no_grad():
        for scale, start in zip(scales, starts, strict=True):
            scale.fill_(start)
    session = Fit(model, DistillRecipe(learning_rate=0.01, epochs=4), {})
    # Those that are not set are trained like everything else.
    assert [len(group["params"]) for group in session.optimizer.param_groups] == [11, 1, 2, 1]
    session.set_rate(0.5)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    session.optimizer.step()
    moved = [start - float(scale) for scale, start in zip(scales, starts, strict=True)]
    assert moved == pytest.approx([0.5, *(0.5 * unit for unit in list(starts.values())[1:])])

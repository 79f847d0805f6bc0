"""distill(): what it gives for nodes, graphs and links, and that nothing else changes."""

import copy

import pytest
import torch
import torch_geometric.nn as pyg
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader, RandomNodeLoader
from torch_geometric.transforms import RandomLinkSplit
from toy_problems import CLASSES, FEATURES, NODES, Own, Pooled, gcn, planted

import bitgnn
from bitgnn.convert.swap.graphs import own_letters
from bitgnn.distillation import DistillError, fitting

EPOCHS = 60


def same_weights(one, other):
    state = other.state_dict()
    return all(torch.equal(value, state[name]) for name, value in one.state_dict().items())


def test_an_untrained_model_is_trained_and_taught():
    data, model = planted(), gcn()
    before, generator = copy.deepcopy(model), torch.get_rng_state()
    result = bitgnn.distill(model, data, epochs=EPOCHS)
    assert torch.equal(torch.get_rng_state(), generator)
    assert same_weights(model, before)
    assert result.metric == "accuracy"
    assert result.teacher_scores.test > 0.8
    assert result.scores.test > 0.8
    assert result.gap == pytest.approx(100 * (result.teacher_scores.test - result.scores.test))
    assert result.gap_error is not None
    assert [row["epoch"] for row in result.history] == list(range(EPOCHS))
    assert len(result.teacher_history) == EPOCHS
    assert max(row["val_score"] for row in result.history) == pytest.approx(result.scores.val)
    assert "accuracy" in str(result)
    assert "frozen" in result.cost_table()
    assert result.plot().startswith(b"\x89PNG")
    right = bitgnn.freeze(result.model)(data.x, data.edge_index).argmax(1) == data.y
    for mask, score in ((data.test_mask, result.scores.test), (data.val_mask, result.scores.val)):
        assert float(right[mask].double().mean()) == pytest.approx(score)
    second = bitgnn.distill(result.teacher, data, "full", epochs=EPOCHS)
    assert second.teacher_history == []
    assert second.teacher_scores == result.teacher_scores
    assert same_weights(second.teacher, result.teacher)


def drawn_communities():
    """Two communities without a common node: fresh weights may tell them apart by luck."""
    generator = torch.Generator().manual_seed(1)
    rows = torch.arange(400)
    sources = torch.randint(400, (4000,), generator=generator)
    targets = (sources + 2 * torch.randint(200, (4000,), generator=generator)) % 400
    x = torch.randn(400, FEATURES, generator=generator) + 2 * (rows % 2)[:, None]
    masks = {"train_mask": rows < 60, "val_mask": (rows >= 60) & (rows < 120)}
    return Data(x=x, edge_index=torch.stack((sources, targets)), y=rows % 2, **masks)


def make_graphs():
    """Graphs of many and of few features."""
    generator = torch.Generator().manual_seed(0)
    found = []
    for number in range(120):
        label, nodes = number % 2, 8 + number % 5
        x = (torch.rand(nodes, 12, generator=generator) < 0.15 + 0.2 * label).float()
        edges = torch.randint(nodes, (2, 3 * nodes), generator=generator)
        found.append(Data(x=x, edge_index=edges, y=torch.tensor([label])))
    return found


def problem(kind):
    """Data, what makes a model for them, and further arguments."""
    data, graphs = planted(), make_graphs()
    y = torch.stack((data.y == 0, data.y != 2), dim=1).float()
    if kind == "communities":
        return drawn_communities(), lambda: pyg.GCN(FEATURES, 16, 2, 2), {}
    if kind == "labels":
        y[:20, 0] = float("nan")  # not known
        return planted(y=y), lambda: pyg.GraphSAGE(FEATURES, 16, 2, 2), {}
    if kind == "values":
        return planted(y=10 + 4 * y), lambda: pyg.GraphSAGE(FEATURES, 32, 2, 2), {}
    if kind == "value":
        return planted(y=10 + 4 * y[:, 0]), lambda: pyg.GraphSAGE(FEATURES, 32, 2, 1), {}
    if kind == "graphs":
        return graphs[:90], lambda: Pooled(12, 32, 2), {"validation": graphs[90:]}
    if kind == "batches of graphs":
        more = {"loader": DataLoader(graphs[:90], 32, shuffle=True), "validation": graphs[90:]}
        return graphs[:90], lambda: Pooled(12, 32, 2), more
    if kind == "batches of nodes":
        return data, gcn, {"loader": RandomNodeLoader(data, num_parts=3, shuffle=True)}
    if kind == "links":
        split = RandomLinkSplit(num_val=0.1, num_test=0.0, add_negative_train_samples=False)
        data, validation, _ = split(Data(x=data.x, edge_index=data.edge_index))
        make = lambda: pyg.GAE(pyg.GCN(FEATURES, 32, 2, 16))  # noqa: E731
        return data, make, {"validation": validation}
    return data, lambda: pyg.GCN(FEATURES, 16, 2, CLASSES), {}


@pytest.mark.parametrize(
    ("kind", "metric", "least"),
    [
        ("classes", "accuracy", 0.8),
        ("communities", "accuracy", 0.8),
        ("labels", "micro-F1", 0.8),
        ("values", "R²", 0.3),  # a constant has 0
        ("value", "R²", 0.3),
        ("graphs", "accuracy", 0.75),
        ("batches of graphs", "accuracy", 0.75),
        ("batches of nodes", "accuracy", 0.7),
        ("links", "AUC", 0.65),
    ],
)
def test_trained_models_are_told_from_fresh_ones_and_teach(kind, metric, least):
    data, make, more = problem(kind)
    for seed in range(6):
        torch.manual_seed(seed)
        fresh = bitgnn.distill(make(), data, epochs=1, **more)
        assert len(fresh.teacher_history) == 1, fresh.judgement
        assert fresh.judgement.startswith("untrained, by ")
    first = bitgnn.distill(make(), data, epochs=80, trained=False, **more)
    assert first.metric == metric
    assert first.scores.val > least
    assert (first.gap_error is None) == (metric != "accuracy")
    found = bitgnn.distill(first.teacher, data, epochs=1, **more)
    assert found.teacher_history == [], found.judgement
    assert f"counts as {found.judgement}" in str(found)
    if kind == "links":
        assert isinstance(first.model, pyg.GAE)
        expected = first.model.encode(data.x, data.edge_index)
        frozen = bitgnn.freeze(first.model.encoder)(data.x, data.edge_index)
        assert torch.allclose(frozen, expected, atol=1e-5)


@pytest.mark.parametrize("trained", [True, False])
def test_the_judgement_is_kept_and_changes_no_training(trained, tmp_path):
    data = planted()
    model = bitgnn.distill(gcn(), data, epochs=30).teacher if trained else gcn()
    said = bitgnn.distill(model, data, epochs=2, trained=trained)
    assert len(said.teacher_history) == (0 if trained else 2)
    found = bitgnn.distill(model, data, epochs=2, log=tmp_path)
    assert said.judgement == f"{'trained' if trained else 'untrained'}, as trained= says"
    assert (tmp_path / "judgement.txt").read_text() == f"{found.judgement}\n"
    assert same_weights(found.model, said.model)


def test_a_student_learns_in_the_letters_of_a_plan():
    data = planted()
    plan = bitgnn.Plan({"convs.0": "FBB+BFF", "convs.1": "FBF+FFF"})
    result = bitgnn.distill(gcn(), data, plan, epochs=EPOCHS)
    assert own_letters(result.model) == plan.letters
    right = bitgnn.freeze(result.model, plan)(data.x, data.edge_index).argmax(1) == data.y
    assert float(right[data.val_mask].double().mean()) == pytest.approx(result.scores.val)
    assert result.scores.test > 0.8
    with pytest.raises(DistillError):
        bitgnn.distill(gcn(), data, bitgnn.Plan({"convs.0": "FBB"}), epochs=1)


def test_training_ends_where_no_epoch_is_better(monkeypatch):
    def step(session, *_):
        session.history.append(torch.zeros(len(session.columns), dtype=torch.float64))
        loss = torch.tensor(-float(min(session.epoch, 4)))
        session.best.offer(torch.tensor(session.epoch - 1), loss)

    monkeypatch.setattr(fitting, "step_epoch", step)
    result = bitgnn.distill(gcn(), planted(), epochs=90, trained=False)
    assert len(result.teacher_history) == 3 + 30 + 1
    # The rate of a student falls: the best epochs come last.
    assert len(result.history) == 90
    why = "after 30 epochs without a better one"
    assert result.ended == {"teacher": why, "student": fitting.ALL_EPOCHS}
    assert f"teacher ended {why}" in str(result)
    for recipe, epochs in (({}, 34), ({"patience": None}, 90)):
        recipe = {"schedule": "constant", **recipe}
        result = bitgnn.distill(gcn(), planted(), epochs=90, trained=True, recipe=recipe)
        assert len(result.history) == epochs
    short = bitgnn.distill(gcn(), planted(), epochs=21, trained=False)
    assert len(short.teacher_history) == 21  # 20 epochs are waited for at least


def test_the_same_seed_gives_the_same_model():
    first, again, other = (
        bitgnn.distill(gcn(), planted(), epochs=5, seed=seed).model for seed in (1, 1, 2)
    )
    assert same_weights(first, again)
    assert not same_weights(first, other)


def test_a_wider_or_deeper_student():
    torch.manual_seed(0)
    result = bitgnn.distill(Own(), planted(), epochs=EPOCHS, widen=2)
    assert (result.model.conv1.out_channels, result.model.conv2.out_channels) == (32, 32)
    assert result.scores.test > 0.8
    costs = result.costs()
    assert set(costs) == {"teacher", "frozen", "frozen, same width"}
    assert costs["frozen"].weight_bytes > costs["frozen, same width"].weight_bytes
    deeper = pyg.GCN(FEATURES, 32, 3, CLASSES)
    result = bitgnn.distill(gcn(), planted(), epochs=EPOCHS, widen=deeper)
    assert len(result.model.convs) == 3
    assert result.scores.test > 0.8


def test_without_validation_nodes_some_labels_are_held_out():
    with pytest.warns(UserWarning, match="val_mask is missing; 12 of 60 training labels"):
        result = bitgnn.distill(gcn(), planted(val_mask=None), epochs=10)
    assert 0 <= result.scores.val <= 1
    with pytest.warns(UserWarning, match="30 of 60"):
        bitgnn.distill(gcn(), planted(), epochs=2, validation=0.5)


def test_a_teacher_at_chance_is_named():
    generator = torch.Generator().manual_seed(3)
    x = torch.rand(NODES, FEATURES, generator=generator)
    y = torch.randint(CLASSES, (NODES,), generator=generator)
    with pytest.warns(UserWarning, match=r"teacher is at chance, accuracy 0\.\d+"):
        bitgnn.distill(gcn(), planted(x=x, y=y), epochs=3)

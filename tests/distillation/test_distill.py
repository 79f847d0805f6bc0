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
from bitgnn.convert.letters import own_letters
from bitgnn.distillation import DistillError, fitting

EPOCHS = 60


def test_an_untrained_model_is_trained_and_taught():
    data, model = planted(), gcn()
    before = copy.deepcopy(model.state_dict())
    generator = torch.get_rng_state()
    result = bitgnn.distill(model, data, epochs=EPOCHS)
    assert torch.equal(torch.get_rng_state(), generator)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
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


def test_scores_are_those_of_the_frozen_model():
    data = planted()
    result = bitgnn.distill(gcn(), data, epochs=20)
    right = bitgnn.freeze(result.model)(data.x, data.edge_index).argmax(1) == data.y
    for mask, score in ((data.test_mask, result.scores.test), (data.val_mask, result.scores.val)):
        assert float(right[mask].double().mean()) == pytest.approx(score)


def test_a_trained_model_teaches_as_it_is():
    first = bitgnn.distill(gcn(), planted(), epochs=EPOCHS)
    second = bitgnn.distill(first.teacher, planted(), "full", epochs=EPOCHS)
    assert second.teacher_history == []
    assert second.teacher_scores == first.teacher_scores
    trained = dict(first.teacher.named_parameters())
    assert all(torch.equal(p, trained[n]) for n, p in second.teacher.named_parameters())


def drawn_communities():
    """Two communities without a common node: fresh weights may tell them apart by luck."""
    generator = torch.Generator().manual_seed(1)
    rows = torch.arange(400)
    sources = torch.randint(400, (4000,), generator=generator)
    targets = (sources + 2 * torch.randint(200, (4000,), generator=generator)) % 400
    x = torch.randn(400, FEATURES, generator=generator) + 2 * (rows % 2)[:, None]
    masks = {"train_mask": rows < 60, "val_mask": (rows >= 60) & (rows < 120)}
    return Data(x=x, edge_index=torch.stack((sources, targets)), y=rows % 2, **masks)


@pytest.mark.parametrize("kind", ["classes", "communities", "labels", "values", "graphs", "links"])
def test_a_trained_model_is_told_from_fresh_ones(kind):
    data, more, outputs = planted(), {}, CLASSES
    make = lambda: pyg.GCN(FEATURES, 16, 2, outputs)  # noqa: E731
    if kind == "communities":
        data, outputs = drawn_communities(), 2
    elif kind in ("labels", "values"):
        y = torch.stack((data.y == 0, data.y != 2), dim=1).float()
        data, outputs = planted(y=y if kind == "labels" else 10 + 4 * y), 2
        make = lambda: pyg.GraphSAGE(FEATURES, 16, 2, outputs)  # noqa: E731
    elif kind == "graphs":
        data = make_graphs()
        data, more = data[:90], {"validation": data[90:]}
        make = lambda: Pooled(12, 16, 2)  # noqa: E731
    elif kind == "links":
        split = RandomLinkSplit(num_val=0.1, num_test=0.0, add_negative_train_samples=False)
        data, validation, _ = split(Data(x=data.x, edge_index=data.edge_index))
        more = {"validation": validation}
        make = lambda: pyg.GAE(pyg.GCN(FEATURES, 32, 2, 16))  # noqa: E731
    for seed in range(6):
        torch.manual_seed(seed)
        fresh = bitgnn.distill(make(), data, epochs=1, **more)
        assert len(fresh.teacher_history) == 1, fresh.judgement
        assert fresh.judgement.startswith("untrained, by ")
    teacher = bitgnn.distill(make(), data, epochs=80, trained=False, **more).teacher
    found = bitgnn.distill(teacher, data, epochs=1, **more)
    assert found.teacher_history == [], found.judgement
    assert f"counts as {found.judgement}" in str(found)


@pytest.mark.parametrize("trained", [True, False])
def test_the_judgement_is_kept_and_changes_no_training(trained, tmp_path):
    data = planted()
    model = bitgnn.distill(gcn(), data, epochs=30).teacher if trained else gcn()
    said = bitgnn.distill(model, data, epochs=2, trained=trained)
    assert len(said.teacher_history) == (0 if trained else 2)
    found = bitgnn.distill(model, data, epochs=2, log=tmp_path)
    assert said.judgement == f"{'trained' if trained else 'untrained'}, as trained= says"
    assert (tmp_path / "judgement.txt").read_text() == f"{found.judgement}\n"
    state = said.model.state_dict()
    assert all(torch.equal(value, state[n]) for n, value in found.model.state_dict().items())


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
        session.best.offer(
            torch.tensor(session.epoch - 1), torch.tensor(-float(min(session.epoch, 4)))
        )

    monkeypatch.setattr(fitting, "step_epoch", step)
    result = bitgnn.distill(gcn(), planted(), epochs=90, trained=False)
    assert len(result.teacher_history) == 3 + 30 + 1
    # The rate of a student falls: the best epochs come last.
    assert len(result.history) == 90
    why = "after 30 epochs without a better one"
    assert result.ended == {"teacher": why, "student": fitting.ALL_EPOCHS}
    assert f"teacher ended {why}" in str(result)
    constant = {"schedule": "constant"}
    result = bitgnn.distill(gcn(), planted(), epochs=90, trained=True, recipe=constant)
    assert (len(result.history), result.ended) == (34, {"student": why})
    patient = {**constant, "patience": None}
    result = bitgnn.distill(gcn(), planted(), epochs=90, trained=True, recipe=patient)
    assert len(result.history) == 90
    short = bitgnn.distill(gcn(), planted(), epochs=21, trained=False)
    assert len(short.teacher_history) == 21  # 20 epochs are waited for at least


def test_the_same_seed_gives_the_same_model():
    data = planted()
    results = [bitgnn.distill(gcn(), data, epochs=5, seed=seed).model for seed in (1, 1, 2)]
    states = [model.state_dict() for model in results]
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())
    assert any(not torch.equal(value, states[2][name]) for name, value in states[0].items())


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


def test_labels_of_their_own():
    data = planted()
    y = torch.stack((data.y == 0, data.y != 2), dim=1).float()
    y[:20, 0] = float("nan")  # not known
    model = pyg.GraphSAGE(FEATURES, 16, 2, 2)
    result = bitgnn.distill(model, planted(y=y), epochs=EPOCHS)
    assert result.metric == "micro-F1"
    assert result.scores.test > 0.8


@pytest.mark.parametrize("columns", [1, 2])
def test_values(columns):
    data = planted()
    y = 10.0 + 4.0 * torch.stack((data.y == 0, data.y == 1), dim=1).float()
    y = y[:, 0] if columns == 1 else y
    model = pyg.GraphSAGE(FEATURES, 32, 2, columns)
    result = bitgnn.distill(model, planted(y=y), epochs=120)
    assert result.metric == "R²"
    assert result.scores.test > 0.3  # a constant has 0
    assert result.gap_error is None


def test_links():
    data = planted()
    split = RandomLinkSplit(num_val=0.1, num_test=0.0, add_negative_train_samples=False)
    train, val, _ = split(Data(x=data.x, edge_index=data.edge_index))
    torch.manual_seed(0)
    model = pyg.GAE(pyg.GCN(FEATURES, 32, 2, 16))
    result = bitgnn.distill(model, train, validation=val, epochs=EPOCHS)
    assert result.metric == "AUC"
    assert result.scores.val > 0.65
    assert isinstance(result.model, pyg.GAE)
    frozen = bitgnn.freeze(result.model.encoder)
    expected = result.model.encode(train.x, train.edge_index)
    assert torch.allclose(frozen(train.x, train.edge_index), expected, atol=1e-5)


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


@pytest.mark.parametrize("with_loader", [False, True])
def test_graphs(with_loader):
    graphs = make_graphs()
    torch.manual_seed(0)
    loader = DataLoader(graphs[:90], 32, shuffle=True) if with_loader else None
    result = bitgnn.distill(
        Pooled(12, 32, 2), graphs[:90], validation=graphs[90:], loader=loader, epochs=40
    )
    assert result.metric == "accuracy"
    assert result.scores.val > 0.75


def test_batches_of_nodes():
    loader = RandomNodeLoader(planted(), num_parts=3, shuffle=True)
    assert bitgnn.distill(gcn(), planted(), loader=loader, epochs=40).scores.test > 0.7


def test_without_validation_nodes_some_labels_are_held_out():
    data = planted(val_mask=None)
    with pytest.warns(UserWarning, match="val_mask is missing; 12 of 60 training labels"):
        result = bitgnn.distill(gcn(), data, epochs=10)
    assert 0 <= result.scores.val <= 1
    with pytest.warns(UserWarning, match="30 of 60"):
        bitgnn.distill(gcn(), planted(), epochs=2, validation=0.5)


def test_a_teacher_at_chance_is_named():
    generator = torch.Generator().manual_seed(3)
    data = planted(
        x=torch.rand(NODES, FEATURES, generator=generator),
        y=torch.randint(CLASSES, (NODES,), generator=generator),
    )
    with pytest.warns(UserWarning, match=r"teacher is at chance, accuracy 0\.\d+"):
        bitgnn.distill(gcn(), data, epochs=3)

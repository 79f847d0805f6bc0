"""What losses of accuracy count from, and what is said where no plan keeps the limits."""

import itertools

import pytest
import torch
from torch import nn

import bitgnn
from bitgnn.convert import Plan
from bitgnn.models import GCN, GraphSAGE
from bitgnn.train.loop import TrainedModel
from bitgnn.tune.baselines import BI_GCN, PYG
from bitgnn.tune.budget import Budget
from bitgnn.tune.improve import improved
from bitgnn.tune.objective import Constraint
from bitgnn.tune.reference import AS_GIVEN, FLOATS, find_reference, is_cut
from bitgnn.tune.result import LimitsMissed
from bitgnn.tune.workload import Workload

CLASSES = 4
SMALL = {
    "pins": {"convs.0": "FBB+BBB", "convs.1": "BBF+F*F"},
    "progress": False,
}


@pytest.fixture
def learnable(data):
    """Labels that the features of a node and its neighbours tell."""
    source, target = data.edge_index
    parts = data.x[:, :CLASSES]
    data.y = parts.index_add(0, target, parts[source]).argmax(1)
    return data


@pytest.fixture
def model(workload):
    """A binary model that was not trained."""
    return workload.model


def score(model, data):
    with torch.no_grad():
        logits = model.eval()(data.x, data.edge_index)
    return float((logits.argmax(-1) == data.y)[data.val_mask].double().mean())


def test_a_model_that_was_not_trained_recommends_nothing(model, learnable, tmp_path):
    assert bitgnn.tune.LimitsMissed is LimitsMissed
    with pytest.raises(LimitsMissed, match=r"accuracy drop <= 1.00% cannot be met") as error:
        bitgnn.tune(model, learnable, output=tmp_path, **SMALL)
    result = error.value.result
    assert result.reference > result.own + 0.05
    first, *rest = result.reasons
    assert first.startswith("No plan is recommended: accuracy drop <= 1.00% cannot be met")
    said = " ".join(rest)
    assert "times as fast" not in said
    assert "The model itself has only" in said
    assert "points less than fp32 trained on the same data: train it longer before tuning" in said
    # The nearest plan is written all the same, and says what it is.
    plan = Plan.load(tmp_path / "plan.yaml")
    assert plan.notes["keeps_limits"] is False
    assert plan.notes["reasons"][0] == first
    best = max(p.score.validation for p in result.points if p.plan is not None)
    assert plan.notes["accuracy"] == best
    assert result.table().caption.startswith("nearest")


def test_the_model_in_floats_is_a_row_and_what_drops_count_from(model, learnable):
    torch.manual_seed(3)
    floats = GraphSAGE(learnable.x.size(1), 16, CLASSES, precision="fp32")
    limits = "accuracy drop <= 100%"
    result = bitgnn.tune(model, learnable, "latency", limits, reference=floats, **SMALL)
    assert result.reference == pytest.approx(score(floats, learnable))
    row = next(point for point in result.points if point.name.startswith(PYG))
    assert row.score.validation == result.reference
    assert result.counted_from == "the fp32 model given"
    assert f"the fp32 model given ({100 * result.reference:.2f}%)" in str(result)


def test_what_counts(model, learnable):
    workload = Workload.of(model, learnable)
    limits = [Constraint.parse("accuracy drop <= 1%")]
    torch.manual_seed(3)
    floats = GCN(learnable.x.size(1), 8, CLASSES, precision="fp32")

    def found(asked, trained=(), of=workload):
        return find_reference(of, asked, dict(trained), limits, Budget(), 0)

    assert found("given").model is None
    assert found(floats).model is floats
    assert found(None, {PYG: floats}).model is floats
    assert found(None, of=Workload.of(floats, learnable)).name == AS_GIVEN
    before = torch.get_rng_state()
    first, second = found(None, {BI_GCN: floats}), found(None)
    assert torch.get_rng_state().equal(before)
    assert first.name == "fp32 trained on the same data"
    assert first.doubt is None
    assert score(first.model, learnable) == score(second.model, learnable) > 0.4
    assert not set("BT") & set("".join(conv.precision for conv in first.model.convs))
    with pytest.raises(ValueError, match="reference must be an fp32 model, got one with the lett"):
        found(model)
    with pytest.raises(TypeError, match="reference must be an fp32 model or 'given', got 'fp32'"):
        found("fp32")


def test_without_training_nodes_there_must_be_a_reference(model, learnable):
    learnable.train_mask = None
    with pytest.raises(ValueError, match=r"no training mask .* give that model as reference="):
        bitgnn.tune(model, learnable, **SMALL)
    given = bitgnn.tune(model, learnable, reference="given", **SMALL)
    assert given.reference == given.own
    assert "the same as the given model" in str(given)
    assert f"counted from {AS_GIVEN}" in given.table().caption
    free = bitgnn.tune(model, learnable, constraints=[], **SMALL)
    assert free.counted_from == AS_GIVEN


def test_floats_that_were_cut_short_prove_nothing(model, learnable):
    ticks = itertools.count()
    budget = Budget(100.0, clock=lambda: 20.0 * next(ticks))
    with pytest.raises(LimitsMissed, match="it is not known whether accuracy drop") as error:
        bitgnn.tune(model, learnable, constraints="accuracy drop <= 100%", budget=budget, **SMALL)
    result = error.value.result
    assert "the budget left time for 2 of 60 epochs of fp32" in result.reasons[0]
    assert {result.verdict(p) for p in result.points} == {"unknown"}


def test_whether_a_training_was_cut():
    def trained(epoch, epochs):
        return TrainedModel({}, 0.5, 0.5, 1.0, epoch, epochs, 1.0)

    assert is_cut(trained(2, 5), FLOATS)
    assert not is_cut(trained(2, 3 + FLOATS.patience), FLOATS)
    assert not is_cut(trained(FLOATS.epochs - 1, FLOATS.epochs), FLOATS)
    assert is_cut(trained(2, 30), FLOATS.model_copy(update={"patience": None}))


def test_better_weights_are_taken_plan_by_plan(model, learnable):
    result = bitgnn.tune(model, learnable, "accuracy", [], **SMALL)
    workload, budget = Workload.of(model, learnable), Budget()
    assert improved(result, workload, [], budget) is result
    torch.manual_seed(5)
    worse = GCN(learnable.x.size(1), 40, CLASSES, precision="bin").eval()
    with torch.no_grad():
        worse.convs[1].bias += torch.tensor([1e6, 0.0, 0.0, 0.0])
        better = GCN(learnable.x.size(1), 40, CLASSES, precision="bin").eval()
        better.convs[1].bias += (
            torch.nn.functional.one_hot(learnable.y[learnable.val_mask].mode().values, CLASSES)
            * 1e6
        )
    most = float((learnable.y[learnable.val_mask].bincount().max()) / learnable.val_mask.sum())
    assert most > result.recommended.score.validation
    found = improved(result, workload, [("one", better), ("two", worse)], budget)
    assert found.recommended.score.validation == pytest.approx(most)
    assert found.recommended.name.endswith(", one")
    assert found.recommended.timing is next(
        p.timing for p in result.points if p.plan == found.recommended.plan
    )
    assert found.model is better
    assert found.own == pytest.approx(most)
    assert "The remaining time went into 2 more training runs (one, two)" in str(found)


def test_a_single_limit_or_pin_needs_no_list(model, learnable):
    limits = {"constraints": "accuracy drop <= 100%", "reference": "given"}
    options = {**SMALL, "pins": "convs.0=FBB+BBB"}
    result = bitgnn.tune(model, learnable, **limits, **options)
    assert [str(limit) for limit in result.constraints] == ["accuracy drop <= 100.00%"]
    assert result.plan.letters["convs.0"] == "FBB+BBB"


def test_plans_are_written_as_people_read_them(model, learnable, tmp_path):
    bitgnn.tune(model, learnable, constraints=[], output=tmp_path, **SMALL)
    text = (tmp_path / "plan.yaml").read_text(encoding="utf-8")
    assert "µs" in text or " ms per forward pass" in text
    assert "\\x" not in text


def test_weights_are_drawn_anew(learnable):
    """What was trained in other letters is no start for fp32."""

    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = bitgnn.nn.GCNConv(70, CLASSES, precision="FBF+FFF")

        def forward(self, x, edge_index):
            return self.conv(x, edge_index)

    own = Own().eval()
    limits = [Constraint.parse("accuracy drop <= 1%")]
    with torch.no_grad():
        own.conv.lin.weight.fill_(7.0)
    found = find_reference(Workload.of(own, learnable), None, {}, limits, Budget(), 0)
    assert float(found.model.conv.lin.weight.detach().abs().max()) < 5.0
    assert float(own.conv.lin.weight.detach().min()) == 7.0

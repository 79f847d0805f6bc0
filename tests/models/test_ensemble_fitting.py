"""Members of ensembles one after the other: bags by seeds, and boosting as in scikit-learn."""

import math

import pytest
import torch
from sklearn.ensemble import AdaBoostClassifier
from sklearn.tree import DecisionTreeClassifier
from torch import nn

import bitgnn
from bitgnn.models import GCN, fit_bagging, fit_boosting

SAMPLES = 40


class Stump(nn.Module):
    """A decision tree of one split as a member."""

    def forward(self, x):
        return torch.from_numpy(self.tree.predict_proba(x.numpy()))


@pytest.fixture(scope="module")
def samples():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, 6, generator=generator, dtype=torch.float64)
    return x, (x[:, :2].sum(1) + x[:, 2] ** 2 > 0.8).long() + (x[:, 0] > 1).long()


def _fit_stump(x, labels):
    def fit(model, sample_weight):
        assert sample_weight.mean().item() == pytest.approx(1.0, rel=1e-5)
        model.tree = DecisionTreeClassifier(max_depth=1, random_state=0)
        model.tree.fit(x.numpy(), labels.numpy(), sample_weight.numpy())
        return model

    return fit


@pytest.mark.parametrize("learning_rate", [1.0, 0.5])
def test_boosting_is_that_of_scikit_learn(samples, learning_rate):
    x, labels = samples
    stump = DecisionTreeClassifier(max_depth=1)
    given = {"n_estimators": 6, "learning_rate": learning_rate, "random_state": 0}
    expected = AdaBoostClassifier(stump, **given).fit(x.numpy(), labels.numpy())
    ensemble = fit_boosting(
        Stump, _fit_stump(x, labels), lambda one: one(x), labels, 6, learning_rate=learning_rate
    )
    weights = torch.from_numpy(expected.estimator_weights_)
    assert ensemble.num_members == 6
    torch.testing.assert_close(ensemble.weights, weights / weights.sum(), rtol=1e-4, atol=0)
    assert torch.equal(ensemble(x).argmax(1), torch.from_numpy(expected.predict(x.numpy())))
    assert not ensemble.training


class Known(nn.Module):
    """A member of known classes."""

    def __init__(self, classes) -> None:
        super().__init__()
        self.classes = torch.tensor(classes)

    def forward(self):
        return nn.functional.one_hot(self.classes, 2).float()


def _boosted(*classes, labels=(0, 0, 1, 1), **options):
    seen, made = [], iter(classes)

    def fit(model, sample_weight):
        seen.append(sample_weight)
        return model

    labels = torch.tensor(labels)
    ensemble = fit_boosting(
        lambda: Known(next(made)), fit, lambda one: one(), labels, len(classes), **options
    )
    return ensemble, seen


def test_weights_of_samples_by_hand():
    ensemble, seen = _boosted([0, 0, 1, 0], [1, 0, 1, 1])
    # A quarter is wrong: its factor is 3, and wrong samples weigh as much as right ones behind it.
    assert seen[0].tolist() == [1.0, 1.0, 1.0, 1.0]
    torch.testing.assert_close(seen[1], torch.tensor([2 / 3, 2 / 3, 2 / 3, 2.0]))
    # The second one gets a sixth wrong: log 3 beside log 5.
    expected = torch.tensor([math.log(3), math.log(5)], dtype=torch.float64)
    torch.testing.assert_close(ensemble.weights, expected / expected.sum())


def test_members_without_an_error_go_on():
    ensemble, seen = _boosted([0, 0, 1, 1], [0, 0, 1, 1])
    assert ensemble.weights.tolist() == [0.5, 0.5]
    assert torch.equal(seen[0], seen[1])


def test_a_member_at_chance_ends_the_boosting():
    ensemble, seen = _boosted([0, 0, 1, 0], [1, 1, 0, 0], [0, 0, 1, 1])
    assert (ensemble.num_members, len(seen)) == (1, 2)
    with pytest.raises(ValueError, match=r"first member .* right more often .*share of 0\.5000"):
        _boosted([0, 1, 0, 1])


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"learning_rate": 0.0}, ValueError, "learning_rate must be a number above 0, got 0.0"),
        ({"learning_rate": math.nan}, ValueError, "learning_rate must be .*nan"),
        ({"labels": (0, 0, 1, 2)}, ValueError, "labels must be classes 0 to 1, got 0 to 2"),
        ({"labels": (0, 0, 1, -1)}, ValueError, "labels must be classes 0 to 1, got -1 to 1"),
        ({"labels": (0.0, 0.0, 1.0, 1.0)}, TypeError, "labels must be an int64 tensor, got .*32"),
        ({"labels": ((0, 0, 1, 1),)}, ValueError, r"labels must be \[n\], got \[1, 4\]"),
        ({"labels": (0, 0, 1)}, ValueError, r"predict must return scores \[3, K\], got \[4, 2\]"),
    ],
)
def test_wrong_boostings_are_refused(options, kind, message):
    with pytest.raises(kind, match=f"fit_boosting: {message}"):
        _boosted([0, 0, 1, 0], **options)


def test_no_labels_or_members_are_refused():
    with pytest.raises(ValueError, match="labels must be 1 or more, got 0"):
        fit_boosting(Stump, None, None, torch.zeros(0, dtype=torch.int64))
    with pytest.raises(ValueError, match="num_members must be 1 or more, got 0"):
        _boosted()


def _bagged(**options):
    seen = []

    def fit(model, sample_weight):
        seen.append((torch.initial_seed(), sample_weight))
        return model

    return fit_bagging(lambda: nn.Linear(3, 2), fit, SAMPLES, 4, **options), seen


def test_bags_and_members_follow_the_seed():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    ensemble, seen = _bagged(seed=7)
    assert torch.equal(torch.get_rng_state(), before)
    assert [seed for seed, _ in seen] == [7, 8, 9, 10]
    bags = torch.stack([bag for _, bag in seen])
    assert bags.sum(1).tolist() == [SAMPLES] * 4
    assert len(bags.unique(dim=0)) == 4
    assert (bags == 0).any()
    again, others = _bagged(seed=8)
    assert torch.equal(bags[1:], torch.stack([bag for _, bag in others[:3]]))
    assert torch.equal(ensemble.members[1].weight, again.members[0].weight)
    assert not torch.equal(ensemble.members[0].weight, ensemble.members[1].weight)


def test_bags_without_drawing_weigh_all_alike():
    ensemble, seen = _bagged(bootstrap=False, voting="hard")
    assert all(torch.equal(bag, torch.ones(SAMPLES)) for _, bag in seen)
    assert ensemble.voting == "hard"


def test_wrong_bags_are_refused():
    with pytest.raises(ValueError, match="fit_bagging: num_samples must be 1 or more, got 0"):
        fit_bagging(Stump, lambda one, weight: one, 0)
    with pytest.raises(ValueError, match=r"num_members must be 1 or more, got 2\.0"):
        fit_bagging(Stump, lambda one, weight: one, 1, 2.0)
    with pytest.raises(TypeError, match="fit must return the trained model, got NoneType"):
        fit_bagging(Stump, lambda one, weight: None, 1)


def test_members_may_be_distilled():
    data = bitgnn.data.load_digits_graph()
    nodes = data.train_mask.nonzero().view(-1)

    def fit(model, sample_weight):
        bag = data.clone()
        bag.train_mask = torch.zeros_like(data.train_mask).index_fill(
            0, nodes[sample_weight > 0], True
        )
        return bitgnn.distill(model, bag, epochs=2, seed=torch.initial_seed()).model

    ensemble = fit_bagging(lambda: GCN(data.num_features, 16, 10), fit, len(nodes), 2)
    assert [member.precision for member in ensemble.members] == ["bin", "bin"]
    frozen = bitgnn.freeze(ensemble)(data.x, data.edge_index).argmax(1)
    assert torch.equal(frozen, ensemble(data.x, data.edge_index).argmax(1))

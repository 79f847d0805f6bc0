"""Ensembles: votes by hand, wrong members and weights, frozen forms, files, copies and ranks."""

import copy
import math
import pickle
import tempfile
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch_geometric.nn as pyg
from ensemble_ranks import write_scores
from graphs import odd_graph
from torch import nn

import bitgnn
from bitgnn.models import GCN, MLP, Ensemble

NODES, FEATURES, CLASSES = 33, 31, 5
VOTINGS = pytest.mark.parametrize("voting", ["soft", "hard"])


class Fixed(nn.Module):
    """A member whose scores are known."""

    def __init__(self, scores) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.tensor(scores))
        self.eval()

    def forward(self, x):
        return self.scores


def fixed(*scores, **options):
    return Ensemble([Fixed(one) for one in scores], **options)


def shares(*scores, **options):
    return fixed(*scores, voting="hard", **options)(None).detach()


@pytest.fixture(scope="module")
def graph():
    generator = torch.Generator().manual_seed(2)
    return torch.randn(NODES, FEATURES, generator=generator), odd_graph(NODES, 90, seed=1)


def _warm(ensemble, *inputs):
    """Statistics and roles of a batch, as a first step of training leaves them."""
    ensemble.train()
    ensemble(*inputs)
    return ensemble.eval()


def _graph_members(graph, count=3):
    torch.manual_seed(0)
    members = [GCN(FEATURES, 16, CLASSES, precision="bin") for _ in range(count)]
    for member in members:
        _warm(member, *graph)
    return members


def test_soft_votes_are_mean_probabilities():
    scores = [[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]], [[0.1, 0.6, 0.3], [0.2, 0.5, 0.3]]
    ensemble = fixed(*(torch.tensor(one).log().tolist() for one in scores), weights=[3, 1])
    expected = torch.tensor([[0.4, 0.375, 0.225], [0.125, 0.2, 0.675]])
    torch.testing.assert_close(ensemble(None).exp(), expected)
    assert ensemble(None).dtype == torch.float32


def test_soft_votes_of_certain_members_stay_finite():
    found = fixed([[0.0, 200.0]], [[0.0, 400.0]])(None)
    assert found.isfinite().all()
    assert found[0, 1] == 0
    assert found[0, 0] < -30


def test_hard_votes_are_counted():
    first, second, third = [[3.0, 1.0, 2.0]], [[0.0, 5.0, 1.0]], [[9.0, 0.0, 0.0]]
    assert torch.equal(shares(first, second, third), torch.tensor([[2 / 3, 1 / 3, 0.0]]))
    weighted = shares(first, second, third, weights=[1, 4, 1])
    assert torch.equal(weighted, torch.tensor([[2 / 6, 4 / 6, 0.0]]))


@pytest.mark.parametrize("weights", [None, [1, 2, 3], [10**12, 2 * 10**12, 3 * 10**12], [7, 0, 7]])
def test_equal_shares_are_equal_to_the_bit(weights):
    votes = [[[0.0, 1.0]], [[0.0, 1.0]], [[1.0, 0.0]]] if weights else [[[0.0, 1.0]], [[1.0, 0.0]]]
    found = shares(*votes, weights=weights)
    assert torch.equal(found, torch.tensor([[0.5, 0.5]]))
    assert found.argmax(1).item() == 0


def test_a_member_votes_for_the_first_of_equal_scores():
    assert torch.equal(shares([[1.0, 2.0, 2.0]]), torch.tensor([[0.0, 1.0, 0.0]]))


def test_scores_do_not_depend_on_the_order_of_members():
    generator = torch.Generator().manual_seed(0)
    scores = 4 * torch.randn(7, 100, 10, generator=generator)
    weights = torch.rand(7, generator=generator)
    order = torch.randperm(7, generator=generator)
    found = fixed(*scores.tolist(), weights=weights)(None)
    other = fixed(*scores[order].tolist(), weights=weights[order])(None)
    assert torch.equal(found, other)
    parts = (weights / weights.sum()).view(-1, 1, 1)
    torch.testing.assert_close(found, (scores.softmax(-1) * parts).sum(0).log())


@VOTINGS
def test_training_has_the_gradients_of_mean_probabilities(voting):
    members = [[[0.3, 1.0], [2.0, 0.1]], [[1.0, 0.0], [0.0, 1.0]], [[5.0, 0.0], [0.0, 0.0]]]
    ensemble = fixed(*members, voting=voting, weights=[1, 3, 0]).train()
    labels = torch.tensor([0, 1])
    nn.functional.nll_loss(ensemble(None), labels).backward()
    given = torch.tensor(members, requires_grad=True)
    mean = (given.softmax(-1) * torch.tensor([0.25, 0.75, 0.0]).view(-1, 1, 1)).sum(0)
    nn.functional.nll_loss(mean.log(), labels).backward()
    found = torch.stack([member.scores.grad for member in ensemble.members])
    torch.testing.assert_close(found, given.grad)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0], r"one number for each of 2 members, got shape \[1\]"),
        ([[1.0, 2.0]], r"one number for each of 2 members, got shape \[1, 2\]"),
        ([1.0, -1.0], r"finite numbers >= 0.*got \[1.0, -1.0\]"),
        ([1.0, math.nan], "finite numbers >= 0.*nan"),
        ([1.0, math.inf], "finite numbers >= 0.*inf"),
        ([1e308, 1e308], "finite sum"),
        ([0.0, 0.0], "one above 0"),
    ],
)
def test_wrong_weights_are_refused(weights, message):
    with pytest.raises(ValueError, match=f"weights must .*{message}"):
        fixed([[0.0, 1.0]], [[1.0, 0.0]], weights=weights)


@pytest.mark.parametrize(
    ("members", "kind", "message"),
    [
        ([], ValueError, "members must hold a module or more, got none"),
        ([Fixed([[0.0, 1.0]]), nn.Linear], TypeError, "member 1 is Linear"),
        ([Fixed([[0.0, 1.0]]), nn.Linear(2, 2)], ValueError, r"member 1 takes \(input\).*\(x\)"),
    ],
)
def test_wrong_members_are_refused(members, kind, message):
    with pytest.raises(kind, match=message):
        Ensemble(members)


def test_weights_are_where_the_members_are():
    weights = torch.tensor([3.0], requires_grad=True)
    with torch.device("meta"):
        assert Ensemble([nn.Linear(2, 2)], weights=weights).units.is_meta
        assert fixed([[0.0, 1.0]]).total.is_meta
    assert not fixed([[0.0, 1.0]], weights=weights).units.is_meta


def test_unknown_votings_are_refused():
    with pytest.raises(ValueError, match=r"voting must be one of \('soft', 'hard'\), got 'mean'"):
        fixed([[0.0, 1.0]], voting="mean")


@VOTINGS
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    ("scores", "message"),
    [
        # Both would be broadcast by a plain sum.
        ([[[0.0, 1.0]], [[0.0, 1.0, 2.0]]], r"one shape, member 1 returned \[1, 3\], .*\[1, 2\]"),
        ([[[0.0, 1.0]], [[0.0, 1.0]] * 2], r"one shape, member 1 returned \[2, 2\], .*\[1, 2\]"),
        ([[[0.0]]], r"two classes or more, member 0 returned \[1, 1\]"),
        ([[0.0, 1.0]], r"two classes or more, member 0 returned \[2\]"),
    ],
)
def test_scores_that_cannot_be_joined_are_refused(voting, training, scores, message):
    with pytest.raises(ValueError, match=message):
        fixed(*scores, voting=voting).train(training)(None)


def test_results_that_are_no_tensors_are_refused():
    member = Fixed([[0.0, 1.0]])
    member.scores = None
    with pytest.raises(TypeError, match="member 0 returned NoneType"):
        Ensemble([member])(None)


@VOTINGS
@pytest.mark.parametrize("size", [0, 1])
def test_few_rows(voting, size):
    ensemble = Ensemble([MLP((8,), 3, (1, 2, 2)).eval() for _ in range(2)], voting)
    assert ensemble(torch.randn(size, 4)).shape == (size, 3)


def _check_frozen(frozen, ensemble, inputs):
    """Check that a frozen form decides as the trained ensemble, with the same hard shares."""
    found, expected = frozen(*inputs), ensemble(*inputs).detach()
    if ensemble.voting == "hard":
        assert torch.equal(found, expected)
    torch.testing.assert_close(found, expected)
    assert torch.equal(found.argmax(1), expected.argmax(1))


@VOTINGS
@pytest.mark.parametrize("kind", ["graphs", "images", "PyG"])
def test_frozen_ensembles_decide_as_trained_and_survive_files(kind, voting, graph, tmp_path):
    inputs = graph
    if kind == "graphs":
        ensemble = Ensemble(_graph_members(graph), voting, [0.5, 0.3, 0.4])
    else:
        torch.manual_seed(0)
        if kind == "images":
            inputs = (torch.randn(17, 1, 4, 4),)
            ensemble = Ensemble([MLP((33, 32), CLASSES, (1, 4, 4)) for _ in range(3)], voting)
        else:
            plain = Ensemble([pyg.GCN(FEATURES, 16, 2, CLASSES) for _ in range(3)], voting)
            ensemble = bitgnn.binarize(plain, "bin", example=graph)
            assert len(bitgnn.report_of(ensemble).swapped) == 6
        _warm(ensemble, *inputs)
    frozen = bitgnn.freeze(ensemble, check=False)
    _check_frozen(frozen, ensemble, inputs)
    bitgnn.save(frozen, tmp_path)
    assert torch.equal(bitgnn.load(tmp_path)(*inputs), frozen(*inputs))
    members = Ensemble(map(bitgnn.freeze, ensemble.members), voting, ensemble.weights)
    assert not members.training
    _check_frozen(members, ensemble, inputs)


def test_models_change_form_as_a_whole(graph):
    torch.manual_seed(0)
    members = [GCN(FEATURES, 16, CLASSES, precision="fp32") for _ in range(2)]
    ensemble = Ensemble(members, "hard", [1, 3])
    binary = bitgnn.binarize(ensemble, "bin")
    assert binary.precision == "bin"
    assert [member.precision for member in binary.members] == ["bin", "bin"]
    assert torch.equal(binary.weights, torch.tensor([0.25, 0.75], dtype=torch.float64))
    assert torch.equal(binary.members[1].convs[0].lin.weight, members[1].convs[0].lin.weight)
    # Python 3.12 looks for a protocol's attributes in the class.
    assert not hasattr(type(Ensemble([pyg.GCN(3, 4, 2, 2)])), "precision")
    rows = [row.name for row in bitgnn.summary(_warm(binary, *graph), graph).layers]
    assert {f"members.{m}.convs.{c}" for m in (0, 1) for c in (0, 1)} <= set(rows)


@VOTINGS
def test_distilled_ensembles_are_frozen_as_they_are(voting):
    data = bitgnn.data.load_digits_graph()
    ensemble = Ensemble([pyg.GCN(data.num_features, 16, 2, 10) for _ in range(2)], voting)
    result = bitgnn.distill(ensemble, data, epochs=3)
    assert isinstance(result.model, Ensemble)
    _check_frozen(bitgnn.freeze(result.model), result.model.eval(), (data.x, data.edge_index))


def test_ensembles_are_tuned_as_one_model():
    data = bitgnn.data.load_digits_graph()
    ensemble = Ensemble([pyg.GCN(data.num_features, 8, 2, 10) for _ in range(2)])
    letters = {
        f"members.{m}.convs.{c}": "FBF+FBF" if c else "FBB+BFF" for m in (0, 1) for c in (0, 1)
    }
    result = bitgnn.tune(
        ensemble, data, constraints=(), widen=1, pins=letters, trained=True, epochs=2
    )
    assert result.best.freeze()(data.x, data.edge_index).shape == (data.num_nodes, 10)
    assert result.best.model.members[1].convs[1].letters.bmm == "FBF"


@pytest.mark.parametrize("make", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
@VOTINGS
def test_copies_and_states(voting, make, graph):
    ensemble = Ensemble(_graph_members(graph), voting, [1, 2, 3])
    expected = ensemble(*graph)
    copied = make(ensemble)
    assert copied.members[0] is not ensemble.members[0]
    assert torch.equal(copied(x=graph[0], edge_index=graph[1]), expected)
    fresh = Ensemble([GCN(FEATURES, 16, CLASSES, precision="bin") for _ in range(3)], voting).eval()
    fresh.load_state_dict(ensemble.state_dict())
    assert torch.equal(fresh(*graph), expected)
    assert torch.equal(ensemble.half().weights, fresh.weights)


def _cases(graph):
    """Ensembles of one to four members, trained and frozen ones, with both votings."""
    members = _graph_members(graph, 4)
    cases = [(Ensemble(members[:n], v), graph) for n in (1, 2, 3, 4) for v in ("soft", "hard")]
    cases += [(Ensemble(members, v, [0.3, 0.1, 0.2, 0.7]), graph) for v in ("soft", "hard")]
    return [*cases, (Ensemble(map(bitgnn.freeze, members), "soft"), graph)]


@pytest.mark.slow
def test_ranks_get_the_scores_of_one_process(graph, tmp_path):
    cases, worlds = _cases(graph), (2, 3)
    with torch.no_grad():
        expected = [ensemble(*inputs) for ensemble, inputs in cases]
    mp.spawn(write_scores, (worlds, str(tmp_path), cases), max(worlds))
    written = [torch.load(tmp_path / f"{rank}.pt") for rank in range(max(worlds))]
    for world in worlds:
        found = [one[str(world)] for one in written[:world]]
        for rank in found:
            assert all(map(torch.equal, rank["scores"], expected))
        held = [sum(counts) for counts in zip(*(rank["held"] for rank in found), strict=True)]
        assert held == [ensemble.num_members for ensemble, _ in cases]
        assert min(found[-1]["held"]) == 0, "the smallest ensemble leaves the last rank empty"


@pytest.fixture
def process_group():
    with tempfile.TemporaryDirectory() as folder:
        address = f"file://{Path(folder) / 'group'}"
        dist.init_process_group("gloo", init_method=address, rank=0, world_size=1)
        yield
        dist.destroy_process_group()


def test_one_rank_holds_all_members(process_group, graph):
    for ensemble, inputs in _cases(graph):
        expected = ensemble(*inputs)
        assert torch.equal(copy.deepcopy(ensemble).shard()(*inputs), expected)


def test_sharded_ensembles_are_not_trained_or_sharded_anew(process_group):
    ensemble = fixed([[0.0, 1.0]]).shard()
    with pytest.raises(RuntimeError, match="sharded already"):
        ensemble.shard()
    with pytest.raises(RuntimeError, match="must be in evaluation"):
        ensemble.train()(None)


def test_ranks_need_a_process_group():
    with pytest.raises(RuntimeError, match="must have a process group"):
        fixed([[0.0, 1.0]]).shard()

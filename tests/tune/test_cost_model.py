"""Candidates, the times of their calls, and the latency that these add up to."""

import pytest
import torch

from bitgnn.bits import BitAdjacency, BlockedAdjacency
from bitgnn.convert.plan import Plan
from bitgnn.tune import calls, cost_model
from bitgnn.tune.candidate import Candidates
from bitgnn.tune.cost_model import CostModel
from bitgnn.tune.timings import CallTime, TimingCache

LETTERS = {"convs.0": "FBB+BBB", "convs.1": "BBF+FBF"}
FLOATS = {"convs.0": "FBF+FBF", "convs.1": "FBF+FBF"}


@pytest.fixture
def candidates(workload):
    return Candidates(workload)


@pytest.fixture
def model(workload):
    return CostModel(TimingCache(None, "cpu"), "cpu")


class TestCandidates:
    def test_run_gives_what_the_frozen_model_gives(self, candidates):
        for layout in ("csr", "blocked", "frdc"):
            made = candidates.make(Plan(LETTERS, layout=layout))
            assert torch.equal(made.run(), made.frozen(made.x, made.graph))

    def test_the_graph_is_in_the_plans_layout(self, candidates):
        assert type(candidates.make(Plan(LETTERS, layout="csr")).graph) is BitAdjacency
        assert type(candidates.make(Plan(LETTERS, layout="blocked")).graph) is BlockedAdjacency
        tiled = candidates.make(Plan(LETTERS, layout="frdc", method="if_else")).graph
        assert tiled.planned_layout(2) == "frdc"

    def test_layouts_share_a_model_and_letters_share_a_graph(self, candidates):
        first = candidates.make(Plan(LETTERS, layout="csr"))
        assert candidates.make(Plan(LETTERS, layout="blocked")).frozen is first.frozen
        packed = candidates.make(Plan(LETTERS, layout="csr", features="packed"))
        assert packed.graph is first.graph
        assert packed.x.shape == first.x.shape
        assert not isinstance(packed.x, torch.Tensor)

    def test_models_that_pack_alike_share_packed_features(self, candidates):
        bits, floats = ({**LETTERS, "convs.1": last} for last in ("BBF+FBF", "BBF+FFF"))
        one, two = (candidates.make(Plan(found, features="packed")) for found in (bits, floats))
        assert one.frozen is not two.frozen
        assert one.x is two.x
        scaled = candidates.make(Plan(FLOATS, features="packed"))
        assert scaled.x is not one.x
        assert scaled.run().equal(
            scaled.frozen(scaled.frozen.pack_features(candidates.workload.x), scaled.graph)
        )

    def test_what_a_model_cannot_read_is_refused_although_another_can(self, candidates):
        candidates.make(Plan(LETTERS, layout="blocked"))
        floats = {"convs.0": "FBF+FBB", "convs.1": "BFF+FFF"}
        with pytest.raises(ValueError, match="blocked"):
            candidates.make(Plan(floats, layout="blocked"))

    def test_memory_of_column_blocks_is_less_than_that_of_rows(self, candidates):
        rows = candidates.make(Plan(LETTERS, layout="frdc")).memory
        assert candidates.make(Plan(LETTERS, layout="blocked")).memory.peak < rows.peak


class TestSignatures:
    def signatures(self, candidates, plan):
        made = candidates.make(plan)
        return [
            calls.call_signature(made.frozen, group, made.x, made.graph, plan.method, 5)
            for group in made.frozen.groups(made.x)
        ]

    def test_equal_calls_of_different_plans_are_one(self, candidates):
        one = self.signatures(candidates, Plan(LETTERS, layout="csr"))
        two = self.signatures(candidates, Plan({**LETTERS, "convs.1": "BBF+FFF"}, layout="csr"))
        assert one[0] == two[0]
        assert one[1] != two[1]

    def test_layout_and_method_tell_calls_apart_that_read_bits(self, candidates):
        found = [
            self.signatures(candidates, Plan(LETTERS, layout=layout, method=method))
            for layout, method in (("csr", None), ("blocked", None), ("frdc", "if_else"),
                                   ("frdc", "and_degree"))
        ]  # fmt: skip
        assert len({str(one[0]) for one in found}) == 4

    def test_most_neighbours_is_that_of_the_fullest_row(self, candidates):
        graph = candidates.make(Plan(LETTERS, layout="csr")).graph
        largest = int(graph.rowptr.diff().max())
        assert abs(calls.most_neighbours(graph) - largest) <= 0.05 * largest
        blocked = candidates.make(Plan(LETTERS, layout="blocked")).graph
        assert calls.most_neighbours(blocked) == calls.most_neighbours(graph)


class TestCostModel:
    @pytest.mark.parametrize(("beside", "added"), [(1e-3, 1e-3), (-1e-6, 0.0)])
    def test_an_estimate_is_the_sum_of_its_calls_and_what_the_fastest_forwards_take_beside(
        self, candidates, model, monkeypatch, beside, added
    ):
        asked = []

        def latency(run, device):
            asked.append(run)
            return model.base(next(c for c in made if c.run is run)) + beside

        monkeypatch.setattr(cost_model, "latency", latency)
        made = [
            candidates.make(Plan(letters, layout=layout))
            for letters in (LETTERS, FLOATS)
            for layout in ("csr", "blocked")
        ]
        model.prepare(made)
        assert len(asked) == cost_model.OWN_COSTS
        slowest = max(made, key=model.base)
        assert slowest.run not in asked
        estimate = model.estimate(slowest)
        calls = sum(part.seconds for part in estimate.parts)
        assert estimate.seconds == pytest.approx(calls + added)
        model.prepare(made)
        assert len(asked) == cost_model.OWN_COSTS

    def test_parts_are_named_by_layers_and_steps(self, candidates, model):
        estimate = model.estimate(candidates.make(Plan(LETTERS, layout="csr")))
        assert [part.name.split()[0] for part in estimate.parts] == ["norm+convs.0", "convs.1"]

    def test_each_distinct_call_is_timed_once(self, candidates, model):
        first = candidates.make(Plan(LETTERS, layout="csr"))
        model.prepare([first, candidates.make(Plan(LETTERS, layout="csr"))])
        assert model.num_timed == len(first.frozen.groups(first.x))
        model.prepare([first])
        model.estimate(first)
        assert model.num_timed == len(first.frozen.groups(first.x))

    def test_known_times_are_taken_from_the_cache(self, candidates, tmp_path):
        made = candidates.make(Plan(LETTERS, layout="csr"))
        CostModel(TimingCache(tmp_path / "times.json", "cpu"), "cpu").prepare([made])
        again = CostModel(TimingCache(tmp_path / "times.json", "cpu"), "cpu")
        again.estimate(made)
        assert again.num_timed == 0

    @pytest.mark.parametrize(
        ("times", "end"),
        [
            ([(1, 5), (1, 5)], 11),  # the device is busy: the second waits for the first
            ([(5, 1), (5, 1)], 11),  # the host is: the first is long done
            ([(2, 3), (4, 1), (1, 6)], 13),
        ],
    )
    def test_eager_kernels_begin_once_queued_and_in_turn(self, times, end):
        made = [CallTime(seconds, host) for host, seconds in times]
        assert cost_model._pipelined(made) == end

    @pytest.mark.cuda
    @pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
    @pytest.mark.parametrize("executor", ["eager", "cuda_graph"])
    def test_on_cuda_the_executors_own_cost_is_learned_from_one_forward(self, data, executor):
        from bitgnn.models import GCN
        from bitgnn.tune.measure import latency
        from bitgnn.tune.workload import Workload

        torch.manual_seed(0)
        model = GCN(data.x.size(1), 40, 4, precision="bin").eval()
        made = Candidates(Workload.of(model, data, device="cuda")).make(
            Plan(LETTERS, layout="csr", executor=executor)
        )
        costs = CostModel(TimingCache(None, "cuda"), "cuda")
        estimate = costs.estimate(made)
        device_seconds = sum(part.seconds for part in estimate.parts)
        assert estimate.seconds >= device_seconds > 0
        # Wide enough for any machine: a hundredfold would mean another unit.
        assert 0.01 < estimate.seconds / latency(made.run, torch.device("cuda")) < 100

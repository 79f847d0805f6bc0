"""Without a word on how to run it a model takes what the predictor expects to be fastest."""

import json

import pytest
import torch

from bitgnn import freeze, load, save
from bitgnn.bits import BitAdjacency
from bitgnn.inference import predicted_executor, predicted_layout, predictor
from bitgnn.inference.predicted_executor import PredictedExecutor
from bitgnn.inference.predictor import (
    OWN,
    SHARED,
    Predictor,
    Way,
    describe_forward,
    graphs_of,
    predictor_for,
)

N, WORDS = 120, 2
NOTHING = (0.0,) * len(SHARED)
WAYS = {
    "csr": Way("csr", None, "eager"),
    "frdc": Way("frdc", "if_else", "eager"),
    "blocked": Way("blocked", None, "eager"),
}


def favouring(layout):
    own = dict.fromkeys(WAYS.values(), (2.0, 0.0, 0.0))
    return Predictor(NOTHING, {**own, WAYS[layout]: (1.0, 0.0, 0.0)})


@pytest.fixture
def favour(monkeypatch):
    def set_predictor(found):
        for module in (predicted_layout, predicted_executor):
            monkeypatch.setattr(module, "predictor_for", lambda device: found)

    return set_predictor


@pytest.fixture
def frozen(make_model):
    return freeze(make_model("bin", num_layers=3))


@pytest.fixture
def plain(graph):
    """The graph with every edge once, as tiles need it."""
    return graph.unique(dim=1)


class TestStatistics:
    def test_count_what_a_forward_does(self, frozen, plain):
        adjacency = frozen.prepare_graph(plain, N, layout="csr")
        found = describe_forward(frozen, False, N, [adjacency])
        assert found.keys() == {*SHARED, *OWN, "edges", "sliced_words"}
        assert found["nodes"] == N
        # Two aggregations of 40 features as bits, one of 5 features as floats.
        assert found["aggregated_words"] == 2 * adjacency.nnz * WORDS
        assert found["aggregated_floats"] == adjacency.nnz * 5
        assert found["edges"] == 3 * adjacency.nnz
        packed = describe_forward(frozen, True, N, [adjacency])
        assert packed["steps"] < found["steps"]
        assert packed["bytes"] < found["bytes"]

    def test_do_not_depend_on_the_layout(self, frozen, plain):
        found = [
            describe_forward(frozen, False, N, [frozen.prepare_graph(plain, N, layout=layout)])
            for layout in ("csr", "blocked", "frdc")
        ]
        assert found[0] == found[1] == found[2]

    def test_graphs_of_a_prepared_graph(self, frozen, plain):
        adjacency = frozen.prepare_graph(plain, N, layout="csr")
        assert graphs_of(adjacency) == (adjacency,)
        assert graphs_of(None) == ()


class TestPredictor:
    STATISTICS = {**dict.fromkeys((*SHARED, *OWN), 1.0), "steps": 3.0}  # noqa: RUF012

    def test_seconds_are_a_weighted_sum(self):
        made = Predictor((1.0, 2.0, 3.0, 4.0, 9.0), {WAYS["csr"]: (5.0, 6.0, 7.0)})
        assert made.seconds(self.STATISTICS, WAYS["csr"]) == 19 + 5 + 3 * 6 + 7
        assert made.seconds(self.STATISTICS, WAYS["frdc"]) == float("inf")

    def test_another_layout_must_save_a_good_share(self):
        for saved, taken in ((0.9, "frdc"), (0.97, "csr")):
            own = {WAYS["csr"]: (1.0, 0.0, 0.0), WAYS["frdc"]: (saved, 0.0, 0.0)}
            made = Predictor(NOTHING, own)
            assert made.order(self.STATISTICS, WAYS.values())[0] == WAYS["frdc"]
            assert made.choose(self.STATISTICS, WAYS.values()) == WAYS[taken]

    def test_another_executor_than_a_graph_must_save_a_good_share(self):
        for saved, first in ((0.8, "cooperative"), (0.9, "cuda_graph")):
            ways = {name: Way("csr", None, name) for name in ("cuda_graph", "cooperative")}
            own = {ways["cuda_graph"]: (1.0, 0.0, 0.0), ways["cooperative"]: (saved, 0.0, 0.0)}
            assert Predictor(NOTHING, own).order(self.STATISTICS, ways.values())[0] == ways[first]

    @pytest.mark.parametrize(("sliced", "taken"), [(0.0, "csr"), (1.0, "sliced")])
    def test_where_there_are_slices_operators_choose_them(self, sliced, taken):
        ways = {layout: Way(layout, None, "eager") for layout in ("csr", "sliced", "blocked")}
        own = {way: (float(n + 1), 0.0, 0.0) for n, way in enumerate(ways.values())}
        found = {**self.STATISTICS, "aggregated_words": 1.0, "sliced_words": sliced}
        assert Predictor(NOTHING, own).choose(found, ways.values()) == ways[taken]

    def test_column_blocks_are_the_last_resort(self):
        made = favouring("blocked")
        assert made.choose(self.STATISTICS, WAYS.values()).layout != "blocked"
        assert made.choose(self.STATISTICS, [WAYS["blocked"]]) == WAYS["blocked"]

    def test_nothing_to_choose_from(self):
        with pytest.raises(ValueError, match="must hold one at least"):
            favouring("csr").choose(self.STATISTICS, [])

    @pytest.mark.parametrize("device", ["cpu", "cuda"])
    def test_the_file_names_its_graphs_and_weighs_everything(self, device):
        content = json.loads(predictor.FILE.read_text())
        assert (tuple(content["shared"]), tuple(content["own"])) == (SHARED, OWN)
        if device not in content["devices"]:
            pytest.skip(f"nothing was recorded on {device}")
        assert len(content["devices"][device]["graphs"]) > 1
        made = predictor_for(device)
        assert made.order(self.STATISTICS, made.own)
        assert all(made.seconds(self.STATISTICS, way) > 0 for way in made.own)

    def test_devices_that_nothing_was_learned_about(self):
        assert predictor_for("tpu") is None


class TestLayout:
    @pytest.mark.parametrize("layout", ["csr", "frdc"])
    def test_is_the_favoured_one(self, frozen, features, plain, favour, layout):
        expected = frozen(features, frozen.prepare_graph(plain, N, layout="csr"))
        favour(favouring(layout))
        adjacency = frozen.prepare_graph(plain, N)
        assert adjacency.planned_layout(WORDS) == layout
        assert frozen(features, adjacency).equal(expected)

    def test_tiles_are_not_taken_for_duplicate_edges(self, frozen, graph, favour):
        favour(favouring("frdc"))
        doubled = torch.cat([graph, graph], dim=1)
        assert frozen.prepare_graph(doubled, N).planned_layout(WORDS) == "csr"

    def test_column_blocks_are_not_taken_unasked(self, frozen, plain, favour):
        favour(favouring("blocked"))
        assert type(frozen.prepare_graph(plain, N)) is BitAdjacency

    def test_tiles_are_not_taken_where_no_bits_are_aggregated(self, make_model, plain, favour):
        favour(favouring("frdc"))
        graph = freeze(make_model("full")).prepare_graph(plain, N)
        assert graph.derived_nbytes == 0

    def test_a_named_layout_is_taken(self, frozen, plain, favour):
        favour(favouring("frdc"))
        assert frozen.prepare_graph(plain, N, layout="csr").planned_layout(WORDS) == "csr"

    def test_nothing_learned_leaves_csr_on_a_cpu(self, frozen, plain, favour):
        favour(None)
        assert frozen.prepare_graph(plain, N).planned_layout(WORDS) == "csr"


class TestExecutor:
    def test_on_a_cpu_it_is_the_model_itself(self, frozen, features, plain):
        adjacency = frozen.prepare_graph(plain, N)
        run = frozen.executor()
        assert type(run) is PredictedExecutor
        assert run(features, adjacency).equal(frozen(features, adjacency))
        assert run.choice == "eager"

    def test_stays_the_default_of_a_saved_model(self, frozen, tmp_path):
        assert type(load(save(frozen, tmp_path / "model")).executor()) is PredictedExecutor

    @pytest.mark.cuda
    @pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
    @pytest.mark.parametrize("name", ["eager", "cuda_graph", "cooperative"])
    def test_on_cuda_it_is_the_favoured_one(self, frozen, features, plain, favour, name):
        own = {Way("csr", None, n): (2.0, 0.0, 0.0) for n in ("eager", "cuda_graph")}
        favour(Predictor(NOTHING, {**own, Way("csr", None, name): (1.0, 0.0, 0.0)}))
        frozen, x = frozen.to("cuda"), features.to("cuda")
        adjacency = frozen.prepare_graph(plain.to("cuda"), N)
        run = frozen.executor()
        assert run(x, adjacency).equal(frozen(x, adjacency))
        assert run.choice == name

    @pytest.mark.cuda
    @pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
    def test_the_next_one_serves_where_the_first_cannot(self, frozen, features, plain, favour):
        own = {Way("blocked", None, "cooperative"): 1.0, Way("blocked", None, "cuda_graph"): 2.0}
        favour(Predictor(NOTHING, {way: (s, 0.0, 0.0) for way, s in own.items()}))
        frozen, x = frozen.to("cuda"), features.to("cuda")
        adjacency = frozen.prepare_graph(plain.to("cuda"), N, layout="blocked")
        run = frozen.executor()
        run(x, adjacency)
        assert run.choice == "cuda_graph"
        assert "cooperative" in run.left_out

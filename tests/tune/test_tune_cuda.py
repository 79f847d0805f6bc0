"""tune() as a whole on a GPU: what is recommended runs and is as scored."""

import pytest
import torch
from torch_geometric.nn import GCN

import bitgnn
from bitgnn.convert import Plan, freeze
from bitgnn.tune import search
from bitgnn.tune.search import MEASURED_SHARE
from bitgnn.tune.students import PYG
from bitgnn.tune.study import StorageError
from bitgnn.tune.workload import Workload

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
OPTIONS = {
    "pins": {"convs.0": "FBB+BBF", "convs.1": "FBF+F*F"},
    "constraints": "accuracy drop <= 100%",
    "widen": 2,
    "epochs": 2,
    "device": "cuda",
    "progress": False,
}


@pytest.fixture
def model():
    return GCN(70, 16, 2, 4)


def test_recommends_a_plan_that_runs_and_scores_as_said(model, data, tmp_path):
    result = bitgnn.tune(model, data, output=tmp_path, **OPTIONS)
    assert not result.failed
    assert result.workload["kind"] == "cuda"
    assert 1 <= result.measured <= max(1, MEASURED_SHARE * result.space)
    assert all(trial.estimate > 0 for trial in result.trials)
    names = [point.name.split(" (")[0] for point in result.points if point.plan is None]
    assert names == [PYG]
    assert all(point.memory > 0 for point in result.points)
    assert result.recommended.gpu_seconds > 0
    assert result.recommended in result.points
    assert "the rest is the host's" in str(result)

    plan = Plan.load(tmp_path / "plan.yaml")
    assert plan == result.recommended.plan
    frozen = freeze(result.model, plan).cuda()
    x = frozen.pack_features(data.x.cuda()) if plan.features == "packed" else data.x.cuda()
    graph = frozen.prepare_graph(data.edge_index.cuda(), data.num_nodes)
    logits = frozen.executor()(x, graph)
    assert torch.equal(logits, frozen(x, graph))
    score = Workload.of(result.model, data, device="cuda").score(logits)
    assert score == result.recommended.score.validation


def test_goes_on_from_its_own_file_and_refuses_that_of_a_cpu(model, data, tmp_path, monkeypatch):
    pytest.importorskip("optuna", reason="searches that resume need the extra 'tune'")
    first = bitgnn.tune(model, data, output=tmp_path, **OPTIONS)

    def again(self, letters, asked):
        raise AssertionError("letters are looked at again")

    monkeypatch.setattr(search.Search, "_explore", again)
    second = bitgnn.tune(model, data, output=tmp_path, **OPTIONS)
    assert {t.plan for t in second.trials} == {t.plan for t in first.trials}
    with pytest.raises(StorageError, match="another model, graph or machine"):
        bitgnn.tune(model, data, storage=tmp_path / "tune.db", **{**OPTIONS, "device": "cpu"})

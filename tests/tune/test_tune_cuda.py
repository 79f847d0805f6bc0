"""tune() as a whole on a GPU: the best candidate runs there and is as scored."""

import pytest
import torch

import bitgnn

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


def test_recommends_a_candidate_that_runs_and_scores_as_said(model, data, tmp_path):
    options = {"constraints": "accuracy drop <= 100%", "widen": 2, "epochs": 2}
    result = bitgnn.tune(model.cuda(), data, output=tmp_path, **options)
    assert not result.failed
    assert len(result.points) == 4
    assert result.workload["device"] == torch.cuda.get_device_name()
    assert all(point.memory > 0 for point in (*result.points, *result.floats))
    data = data.cuda()
    for frozen in (result.freeze(), bitgnn.load(tmp_path / "model").cuda()):
        logits = frozen(data.x, data.edge_index)
        share = (logits.argmax(-1) == data.y)[data.val_mask].double().mean()
        assert result.best.score == pytest.approx(float(share))
    again = bitgnn.tune(model, data, output=tmp_path, **options)
    assert [p.score for p in again.points] == [p.score for p in result.points]

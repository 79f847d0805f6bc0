"""Linear maps composed when freezing a whole model: the same scores from less work."""

import pytest
import torch
from chains import CLASSES, FEATURES, HIDDEN, shake

from bitgnn import freeze
from bitgnn.inference import load, save
from bitgnn.models import GraphSAINT


def kinds(frozen):
    return [step.kind for step in frozen.program.steps]


def close(found, expected):
    expected = expected.detach()
    scale = expected.abs().max().clamp(min=1)
    torch.testing.assert_close(found / scale, expected / scale, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("precision", ["bin", "full", "FBB+BBB, BBF+FFF"])
@pytest.mark.parametrize("aggr", ["mean", "add"])
def test_graph_saint_aggregates_class_scores(precision, aggr, x, edges, tmp_path):
    model = shake(GraphSAINT(FEATURES, HIDDEN, CLASSES, precision, aggr=aggr), x, edges)
    frozen, apart = freeze(model), freeze(model, fold=False)
    assert "cat" in kinds(apart)
    assert apart.report.folded == {}
    assert "cat" not in kinds(frozen)
    assert kinds(frozen).count("bits_linear") == 2
    assert frozen.report.folded == {"lin": "composed with convs.1"}
    assert "lin: composed with convs.1" in str(frozen.report)
    assert frozen.report.letters == apart.report.letters
    sums = [step for step in frozen.program.steps if step.kind.startswith("bspmm_f")]
    assert sums[-1].attributes["size"] == CLASSES
    close(frozen(x, edges), model(x, edges))
    close(frozen(x, edges), apart(x, edges))
    assert torch.equal(frozen(x, edges), frozen(x, edges))
    path = save(frozen, tmp_path / "model")
    assert torch.equal(load(path)(x, edges), frozen(x, edges))
    assert load(path).report == frozen.report

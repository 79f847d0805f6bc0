"""The graphs that the tuner is judged on, and the untrained models that are timed on them."""

import pytest
import torch

from bitgnn.data import DataError
from bitgnn.tune.benchmark_graphs import GRAPHS, HIDDEN, load_graph, untrained_workload


def test_unknown_keys_are_refused():
    with pytest.raises(ValueError, match=r"key must be one of \['cora', .* got 'citation'"):
        load_graph("citation")


def test_hidden_widths_are_those_of_known_graphs():
    assert HIDDEN.keys() <= GRAPHS.keys()


def test_a_real_graph():
    try:
        data = load_graph("cora")
    except DataError as error:
        pytest.skip(str(error))
    assert data.num_nodes == 2708
    assert not data.synthetic


@pytest.mark.parametrize("kind", ["GCN", "GraphSAGE"])
def test_untrained_models_binarise_the_features_as_trained_ones(kind, data):
    data.x = data.x + 3.0  # without statistics every sign would be +1
    workload = untrained_workload(data, kind, 16, "cpu")
    assert type(workload.model).__name__ == kind
    assert not workload.model.training
    again = untrained_workload(data, kind, 16, "cpu")
    pairs = zip(workload.model.parameters(), again.model.parameters(), strict=True)
    assert all(torch.equal(one, two) for one, two in pairs)
    if kind == "GCN":
        assert workload.model.norm.running_mean.mean() == pytest.approx(3.0, abs=0.2)

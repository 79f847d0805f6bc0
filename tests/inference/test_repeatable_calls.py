"""Each call of a frozen model can be repeated alone, as often as asked, without other results."""

import pytest
import torch

from bitgnn import freeze


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("precision", ["bin", "full", "FBB+BBF"])
def test_calls_are_those_of_a_forward(make_model, graph, features, precision, packed):
    letters = [precision, "FBF+FBF"] if "+" in precision else precision
    frozen = freeze(make_model(letters))
    adjacency = frozen.prepare_graph(graph, len(features))
    x = frozen.pack_features(features) if packed else features
    expected = frozen(x, adjacency)
    calls = frozen.repeatable_calls(x, adjacency)
    assert [group for group, _ in calls] == list(frozen.groups(x))
    with torch.inference_mode():
        for _, again in calls:
            again()
            again()  # a result may take the slot of an operand, which must still be there
    assert torch.equal(frozen(x, adjacency), expected)

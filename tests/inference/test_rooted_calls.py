"""A layer's product of neighbours, their sum and the product of the node itself as one call."""

import pytest
import torch

from bitgnn import freeze
from bitgnn.models import GraphSAGE

N, FEATURES = 300, 70
ROOTED = ["bmm_bbf", "bspmm_fbf", "bmm_add"]


@pytest.mark.parametrize("output", [None, "classes", "softmax"])
@pytest.mark.parametrize("classes", [3, 7, 12, 40, 49])
@pytest.mark.parametrize(("precision", "hidden"), [("bin", 64), ("bin", 75), ("full", 256)])
def test_last_layer_of_graphsage(precision, hidden, classes, output, device):
    torch.manual_seed(0)
    model = GraphSAGE(FEATURES, hidden, classes, precision=precision).to(device).eval()
    frozen = freeze(model, output=output)
    edges = torch.randint(N, (2, 4 * N), device=device)
    edges[1, :700] = 5
    x = torch.randn(N, FEATURES, device=device)
    graph = frozen.prepare_graph(edges, N)
    calls = [[step.kind for step in group] for group in frozen.groups(x)]
    # Wider rows may be held as floats between the product and the sum.
    assert (ROOTED in calls) == (classes <= 48)
    # Alone, each step writes what the next one reads.
    *_, (_, _, last) = frozen.steps(x, graph)
    found = frozen(x, graph)
    if output == "classes":
        assert torch.equal(found, last)
    else:
        torch.testing.assert_close(found, last, rtol=1e-5, atol=1e-5)
    assert torch.equal(frozen(x, graph), found)

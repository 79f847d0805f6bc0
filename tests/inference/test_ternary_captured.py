"""Graph networks with ternary letters in CUDA graphs: every layout, new values, new graphs."""

import copy

import pytest
import torch
from graphs import odd_graph
from torch.nn import functional

import bitgnn
from bitgnn.models import GCN, GraphSAGE

pytestmark = pytest.mark.cuda
NODES, WIDTH, CLASSES = 300, 75, 5
# What sums floats may do so in another order on a GPU: here bits and ternary values alone do.
MODELS = [
    (GCN, "TBF+TBF, TBF+TBF"),
    (GCN, "TBB+BBB, TBF+TBF"),
    (GCN, "TBF+TBB, BBF+TBF"),
    (GraphSAGE, "TBF+TBF, TBF+TBF"),
    (GraphSAGE, "TBF+TBB, BBF+TBF"),
]


@pytest.fixture
def x():
    return torch.randn(NODES, WIDTH, generator=torch.Generator().manual_seed(4))


@pytest.fixture
def graph():
    return odd_graph(NODES, 900, seed=3)


@pytest.fixture(params=MODELS, ids=lambda given: f"{given[0].__name__}-{given[1]}")
def frozen(request, x, graph):
    """A model on the CPU whose scales are those of a few steps."""
    kind, precision = request.param
    torch.manual_seed(0)
    model = kind(WIDTH, 40, CLASSES, precision=precision)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(3):
        optimizer.zero_grad()
        functional.cross_entropy(model(x, graph), torch.arange(NODES) % CLASSES).backward()
        optimizer.step()
    return bitgnn.freeze(model.eval())


def new_values(x):
    for seed in range(3):
        yield torch.randn(x.shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("layout", ["csr", "sliced", "frdc"])
@pytest.mark.parametrize("name", ["cuda_graph", "auto"])
def test_executors_in_every_layout(name, layout, frozen, x, graph):
    graph = torch.unique(graph, dim=1)  # an edge twice fits no tiles
    on_gpu = copy.deepcopy(frozen).cuda()
    adjacency = on_gpu.prepare_graph(graph.cuda(), NODES, layout=layout)
    here = frozen.prepare_graph(graph, NODES)
    run = on_gpu.executor(name)
    held = x.cuda()
    for values in new_values(x):
        expected = on_gpu(values.cuda(), adjacency)
        assert torch.equal(run(values.cuda(), adjacency), expected)  # another tensor
        held.copy_(values)
        assert torch.equal(run(held, adjacency), expected)  # the same one, written to
        assert torch.equal(expected.cpu(), frozen(values, here))

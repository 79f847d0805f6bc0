"""The order of rows that a graph keeps for frozen models is never that of another graph."""

import pytest
import torch

from bitgnn import freeze, models
from bitgnn.bits import BitAdjacency
from bitgnn.inference import capture

pytestmark = pytest.mark.cuda

NODES, FEATURES, EDGES = 33_000, 64, 300_000


@pytest.fixture(scope="module")
def edge_index():
    generator = torch.Generator("cuda").manual_seed(0)
    edges = torch.randint(NODES, (2, EDGES), generator=generator, device="cuda")
    edges[1, :3_000] = 7
    return edges


@pytest.fixture(scope="module")
def x():
    return torch.randn(NODES, FEATURES, generator=torch.Generator().manual_seed(0)).cuda()


@pytest.fixture(scope="module", params=[5, 20])
def frozen(request):
    torch.manual_seed(0)
    return freeze(models.GCN(FEATURES, 40, request.param, precision="bin").eval()).cuda()


def reversed_degrees(adjacency):
    degrees = adjacency.rowptr.diff().flip(0)
    return torch.cat([adjacency.rowptr[:1], degrees.cumsum(0)]).to(adjacency.rowptr.dtype)


WRITES = {
    "written": lambda a: a.rowptr.copy_(reversed_degrees(a)),
    "replaced": lambda a: setattr(a, "rowptr", reversed_degrees(a)),
    "moved": lambda a: setattr(a.rowptr, "data", reversed_degrees(a)),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_graph_changed_after_its_order_was_found(frozen, x, edge_index, write):
    adjacency = frozen.prepare_graph(edge_index, NODES)
    run = capture(frozen, x, adjacency)
    before = run().clone()
    assert torch.equal(before, frozen(x, adjacency))
    assert adjacency.derived_nbytes == NODES * 16
    with torch.inference_mode():
        write(adjacency)
    rowptr, indices = adjacency.rowptr.clone(), adjacency.indices.clone()
    expected = frozen(
        x, BitAdjacency(rowptr, indices, NODES, adjacency.row_scale, adjacency.col_scale)
    )
    for found in (run(), frozen(x, adjacency)):
        assert not torch.equal(found, before)
        assert torch.equal(found, expected)


def test_a_capture_by_hand_without_a_call_before(frozen, x, edge_index):
    adjacency = frozen.prepare_graph(edge_index, NODES)
    expected = frozen(x, frozen.prepare_graph(edge_index, NODES))  # kernels are loaded
    graph = torch.cuda.CUDAGraph()
    with torch.inference_mode(), torch.cuda.graph(graph):
        found = frozen(x, adjacency)
    assert adjacency.derived_nbytes == 0
    graph.replay()
    assert torch.equal(found, expected)
    assert torch.equal(frozen(x, adjacency), expected)

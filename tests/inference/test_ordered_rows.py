"""The order of rows that a graph keeps for frozen models: never that of another graph, counted."""

import pytest
import torch

from bitgnn import freeze, memory_report, models
from bitgnn.bits import BitAdjacency
from bitgnn.inference import CudaGraphExecutor
from bitgnn.inference.memory import frozen_memory

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

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
    run, adjacency = CudaGraphExecutor(frozen), frozen.prepare_graph(edge_index, NODES)
    before = run(x, adjacency)
    assert torch.equal(before, frozen(x, adjacency))
    assert adjacency.derived_nbytes == NODES * 16
    with torch.inference_mode():
        write(adjacency)
    rowptr, indices = adjacency.rowptr.clone(), adjacency.indices.clone()
    expected = frozen(x, BitAdjacency(rowptr, indices, NODES, adjacency.row, adjacency.col))
    for found in (run(x, adjacency), frozen(x, adjacency)):
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


def test_memory_of_the_order(frozen, x, edge_index):
    report = memory_report(frozen, (x, edge_index))
    predicted, measured = report.predicted, report.measured
    assert predicted.adjacency == measured.adjacency
    forward = predicted.activations + predicted.workspace
    assert forward == pytest.approx(measured.forward, rel=0.03, abs=20_000)


def test_prediction_before_a_call(frozen, x, edge_index):
    adjacency = frozen.prepare_graph(edge_index, NODES)
    predicted = frozen_memory(frozen, x, adjacency)
    assert predicted == memory_report(frozen, (x, adjacency)).predicted

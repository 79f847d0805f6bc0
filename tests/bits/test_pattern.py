"""Patterns made of edges: C++, one sort of keys and sorts of parts give the same."""

import subprocess
import sys

import pytest
import torch
from wrong_calls import check_wrong_calls

from bitgnn import BitAdjacency, _library
from bitgnn.bits import factors, layouts, patterns

compiled = pytest.mark.skipif(
    _library.library_info().cpu_library is None, reason="the operator belongs to the library"
)
SIZES = [(0, 0, 0), (0, 5, 5), (1, 1, 1), (7, 1, 9), (40, 33, 20), (400, 31, 31), (900, 300, 300)]


def drawn(num_edges, num_rows, num_cols, seed=0):
    """Random edges with duplicates, a hub, loops and empty rows."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randint(max(1, num_rows), (num_edges,), generator=generator)
    columns = torch.randint(max(1, num_cols), (num_edges,), generator=generator)
    rows[: num_edges // 4] = num_rows // 2
    loops = num_edges // 6
    rows[-loops:] = columns[-loops:].clamp(max=max(0, num_rows - 1)) if loops else rows[-loops:]
    return rows, columns


@compiled
def test_index_types_strides_and_room_behind():
    rows, columns = drawn(200, 40, 50)
    expected = torch.ops.bitgnn.csr_from_edges(columns, rows, 40, 50)
    interleaved = torch.stack([columns, rows], dim=1).unbind(1)
    for given in ((columns.int(), rows.int()), interleaved):
        assert all(map(torch.equal, torch.ops.bitgnn.csr_from_edges(*given, 40, 50), expected))
    loops = torch.tensor([2, 0, 2])
    rowptr, indices = torch.ops.bitgnn.csr_from_edges(loops, loops, 3, 3, True)
    assert rowptr.tolist() == [0, 1, 2, 3]
    assert indices.tolist() == [0, 1, 2, 0, 0, 0]


@compiled
@pytest.mark.parametrize("self_loops", [False, True])
def test_rows_of_large_graphs_are_sorted_one_by_one(self_loops, monkeypatch):
    rows, columns = drawn((1 << 22) + 5, 70_000, 70_000)
    edges = torch.stack([columns, rows])
    found = BitAdjacency.from_edge_index(edges, 70_000, add_self_loops=self_loops)
    monkeypatch.setattr(patterns, "_is_counted", lambda edges: False)
    expected = BitAdjacency.from_edge_index(edges, 70_000, add_self_loops=self_loops)
    assert torch.equal(found.rowptr, expected.rowptr)
    assert torch.equal(found.indices, expected.indices)


tensor, ONE, TWO = torch.tensor, torch.tensor([0]), torch.tensor([0, 1])
WRONG = r"""
csr(tensor([3]), ONE, 3, 3) -> RuntimeError: sources must lie in \[0, 3\)
csr(ONE, tensor([-1]), 3, 3) -> RuntimeError: destinations in \[0, 3\)
csr(ONE.float(), ONE, 3, 3) -> RuntimeError: sources must be int32 or int64
csr(ONE, ONE.int(), 3, 3) -> RuntimeError: destinations must be
csr(TWO, ONE, 3, 3) -> RuntimeError: entries of destinations must be 2
csr(tensor([[0]]), ONE, 3, 3) -> RuntimeError: sources must have 1 dimensions, got 2
csr(ONE, ONE, -1, 3) -> RuntimeError: must not be negative, got -1 and 3
csr(ONE, ONE, 2, 3, True) -> RuntimeError: as many rows as columns, got 2 and
csr(ONE, ONE, 2**31, 3) -> RuntimeError: fewer than 2\^31
"""


@compiled
def test_refusals():
    check_wrong_calls(WRONG, {**globals(), "csr": torch.ops.bitgnn.csr_from_edges})


@pytest.mark.parametrize("normalize", [None, "sym", "mean"])
@pytest.mark.parametrize("self_loops", [False, True])
@pytest.mark.parametrize(("num_edges", "num_rows", "num_cols"), SIZES)
def test_adjacencies_do_not_depend_on_the_way(
    num_edges, num_rows, num_cols, normalize, self_loops, monkeypatch
):
    num_cols = num_rows if self_loops or normalize == "sym" else num_cols
    rows, columns = drawn(num_edges, num_rows, num_cols)
    options = {"normalize": normalize, "add_self_loops": self_loops}
    edges, shape = torch.stack([columns, rows]), (num_rows, num_cols)
    found = BitAdjacency.from_edge_index(edges, shape, **options)
    monkeypatch.setattr(patterns, "LARGE", 1)
    monkeypatch.setattr(patterns, "INT32_MAX", num_edges + num_rows - 1)  # parts are counted alone
    monkeypatch.setattr(factors, "BLOCK", 7)
    in_parts = BitAdjacency.from_edge_index(edges, shape, **options)
    monkeypatch.setattr(patterns, "_is_counted", lambda edges: False)
    keys_in_parts = BitAdjacency.from_edge_index(edges.int(), shape, **options)
    monkeypatch.setattr(patterns, "LARGE", 1 << 24)
    expected = BitAdjacency.from_edge_index(edges, shape, **options)
    # Weights of one are no weights.
    ones = torch.ones(num_edges)
    weighted = BitAdjacency.from_edge_index(edges, shape, edge_weight=ones, **options)
    for other in (expected, weighted, in_parts, keys_in_parts):
        assert found.rowptr.dtype == other.rowptr.dtype == torch.int32
        assert torch.equal(found.rowptr, other.rowptr)
        assert torch.equal(found.indices, other.indices)
        torch.testing.assert_close(found.edge_weight(), other.edge_weight())


def test_pointers_of_more_edges_than_int32_counts_are_int64(monkeypatch):
    rows, columns = drawn(900, 300, 300)
    edges = torch.stack([columns, rows])
    expected = BitAdjacency.from_edge_index(edges, 300, normalize="mean", add_self_loops=True)
    monkeypatch.setattr(layouts, "INT32_MAX", 500)
    monkeypatch.setattr(patterns, "INT32_MAX", 500)
    monkeypatch.setattr(patterns, "LARGE", 1)
    found = BitAdjacency.from_edge_index(edges.int(), 300, normalize="mean", add_self_loops=True)
    assert (found.rowptr.dtype, found.indices.dtype) == (torch.int64, torch.int32)
    assert torch.equal(found.rowptr, expected.rowptr.long())
    assert torch.equal(found.indices, expected.indices)
    assert torch.equal(found.row_scale, expected.row_scale)


PEAK = """
import re, torch
from bitgnn import BitAdjacency

def held(name):
    return int(re.search(name + r":\\s+(\\d+) kB", open("/proc/self/status").read())[1]) << 10

def make(edges, nodes):
    return BitAdjacency.from_edge_index(edges, nodes, normalize="sym", add_self_loops=True)

make(torch.randint(9, (2, 99), dtype=torch.int32), 9)
before = held("VmRSS")
edges = torch.empty(2, 12_000_000, dtype=torch.int32).random_(0, 1_000_000)
made = make(edges, 1_000_000)
peak = held("VmHWM") - before
print(peak / (edges.nbytes + made.nbytes - made.col_scale.nbytes))
"""


@compiled
@pytest.mark.skipif(sys.platform != "linux", reason="reads memory as Linux tells it")
def test_making_a_graph_takes_little_more_than_edges_and_graph(tmp_path):
    found = subprocess.run(
        [sys.executable, "-c", PEAK], capture_output=True, text=True, cwd=tmp_path
    )
    assert found.returncode == 0, found.stderr
    assert float(found.stdout) < 1.3


@pytest.mark.cuda
@pytest.mark.parametrize("self_loops", [False, True])
def test_parts_on_a_gpu_take_little_memory(self_loops):
    nodes = 1_000_000
    edges = torch.randint(nodes, (2, patterns.LARGE + 9), dtype=torch.int32)
    expected = BitAdjacency.from_edge_index(edges, nodes, None, "sym", self_loops)
    edges = edges.cuda()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated() - edges.nbytes
    found = BitAdjacency.from_edge_index(edges, nodes, None, "sym", self_loops)
    held = edges.nbytes + found.nbytes - found.col_scale.nbytes
    assert (torch.cuda.max_memory_allocated() - before) / held < 1.3
    for one, other in zip(found.tensors[:4], expected.tensors[:4], strict=True):
        assert torch.equal(one.cpu(), other)

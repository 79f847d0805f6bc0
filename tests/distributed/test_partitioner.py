"""Parts of all ranks together are the graph, whatever the order, the parts and the ranks."""

import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.utils import add_remaining_self_loops, to_undirected

import bitgnn
from bitgnn import BitAdjacency, BitTensor
from bitgnn._files import FolderInUseError, OutputError, locked
from bitgnn.distributed import Partitioner, PowerLawGraph, counting_sort, load_partition
from bitgnn.distributed.manifest import read_manifest

NODES = 40
ORDERS = ["range", "dealt"]


def equals(joined, root, world_size, whole):
    """Compare with an adjacency of the user's order; returns the ranks' parts and the nodes."""
    found, nodes, dense = joined(root, world_size)
    assert sorted(nodes.tolist()) == list(range(whole.shape[0]))
    pattern = BitAdjacency(whole.rowptr, whole.indices, whole.num_cols).to_dense()
    if whole.row_scale is not None:
        pattern = whole.row_scale.unsqueeze(1) * pattern
    assert torch.equal(dense, pattern[nodes][:, nodes])
    for rank, part in enumerate(found):
        assert (part.start, part.end) == (part.starts[rank], part.starts[rank + 1])
        assert (
            part.adjacency.shape
            == (part.end - part.start, whole.num_cols)
            == (
                len(part.nodes),
                whole.num_cols,
            )
        )
    return found, nodes


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("num_parts", [1, 3, 7, 64])
@pytest.mark.parametrize("world_size", [1, 2, 3, 65])
def test_ranks_hold_the_graph(graph, write, joined, order, num_parts, world_size):
    x = torch.randn(NODES, 33)
    root = write(graph, num_parts, x=x, order=order)
    whole = BitAdjacency.from_edge_index(graph, NODES)
    found, nodes = equals(joined, root, world_size, whole)
    words = torch.cat([part.x.words for part in found])
    assert torch.equal(words, BitTensor.from_float(x).words[nodes])
    assert all(part.x.shape == (len(part.nodes), 33) for part in found)
    if order == "range":
        assert torch.equal(nodes, torch.arange(NODES))
    for part in found:  # columns ascend within a row, as in BitAdjacency
        rowptr, indices = part.adjacency.rowptr.tolist(), part.adjacency.indices.tolist()
        for begin, end in itertools.pairwise(rowptr):
            assert indices[begin:end] == sorted(indices[begin:end])


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("nodes", [0, 1, 2])
def test_graphs_without_edges(write, joined, order, nodes):
    edges = torch.empty(2, 0, dtype=torch.int64)
    root = write(edges, 3, num_nodes=nodes, x=torch.ones(nodes, 5), order=order)
    found, *_ = joined(root, 2)
    assert sum(len(part.nodes) for part in found) == nodes == read_manifest(root).num_nodes
    assert sum(part.adjacency.nnz for part in found) == 0


@pytest.mark.parametrize("order", ORDERS)
def test_parts_are_balanced(write, order):
    graph = PowerLawGraph(5000, 60_000, seed=1)
    root = write(graph, 8, order=order)
    found = read_manifest(root)
    edges = [part.edges for part in found.parts]
    rows = [end - begin for begin, end in itertools.pairwise(found.starts)]
    degree = torch.zeros(5000, dtype=torch.int64)
    for _, ends in graph.blocks():
        degree += torch.bincount(torch.from_numpy(ends), minlength=5000)
    if order == "dealt":
        assert max(rows) - min(rows) <= 1
        assert max(edges) - min(edges) <= int(degree.max())
    else:
        load = [a + b for a, b in zip(edges, rows, strict=True)]
        assert max(load) <= sum(load) / 8 + int(degree.max()) + 1


def test_dealt_rows_descend_and_turn_at_the_ends(write):
    # Node k has k + 1 incoming edges: ranked, nodes are 6, 5, 4, 3, 2, 1, 0.
    rows = torch.repeat_interleave(torch.arange(7), torch.arange(1, 8))
    root = write(torch.stack([torch.zeros_like(rows), rows]), 3, order="dealt")
    dealt = [load_partition(root, rank, 3).nodes.tolist() for rank in range(3)]
    assert dealt == [[6, 1, 0], [5, 2], [4, 3]]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("normalize", [None, "sym", "mean"])
@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("both", [False, True])
def test_options_are_those_of_pyg(graph, write, joined, order, normalize, loops, both):
    options = {"undirected": both, "add_self_loops": loops, "normalize": normalize}
    root = write(graph, 4, num_nodes=NODES, order=order, **options)
    edges = to_undirected(graph, num_nodes=NODES) if both else graph
    if loops:
        edges = add_remaining_self_loops(edges, num_nodes=NODES)[0]
    whole = BitAdjacency.from_edge_index(edges, NODES, normalize=normalize)
    found, nodes = equals(joined, root, 3, whole)
    for name in ("row_scale", "col_scale"):
        scale = getattr(whole, name)
        parts = [
            part.adjacency.row_scale if name == "row_scale" else part.col_scale for part in found
        ]
        if scale is None:
            assert parts == [None] * 3
        else:
            assert torch.equal(torch.cat(parts), scale[nodes])


def test_data_and_adjacencies_bring_what_they_hold(graph, write, joined):
    x = torch.randn(NODES, 8)
    whole = BitAdjacency.from_edge_index(graph, NODES, normalize="sym", add_self_loops=True)
    sparse = torch.sparse_coo_tensor(
        graph.flip(0), torch.ones(graph.size(1)), (NODES, NODES), check_invariants=True
    )
    for data in (Data(x=x, edge_index=graph), Data(x=x, adj_t=sparse)):
        found, nodes = equals(joined, write(data, 3), 2, BitAdjacency.from_edge_index(graph, NODES))
        assert torch.equal(torch.cat([part.x.to_float() for part in found]), x[nodes].sign())
    scaled = BitTensor.from_float(x, scale="mean")
    root = write(whole, 5, x=scaled.as_features(), order="dealt")
    found, nodes = equals(joined, root, 2, whole)
    assert torch.equal(torch.cat([part.x.scale for part in found]), scaled.scale[nodes])
    assert torch.equal(torch.cat([part.col_scale for part in found]), whole.col_scale[nodes])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"num_parts": 0}, ValueError, "num_parts must be 1 to 65536, got 0"),
        ({"num_parts": True}, TypeError, "num_parts must be an int, got True"),
        ({"order": "metis"}, ValueError, "order must be one of .* got 'metis'"),
        ({"normalize": "max"}, ValueError, "normalize must be None, 'sym' or 'mean', got 'max'"),
        ({"num_nodes": -1}, ValueError, "num_nodes must be 0 to 2147483648, got -1"),
        ({"num_nodes": 9}, ValueError, r"edge_index.* must lie in \[0, 9\).*largest 36"),
        ({"x": torch.ones(41, 2)[:39], "num_nodes": 40}, ValueError, "a row for each of 40 nodes"),
        ({"x": torch.ones(40, 2, dtype=torch.int64)}, TypeError, "x must be a BitTensor, floats"),
        ({"data_or_files": torch.zeros(2, 3)}, TypeError, "edge_index must be int64 or int32"),
        ({"data_or_files": "edges.txt"}, bitgnn.FileError, "edges.txt: no such file"),
        ({"data_or_files": ["a", "b", "c"]}, ValueError, "one or a pair, got 3"),
        ({"data_or_files": 3}, TypeError, "edge_index must be a tensor"),
    ],
)
def test_wrong_arguments(graph, tmp_path, options, error, message):
    values = {"data_or_files": graph, "num_parts": 2, "root": tmp_path / "out", **options}
    with pytest.raises(error, match=message):
        Partitioner(**values).generate_partition()


def test_weights_rectangles_and_factors_are_refused(graph, tmp_path):
    with pytest.raises(ValueError, match="edge_weight must be None"):
        Partitioner(Data(edge_index=graph, edge_weight=torch.ones(248), num_nodes=40), 2, tmp_path)
    with pytest.raises(ValueError, match="as many sources as destinations, got 50 and 40"):
        Partitioner(BitAdjacency.from_edge_index(graph, (40, 50)), 2, tmp_path)
    values = torch.arange(248.0)
    weighted = torch.sparse_coo_tensor(graph, values, (40, 40), check_invariants=True)
    with pytest.raises(ValueError, match="a pattern of ones"):
        Partitioner(weighted, 2, tmp_path)
    normalised = BitAdjacency.from_edge_index(graph, 40, normalize="mean")
    with pytest.raises(ValueError, match="must be left out where the adjacency has factors"):
        Partitioner(normalised, 2, tmp_path, normalize="sym")


@pytest.mark.parametrize("order", ORDERS)
def test_interrupted_work_is_gone_on_with(graph, tmp_path, joined, monkeypatch, order):
    root = tmp_path / "out"
    partitioner = Partitioner(graph, 6, root, num_nodes=NODES, order=order)
    real, written = counting_sort.write_atomically, []

    def stops(path, *arguments, **named):
        if len(written) == 3:
            raise KeyboardInterrupt
        written.append(path.name)
        real(path, *arguments, **named)

    monkeypatch.setattr(counting_sort, "write_atomically", stops)
    with pytest.raises(KeyboardInterrupt, match="3 of 6 parts are finished and kept"):
        partitioner.generate_partition()
    assert sorted(path.name for path in root.iterdir()) == written
    kept = {name: (root / name).stat().st_ino for name in written}
    monkeypatch.setattr(counting_sort, "write_atomically", real)
    (root / ".part-00004.safetensors.0123abcd.tmp").write_bytes(b"left by a killed process")
    partitioner.generate_partition()
    assert {name: (root / name).stat().st_ino for name in written} == kept
    names = {f"part-{part:05d}.safetensors" for part in range(6)} | {"META.json"}
    assert {path.name for path in root.iterdir()} == names
    equals(joined, root, 4, BitAdjacency.from_edge_index(graph, NODES))


def test_a_killed_process_leaves_whole_parts_alone(graph, tmp_path, joined):
    """The temporary file of edges has no name, so that nothing of it stays."""
    root = tmp_path / "out"
    torch.save(graph, tmp_path / "graph.pt")
    code = (
        "import os, signal, torch\n"
        "from bitgnn.distributed import Partitioner, counting_sort\n"
        "real = counting_sort.write_atomically\n"
        "def killed(path, *arguments, **named):\n"
        "    if '00002' in path.name:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    real(path, *arguments, **named)\n"
        "counting_sort.write_atomically = killed\n"
        f"graph = torch.load({str(tmp_path / 'graph.pt')!r}, weights_only=True)\n"
        f"Partitioner(graph, 4, {str(root)!r}, num_nodes=40).generate_partition()\n"
    )
    package = Path(bitgnn.__file__).parents[1]
    environ = {**os.environ, "PYTHONPATH": str(package)}
    done = subprocess.run([sys.executable, "-c", code], env=environ, cwd=tmp_path)
    assert done.returncode == -signal.SIGKILL
    assert {p.name for p in root.iterdir()} == {f"part-0000{n}.safetensors" for n in range(2)}
    Partitioner(graph, 4, root, num_nodes=NODES).generate_partition()
    equals(joined, root, 1, BitAdjacency.from_edge_index(graph, NODES))


def test_a_folder_holds_one_job(graph, write, tmp_path):
    root = write(graph, 3)
    before = (root / "part-00001.safetensors").stat().st_ino
    Partitioner(graph, 3, root).generate_partition()  # nothing is left to do
    assert (root / "part-00001.safetensors").stat().st_ino == before
    for data, parts, options in (
        (graph[:, 1:], 3, {}), (graph, 4, {}), (graph, 3, {"order": "dealt"}),
        (graph, 3, {"x": torch.ones(37, 3)}), (graph, 3, {"normalize": "sym"}),
    ):  # fmt: skip
        with pytest.raises(OutputError, match="another graph or with other options"):
            Partitioner(data, parts, root, **options).generate_partition()
    (root / "META.json").unlink()
    with pytest.raises(OutputError, match=r"part-00000\.safetensors: belongs to a partition of an"):
        Partitioner(graph[:, 1:], 3, root).generate_partition()
    with locked(root), pytest.raises(FolderInUseError):
        Partitioner(graph, 3, root).generate_partition()
    (root / "part-00000.safetensors").write_bytes(b"damaged")
    with pytest.raises(bitgnn.FileError, match=r"part-00000\.safetensors: is damaged"):
        Partitioner(graph, 3, root).generate_partition()
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OutputError, match="cannot be written"):
        Partitioner(graph, 3, tmp_path / "file").generate_partition()

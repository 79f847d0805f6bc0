"""Files of edges and features: .npy, OGB's raw forms, made-up graphs, bounded memory."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import bitgnn
from bitgnn import BitAdjacency, BitTensor, FileError
from bitgnn.data import PackedFeatureStore
from bitgnn.distributed import Partitioner, PowerLawGraph, load_partition, sources, streams
from bitgnn.distributed.manifest import read_manifest

NODES = 40


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks that end within the small graph."""
    monkeypatch.setattr(sources, "EDGES_AT_ONCE", 31)
    monkeypatch.setattr(sources, "FEATURES_AT_ONCE", 100)
    monkeypatch.setattr(streams, "TABLE_BYTES", 64)


@pytest.fixture
def same(graph, write):
    """Compares what a source gives with the graph in memory, with and without features."""

    def check(data, expected=None, **options):
        found = load_partition(write(data, 3, **options), 0, 1)
        nodes = 37 if expected is None else NODES
        whole = BitAdjacency.from_edge_index(graph, nodes)
        assert torch.equal(found.adjacency.rowptr, whole.rowptr)
        assert torch.equal(found.adjacency.indices, whole.indices)
        if expected is None:
            assert found.x is None
        else:
            assert torch.equal(found.x, BitTensor.from_float(expected))

    return check


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint32, np.dtype(">i8")])
def test_npy_files_of_edges(graph, same, tmp_path, dtype):
    edges = graph.numpy().astype(dtype)
    np.save(tmp_path / "edges.npy", edges)
    same(tmp_path / "edges.npy")
    np.save(tmp_path / "turned.npy", np.asfortranarray(edges))
    same(str(tmp_path / "turned.npy"))
    pair = [tmp_path / "sources.npy", tmp_path / "destinations.npy"]
    for path, ends in zip(pair, edges, strict=True):
        np.save(path, ends)
    same(pair)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_npy_and_packed_files_of_features(graph, same, tmp_path, dtype):
    np.save(tmp_path / "edges.npy", graph.numpy())
    x = torch.randn(NODES, 33)
    np.save(tmp_path / "x.npy", x.numpy().astype(dtype))
    same(tmp_path / "edges.npy", x, x=tmp_path / "x.npy")
    same(graph, x, x=tmp_path / "x.npy")
    PackedFeatureStore.write(tmp_path / "x.safetensors", [x[:7], x[7:]])
    same(graph, x, x=tmp_path / "x.safetensors")
    same(graph, x, x=x)


def save_tables(folder, edges, x):
    """Raw files of ogbn-arxiv and ogbn-products."""
    folder.mkdir(parents=True)
    for name, rows in (
        ("edge", edges.T),
        ("node-feat", x),
        ("num-node-list", [[len(x)]]),
        ("num-edge-list", [[edges.shape[1]]]),
    ):
        text = "".join(",".join(map(str, row)) + "\n" for row in np.asarray(rows).tolist())
        (folder / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode()))


@pytest.mark.parametrize("inner", ["raw", "."])
def test_raw_tables_of_ogb(graph, same, tmp_path, inner):
    x = torch.randn(NODES, 5)
    save_tables(tmp_path / "ogbn_arxiv" / inner, graph.numpy(), x.numpy())
    same(tmp_path / "ogbn_arxiv", x)
    found = sources.read_source(tmp_path / "ogbn_arxiv", None, None)
    pieces = list(found.edges())
    assert len(pieces) > 3
    assert np.array_equal(np.concatenate([np.stack(p) for p in pieces], axis=1), graph.numpy())


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_raw_archive_of_ogb(graph, same, tmp_path, save):
    x = torch.randn(NODES, 128)
    raw = tmp_path / "papers100M-bin" / "raw"
    raw.mkdir(parents=True)
    save(
        raw / "data.npz", edge_index=graph.numpy(), node_feat=x.numpy().astype(np.float16),
        node_year=np.zeros((NODES, 1)), num_nodes_list=np.array([NODES]),
        num_edges_list=np.array([graph.size(1)]),
    )  # fmt: skip
    same(tmp_path / "papers100M-bin", x)


def test_damaged_files_are_named(graph, tmp_path):
    def refused(data, match, **options):
        with pytest.raises(FileError, match=match):
            Partitioner(data, 2, tmp_path / "out", **options).generate_partition()

    path = tmp_path / "edges.npy"
    np.save(path, graph.numpy())
    path.write_bytes(path.read_bytes()[:-9])
    refused(path, r"edges\.npy: cannot be read \(is cut short, its header tells of 496 values")
    for array, held in (
        (graph.numpy().T, r"int64 \[248, 2\]"),
        (graph.numpy().astype(float), r"float64 \[2, 248\]"),
    ):
        np.save(path, array)
        refused(path, rf"edges\.npy: must hold integers \[2, E\], got {held}")
    np.save(path, np.array([Path()], dtype=object), allow_pickle=True)
    refused(path, r"edges\.npy: cannot be read \(must hold real numbers, got object")
    path.write_bytes(b"text")
    refused(path, r"edges\.npy: cannot be read")
    np.save(path, np.zeros(3, int))
    np.save(tmp_path / "other.npy", np.zeros(4, int))
    refused(
        (path, tmp_path / "other.npy"), r"other\.npy: must hold integers \[3\], got int64 \[4\]"
    )
    np.save(path, np.zeros((37, 2), int))
    refused(graph, r"edges\.npy: must hold floats \[N, F\], got int64 \[37, 2\]", x=path)
    raw = tmp_path / "ogbn" / "raw"
    raw.mkdir(parents=True)
    refused(tmp_path / "ogbn", r"must hold data\.npz or the tables .*edge\.csv\.gz, num-node-l")
    (raw / "data.npz").write_bytes(b"no archive")
    refused(tmp_path / "ogbn", r"data\.npz: edge_index: cannot be read \(File is not a zip")
    np.savez(raw / "data.npz", other=np.zeros(3))
    refused(tmp_path / "ogbn", r"data\.npz: edge_index: cannot be read .*no item named")


@pytest.mark.parametrize(
    ("name", "text", "match"),
    [
        ("edge", "0,1\n2,x\n", r"edge\.csv\.gz: cannot be read .*2 values of int64 a row, rows 0"),
        ("edge", "0,1\n2,3,4\n", "2 values of int64 a row"),
        ("edge", "0,1\n2.5,3\n", "2 values of int64 a row"),
        ("node-feat", "1,2\n3\n", r"node-feat\.csv\.gz: cannot be read .*2 values of float32"),
        ("num-node-list", "3\n4\n", r"num-node-list\.csv\.gz: must hold one graph, holds 2"),
    ],
)
def test_damaged_tables_are_named(graph, tmp_path, name, text, match):
    save_tables(tmp_path / "raw", graph.numpy(), np.ones((NODES, 2)))
    (tmp_path / "raw" / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode()))
    with pytest.raises(FileError, match=match):
        Partitioner(tmp_path, 2, tmp_path / "out").generate_partition()
    (tmp_path / "raw" / f"{name}.csv.gz").write_bytes(gzip.compress(b"0,0\n" * 99)[:-20])
    with pytest.raises(FileError, match=rf"{name}\.csv\.gz: cannot be read"):
        Partitioner(tmp_path, 2, tmp_path / "out").generate_partition()


def test_indices_out_of_range_are_named(tmp_path):
    path = tmp_path / "edges.npy"
    for edges, match in (
        ([[0, 1], [2, 5]], r"edges\.npy: destinations must lie in \[0, 5\) .* got 2 to 5"),
        ([[-1, 1], [2, 3]], r"edges\.npy: sources must lie in \[0, 5\) .* got -1 to 1"),
    ):
        np.save(path, np.array(edges))
        with pytest.raises(ValueError, match=match):
            Partitioner(path, 2, tmp_path / "out", num_nodes=5).generate_partition()
    np.save(path, np.array([[2**31], [0]]))
    with pytest.raises(ValueError, match="nodes must be 2147483648 at most, got 2147483649"):
        Partitioner(path, 2, tmp_path / "out").generate_partition()


def test_a_source_that_changes_meanwhile_is_refused(tmp_path):
    class Changing(PowerLawGraph):
        def blocks(self):
            self.num_edges += 1
            yield from super().blocks()

    graph = Changing(9, 50)
    with pytest.raises(FileError, match="changed while it was read"):
        Partitioner(graph, 2, tmp_path / "out").generate_partition()
    assert not list((tmp_path / "out").iterdir())


def test_made_up_graphs_are_the_same_again_and_say_so(write):
    graph = PowerLawGraph(500, 4000, 33, seed=3)
    first, second = (load_partition(write(g, 2), 0, 1) for g in (graph, graph))
    assert torch.equal(first.adjacency.indices, second.adjacency.indices)
    assert torch.equal(first.x, second.x)
    other = load_partition(write(PowerLawGraph(500, 4000, 33, seed=4), 2), 0, 1)
    assert not torch.equal(first.adjacency.indices, other.adjacency.indices)
    root = write(graph, 2)
    assert read_manifest(root).is_synthetic
    assert json.loads((root / "META.json").read_text())["source"] == repr(graph)
    degree = first.adjacency.rowptr.diff()
    assert int(degree.sum()) == 4000
    assert int(degree.max()) > 20 * int(degree.float().median())
    assert PowerLawGraph("papers100M").num_edges == 1_615_685_872
    for arguments in (("reddit",), (-1, 0), (0, 3)):
        with pytest.raises(ValueError, match="PowerLawGraph: "):
            PowerLawGraph(*arguments)
    with pytest.raises(ValueError, match="exponent must be above 2, got 2"):
        PowerLawGraph(3, 3, exponent=2)


def test_memory_stays_far_below_the_edges(tmp_path):
    """A process of its own, whose highest resident set counts from after the imports."""
    edges, nodes = 10_000_000, 50_000
    rng = np.random.default_rng(0)
    np.save(tmp_path / "edges.npy", rng.integers(0, nodes, (2, edges)))
    code = (
        "import resource, sys, torch\n"
        "from bitgnn.distributed import Partitioner, PowerLawGraph\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "Partitioner(PowerLawGraph(9, 9), 2, 'small', normalize='sym').generate_partition()\n"
        "before = peak()\n"
        "Partitioner('edges.npy', 32, 'out', order='dealt').generate_partition()\n"
        "print((peak() - before) * 1024)\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(Path(bitgnn.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < edges * 16 / 2
    assert sum(part.edges for part in read_manifest(tmp_path / "out").parts) == edges

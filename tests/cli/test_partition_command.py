"""The command `bitgnn partition`."""

import numpy as np
import torch

from bitgnn import BitAdjacency
from bitgnn.distributed import load_partition
from bitgnn.distributed.manifest import read_manifest


def test_files_become_parts(run, refused, tmp_path):
    edges = np.random.default_rng(0).integers(0, 30, (2, 100))
    np.save(tmp_path / "edges.npy", edges)
    np.save(tmp_path / "x.npy", np.ones((40, 5), np.float32))
    arguments = [
        "partition", "--data", tmp_path / "edges.npy", "--features", tmp_path / "x.npy",
        "--parts", "4", "--normalize", "sym", "-o", tmp_path / "out", "--threads", "1",
    ]  # fmt: skip
    for _ in range(2):
        result = run(*arguments)
        assert "edges.npy: 40 nodes, 100 edges, 5 features in 4 parts of at most" in result.stdout
    found = load_partition(tmp_path / "out", 0, 1)
    whole = BitAdjacency.from_edge_index(torch.from_numpy(edges), 40, normalize="sym")
    assert torch.equal(found.adjacency.indices, whole.indices)
    assert torch.equal(found.adjacency.row_scale, whole.row_scale)
    assert "holds a partition of another graph" in refused(*arguments, "--order", "dealt")
    assert "order must be one of" in refused(*arguments, "--order", "metis")
    pair = [tmp_path / "sources.npy", tmp_path / "destinations.npy"]
    for path, ends in zip(pair, edges, strict=True):
        np.save(path, ends)
    options = ["--undirected", "--self-loops", "--nodes", "35", "--order", "dealt"]
    run("partition", "--data", pair[0], "--data", pair[1], "-o", tmp_path / "pair", *options)
    found = read_manifest(tmp_path / "pair")
    assert (found.num_nodes, found.num_parts, found.order) == (35, 256, "dealt")
    assert found.undirected
    assert found.add_self_loops


def test_made_up_graphs_and_data_sets(run, refused, tmp_path):
    out = tmp_path / "out"
    made = run("partition", "--data", "synthetic:arxiv", "--parts", "2", "-o", out).stdout
    assert "(made up): 169343 nodes, 1166243 edges, 128 features in 2 parts" in made
    assert "size must be one of" in refused("partition", "--data", "synthetic:other", "-o", out)
    x = np.ones((6, 2), np.float32)
    pairs = np.array([[0, 1, 2], [1, 2, 3]])
    np.savez(tmp_path / "mine.npz", x=x, edge_index=pairs, y=np.arange(6) % 2)
    result = run("partition", "--data", tmp_path / "mine.npz", "--parts", "2", "-o", tmp_path / "m")
    assert ": 6 nodes, 3 edges, 2 features in 2 parts" in result.stdout
    assert "edges.npy: no such file" in refused("partition", "--data", tmp_path / "edges.npy")

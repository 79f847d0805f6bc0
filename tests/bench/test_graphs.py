"""Benchmark graphs: valid CSR, reproducible, heavy-tailed."""

import numpy as np
import scipy.sparse as sp
import torch

from bench.graphs import load_flickr, power_law_graph


def test_power_law_graph_is_a_valid_heavy_tailed_csr():
    graph = power_law_graph(2000, 40_000, exponent=2.5, seed=3)
    degrees = graph.rowptr.diff()
    assert graph.num_nodes == 2000
    assert graph.num_edges == 40_000 == int(degrees.sum())
    assert "synthetic" in graph.name
    assert 0 <= int(graph.indices.min()) <= int(graph.indices.max()) < 2000
    assert int(degrees.max()) > 20 * float(degrees.float().median())
    keys = graph.edge_index()[1] * 2000 + graph.indices
    assert torch.all(keys.diff() >= 0)


def test_flickr_is_read_from_the_raw_file(tmp_path):
    (tmp_path / "flickr" / "raw").mkdir(parents=True)
    dense = np.array([[0, 1, 1], [0, 0, 0], [1, 0, 0]])
    sp.save_npz(tmp_path / "flickr" / "raw" / "adj_full.npz", sp.csr_matrix(dense))
    graph = load_flickr(tmp_path)
    assert graph.rowptr.tolist() == [0, 2, 2, 3]
    assert graph.indices.tolist() == [1, 2, 0]
    assert graph.edge_index().tolist() == [[1, 2, 0], [0, 0, 2]]

"""Benchmark graphs read from raw files."""

import numpy as np
import scipy.sparse as sp

from bench.graphs import load_flickr


def test_flickr_is_read_from_the_raw_file(tmp_path):
    (tmp_path / "flickr" / "raw").mkdir(parents=True)
    dense = np.array([[0, 1, 1], [0, 0, 0], [1, 0, 0]])
    sp.save_npz(tmp_path / "flickr" / "raw" / "adj_full.npz", sp.csr_matrix(dense))
    graph = load_flickr(tmp_path)
    assert graph.rowptr.tolist() == [0, 2, 2, 3]
    assert graph.indices.tolist() == [1, 2, 0]
    assert graph.edge_index().tolist() == [[1, 2, 0], [0, 0, 2]]

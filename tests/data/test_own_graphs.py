"""A user's own graph: the forms it may have, what is checked, and that nothing is unpickled."""

import io
import os
import re
import sys
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from bitgnn import FileError
from bitgnn.data import DataError, load, npz_graphs, read_graph
from bitgnn.data.own_graphs import graph_title, is_own_graph
from bitgnn.data.splits import MASKS, share_split

NODES, FEATURES = 12, 5
Y = np.arange(NODES) % 3
X = np.random.default_rng(0).standard_normal((NODES, FEATURES))
EDGE_INDEX = np.array([[0, 1, 2, 11], [1, 2, 0, 11]])
PARTS = [np.arange(NODES) % 4 == part for part in (0, 1, 2)]
GRAPH = {"x": X, "edge_index": EDGE_INDEX, "y": Y, **dict(zip(MASKS, PARTS, strict=True))}
MODULE = """
import torch
from torch_geometric.data import Data, InMemoryDataset


class Loops(InMemoryDataset):
    count = 1

    def __init__(self, root):
        super().__init__(None)
        edge_index = torch.ones(2, 0, dtype=torch.int64)
        graph = Data(x=torch.ones(10, 2), y=torch.arange(10) % 2, edge_index=edge_index)
        self.data, self.slices = self.collate([graph] * self.count)


class Two(Loops):
    count = 2


def graph():
    return Loops(None)[0]


def text():
    return "no graph"


value = 3
"""


@pytest.fixture
def file(tmp_path):
    """Writes an ``.npz`` file."""

    def write(**arrays):
        path = tmp_path / "mine.npz"
        np.savez(path, **arrays)
        return path

    return write


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "own_graph.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield "own_graph"
    sys.modules.pop("own_graph", None)


def _without(*keys, **more):
    return {key: value for key, value in GRAPH.items() if key not in keys} | more


def test_plain_arrays(file):
    data = read_graph(file(**GRAPH, further=np.array(["text"])))
    assert torch.equal(data.x, torch.from_numpy(X).float())
    assert data.edge_index.tolist() == EDGE_INDEX.tolist()
    assert (data.y.dtype, data.y.tolist()) == (torch.int64, Y.tolist())
    assert [data[name].tolist() for name in MASKS] == [part.tolist() for part in PARTS]
    assert (data.name, data.synthetic) == ("mine", False)


def test_other_names_edges_both_ways_and_splits(file):
    masks = {f"{name}s": np.stack([GRAPH[name], ~GRAPH[name]]) for name in MASKS}
    masks["train_masks"] = np.stack([PARTS[0], np.zeros(NODES, bool)])
    path = file(features=X, labels=Y[:, None], edges=EDGE_INDEX.T, **masks)
    data = read_graph(path)
    pairs = set(map(tuple, data.edge_index.t().tolist()))
    assert pairs == {*map(tuple, EDGE_INDEX.T.tolist()), (1, 0), (2, 1), (0, 2)}
    assert data.y.tolist() == Y.tolist()
    assert data.train_mask.tolist() == PARTS[0].tolist()
    assert not read_graph(path, split=1).train_mask.any()
    with pytest.raises(ValueError, match="split must be"):
        read_graph(path, split=2)


def test_public_form_is_the_data_set_itself(tmp_path, raw):
    file = tmp_path / "amazon" / "Photo" / "raw" / "amazon_electronics_photo.npz"
    raw.save_npz_graph(file)
    known = load("Photo", tmp_path, train_per_class=1, val_per_class=1)
    with pytest.warns(UserWarning, match="has no masks; 60, 20 and 20 per cent"):
        data = read_graph(file)
    assert torch.equal(data.edge_index, known.edge_index)
    assert torch.equal(data.y, known.y)
    assert torch.equal(data.x > 0, known.x > 0)
    assert torch.equal(data.x, torch.from_numpy(raw.x))


def test_weights_of_edges(file):
    weight = np.arange(EDGE_INDEX.shape[1]) / 4 - 0.5
    data = read_graph(file(**GRAPH, edge_weight=weight))
    assert data.edge_weight.dtype == torch.float32
    assert data.edge_weight.tolist() == weight.tolist()
    both = read_graph(file(**_without("edge_index", edges=EDGE_INDEX.T, edge_weight=weight)))
    dense = np.zeros((2, NODES, NODES))
    np.add.at(dense[0], tuple(EDGE_INDEX), weight)
    np.add.at(dense[1], tuple(EDGE_INDEX), 1)
    dense += dense.transpose(0, 2, 1)
    sources, targets = both.edge_index
    expected = dense[0, sources, targets] / dense[1, sources, targets]
    assert np.allclose(both.edge_weight, expected)
    for wrong, message in (
        (weight[1:], r"edge_weight: must be \[\d+\], got"),
        (weight * np.nan, "edge_weight: must hold finite weights"),
    ):
        with pytest.raises(FileError, match=message):
            read_graph(file(**GRAPH, edge_weight=wrong))


def test_values_of_the_public_form_are_weights(file):
    dense = np.array([[5.0, 2.0, 0.0], [2.0, 0.0, -0.5], [0.0, -0.5, 0.0]])
    graph = {
        "x": np.eye(3),
        "y": np.arange(3) % 2,
        **{name: np.eye(3)[i] > 0 for i, name in enumerate(MASKS)},
    }
    for values, held in ((dense, True), (dense != 0, False)):
        matrix = sp.csr_matrix(values.astype(float))
        parts = {f"adj_{part}": getattr(matrix, part) for part in npz_graphs.CSR}
        data = read_graph(file(**graph, **parts))
        assert ("edge_weight" in data) == held
        weight = data.edge_weight if held else torch.ones(4)
        found = np.zeros((3, 3))
        found[tuple(data.edge_index)] = weight
        assert np.array_equal(found, np.where(np.eye(3), 0, values))


def test_labels_of_several_kinds(file):
    several = (np.arange(NODES * 2).reshape(NODES, 2) % 3 == 0).astype(np.uint8)
    path = file(**_without("y", y=several))
    y = read_graph(path).y
    assert (y.dtype, y.tolist()) == (torch.float32, several.tolist())
    with pytest.raises(DataError, match="must hold one class for each"):
        load(str(path))
    assert read_graph(file(**_without("y", y=X[:, 0]))).y.dtype == torch.float32


def test_a_class_of_pyg(own, tmp_path):
    with pytest.warns(UserWarning, match="has no masks"):
        assert read_graph(f"{own}:Loops", tmp_path).name == "Loops"
    with pytest.warns(UserWarning, match="has no masks"):
        assert load(f"{own}:graph").x.shape == (10, 2)
    for name, error, said in (
        ("Two", DataError, "Two: .*must hold one graph, got 2"),
        ("text", DataError, "text: .*must be a PyG data set or a Data"),
        ("value", DataError, "value: .*cannot be called"),
        ("Missing", ValueError, "own_graph has no Missing"),
    ):
        with pytest.raises(error, match=said):
            read_graph(f"{own}:{name}")


def test_drawn_parts_depend_on_the_seed_and_leave_out_nodes_without_label(file):
    y = np.where(np.arange(NODES) < 2, -1, Y)
    path = file(**_without(*MASKS, "y", y=y))
    with pytest.warns(UserWarning, match="with seed 1"):
        graphs = [read_graph(path, seed=seed) for seed in (1, 1, 2)]
    parts = [[graph[name].tolist() for name in MASKS] for graph in graphs]
    assert parts[0] == parts[1] != parts[2]
    assert [sum(part) for part in parts[0]] == [6, 2, 2]
    assert np.array_equal(np.sum(parts[0], axis=0), y >= 0)
    with pytest.raises(ValueError, match="2 nodes with a label are too few"):
        share_split(torch.tensor([True, True, False]))


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        (_without("x"), "x missing"),
        (_without("edge_index", "y"), "edge_index, y missing"),
        (_without("x", x=X[:, 0]), r"x: must be \[N, F\]"),
        (_without("edge_index", edge_index=EDGE_INDEX.T), "edge_index: must be two integers"),
        (_without("edge_index", edge_index=EDGE_INDEX + 1), "edge_index: must hold nodes from 0"),
        (_without("edge_index", edge_index=EDGE_INDEX - 1), "edge_index: must hold nodes from 0"),
        (_without("edge_index", edge_index=X[:2]), "edge_index: must be two integers"),
        (_without("edge_index", edges=EDGE_INDEX), "edges: must be two integers"),
        (_without("edge_index", edges=EDGE_INDEX.T + 1), "edges: must hold nodes from 0 to 11"),
        (_without("y", labels=Y[1:]), r"labels: must be \[12\]"),
        (_without("y", y=Y + 10**12), "y: must hold classes from 0 on"),
        (_without("val_mask"), "val_mask missing; all three masks"),
        (_without("val_mask", val_mask=Y == Y), "train_mask: holds nodes of another mask"),
        (_without("val_mask", val_mask=PARTS[1][1:]), r"val_mask: must be \[12\]"),
        (_without("val_mask", val_mask=np.arange(NODES)), "val_mask: must hold booleans"),
        (_without("x", x=X + 1j), "x: cannot be read .must hold booleans or real numbers"),
        (_without("x", x=np.array(X, dtype=object)), "x: cannot be read .must hold booleans"),
        (_without("edge_index", adj_data=Y), "adj_indices, adj_indptr, adj_shape missing"),
    ],
)
def test_what_does_not_fit_is_named(file, arrays, said):
    path = file(**arrays)
    with pytest.raises(FileError, match=f"{re.escape(str(path))}: {said}"):
        read_graph(path)


def _csr(prefix, **changed):
    """A square matrix with an entry a row."""
    parts = {"data": np.ones(NODES), "indices": np.arange(NODES), "indptr": np.arange(NODES + 1)}
    parts |= {"shape": np.array([NODES, NODES]), **changed}
    return {f"{prefix}_{part}": array for part, array in parts.items()}


@pytest.mark.parametrize("prefix", ["attr", "adj"])
@pytest.mark.parametrize(
    "changed",
    [
        {"indices": np.arange(NODES) + 1},
        {"indices": np.arange(NODES) - 1},
        {"indptr": np.arange(NODES + 1)[::-1]},
        {"indptr": np.arange(NODES + 1) + 1},
        {"data": np.ones(NODES - 1)},
        {"shape": np.array([NODES])},
        {"shape": np.array([-NODES, NODES])},
        {"shape": np.array([NODES, 2.5])},
    ],
)
def test_sparse_matrices_are_checked(file, prefix, changed):
    arrays = _without("x", "edge_index") | _csr("attr") | _csr("adj")
    read_graph(file(**arrays))
    path = file(**arrays | _csr(prefix, **changed))
    with pytest.raises(FileError, match=rf"mine\.npz: {prefix}_\*: no CSR matrix"):
        read_graph(path)


def test_sizes_are_bounded_before_memory_is_taken(file, monkeypatch):
    wide = _csr("attr", shape=np.array([NODES, 10**12]))
    with pytest.raises(FileError, match=r"mine\.npz: attr_shape: asks for"):
        read_graph(file(**_without("x") | wide))
    path = file(**GRAPH)
    monkeypatch.setattr(npz_graphs, "ARRAY_BYTES", 100)
    with pytest.raises(FileError, match=r"mine\.npz: x: cannot be read \(asks for 720 bytes"):
        read_graph(path)


@pytest.mark.parametrize(("dtype", "most"), [("uint8", 10 << 20), ("bool", 10 << 20)])
def test_memory_is_bounded_by_the_bytes_of_a_file(tmp_path, monkeypatch, dtype, most):
    monkeypatch.setattr(npz_graphs, "SMALL_BYTES", most)
    path = tmp_path / "mine.npz"
    arrays = {name: np.zeros((3 << 20, 1), dtype) for name in ("x", "y")}
    np.savez_compressed(path, **arrays)
    with pytest.raises(FileError, match=rf"x: cannot be read \(asks for 15728640 bytes .* {most}"):
        read_graph(path)


def test_an_array_that_promises_more_than_there_is(tmp_path):
    member = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        member, {"descr": "<f4", "fortran_order": False, "shape": (10**6, 10)}
    )
    with zipfile.ZipFile(tmp_path / "mine.npz", "w") as archive:
        archive.writestr("x.npy", member.getvalue())
    with pytest.raises(FileError, match=r"mine\.npz: x: cannot be read \(must have 40000000 bytes"):
        read_graph(tmp_path / "mine.npz")


def test_damaged_files(file, tmp_path):
    path = file(**GRAPH)
    content = path.read_bytes()
    for wrong in (b"", content[:200], b"x" * 100):
        path.write_bytes(wrong)
        with pytest.raises(FileError, match=r"mine\.npz: cannot be read"):
            read_graph(path)
    place = content.index(X.tobytes())
    path.write_bytes(content[:place] + b"\xff" * 8 + content[place + 8 :])
    with pytest.raises(FileError, match=r"mine\.npz: x: cannot be read \(Bad CRC-32"):
        read_graph(path)
    with pytest.raises(FileError, match=r"none\.npz: no such file"):
        read_graph(tmp_path / "none.npz")
    os.mkfifo(tmp_path / "pipe.npz")
    with pytest.raises(FileError, match=r"pipe\.npz: no such file"):
        read_graph(tmp_path / "pipe.npz")


def test_names_of_data_sets_and_of_own_graphs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Cora").mkdir()
    assert not is_own_graph("Cora")
    assert all(map(is_own_graph, ("a.npz", "a/b", "package.module:Name")))
    titles = [graph_title(name) for name in ("a/b.npz", "package.module:Name", "Photo")]
    assert titles == ["b", "Name", "Photo"]

"""load() on tiny graphs in the raw formats of the real ones: found, copied, downloaded, refused."""

import io
import os
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
import torch_geometric.datasets

from bitgnn.data import DataError, dataset_names, load
from bitgnn.data.pyg_datasets import PLANETOID_PARTS
from bitgnn.data.splits import MASKS

SMALL = {"train_per_class": 1, "val_per_class": 1}
PHOTO = "amazon_electronics_photo.npz"
NOWHERE = "http://127.0.0.1:9/reddit.zip"


def pairs(edge_index):
    return set(map(tuple, edge_index.t().tolist()))


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def check(raw):
    """Whether a loaded graph is the tiny one in the form promised."""

    def is_the_graph(data):
        assert (data.x.shape, data.x.dtype) == (raw.x.shape, torch.float32)
        assert torch.equal(data.y, torch.from_numpy(raw.y))
        for key in MASKS:
            assert (data[key].shape, data[key].dtype) == ((raw.nodes,), torch.bool)
        assert not data.synthetic

    return is_the_graph


@pytest.fixture
def read_only():
    """Takes the right to write from folders, until the test ends."""
    changed = []

    def forbid(*folders):
        changed.extend(folders)
        for folder in folders:
            folder.chmod(0o555)

    yield forbid
    for folder in changed:
        folder.chmod(0o755)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("Photo", f"amazon/Photo/raw/{PHOTO}"),
        ("computers", "Computers/raw/amazon_electronics_computers.npz"),
        ("CS", "coauthor/CS/raw/ms_academic_cs.npz"),
        ("Physics", "coauthor/Physics/raw/ms_academic_phy.npz"),
        ("cora-ml", "citationfull/cora_ml/raw/cora_ml.npz"),
        ("Cora_Full", "citationfull/cora/raw/cora.npz"),
        ("DBLP", "dblp/raw/dblp.npz"),
    ],
)
def test_graphs_in_npz(tmp_path, name, path, check, raw):
    raw.save_npz_graph(tmp_path / path)
    data = load(name, tmp_path, seed=3, **SMALL)
    check(data)
    # PyG removes loops and makes these graphs undirected.
    assert {(4, 0), (0, 4)} <= pairs(data.edge_index)
    assert (7, 7) not in pairs(data.edge_index)
    assert int(data.train_mask.sum()) == int(data.val_mask.sum()) == raw.classes
    other = load(name, tmp_path, seed=4, **SMALL)
    assert not torch.equal(other.train_mask, data.train_mask)


def test_heterophilous_splits(tmp_path, check, raw):
    raw.save_heterophilous(tmp_path / "heterophilous" / "tolokers" / "raw" / "tolokers.npz")
    first, last = load("tolokers", tmp_path), load("Tolokers", tmp_path, split=9)
    check(first)
    masks = np.random.default_rng(1).integers(0, 3, (10, raw.nodes))
    assert torch.equal(first.val_mask, torch.from_numpy(masks[0] == 1))
    assert torch.equal(last.test_mask, torch.from_numpy(masks[9] == 2))
    with pytest.raises(ValueError, match="split must be 'random' or from 0 to 9, got 10"):
        load("tolokers", tmp_path, split=10)
    with pytest.raises(ValueError, match="split must be a number, 'random' or None, got 'public'"):
        load("tolokers", tmp_path, split="public")
    drawn = load("tolokers", tmp_path, split="random", **SMALL)
    assert int(drawn.train_mask.sum()) == raw.classes


def test_linkx_nodes_without_a_label_are_in_no_mask(tmp_path, raw):
    raw.save_linkx(tmp_path / "linkx" / "cornell5" / "raw" / "data.mat")
    data = load("Cornell5", tmp_path, **SMALL)
    assert data.y.tolist() == [-1, 0, 1] * 4
    assert torch.equal(data.train_mask | data.val_mask | data.test_mask, data.y >= 0)


@pytest.mark.parametrize("name", ["reddit", "flickr"])
def test_reddit_and_flickr(tmp_path, name, check, raw):
    getattr(raw, f"save_{name}")(tmp_path / name / "raw")
    data = load(name, tmp_path)
    check(data)
    assert [int(data[key].sum()) for key in MASKS] == [6, 3, 3]
    assert pairs(data.edge_index) == raw.edges
    torch.testing.assert_close(data.x, torch.from_numpy(raw.x))


def test_flickr_without_features(tmp_path, raw):
    def made(seed=5):
        return load("flickr", tmp_path, features="synthetic", seed=seed)

    with pytest.raises(DataError, match=r"Put adj_full.npz, class_map.json, role.json into .*raw"):
        made()
    folder = tmp_path / "flickr" / "raw"
    raw.save_flickr(folder, with_features=False)
    data = made()
    assert (data.name, data.synthetic) == ("Flickr (synthetic features)", True)
    assert data.x.shape == (raw.nodes, 500)
    assert pairs(data.edge_index) == raw.edges
    assert torch.equal(data.y, torch.from_numpy(raw.y))
    assert [int(data[key].sum()) for key in MASKS] == [6, 3, 3]
    assert torch.equal(made().x, data.x)
    assert not torch.equal(made(6).x, data.x)
    (folder / "role.json").write_text('{"tr": [99]}')
    with pytest.raises(DataError, match="cannot be read"):
        made()


def test_a_read_only_folder_stays_untouched(tmp_path, check, raw, read_only, monkeypatch):
    root = tmp_path / "root"
    monkeypatch.setenv("BITGNN_DATA", str(root))
    folder, copied = root / "amazon" / "Photo", tmp_path / "cache" / "bitgnn" / "amazon" / "Photo"
    raw.save_npz_graph(folder / "raw" / PHOTO)
    read_only(folder, root)
    made = []
    for _ in range(2):
        check(load("Photo", **SMALL))
        assert names(copied) == ["processed", "raw"]
        assert names(folder) == ["raw"]
        made.append((copied / "processed" / "data.pt").stat().st_mtime_ns)
    assert made[0] == made[1]


def test_a_replaced_file_in_a_read_only_folder_is_copied_again(tmp_path, raw, read_only):
    path = tmp_path / "root" / "tolokers" / "raw" / "tolokers.npz"
    raw.save_heterophilous(path)
    read_only(path.parents[1])
    load("tolokers", tmp_path / "root", split=9)
    path.parents[1].chmod(0o755)
    shutil.rmtree(path.parent)
    raw.save_heterophilous(path, num_splits=2)
    read_only(path.parents[1])
    with pytest.raises(ValueError, match="from 0 to 1, got 9"):
        load("tolokers", tmp_path / "root", split=9)


@pytest.fixture
def photo(tmp_path, server, monkeypatch, raw):
    """Amazon's Photo on the local server; returns the folder to load from."""
    raw.save_npz_graph(tmp_path / "source" / PHOTO)
    server.files[f"/{PHOTO}"] = (tmp_path / "source" / PHOTO).read_bytes()
    monkeypatch.setattr(torch_geometric.datasets.Amazon, "url", f"{server.url}/")
    return tmp_path / "root"


def test_a_broken_download_is_no_data_set(photo, server, check):
    server.cut = 1
    with pytest.raises(DataError, match=r"not downloaded .*Put amazon_elec"):
        load("Photo", photo, **SMALL)
    folder = photo / "amazon" / "Photo"
    assert not folder.exists()
    for _ in range(2):
        check(load("Photo", photo, **SMALL))
    assert len(server.requests) == 2
    assert names(folder) == ["processed", "raw"]
    assert names(folder / "raw") == [PHOTO]


def test_a_users_own_raw_files_are_never_deleted(tmp_path, monkeypatch):
    monkeypatch.setattr(torch_geometric.datasets.Reddit, "url", NOWHERE)
    mine = tmp_path / "reddit" / "raw" / "reddit_data.npz"
    mine.parent.mkdir(parents=True)
    mine.write_bytes(b"mine")
    with pytest.raises(DataError, match="Reddit: raw files not found"):
        load("Reddit", tmp_path)
    assert mine.read_bytes() == b"mine"
    assert names(mine.parent.parent) == ["raw"]


def test_an_interruption_while_processing_leaves_nothing_that_looks_done(photo, monkeypatch, check):
    def stopped(self, data_list, path):
        Path(path).write_bytes(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(torch_geometric.datasets.Amazon, "save", stopped)
        with pytest.raises(KeyboardInterrupt):
            load("Photo", photo, **SMALL)
    assert not (photo / "amazon" / "Photo" / "processed" / "data.pt").exists()
    check(load("Photo", photo, **SMALL))


def test_reddit_from_an_archive(tmp_path, server, monkeypatch, check, raw):
    raw.save_reddit(tmp_path / "source")
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        for path in (tmp_path / "source").iterdir():
            file.write(path, path.name)
    server.files["/reddit.zip"] = archive.getvalue()
    monkeypatch.setattr(torch_geometric.datasets.Reddit, "url", f"{server.url}/reddit.zip")
    check(load("Reddit", tmp_path / "root"))
    assert names(tmp_path / "root/reddit/raw") == ["reddit_data.npz", "reddit_graph.npz"]


def test_cora_file_by_file(tmp_path, server, monkeypatch):
    """PyG copies Planetoid's files by another function than it downloads the others."""
    monkeypatch.setattr(torch_geometric.datasets.Planetoid, "url", server.url)
    server.files["/ind.cora.x"] = b"content"
    with pytest.raises(DataError, match=r"Cora: raw files not found .*ind\.cora\.tx"):
        load("Cora", tmp_path / "root")
    assert "/ind.cora.x" in server.requests
    assert not (tmp_path / "root").exists()


def test_offline_says_what_belongs_where(tmp_path, monkeypatch, check, raw, read_only):
    monkeypatch.setattr(torch_geometric.datasets.Reddit, "url", NOWHERE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = tmp_path / "root"
    root.mkdir()
    put = f"Put reddit_data.npz, reddit_graph.npz into {root / 'reddit' / 'raw'}"
    with pytest.raises(
        DataError, match=f"Reddit: raw files not found under .*{put}.*--data-root or BITGNN_DATA"
    ):
        load("Reddit", root)
    assert names(root) == []
    read_only(root)
    with pytest.raises(DataError, match=r"into \S*cache/bitgnn/reddit/raw"):
        load("Reddit", root)
    assert names(root) == []
    # What was downloaded there once is found there.
    raw.save_reddit(tmp_path / "cache" / "bitgnn" / "reddit" / "raw")
    check(load("Reddit", root))


def test_two_processes_make_the_same_files_at_a_time(tmp_path, monkeypatch, check, raw):
    raw.save_npz_graph(tmp_path / "amazon/Photo/raw" / PHOTO)
    make, others = torch_geometric.datasets.Amazon.process, []

    def make_while_another_does(self):
        if not others:
            others.append(None)
            with monkeypatch.context() as patch:
                patch.setattr(os, "getpid", lambda: 1)
                check(load("Photo", tmp_path, **SMALL))
        make(self)

    monkeypatch.setattr(torch_geometric.datasets.Amazon, "process", make_while_another_does)
    check(load("Photo", tmp_path, **SMALL))
    assert names(tmp_path / "amazon/Photo") == ["processed", "raw"]


def test_unreadable_files(tmp_path):
    pickled = io.BytesIO()
    np.savez(pickled, attr_data=np.array([{"not": "an array"}], dtype=object))
    file = tmp_path / "Photo" / "raw" / PHOTO
    file.parent.mkdir(parents=True)
    for content, said in (
        (b"", r"Photo: files in .*Photo cannot be read"),
        (b"PK\x03\x04 not an archive", r"Photo: files in .*Photo cannot be read"),
        (pickled.getvalue(), "allow_pickle"),
    ):
        file.write_bytes(content)
        with pytest.raises(DataError, match=said):
            load("Photo", tmp_path)
        assert file.read_bytes() == content


@pytest.mark.parametrize(
    ("name", "options", "error", "message"),
    [
        ("Karate", {}, ValueError, r"name must be one of \['Cora', .*got 'Karate'"),
        (3, {}, TypeError, "name must be a string, got int; see load_pyg"),
        ("Cora", {"features": "synthetic"}, ValueError, "is for Flickr alone, got 'Cora'"),
        ("Flickr", {"features": "real"}, ValueError, "must be None or 'synthetic', got 'real'"),
    ],
)
def test_names(tmp_path, name, options, error, message):
    with pytest.raises(error, match=message):
        load(name, tmp_path, **options)
    assert len(dataset_names()) == len({name.lower() for name in dataset_names()})
    assert load("digits", seed=1).name == "digits"


def test_unreadable_pickles_are_reported(tmp_path):
    raw = tmp_path / "Cora" / "raw"
    raw.mkdir(parents=True)
    for part in PLANETOID_PARTS:
        (raw / f"ind.cora.{part}").write_bytes(b"nonsense")
    with pytest.raises(DataError, match="cannot be read"):
        load("Cora", tmp_path)

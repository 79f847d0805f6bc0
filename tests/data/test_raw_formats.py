"""load() on tiny graphs in the raw formats of the real ones: found, copied, downloaded, refused."""

import io
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
import torch_geometric.datasets

from bitgnn.data import DataError, dataset_names, load

SMALL = {"train_per_class": 1, "val_per_class": 1}


def pairs(edge_index):
    return set(map(tuple, edge_index.t().tolist()))


@pytest.fixture
def check(raw):
    """Whether a loaded graph is the tiny one in the form promised."""

    def is_the_graph(data):
        assert data.x.shape == raw.x.shape
        assert data.x.dtype == torch.float32
        assert data.y.dtype == torch.int64
        assert torch.equal(data.y, torch.from_numpy(raw.y))
        for key in ("train_mask", "val_mask", "test_mask"):
            assert data[key].shape == (raw.nodes,)
            assert data[key].dtype == torch.bool
        assert not data.synthetic

    return is_the_graph


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("Photo", "amazon/Photo/raw/amazon_electronics_photo.npz"),
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
    assert (4, 0) in pairs(data.edge_index)
    assert (0, 4) in pairs(data.edge_index)
    assert (7, 7) not in pairs(data.edge_index)
    assert [int(data[key].sum()) for key in ("train_mask", "val_mask")] == [
        raw.classes,
        raw.classes,
    ]
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
    used = data.train_mask | data.val_mask | data.test_mask
    assert torch.equal(used, data.y >= 0)


@pytest.mark.parametrize("folder", ["reddit/raw"])
def test_reddit(tmp_path, folder, check, raw):
    raw.save_reddit(tmp_path / folder)
    data = load("Reddit", tmp_path)
    check(data)
    assert [int(data[k].sum()) for k in ("train_mask", "val_mask", "test_mask")] == [6, 3, 3]
    assert pairs(data.edge_index) == raw.edges
    torch.testing.assert_close(data.x, torch.from_numpy(raw.x))


def test_flickr_with_and_without_features(tmp_path, check, raw):
    raw.save_flickr(tmp_path / "flickr" / "raw")
    real = load("Flickr", tmp_path)
    check(real)
    torch.testing.assert_close(real.x, torch.from_numpy(raw.x))
    (tmp_path / "flickr" / "raw" / "feats.npy").unlink()
    made = load("flickr", tmp_path, features="synthetic", seed=5)
    assert made.synthetic
    assert made.name == "Flickr (synthetic features)"
    assert made.x.shape == (raw.nodes, 500)
    assert pairs(made.edge_index) == pairs(real.edge_index)
    for key in ("y", "train_mask", "val_mask", "test_mask"):
        assert torch.equal(made[key], real[key])
    assert torch.equal(load("flickr", tmp_path, features="synthetic", seed=5).x, made.x)
    assert not torch.equal(load("flickr", tmp_path, features="synthetic", seed=6).x, made.x)


def test_flickr_structure_missing_or_broken(tmp_path, raw):
    with pytest.raises(DataError, match=r"Put adj_full.npz, class_map.json, role.json into .*raw"):
        load("Flickr", tmp_path, features="synthetic")
    raw.save_flickr(tmp_path / "flickr" / "raw")
    (tmp_path / "flickr" / "raw" / "role.json").write_text('{"tr": [99]}')
    with pytest.raises(DataError, match="cannot be read"):
        load("Flickr", tmp_path, features="synthetic")


def test_a_read_only_folder_stays_untouched(tmp_path, check, raw):
    file = tmp_path / "root" / "amazon" / "Photo" / "raw" / "amazon_electronics_photo.npz"
    raw.save_npz_graph(file)
    for path in (file.parents[1], tmp_path / "root"):
        path.chmod(0o555)
    try:
        check(load("Photo", tmp_path / "root", **SMALL))
        copied = tmp_path / "cache" / "bitgnn" / "amazon" / "Photo"
        assert sorted(path.name for path in copied.iterdir()) == ["processed", "raw"]
        assert sorted(path.name for path in file.parents[1].iterdir()) == ["raw"]
        made = (copied / "processed" / "data.pt").stat().st_mtime_ns
        check(load("Photo", tmp_path / "root", **SMALL))
        assert (copied / "processed" / "data.pt").stat().st_mtime_ns == made
    finally:
        for path in (file.parents[1], tmp_path / "root"):
            path.chmod(0o755)


def test_a_replaced_file_in_a_read_only_folder_is_copied_again(tmp_path, raw):
    path = tmp_path / "root" / "tolokers" / "raw" / "tolokers.npz"
    raw.save_heterophilous(path)
    path.parents[1].chmod(0o555)
    load("tolokers", tmp_path / "root", split=9)
    path.parents[1].chmod(0o755)
    shutil.rmtree(path.parent)
    raw.save_heterophilous(path, num_splits=2)
    path.parents[1].chmod(0o555)
    with pytest.raises(ValueError, match="from 0 to 1, got 9"):
        load("tolokers", tmp_path / "root", split=9)
    path.parents[1].chmod(0o755)


@pytest.fixture
def photo(tmp_path, server, monkeypatch, raw):
    """Amazon's Photo on the local server; returns the folder to load from."""
    raw.save_npz_graph(tmp_path / "source" / "amazon_electronics_photo.npz")
    body = (tmp_path / "source" / "amazon_electronics_photo.npz").read_bytes()
    server.files["/amazon_electronics_photo.npz"] = body
    monkeypatch.setattr(torch_geometric.datasets.Amazon, "url", f"{server.url}/")
    return tmp_path / "root"


def test_download_through_pyg(photo, server, check):
    check(load("Photo", photo, **SMALL))
    folder = photo / "amazon" / "Photo"
    assert sorted(path.name for path in folder.iterdir()) == ["processed", "raw"]
    assert [path.name for path in (folder / "raw").iterdir()] == ["amazon_electronics_photo.npz"]
    check(load("Photo", photo, **SMALL))
    assert len(server.requests) == 1


def test_a_broken_download_is_no_data_set_and_goes_on(photo, server, check):
    server.cut = 1
    with pytest.raises(DataError, match=r"not downloaded .*try again to go on.*Put amazon_elec"):
        load("Photo", photo, **SMALL)
    folder = photo / "amazon" / "Photo"
    assert not (folder / "raw" / "amazon_electronics_photo.npz").exists()
    check(load("Photo", photo, **SMALL))
    assert server.requests[1][1].startswith("bytes=")
    assert sorted(path.name for path in folder.iterdir()) == ["processed", "raw"]


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


def test_pyg_downloads_as_before_afterwards(photo):
    from torch_geometric.data import download, download_url
    from torch_geometric.datasets import amazon

    load("Photo", photo, **SMALL)
    assert amazon.download_url is download_url
    assert download.download_url is download_url


def test_reddit_from_an_archive(tmp_path, server, monkeypatch, check, raw):
    raw.save_reddit(tmp_path / "source")
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        for path in (tmp_path / "source").iterdir():
            file.write(path, path.name)
    server.files["/reddit.zip"] = archive.getvalue()
    monkeypatch.setattr(torch_geometric.datasets.Reddit, "url", f"{server.url}/reddit.zip")
    check(load("Reddit", tmp_path / "root"))
    folder = tmp_path / "root" / "reddit" / "raw"
    assert sorted(path.name for path in folder.iterdir()) == ["reddit_data.npz", "reddit_graph.npz"]


def test_cora_file_by_file(tmp_path, server, monkeypatch):
    """PyG copies Planetoid's files by another function than it downloads the others."""
    monkeypatch.setattr(torch_geometric.datasets.Planetoid, "url", server.url)
    server.files["/ind.cora.x"] = b"content"
    with pytest.raises(DataError, match=r"Cora: raw files not found .* \(HTTP Error 404.*\)"):
        load("Cora", tmp_path / "root")
    assert [path for path, _ in server.requests] == ["/ind.cora.x", "/ind.cora.tx"]
    staged = tmp_path / "root" / "planetoid" / "Cora" / "raw.incomplete"
    assert [path.name for path in staged.iterdir()] == ["ind.cora.x"]


def test_offline_says_what_belongs_where(tmp_path, monkeypatch):
    monkeypatch.setattr(torch_geometric.datasets.Reddit, "url", "http://127.0.0.1:9/reddit.zip")
    with pytest.raises(DataError) as caught:
        load("Reddit", tmp_path)
    message = str(caught.value)
    assert "Reddit: raw files not found under" in message
    assert "Put reddit_data.npz, reddit_graph.npz into" in message
    assert str(tmp_path / "reddit" / "raw") in message
    assert "--data-root or BITGNN_DATA" in message
    assert list(tmp_path.iterdir()) == []


def test_offline_with_a_read_only_folder_names_the_cache(tmp_path, monkeypatch, check, raw):
    monkeypatch.setattr(torch_geometric.datasets.Reddit, "url", "http://127.0.0.1:9/reddit.zip")
    root = tmp_path / "root"
    root.mkdir()
    root.chmod(0o555)
    with pytest.raises(DataError, match=r"into \S*cache/bitgnn/reddit/raw"):
        load("Reddit", root)
    assert list(root.iterdir()) == []
    # What was downloaded there once is found there.
    raw.save_reddit(tmp_path / "cache" / "bitgnn" / "reddit" / "raw")
    check(load("Reddit", root))


def test_two_processes_make_the_same_files_at_a_time(tmp_path, monkeypatch, check, raw):
    raw.save_npz_graph(tmp_path / "amazon/Photo/raw/amazon_electronics_photo.npz")
    make, others = torch_geometric.datasets.Amazon.process, []

    def make_while_another_does(self):
        if not others:
            others.append(None)
            with monkeypatch.context() as patch:
                patch.setattr("bitgnn.data.pyg_datasets.os.getpid", lambda: 1)
                check(load("Photo", tmp_path, **SMALL))
        make(self)

    monkeypatch.setattr(torch_geometric.datasets.Amazon, "process", make_while_another_does)
    check(load("Photo", tmp_path, **SMALL))
    assert sorted(path.name for path in (tmp_path / "amazon/Photo").iterdir()) == [
        "processed",
        "raw",
    ]


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 not an archive"])
def test_unreadable_files(tmp_path, content):
    folder = tmp_path / "Photo" / "raw"
    folder.mkdir(parents=True)
    (folder / "amazon_electronics_photo.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"Photo: files in .*Photo cannot be read"):
        load("Photo", tmp_path)
    assert (folder / "amazon_electronics_photo.npz").read_bytes() == content


def test_a_pickle_in_an_array_file_is_refused(tmp_path):
    folder = tmp_path / "Photo" / "raw"
    folder.mkdir(parents=True)
    with (folder / "amazon_electronics_photo.npz").open("wb") as file:
        np.savez(file, attr_data=np.array([{"not": "an array"}], dtype=object))
    with pytest.raises(DataError, match="allow_pickle"):
        load("Photo", tmp_path)


def test_names(tmp_path):
    with pytest.raises(ValueError, match=r"name must be one of \['Cora', .*got 'Karate'"):
        load("Karate", tmp_path)
    with pytest.raises(TypeError, match="name must be a string, got int; see load_pyg"):
        load(3, tmp_path)
    with pytest.raises(ValueError, match="is for Flickr alone, got 'Cora'"):
        load("Cora", tmp_path, features="synthetic")
    with pytest.raises(ValueError, match="features must be None or 'synthetic', got 'real'"):
        load("Flickr", tmp_path, features="real")
    assert len(dataset_names()) == len({name.lower() for name in dataset_names()})
    assert load("digits", seed=1).name == "digits"

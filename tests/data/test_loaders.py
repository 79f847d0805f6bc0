"""Loaders: shapes and splits, read-only folders, and the error for missing files."""

import os
import shutil
from pathlib import Path

import pytest
import torch

from bitgnn.data import DataError, load, load_digits_graph, whole
from bitgnn.data.catalog import PLANETOID_PARTS

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def planetoid_root():
    named = os.environ.get("BITGNN_DATA")
    places = ([Path(named)] if named else []) + [REPOSITORY.parent / "shared" / "datasets"]
    for place in places:
        for root in (place, place / "planetoid"):
            if (root / "Cora" / "raw" / "ind.cora.x").is_file():
                return root
    pytest.skip("Cora's raw files are neither in BITGNN_DATA nor in ../shared/datasets")


def test_digits():
    data = load_digits_graph()
    assert data.x.shape == (1797, 64)
    assert data.x.min() >= 0
    assert data.x.max() <= 1
    assert data.train_mask.sum() == 200
    assert torch.bincount(data.y[data.train_mask]).tolist() == [20] * 10
    assert data.val_mask.sum() == 300
    masks = torch.stack([data.train_mask, data.val_mask, data.test_mask])
    assert (masks.sum(0) == 1).all()
    edges = set(map(tuple, data.edge_index.t().tolist()))
    assert all((b, a) in edges and a != b for a, b in edges)
    assert torch.bincount(data.edge_index[1]).min() >= 8


def test_digits_split_depends_on_the_seed_alone():
    one, same, other = (load_digits_graph(seed=s).train_mask for s in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    with pytest.raises(ValueError, match="leave none of 1797"):
        load_digits_graph(train_per_class=160)


@pytest.fixture
def copied(planetoid_root, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shutil.copytree(planetoid_root / "Cora" / "raw", tmp_path / "root" / "Cora" / "raw")
    for path in [*(tmp_path / "root").rglob("*"), tmp_path / "root"]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    return tmp_path / "root"


def test_cora_from_a_writable_folder(copied, tmp_path):
    data = load("Cora", copied)
    assert data.x.shape == (2708, 1433)
    assert data.edge_index.shape == (2, 10556)
    assert [int(m.sum()) for m in (data.train_mask, data.val_mask, data.test_mask)] == [
        140,
        500,
        1000,
    ]
    assert not (tmp_path / "cache").exists()


def test_cora_from_a_read_only_folder(copied, tmp_path, monkeypatch):
    (copied / "Cora").chmod(0o555)
    monkeypatch.setenv("BITGNN_DATA", str(copied))
    data = load("Cora")
    assert data.x.shape == (2708, 1433)
    assert sorted(path.name for path in (copied / "Cora").iterdir()) == ["raw"]
    assert (tmp_path / "cache" / "bitgnn" / "planetoid" / "Cora" / "processed").is_dir()
    (copied / "Cora").chmod(0o755)


def test_missing_files_are_named(tmp_path, monkeypatch):
    def offline(*_, **__):
        raise ConnectionError("no route to host")

    monkeypatch.setattr(whole, "download_file", offline)
    with pytest.raises(DataError, match=r"not downloaded \(no route to host\)") as caught:
        load("Cora", tmp_path)
    assert "ind.cora.allx" in str(caught.value)
    assert str(tmp_path / "planetoid" / "Cora" / "raw") in str(caught.value)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="name must be one of"):
        load("Karate", tmp_path)


def test_unreadable_files_are_reported(tmp_path):
    raw = tmp_path / "Cora" / "raw"
    raw.mkdir(parents=True)
    for part in PLANETOID_PARTS:
        (raw / f"ind.cora.{part}").write_bytes(b"nonsense")
    with pytest.raises(DataError, match="cannot be read"):
        load("Cora", tmp_path)

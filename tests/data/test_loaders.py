"""Digits, and Cora from folders that can be written or not: shapes, splits, what is left where."""

import shutil

import pytest
import torch

from bitgnn.data import DataError, load, load_digits_graph
from bitgnn.data.pyg_datasets import PLANETOID_PARTS


def test_digits():
    data = load_digits_graph()
    assert data.x.shape == (1797, 61)
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


@pytest.mark.parametrize("read_only", [False, True])
def test_cora_from_a_folder(real_data, tmp_path, monkeypatch, read_only):
    places = [real_data / "Cora" / "raw", real_data / "planetoid" / "Cora" / "raw"]
    source = next((place for place in places if (place / "ind.cora.x").is_file()), None)
    if source is None:
        pytest.skip("Cora's raw files are not among the real data sets")
    folder = tmp_path / "root" / "Cora"
    shutil.copytree(source, folder / "raw", copy_function=shutil.copyfile)
    for path in (folder, folder / "raw"):
        path.chmod(0o755)
    folder.chmod(0o555 if read_only else 0o755)
    monkeypatch.setenv("BITGNN_DATA", str(tmp_path / "root"))
    data = load("Cora")
    assert data.x.shape == (2708, 1433)
    assert data.edge_index.shape == (2, 10556)
    sizes = [int(mask.sum()) for mask in (data.train_mask, data.val_mask, data.test_mask)]
    assert sizes == [140, 500, 1000]
    made = tmp_path / "cache" / "bitgnn" / "planetoid" / "Cora" if read_only else folder
    assert (made / "processed").is_dir()
    assert ((folder / "processed").is_dir(), (tmp_path / "cache").exists()) == (
        not read_only, read_only,
    )  # fmt: skip
    folder.chmod(0o755)


def test_unreadable_pickles_are_reported(tmp_path):
    raw = tmp_path / "Cora" / "raw"
    raw.mkdir(parents=True)
    for part in PLANETOID_PARTS:
        (raw / f"ind.cora.{part}").write_bytes(b"nonsense")
    with pytest.raises(DataError, match="cannot be read"):
        load("Cora", tmp_path)

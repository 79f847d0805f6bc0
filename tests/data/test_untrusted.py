"""Data from others: pickles run nothing, and one error names each."""

import pickle
from pathlib import Path

import pytest
import torch

from bitgnn.data import DataError, load
from bitgnn.data.pyg_datasets import PICKLES, SOURCES, check_pickles


class Evil:
    """Unpickling it makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_every_pickle_of_the_catalog_is_known():
    files = [file for name in ("cora", "citeseer", "pubmed") for file in SOURCES[name].files]
    files += [file for file in SOURCES["penn94"].files if file.endswith(".npy")]
    raw = {file.removeprefix("raw/") for file in files if not file.endswith(".test.index")}
    assert raw == PICKLES.keys()


def test_unknown_pickles_are_not_opened_unless_trusted(tmp_path, monkeypatch):
    folder = tmp_path / "planetoid" / "Cora"
    (folder / "raw").mkdir(parents=True)
    for file in SOURCES["cora"].files:
        (folder / file).write_bytes(pickle.dumps(Evil(tmp_path / "was_run")))
    with pytest.raises(DataError, match=r"ind\.cora\.x is a pickle, which can run any code"):
        load("Cora", tmp_path)
    assert not (tmp_path / "was_run").exists()
    monkeypatch.setenv("BITGNN_TRUST_PICKLES", "1")
    check_pickles((folder / "raw").iterdir())


@pytest.mark.parametrize("note", ["pre_transform.pt", "pre_filter.pt"])
def test_notes_of_pyg_are_text(tmp_path, raw, note):
    raw.save_heterophilous(tmp_path / "heterophilous" / "tolokers" / "raw" / "tolokers.npz")
    for _ in range(2):
        load("Tolokers", tmp_path)
    file = tmp_path / "heterophilous" / "tolokers" / "processed" / note
    torch.save(Evil(tmp_path / "was_run"), file)
    with pytest.raises(DataError, match="cannot be read"):
        load("Tolokers", tmp_path)
    assert not (tmp_path / "was_run").exists()

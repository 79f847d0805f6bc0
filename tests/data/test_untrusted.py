"""Data from others: pickles run nothing, images and archives stay within bounds, one error each."""

import gzip
import pickle
import shutil
import struct
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from bitgnn.data import DataError, image_folder, load, load_image_folder
from bitgnn.data.atomic_dataset import PICKLES, check_pickles
from bitgnn.data.catalog import SOURCES
from bitgnn.data.files import decompressed
from bitgnn.data.images import read_idx


class Evil:
    """Unpickling it makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_every_pickle_of_the_catalog_is_known():
    raw = {file for name in ("cora", "citeseer", "pubmed") for file in SOURCES[name].raw}
    raw |= {file for file in SOURCES["penn94"].raw if file.endswith(".npy")}
    assert {file for file in raw if not file.endswith(".test.index")} == PICKLES.keys()


def test_unknown_pickles_are_not_opened(tmp_path, monkeypatch):
    folder = tmp_path / "planetoid" / "Cora" / "raw"
    folder.mkdir(parents=True)
    for file in SOURCES["cora"].raw:
        (folder / file).write_bytes(pickle.dumps(Evil(tmp_path / "was_run")))
    with pytest.raises(DataError, match=r"ind\.cora\.x is a pickle, which can run any code"):
        load("Cora", tmp_path)
    assert not (tmp_path / "was_run").exists()
    monkeypatch.setenv("BITGNN_TRUST_PICKLES", "1")
    check_pickles(folder.iterdir())


@pytest.mark.parametrize("note", ["pre_transform.pt", "pre_filter.pt"])
def test_notes_of_pyg_are_text(tmp_path, raw, note):
    raw.save_heterophilous(tmp_path / "heterophilous" / "tolokers" / "raw" / "tolokers.npz")
    load("Tolokers", tmp_path)
    load("Tolokers", tmp_path)
    file = tmp_path / "heterophilous" / "tolokers" / "processed" / note
    torch.save(Evil(tmp_path / "was_run"), file)
    with pytest.raises(DataError, match="cannot be read"):
        load("Tolokers", tmp_path)
    assert not (tmp_path / "was_run").exists()


@pytest.fixture
def images(tmp_path):
    for split in ("train", "test"):
        for label in "ab":
            folder = tmp_path / "images" / split / label
            folder.mkdir(parents=True)
            Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(folder / "x.png")
    return tmp_path / "images"


def test_images_are_of_named_formats(images):
    postscript = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 4 4\n%%EndComments\nshowpage\n"
    (images / "train" / "a" / "x.png").write_bytes(postscript)
    with pytest.raises(DataError, match=r"x\.png is cut off, altered or no image"):
        load_image_folder(images)


@pytest.mark.parametrize("side", [5000, 20_000])
def test_large_images_are_refused(images, side):
    Image.new("1", (side, side)).save(images / "train" / "a" / "x.png")
    with pytest.raises(DataError, match=r"train/a/x\.png"):
        load_image_folder(images)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_links_in_archives_are_passed_over(images):
    packed = images.with_suffix(".tar.gz")
    with tarfile.open(packed, "w:gz") as archive:
        for path in sorted(images.glob("*/*/*")):
            archive.add(path, path.relative_to(images))
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
            link = tarfile.TarInfo(f"train/a/{kind.decode()}.png")
            link.type, link.linkname = kind, "../../../../etc/passwd"
            archive.addfile(link)
    assert len(load_image_folder(packed).train.images) == 2


def test_archives_are_decompressed_up_to_a_bound(images, monkeypatch):
    packed = Path(shutil.make_archive(str(images), "gztar", images))
    monkeypatch.setattr(image_folder, "ARCHIVE_BYTES", 1000)
    with pytest.raises(DataError, match="decompresses to more than 1000 bytes"):
        load_image_folder(packed)
    assert decompressed(gzip.compress(b"abc"), 3) == b"abc"


def test_sizes_of_idx_files_beyond_all_bounds(tmp_path):
    most = 2**32 - 1
    header = bytes((0, 0, 8, 3)) + struct.pack(">3I", 0, most, most)
    for content in (header, gzip.compress(header)):
        (tmp_path / "idx").write_bytes(content)
        with pytest.raises(DataError, match="idx: sizes"):
            read_idx(tmp_path / "idx", 3)

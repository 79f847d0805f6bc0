"""Readers of the images and sentences that studies train on."""

import gzip
import io
import struct
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from bitgnn.data import DataError

EXPERIMENTS = Path(__file__).resolve().parents[2] / "scripts" / "experiments"


@pytest.fixture(autouse=True)
def _experiments(monkeypatch):
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    yield
    for name in ("image_sets", "sentences"):
        sys.modules.pop(name, None)


def idx(array):
    header = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
    return gzip.compress(header + array.tobytes())


def mnist(root, labels=4):
    folder = root / "mnist" / "MNIST" / "raw"
    folder.mkdir(parents=True)
    images = np.arange(4 * 28 * 28, dtype=np.uint32).astype(np.uint8).reshape(4, 28, 28)
    for split in ("train", "t10k"):
        (folder / f"{split}-images-idx3-ubyte.gz").write_bytes(idx(images))
        (folder / f"{split}-labels-idx1-ubyte.gz").write_bytes(idx(np.arange(labels, dtype="u1")))
    return folder, images


def test_mnist(tmp_path):
    from image_sets import load_images

    folder, images = mnist(tmp_path)
    train, test = load_images("mnist", str(tmp_path))
    assert np.array_equal(train.images.squeeze(1).numpy(), images)
    assert test.labels.tolist() == [0, 1, 2, 3]
    whole = (folder / "t10k-labels-idx1-ubyte.gz").read_bytes()
    for damaged in (whole[:-9], b"", idx(np.zeros(3, "u1"))):
        (folder / "t10k-labels-idx1-ubyte.gz").write_bytes(damaged)
        with pytest.raises(DataError, match="mnist: cannot be read from"):
            load_images("mnist", str(tmp_path))
    with pytest.raises(DataError, match="mnist: cannot be read from"):
        load_images("mnist", str(tmp_path / "none"))


def test_classes_of_an_archive_are_in_the_order_of_their_names(tmp_path):
    from image_sets import load_images

    folder = tmp_path / "cifar10_jpeg_12k"
    folder.mkdir()
    with tarfile.open(folder / "cifar10_jpeg_12k.tar.gz", "w:gz") as archive:
        for number, name in enumerate(("train/b/0.jpg", "train/a/0.jpg", "test/b/0.jpg", "notes")):
            content = io.BytesIO()
            Image.new("RGB", (32, 32), (60 * number, 0, 0)).save(content, "JPEG")
            member = tarfile.TarInfo(name)
            member.size = len(content.getvalue())
            archive.addfile(member, io.BytesIO(content.getvalue()))
    train, test = load_images("cifar10_jpeg_12k", str(tmp_path))
    assert train.images.shape == (2, 3, 32, 32)
    assert train.labels.tolist() == [0, 1]
    assert [int(image[0, 0, 0]) // 50 for image in train.images] == [1, 0]
    assert test.labels.tolist() == [1]


def test_sentences_and_their_tokens(tmp_path):
    pytest.importorskip("tokenizers")
    from sentences import load_sentences, tokenize

    folder = tmp_path / "glue" / "SST-2"
    folder.mkdir(parents=True)
    lines = [f'{i % 2}\tfilm number {i} , a "good" one' for i in range(70)]
    (folder / "train.tsv").write_text("label\tsentence\n" + "\n".join(lines) + "\n")
    (folder / "dev.tsv").write_text("label\tsentence\n1\tgood\n")
    train, validation, test = load_sentences(str(tmp_path))
    assert [len(part) for part in (train, validation, test)] == [67, 3, 1]
    assert validation[1] == ('film number 34 , a "good" one', 0)
    vocabulary, parts = tokenize((train, validation, test), 60, 8)
    assert vocabulary <= 60
    assert parts[0].ids.shape == (67, 8)
    assert parts[0].ids.max() < vocabulary
    assert parts[0].lengths.max() == 8  # cut
    assert (parts[2].ids[0] != 0).sum() == parts[2].lengths[0] < 8
    assert torch.equal(parts[1].labels, torch.tensor([label for _, label in validation]))
    for line in ("2\tgood", "1\t ", "good"):
        (folder / "dev.tsv").write_text(f"label\tsentence\n1\tfine\n{line}\n")
        with pytest.raises(DataError, match=r"dev.tsv: line 3 must be 0 or 1"):
            load_sentences(str(tmp_path))
    with pytest.raises(DataError, match=r"train.tsv: cannot be read"):
        load_sentences(str(tmp_path / "none"))

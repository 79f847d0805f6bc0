"""Image sets: the real ones, the formats written here, and one clear error for every damage."""

import gzip
import io
import shutil
import struct
import tarfile

import numpy as np
import pytest
import torch
from PIL import Image

from bitgnn.data import DataError, ImageData, load_image_folder, load_images

GENERATOR = np.random.default_rng(0)


def idx(array):
    header = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(np.uint8).tobytes()


@pytest.fixture
def mnist(tmp_path):
    """Seven training and three test images in the files of MNIST, and what they hold."""
    folder = tmp_path / "mnist" / "MNIST" / "raw"
    folder.mkdir(parents=True)
    arrays = {}
    for name, count in (("train", 7), ("t10k", 3)):
        images = GENERATOR.integers(0, 256, (count, 5, 4))
        labels = GENERATOR.integers(0, 10, count)
        (folder / f"{name}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images)))
        (folder / f"{name}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(labels)))
        arrays[name] = images, labels
    return tmp_path, folder, arrays


def test_idx_files_gzipped_or_plain(mnist):
    root, folder, arrays = mnist
    for compressed in (True, False):
        if not compressed:
            for path in folder.glob("*.gz"):
                path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
                path.unlink()
        data = load_images("mnist", root)
        for part, name in ((data.train, "train"), (data.test, "t10k")):
            assert part.images.dtype == torch.uint8
            assert part.images.squeeze(1).tolist() == arrays[name][0].tolist()
            assert part.labels.tolist() == arrays[name][1].tolist()


def damage(path, change):
    path.write_bytes(change(path.read_bytes()))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda raw: raw[:-3], "cut off or altered"),
        (lambda raw: raw[: len(raw) // 2], "cut off or altered"),
        (lambda raw: raw[:40] + bytes([raw[40] ^ 1]) + raw[41:], "cut off or altered"),
        (lambda raw: b"", "begins with 00 00 08 03, got nothing"),
        (lambda raw: gzip.decompress(raw)[:-1], r"\[7, 5, 4\], which is 140 bytes, got 139"),
        (lambda raw: gzip.decompress(raw) + b"x", "140 bytes, got 141"),
        (lambda raw: gzip.compress(b"no idx file"), "got 6e 6f 20 69"),
        (lambda raw: gzip.compress(idx(np.zeros((7, 5)))), "3 dimensions.*got 00 00 08 02"),
        (lambda raw: gzip.compress(idx(np.zeros((6, 5, 4)))), "holds 6 images.* 7 labels"),
    ],
)
def test_damaged_idx_files_are_named(mnist, change, message):
    root, folder, _ = mnist
    damage(folder / "train-images-idx3-ubyte.gz", change)
    with pytest.raises(DataError, match=f"(?s)train-images-idx3-ubyte.gz.*{message}"):
        load_images("mnist", root)


def test_labels_beyond_the_classes_are_refused(mnist):
    root, folder, _ = mnist
    (folder / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(np.array([1, 10, 2]))))
    with pytest.raises(DataError, match="labels must be below 10, got 10"):
        load_images("mnist", root)


def test_missing_files_and_unknown_names(tmp_path):
    for name, place in (("mnist", "MNIST/raw"), ("cifar10_jpeg_12k", "tar.gz")):
        with pytest.raises(DataError, match=f"{name}: raw files not found.*Put .*{place}"):
            load_images(name, tmp_path)
    with pytest.raises(ValueError, match=r"name must be one of \['mnist', .*got 'imagenet'"):
        load_images("imagenet", tmp_path)
    with pytest.raises(DataError, match="no such file or folder"):
        load_image_folder(tmp_path / "absent")


@pytest.fixture
def folder(tmp_path):
    """Two classes, three training images and one test image of each, as PNG, which is exact."""
    source = tmp_path / "pictures"
    colours = {}
    for split, count in (("train", 3), ("test", 1)):
        for label in ("dog", "cat"):
            (source / split / label).mkdir(parents=True)
            for number in range(count):
                pixels = GENERATOR.integers(0, 256, (6, 5, 3)).astype(np.uint8)
                Image.fromarray(pixels).save(source / split / label / f"{number}.png")
                colours[split, label, number] = torch.from_numpy(pixels).permute(2, 0, 1)
    return source, colours


def pack(source):
    archive = source.with_name(source.name + ".tar.gz")
    with tarfile.open(archive, "w:gz") as file:
        for path in source.iterdir():
            file.add(path, path.name)
    return archive


@pytest.mark.parametrize("packed", [False, True])
def test_image_folders_and_archives(folder, packed):
    source, colours = folder
    (source / "README.txt").write_text("no image")
    data = load_image_folder(pack(source) if packed else source)
    assert isinstance(data, ImageData)
    assert data.name == "pictures"
    assert data.classes == ("cat", "dog")
    assert data.train.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert data.test.labels.tolist() == [0, 1]
    expected = [colours["train", label, number] for label in ("cat", "dog") for number in range(3)]
    assert torch.equal(data.train.images, torch.stack(expected))


def test_grey_images_become_three_channels(folder):
    source, _ = folder
    Image.new("L", (5, 6), 77).save(source / "test" / "cat" / "0.png")
    assert load_image_folder(source).test.images[0].unique().tolist() == [77]


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda s: damage(s / "train/dog/1.png", lambda raw: raw[:-30]), "train/dog/1.png is cut"),
        (lambda s: (s / "test/cat/0.png").write_bytes(b"text"), "test/cat/0.png is cut off"),
        (lambda s: Image.new("RGB", (6, 6)).save(s / "test/dog/0.png"), r"\[6, 6\].*others"),
        (lambda s: (s / "test/dog/0.png").unlink(), "split 'test' has no images of dog"),
        (lambda s: shutil.rmtree(s / "test"), r"no split test, found \['train'\]"),
        (lambda s: [shutil.rmtree(p) for p in list(s.iterdir())], "no images named split/class"),
    ],
)
def test_damaged_folders_are_named(folder, break_it, message):
    source, _ = folder
    break_it(source)
    with pytest.raises(DataError, match=f"pictures: .*{message}|pictures.*{message}"):
        load_image_folder(source)


@pytest.mark.parametrize(
    "change",
    [
        lambda raw: raw[: len(raw) // 2],
        lambda raw: raw[:-4],
        lambda raw: raw[:200] + bytes([raw[200] ^ 255]) + raw[201:],
        lambda raw: raw[:-8] + bytes([raw[-8] ^ 1]) + raw[-7:],
        lambda raw: gzip.compress(b"no archive"),
    ],
)
def test_damaged_archives_are_named(folder, change):
    archive = pack(folder[0])
    damage(archive, change)
    with pytest.raises(DataError, match=r"pictures.tar.gz.*cut off or altered"):
        load_image_folder(archive)


def test_truncated_jpeg_is_refused(folder):
    source, _ = folder
    content = io.BytesIO()
    noise = GENERATOR.integers(0, 256, (6, 5, 3)).astype(np.uint8)
    Image.fromarray(noise).save(content, "JPEG")
    (source / "train" / "cat" / "9.jpg").write_bytes(content.getvalue()[:-20])
    with pytest.raises(DataError, match=r"train/cat/9.jpg is cut off, altered or no image"):
        load_image_folder(source)


REAL = {
    "mnist": ((60_000, 1, 28, 28), (10_000, 1, 28, 28)),
    "cifar10_jpeg_12k": ((10_000, 3, 32, 32), (2_000, 3, 32, 32)),
}


@pytest.mark.parametrize("name", ["mnist", "cifar10_jpeg_12k"])
def test_real_sets(real_data, name):
    try:
        data = load_images(name, real_data)
    except DataError as error:
        if "raw files not found" not in str(error):
            raise
        pytest.skip(f"{name} is not at hand: {error}")
    assert (tuple(data.train.images.shape), tuple(data.test.images.shape)) == REAL[name]
    assert len(data.classes) == 10
    for part in (data.train, data.test):
        assert part.labels.shape == part.images.shape[:1]
        assert part.labels.unique().tolist() == list(range(10))
        assert 20 < part.images.float().mean() < 140

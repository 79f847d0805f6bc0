"""Image sets for training: MNIST and small colour images, decoded once into bytes."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bitgnn.data.files import DATA_VARIABLE, DataError, data_root, decompressed
from bitgnn.data.image_folder import read_image_folder
from bitgnn.data.movable import Movable

GZIP_MAGIC = b"\x1f\x8b"
UNSIGNED_BYTE = 0x08
IDX_BYTES = 1 << 32
"""Most bytes of an idx file once it is decompressed."""


def read_idx(path: Path, dimensions: int) -> Tensor:
    """The array of an idx file of unsigned bytes, compressed by gzip or plain.

    The header is two zero bytes, the type of the elements, the number of dimensions, and each size
    as a big-endian 32-bit number (LeCun's page of MNIST).

    Args:
        path: the file.
        dimensions: how many it must have.

    Returns:
        uint8 tensor of the sizes in the header.

    Raises:
        DataError: the file cannot be read, is cut off or altered, or holds something else.
    """
    try:
        content = path.read_bytes()
        if content[:2] == GZIP_MAGIC:
            content = decompressed(content, IDX_BYTES)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise DataError(
            f"{path}: cannot be read, the file is cut off or altered ({error})"
        ) from error
    start = 4 + 4 * dimensions
    expected = bytes((0, 0, UNSIGNED_BYTE, dimensions))
    if len(content) < start or content[:4] != expected:
        raise DataError(
            f"{path}: must be an idx file of unsigned bytes with {dimensions} dimensions, which "
            f"begins with {expected.hex(' ')}, got {content[:4].hex(' ') or 'nothing'}"
        )
    sizes = struct.unpack(f">{dimensions}I", content[4:start])
    if len(content) - start != prod(sizes):
        raise DataError(
            f"{path}: cut off or altered: the header says {list(sizes)}, which is {prod(sizes)} "
            f"bytes, got {len(content) - start}"
        )
    try:
        array = np.frombuffer(content, np.uint8, offset=start).reshape(sizes)
    except ValueError as error:  # nothing in it, and sizes beyond all bounds
        raise DataError(f"{path}: sizes {list(sizes)} cannot be used ({error})") from None
    return torch.from_numpy(array.copy())


MNIST_PLACES = ("mnist/MNIST/raw", "MNIST/raw", "mnist", "")
MNIST_FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
DIGITS = tuple(str(digit) for digit in range(10))
CIFAR_FOLDER = "cifar10_jpeg_12k"
IMAGE_DIMENSIONS = 3


@dataclass(frozen=True)
class ImageSet(Movable):
    """Labelled images of one size.

    Attributes:
        images: uint8 ``[N, C, H, W]``.
        labels: int64 ``[N]``.
    """

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return self.labels.numel()


@dataclass(frozen=True)
class ImageData(Movable):
    """Training and test images of one data set.

    Attributes:
        name: its name.
        train: images to train on.
        test: images to test on.
        classes: names of the classes.
    """

    name: str
    train: ImageSet
    test: ImageSet
    classes: tuple[str, ...]


def load_images(name: str, root: str | os.PathLike[str] | None = None) -> ImageData:
    """Load a data set by name; nothing is downloaded.

    ``"mnist"`` reads the four idx files, gzipped or plain, where torchvision puts them; 28x28 grey.
    ``"cifar10_jpeg_12k"`` reads folders of JPEG files or their archive: 32x32 colour, 1 000
    training and 200 test images a class, lossy, so that accuracies do not compare with CIFAR-10's.

    Args:
        name: ``"mnist"`` or ``"cifar10_jpeg_12k"``.
        root: data folder; None takes the environment variable ``BITGNN_DATA``, else ``./data``.

    Returns:
        The images as bytes on the CPU.

    Raises:
        ValueError: the name is unknown.
        DataError: files are missing, cut off, altered, or do not belong together.
    """
    if name not in _LOADERS:
        raise ValueError(f"load_images: name must be one of {list(_LOADERS)}, got {name!r}")
    return _LOADERS[name](data_root(root))


def load_image_folder(source: str | os.PathLike[str], name: str | None = None) -> ImageData:
    """Load ``train/class/name.jpg`` and ``test/class/name.jpg`` from a folder or a ``.tar.gz``.

    Args:
        source: the folder that holds ``train`` and ``test``, or an archive of it.
        name: of the data set; None takes the file's.

    Returns:
        The images as bytes on the CPU, all of one size, in three channels.

    Raises:
        DataError: a file is cut off, altered or no image, sizes differ, or a split is missing.
    """
    path = Path(source)
    if not path.exists():
        raise DataError(f"{path}: no such file or folder")
    found = read_image_folder(path)
    missing = [split for split in ("train", "test") if split not in found]
    if missing:
        raise DataError(f"{path}: no split {' and '.join(missing)}, found {sorted(found)}")
    sets = {split: ImageSet(images, labels) for split, (images, labels, _) in found.items()}
    title = path.name.partition(".")[0] if name is None else name
    return ImageData(title, sets["train"], sets["test"], found["train"][2])


def _load_mnist(root: Path) -> ImageData:
    files = [file for pair in MNIST_FILES.values() for file in pair]
    for place in MNIST_PLACES:
        paths = {file: _present(root / place / file) for file in files}
        if all(path is not None for path in paths.values()):
            sets = {
                split: _mnist_set(*(paths[file] or Path() for file in pair))
                for split, pair in MNIST_FILES.items()
            }
            return ImageData("mnist", sets["train"], sets["test"], DIGITS)
    raise DataError(
        f"mnist: raw files not found under {root}. Put {', '.join(f'{file}.gz' for file in files)} "
        f"into {root / MNIST_PLACES[0]}, or name the folder above with --data-root or "
        f"{DATA_VARIABLE}"
    )


def _present(path: Path) -> Path | None:
    """The file, or its gzipped twin."""
    return next((p for p in (path.with_name(path.name + ".gz"), path) if p.is_file()), None)


def _mnist_set(images_path: Path, labels_path: Path) -> ImageSet:
    images, labels = read_idx(images_path, IMAGE_DIMENSIONS), read_idx(labels_path, 1)
    if images.size(0) != labels.size(0):
        raise DataError(
            f"{images_path} holds {images.size(0)} images, {labels_path} {labels.size(0)} labels"
        )
    if labels.numel() and int(labels.max()) >= len(DIGITS):
        raise DataError(f"{labels_path}: labels must be below 10, got {int(labels.max())}")
    return ImageSet(images.unsqueeze(1), labels.long())


def _load_cifar(root: Path) -> ImageData:
    folder = root / CIFAR_FOLDER
    archive = folder / f"{CIFAR_FOLDER}.tar.gz"
    if (folder / "train").is_dir():
        return load_image_folder(folder, CIFAR_FOLDER)
    if archive.is_file():
        return load_image_folder(archive, CIFAR_FOLDER)
    raise DataError(
        f"{CIFAR_FOLDER}: raw files not found under {root}. Put {archive.name}, or the folders "
        f"train and test in it, into {folder}, or name the folder above with --data-root or "
        f"{DATA_VARIABLE}"
    )


_LOADERS: dict[str, Callable[[Path], ImageData]] = {
    "mnist": _load_mnist,
    CIFAR_FOLDER: _load_cifar,
}

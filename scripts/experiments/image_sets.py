"""Images of MNIST and of a small CIFAR-10, decoded once into bytes."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from bitgnn.data.files import DataError, data_root

__all__ = ["ImageSet", "load_images"]

MNIST, CIFAR = "mnist", "cifar10_jpeg_12k"
MNIST_FOLDER = "mnist/MNIST/raw"
MNIST_FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
PARTS = 3  # split, class, file


class ImageSet(NamedTuple):
    """Labelled images of one size: uint8 ``[N, C, H, W]`` and int64 ``[N]``."""

    images: Tensor
    labels: Tensor


def load_images(name: str, root: str | None = None) -> tuple[ImageSet, ImageSet]:
    """Images to train on and to test on; nothing is downloaded.

    ``"mnist"`` reads the four gzipped idx files where torchvision puts them. ``"cifar10_jpeg_12k"``
    reads an archive of JPEG files ``train/class/name.jpg``: 1 000 training and 200 test images a
    class, lossy, so that accuracies do not compare with CIFAR-10's.
    """
    folder = data_root(root) / (MNIST_FOLDER if name == MNIST else name)
    try:
        found = _read_mnist(folder) if name == MNIST else _read_archive(folder / f"{name}.tar.gz")
    except (OSError, EOFError, ValueError, tarfile.TarError) as error:
        raise DataError(f"{name}: cannot be read from {folder} ({error})") from error
    return found["train"], found["test"]


def _read_mnist(folder: Path) -> dict[str, ImageSet]:
    found = {}
    for split, names in MNIST_FILES.items():
        images, labels = (_idx(folder / f"{name}.gz") for name in names)
        found[split] = ImageSet(images.unsqueeze(1), labels.long())
        if len(images) != len(labels):
            raise ValueError(f"{len(images)} images, {len(labels)} labels")
    return found


def _idx(path: Path) -> Tensor:
    """The array of an idx file of bytes: its dimensions, their sizes, the values."""
    content = gzip.decompress(path.read_bytes())
    dimensions = content[3] if len(content) > PARTS else 0
    sizes = np.frombuffer(content, ">u4", dimensions, 4).astype(np.int64)
    values = np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions)
    return torch.from_numpy(values.reshape(sizes).copy())


def _read_archive(path: Path) -> dict[str, ImageSet]:
    """Classes are numbered by their names in order."""
    images: dict[str, list[np.ndarray]] = {"train": [], "test": []}
    names: dict[str, list[str]] = {"train": [], "test": []}
    with tarfile.open(path) as archive:
        for member in sorted(archive.getmembers(), key=lambda member: member.name):
            parts = Path(member.name).parts
            file = archive.extractfile(member) if len(parts) == PARTS else None
            if file is not None and parts[0] in images:
                with Image.open(io.BytesIO(file.read()), formats=("JPEG",)) as image:
                    images[parts[0]].append(np.asarray(image.convert("RGB")))
                names[parts[0]].append(parts[1])
    classes = sorted(set(names["train"]))
    return {
        split: ImageSet(
            torch.from_numpy(np.stack(images[split])).permute(0, 3, 1, 2).contiguous(),
            torch.tensor([classes.index(name) for name in names[split]]),
        )
        for split in images
    }

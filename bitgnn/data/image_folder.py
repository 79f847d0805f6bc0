"""Reads image folders, one folder a class, from a directory or from an archive of one."""

from __future__ import annotations

import io
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from bitgnn.data.files import DataError, decompressed

ENDINGS = (".jpg", ".jpeg", ".png")
FORMATS = ("JPEG", "PNG")
PARTS = 3  # split, class, file
PIXELS = 1 << 24
"""Most pixels of an image."""
ARCHIVE_BYTES = 1 << 33
"""Most bytes of an archive once it is decompressed."""


def read_image_folder(source: Path) -> dict[str, tuple[Tensor, Tensor, tuple[str, ...]]]:
    """All images of a tree ``split/class/name.jpg``, decoded.

    Classes are numbered by their names in order, images of a class are in order of theirs.

    Args:
        source: the folder that holds the splits, or a ``.tar.gz`` of it.

    Returns:
        For each split, such as ``train``: uint8 images ``[N, 3, H, W]``, int64 labels ``[N]`` and
        the names of the classes.

    Raises:
        DataError: there are no images, a file is cut off, altered, too large or neither JPEG nor
            PNG, images differ in size, or the splits have different classes.
    """
    found: dict[str, dict[str, list[np.ndarray]]] = {}
    size: tuple[int, int] | None = None
    for name, content in _files(source):
        parts = PurePosixPath(name).parts
        if len(parts) != PARTS or not name.lower().endswith(ENDINGS):
            continue
        split, label, _ = parts
        pixels = _decode(f"{source}: {name}", content)
        size = size or pixels.shape[:2]
        if pixels.shape[:2] != size:
            raise DataError(
                f"{source}: {name} is {list(pixels.shape[:2])} pixels, others are {list(size)}"
            )
        found.setdefault(split, {}).setdefault(label, []).append(pixels)
    if not found:
        raise DataError(f"{source}: no images named split/class/name.jpg")
    classes = tuple(sorted({label for labels in found.values() for label in labels}))
    for split, labels in found.items():
        missing = sorted(set(classes) - labels.keys())
        if missing:
            raise DataError(f"{source}: split {split!r} has no images of {', '.join(missing)}")
    return {split: (*_stack(labels, classes), classes) for split, labels in found.items()}


def _stack(
    by_class: Mapping[str, list[np.ndarray]], classes: tuple[str, ...]
) -> tuple[Tensor, Tensor]:
    images = np.concatenate([np.stack(by_class[name]) for name in classes])
    counts = torch.tensor([len(by_class[name]) for name in classes])
    labels = torch.arange(len(classes)).repeat_interleave(counts)
    return torch.from_numpy(images).permute(0, 3, 1, 2).contiguous(), labels


def _decode(title: str, content: bytes) -> np.ndarray:
    """``[H, W, 3]`` bytes of an image."""
    try:
        # The formats are named: others start programs to decode them.
        with Image.open(io.BytesIO(content), formats=FORMATS) as image:
            if image.width * image.height > PIXELS:
                raise DataError(f"{title} has {image.width} x {image.height} pixels, too many")
            return np.asarray(image.convert("RGB"))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(f"{title} is cut off, altered or no image ({error})") from error


def _files(source: Path) -> Iterator[tuple[str, bytes]]:
    """Names below ``source`` in order, with contents."""
    if not source.is_dir():
        yield from _archived(source)
        return
    for path in sorted(source.glob("*/*/*")):
        if path.is_file():
            try:
                content = path.read_bytes()
            except OSError as error:
                raise DataError(f"{path}: cannot be read ({error.strerror})") from error
            yield path.relative_to(source).as_posix(), content


def _archived(source: Path) -> Iterator[tuple[str, bytes]]:
    try:
        # As a whole: reading member by member would stop in front of the checksum.
        content = decompressed(source.read_bytes(), ARCHIVE_BYTES)
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            members = sorted(archive.getmembers(), key=lambda member: member.name)
            for member in members:
                file = archive.extractfile(member) if member.isfile() else None
                if file is not None:
                    yield PurePosixPath(member.name).as_posix(), file.read()
    except (OSError, EOFError, ValueError, zlib.error, tarfile.TarError) as error:
        raise DataError(
            f"{source}: cannot be read, the archive is cut off or altered ({error})"
        ) from error

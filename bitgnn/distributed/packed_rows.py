"""Packed features gathered in a temporary file, from which parts take their rows."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bitgnn._checks import name_type
from bitgnn.bits import BitTensor


class PackedRowsFile:
    """Bits of all nodes, with their words in a file that lives as long as this object.

    Args:
        blocks: bits from the first node on, one block in memory at a time.
        folder: folder of the file.

    Raises:
        ValueError: blocks differ in their number of features, or some of them have a scale.
    """

    def __init__(self, blocks: Iterable[BitTensor], folder: Path) -> None:
        digest, scales, kinds = hashlib.sha256(), [], set()
        self.rows, self.size = 0, 0
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        for block in blocks:
            words = block.words.contiguous().numpy().astype("<i4", copy=False)
            self._file.write(bytes_of(words))
            digest.update(bytes_of(words))
            self.size, self.rows = int(block.shape[1]), self.rows + len(block)
            kinds.add((self.size, block.scale is not None))
            if len(kinds) > 1:
                raise ValueError(
                    f"Partitioner: rows of x must have equal numbers of features, and all of them "
                    f"a scale or none, got {sorted(kinds)} in {name_type(block)}s"
                )
            if block.scale is not None:
                scales.append(block.scale)
                digest.update(bytes_of(block.scale.numpy()))
        self._file.flush()
        self.scale = torch.cat(scales) if scales else None
        digest.update(repr((self.rows, kinds)).encode())
        self.sha256 = digest.hexdigest()
        shape = (self.rows, -(-self.size // 32))
        self._words: Any = np.empty(shape, "<i4")
        if self._words.size:
            self._words = np.memmap(self._file, "<i4", "r", shape=shape)

    def take(self, nodes: Tensor) -> dict[str, Tensor]:
        """Words, and the scale if there is one, of some nodes."""
        found = {"words": torch.from_numpy(self._words[nodes.numpy()])}
        if self.scale is not None:
            found["scale"] = self.scale[nodes]
        return found


def bytes_of(array: NDArray[Any]) -> memoryview:
    """The bytes of an array, whose memory is shared where it is contiguous."""
    return memoryview(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)

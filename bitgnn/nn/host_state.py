"""Values of scalar buffers on the host, read again after a write to them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bitgnn.bits.contents import bytes_at


class HostState:
    """Caches the values of scalar buffers, so that a GPU is asked only after a write.

    A write through an operator or a copy of a state dict raises a tensor's version; on the CPU any
    other is noticed as well. A compiler or a CUDA graph gets what was read last.
    """

    def __init__(self) -> None:
        self._key: Any = None
        self.values: list[float] | None = None

    def read(self, *buffers: Tensor) -> list[float] | None:
        """The values; None where nothing was read yet and nothing can be."""
        first = buffers[0]
        if torch.compiler.is_compiling() or first.is_meta:
            return self.values
        key: list[Any] = []
        for buffer in buffers:
            place = buffer.data_ptr()
            if buffer.is_cpu:  # read without an operator
                key.append((buffer.dtype, bytes_at(place, buffer.element_size())))
            elif buffer.is_inference():
                key.clear()
                break
            else:
                key.append((buffer._version, place))
        if not key or key != self._key:
            if first.is_cuda and torch.cuda.is_current_stream_capturing():
                return self.values
            self.values = torch.stack([buffer.detach().reshape(()) for buffer in buffers]).tolist()
            self._key = key
        return self.values

    def __getstate__(self) -> dict[str, Any]:
        return {"_key": None, "values": self.values}

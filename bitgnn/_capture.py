"""Capturing CUDA graphs beside other threads, streams and the garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import torch

ERROR_MODE = "thread_local"
"""Other threads, such as those of data loaders, may allocate while a graph is captured."""
PRIORITY = -1
"""Streams of each priority come in turn from a small pool, so that one of the usual priority may be
the very stream that another thread works on: what it launches would be captured as well."""


@contextmanager
def capturing(graph: torch.cuda.CUDAGraph) -> Iterator[None]:
    """Capture launches on the current device; the current stream is restored after errors, too."""
    current = torch.cuda.current_stream()
    stream = torch.cuda.Stream(priority=PRIORITY)
    was_enabled = gc.isenabled()
    gc.disable()  # another graph that is destroyed meanwhile would break the capture
    try:
        with torch.cuda.graph(graph, stream=stream, capture_error_mode=ERROR_MODE):
            yield
    finally:
        torch.cuda.set_stream(current)  # a failed capture stays on its own
        if was_enabled:
            gc.enable()

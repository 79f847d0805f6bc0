"""Control over the large result buffers that CPU operators keep for reuse."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from bitgnn import _library


def release_buffers() -> None:
    """Free the result buffers that no tensor uses.

    CPU results of 4 MiB and more come from a cache of at most ``BITGNN_BUFFER_CACHE_MB`` unused
    megabytes (environment variable, read at the first such result; 256 by default, 0 keeps none),
    because mapping fresh pages takes longer than most operators. Like
    ``torch.cuda.empty_cache()``, this gives the memory back to the system. Without compiled
    operators there is no cache and nothing happens.
    """
    if _library.library_info().cpu_library is not None:
        torch.ops.bitgnn.release_buffers()


@contextmanager
def no_buffer_cache() -> Iterator[None]:
    """Bypass the cache of buffers inside the block.

    Every result then comes from PyTorch's allocator, which counts it; see :func:`release_buffers`.
    """
    if _library.library_info().cpu_library is None:
        yield
        return
    was_enabled = torch.ops.bitgnn.set_buffer_cache(False)
    try:
        yield
    finally:
        torch.ops.bitgnn.set_buffer_cache(was_enabled)

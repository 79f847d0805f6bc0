"""Control over the large result buffers that CPU operators keep for reuse."""

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

"""Large results share a cache of buffers, never a live one."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from bitgnn import _library
from bitgnn.ops import release_buffers
from bitgnn.ops.buffers import no_buffer_cache

ROWS, SIZE = 1100, 1024  # 4.3 MiB of float32: large enough for the cache
compiled = pytest.mark.skipif(
    _library.library_info().cpu_library is None, reason="the cache belongs to the compiled library"
)


def unpacked(fill: int) -> torch.Tensor:
    """A large result, all +1 (fill -1: every bit set) or all -1 (fill 0)."""
    words = torch.full((ROWS, SIZE // 32), fill, dtype=torch.int32)
    return torch.ops.bitgnn.unpack(words, SIZE)


def test_live_results_do_not_share_memory() -> None:
    plus, minus = unpacked(-1), unpacked(0)
    again = unpacked(-1)
    assert len({plus.data_ptr(), minus.data_ptr(), again.data_ptr()}) == 3
    assert bool((plus == 1).all())
    assert bool((minus == -1).all())
    assert bool((again == 1).all())


@compiled
def test_a_freed_buffer_is_used_again_and_released_on_request() -> None:
    release_buffers()
    first = unpacked(-1)
    address = first.data_ptr()
    view = first[3:]
    del first
    assert unpacked(0).data_ptr() != address, "a view still uses the buffer"
    assert bool((view == 1).all())
    release_buffers()
    del view
    assert unpacked(0).data_ptr() == address
    release_buffers()
    assert bool((unpacked(0) == -1).all())


@compiled
def test_results_come_from_pytorch_where_the_cache_is_off() -> None:
    release_buffers()
    kept = unpacked(-1)
    with no_buffer_cache():
        with no_buffer_cache():
            pass
        plain = unpacked(0)
    assert bool((plain == -1).all())
    del plain
    address = kept.data_ptr()
    del kept  # a buffer of the cache goes back to it, whatever is on now
    assert unpacked(0).data_ptr() == address


def test_threads_get_buffers_of_their_own() -> None:
    def job(number: int) -> bool:
        fill = -(number % 2)
        return all(bool((unpacked(fill) == (1 if fill else -1)).all()) for _ in range(5))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(job, range(8)))


@compiled
def test_any_limit_gives_right_results(tmp_path: os.PathLike[str]) -> None:
    program = f"""
import os, sys, torch
words = torch.full(({ROWS}, {SIZE // 32}), -1, dtype=torch.int32)
for megabytes in sys.argv[1:]:
    if os.fork() == 0:  # the limit is read once a process
        os.environ["BITGNN_BUFFER_CACHE_MB"] = megabytes
        import bitgnn
        results = [torch.ops.bitgnn.unpack(words, {SIZE}) for _ in range(3)]
        del results[1]
        results.append(torch.ops.bitgnn.unpack(words, {SIZE}))
        os._exit(0 if all(bool((result == 1).all()) for result in results) else 1)
    assert os.wait()[1] == 0, megabytes
"""
    command = [sys.executable, "-c", program, "0", "-3", "1", "not a number"]
    subprocess.run(command, check=True, cwd=tmp_path)

"""Forks after use: children compute, whatever threads their parent had."""

import subprocess
import sys

import pytest

FORK = """
import multiprocessing, signal
import torch
torch.set_num_threads(3)
import bitgnn
from bitgnn.ops import bmm
x, w = (bitgnn.BitTensor.from_float(torch.randn(n, 1000)) for n in (3000, 256))
matrix = torch.randn(600, 600)

def use():
    return torch.cat([bmm.bbf(x, w).flatten(), (matrix @ matrix).relu().flatten()])

def child():
    signal.alarm(30)
    torch.testing.assert_close(use(), expected, rtol=1e-4, atol=1e-3)

expected = use()
for _ in range(2):
    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(60)
    assert process.exitcode == 0, process.exitcode
    assert torch.get_num_threads() == 3
use()
"""

# Threads that make and release large results hold the lock of the library's buffers most of the
# time; a child in which it stayed locked would wait for ever.
FORKS_AMONG_THREADS = """
import os, signal, threading
import torch
torch.set_num_threads(2)
import bitgnn
from bitgnn import ops
x, w = (bitgnn.BitTensor.from_float(torch.randn(n, 32)) for n in (4096, 128))
matrix = torch.randn(200, 200)
expected = ops.bmm.bbf(x, w)
stop = threading.Event()

def work():
    while not stop.is_set():
        ops.bmm.bbf(x, w)
        matrix @ matrix
        ops.release_buffers()

threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads:
    thread.start()
statuses = []
for _ in range(100):
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        matrix @ matrix
        os._exit(0 if torch.equal(ops.bmm.bbf(x, w), expected) else 3)
    statuses.append(os.waitpid(child, 0)[1])
    if statuses[-1] != 0:
        break
stop.set()
for thread in threads:
    thread.join()
assert not any(statuses), statuses
"""


@pytest.mark.parametrize("script", [FORK, FORKS_AMONG_THREADS])
def test_a_child_computes_after_a_fork(script):
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=200, check=False
    )
    assert run.returncode == 0, run.stderr

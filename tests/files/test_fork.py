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

# Threads that bind and drop recordings hold the lock of their table most of the time.
FORKS_AMONG_RECORDINGS = """
import os, signal, threading
import torch
import bitgnn
from bitgnn.models import GCN

torch.manual_seed(0)
model = bitgnn.freeze(GCN(40, 32, 5, precision="bin").eval(), check=False)
x, edges = torch.randn(20, 40), torch.randint(20, (2, 60))
kept = model.prepare_graph(edges, 20)
expected = model(x, kept)
stop = threading.Event()

def work():
    code = [1, 2, 1, 3, 5, 0, 1, 40, 0, 1, 1]
    bits = torch.zeros(4, 2, dtype=torch.int32)
    while not stop.is_set():
        number = torch.ops.bitgnn.bind_recording([bits], "unpack", code)
        torch.ops.bitgnn.run_recording(bits, None, number)
        torch.ops.bitgnn.drop_recording(bits, number)

def child():
    signal.alarm(20)
    graphs = [kept, model.prepare_graph(edges, 20)]
    found = [model(x, graph) for graph in graphs for _ in range(4)]
    os._exit(0 if all(torch.equal(f, expected) for f in found) else 3)

threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads:
    thread.start()
statuses = []
for _ in range(20):
    pid = os.fork()
    if pid == 0:
        child()
    statuses.append(os.waitpid(pid, 0)[1])
    if statuses[-1] != 0:
        break
stop.set()
for thread in threads:
    thread.join()
assert not any(statuses), statuses
"""


@pytest.mark.parametrize("script", [FORK, FORKS_AMONG_THREADS, FORKS_AMONG_RECORDINGS])
def test_a_child_computes_after_a_fork(script):
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=200, check=False
    )
    assert run.returncode == 0, run.stderr

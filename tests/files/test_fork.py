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

# Threads work without end beside the forks: they hold a lock of the library most of the time, and a
# child in which it stayed locked would wait for ever.
AMONG_THREADS = """
import os, signal, threading
import torch
import bitgnn
from bitgnn import ops
{made}
stop = threading.Event()

def work():
    while not stop.is_set():
        {work}

threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads:
    thread.start()
statuses = []
for _ in range({forks}):
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        os._exit(0 if {works} else 3)
    statuses.append(os.waitpid(pid, 0)[1])
    if statuses[-1] != 0:
        break
stop.set()
for thread in threads:
    thread.join()
assert not any(statuses), statuses
"""
# The lock of the buffers: large results are made and released.
BUFFERS = {
    "made": """
torch.set_num_threads(2)
x, w = (bitgnn.BitTensor.from_float(torch.randn(n, 32)) for n in (4096, 128))
matrix = torch.randn(200, 200)
expected = ops.bmm.bbf(x, w)
""",
    "work": "ops.bmm.bbf(x, w); matrix @ matrix; ops.release_buffers()",
    "works": "torch.equal(ops.bmm.bbf(x, w), expected) and (matrix @ matrix).shape == (200, 200)",
    "forks": 100,
}
# The lock of the table of recordings: some are bound and dropped.
RECORDINGS = {
    "made": """
from bitgnn.models import GCN
torch.manual_seed(0)
model = bitgnn.freeze(GCN(40, 32, 5, precision="bin").eval(), check=False)
x, edges = torch.randn(20, 40), torch.randint(20, (2, 60))
kept = model.prepare_graph(edges, 20)
expected = model(x, kept)
code = [1, 2, 1, 3, 5, 0, 1, 40, 0, 1, 1]
bits = torch.zeros(4, 2, dtype=torch.int32)

def record():
    number = torch.ops.bitgnn.bind_recording([bits], "unpack", code)
    torch.ops.bitgnn.run_recording(bits, None, number)
    torch.ops.bitgnn.drop_recording(bits, number)

def found():
    graphs = [kept, model.prepare_graph(edges, 20)]
    return [model(x, graph) for graph in graphs for _ in range(4)]
""",
    "work": "record()",
    "works": "all(torch.equal(f, expected) for f in found())",
    "forks": 20,
}


@pytest.mark.parametrize(
    "script", [FORK, AMONG_THREADS.format(**BUFFERS), AMONG_THREADS.format(**RECORDINGS)]
)
def test_a_child_computes_after_a_fork(script):
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=200, check=False
    )
    assert run.returncode == 0, run.stderr

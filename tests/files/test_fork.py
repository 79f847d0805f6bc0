"""Forks after use: children compute, whatever threads their parent had."""

import subprocess
import sys

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


def test_a_child_computes_after_a_fork():
    run = subprocess.run(
        [sys.executable, "-c", FORK], capture_output=True, text=True, timeout=200, check=False
    )
    assert run.returncode == 0, run.stderr

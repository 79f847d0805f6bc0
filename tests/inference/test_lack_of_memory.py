"""A lack of memory is one error with the bytes and a way out; the process goes on."""

import subprocess
import sys

import pytest
import torch

import bitgnn
from bitgnn._memory import memory_error
from bitgnn.models import GCN

LIMITED = """
import resource, torch, bitgnn
from bitgnn.inference import row_ranges
from bitgnn.models import GCN

row_ranges.WHOLE_BYTES = 1 << 60  # all rows at once
torch.manual_seed(0)
x, edges = torch.randn(50, 64), torch.randint(50, (2, 99))
model = GCN(64, 64, 256, 2, precision="bin")
model(x, edges)
frozen = bitgnn.freeze(model.eval())
expected = frozen(x, edges)
big = frozen.pack_features(torch.randn(1, 64))
many = bitgnn.BitTensor(big.words.repeat(1_000_000, 1), 64)
pairs = torch.zeros(2, 3_000_000, dtype=torch.int32)
graph = frozen.prepare_graph(pairs[:, :9], 1_000_000)
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (100 << 20), -1))
for call in (lambda: frozen(many, graph), lambda: frozen.prepare_graph(pairs, 60_000_000)):
    try:
        call()
    except torch.OutOfMemoryError as error:
        print(error)
print(torch.equal(frozen(x, edges), expected))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits memory as Linux does")
def test_model_and_process_are_usable_afterwards(tmp_path):
    found = subprocess.run(
        [sys.executable, "-c", LIMITED], capture_output=True, text=True, cwd=tmp_path
    )
    forward, graph, usable = found.stdout.splitlines() or [found.stderr] * 3
    assert forward.startswith("FrozenModel: out of memory, tried to allocate 10")
    assert "bytes; bytes free: " in forward
    assert "out= on the CPU for scores" in forward
    assert graph.startswith("BitAdjacency.from_edge_index: out of memory, tried to allocate ")
    assert usable == "True"


def test_other_errors_stay_as_they_are():
    assert memory_error("f", RuntimeError("shape"), "") is None
    told = memory_error("f", MemoryError("std::bad_alloc"), "do this")
    assert str(told).startswith("f: out of memory, std::bad_alloc; bytes free: ")
    assert str(memory_error("g", told, "do that")) == str(told)
    frozen = bitgnn.freeze(GCN(8, 8, 3, 2, precision="bin").eval())
    with pytest.raises(TypeError, match="must be int64 or int32"):
        frozen.prepare_graph(torch.zeros(2, 3), 3)

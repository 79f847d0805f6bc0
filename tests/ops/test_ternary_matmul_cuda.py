"""Products of ternary and boolean rows on a GPU: what the CPU gives, bit for bit."""

import pytest
import torch

from bitgnn.bits import BooleanTensor, TernaryTensor
from bitgnn.ops import ternary

pytestmark = pytest.mark.cuda
DTYPES = (torch.int32, torch.float32, torch.float16, torch.bfloat16)


def operands(boolean, leading, rows, columns, size):
    torch.manual_seed(size + rows)
    kind = BooleanTensor if boolean else TernaryTensor
    x = kind.from_float(torch.randn(*leading, rows, size), 0.7)
    return x, TernaryTensor.from_float(torch.randn(*leading, columns, size), 1.1)


def check(x, y, dtypes=DTYPES):
    there = x.to("cuda"), y.to("cuda")
    for dtype in dtypes:
        out = ternary.matmul(*there, dtype=dtype)
        assert torch.equal(out.cpu(), ternary.matmul(x, y, dtype=dtype)), dtype


def turned(x):
    """The same values; two leading dimensions lie in memory the other way round."""
    return type(x)._trusted(x.words.transpose(0, 1), x.size, x.counts.transpose(0, 1), x.scale)


def shifted(x):
    """The same values at an address that is no multiple of 8 bytes."""
    words = torch.empty(x.words.numel() + 1, dtype=torch.int32, device=x.device)[1:]
    words = words.view(x.words.shape).copy_(x.words)
    counts = torch.empty(x.counts.numel() * 2, dtype=torch.int32, device=x.device)[::2]
    counts = counts.view(x.counts.shape).copy_(x.counts)
    return type(x)._trusted(words, x.size, counts, x.scale)


@pytest.mark.parametrize("boolean", [False, True])
@pytest.mark.parametrize("size", [1, 33, 64, 128, 500, 2048])
@pytest.mark.parametrize(("rows", "columns"), [(16, 64), (257, 515)])
def test_operands_that_lie_otherwise_in_memory(boolean, size, rows, columns):
    x, y = operands(boolean, (2, 3), rows, columns, size)
    out = ternary.matmul(turned(x.to("cuda")), turned(y.to("cuda")))
    assert torch.equal(out.transpose(0, 1).cpu(), ternary.matmul(x, y))
    out = ternary.matmul(shifted(x.to("cuda")), shifted(y.to("cuda")), dtype=torch.float16)
    assert torch.equal(out.cpu(), ternary.matmul(x, y, dtype=torch.float16))


@pytest.mark.parametrize(
    ("boolean", "rows", "columns", "size"),
    [
        (False, 2048, 2048, 2048),
        (False, 2000, 2056, 1920),
        (False, 1030, 1100, 4096),
        (False, 2048, 1536, 128),
        (False, 2050, 2046, 64),
        (False, 4096, 4096, 64),
        (True, 2048, 2048, 2048),
        (True, 2056, 2000, 1920),
        (True, 1100, 1030, 4096),
        (True, 2048, 64, 2048),
        (True, 4096, 72, 4096),
        (True, 4099, 64, 4000),
    ],
)
def test_large_products(boolean, rows, columns, size):
    x, y = operands(boolean, (), rows, columns, size)
    check(x, y, (torch.int32, torch.float16))
    out = ternary.matmul(x.to("cuda"), y.to("cuda"), dtype=torch.float32)
    assert torch.equal(out.cpu(), ternary.matmul(x, y))


@pytest.mark.parametrize("boolean", [False, True])
def test_many_heads(boolean):
    size, columns = (512, 64) if boolean else (64, 512)
    x, y = operands(boolean, (4, 6), 512, columns, size)
    check(x, y, (torch.float16,))


@pytest.mark.parametrize("boolean", [False, True])
@pytest.mark.parametrize("columns", [64, 2048])
@pytest.mark.parametrize("size", [64, 2048])
def test_a_graph_replays_new_operands(boolean, columns, size):
    """Launches one behind the other read what the ones before have written."""
    x, y = operands(boolean, (), 2048, columns, size)
    there = x.to("cuda"), y.to("cuda")
    ternary.matmul(*there, dtype=torch.float16)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        words, counts = there[0].words.flip(0), there[0].counts.flip(0)
        other = type(x)._trusted(words, size, counts, there[0].scale)
        out = [ternary.matmul(other, there[1], dtype=torch.float16) for _ in range(3)]
    for _ in range(2):
        there[0].words.copy_(there[0].words.roll(1, 0))
        there[0].counts.copy_(there[0].counts.roll(1, 0))
        graph.replay()
        now = type(x)(there[0].words.cpu().flip(0), size, None, x.scale)
        expected = ternary.matmul(now, y, dtype=torch.float16)
        assert all(torch.equal(one.cpu(), expected) for one in out)

"""Sums of packed rows of which most are short and a few as long as any kernel counts alone."""

import pytest
import torch

from bitgnn.bits.tensor import words_for

CUDA = torch.device("cuda")
NODES = 33_000
# Around what a lane, two lanes, a warp and a block take at once; neighbours, first to last row.
LENGTHS = [0, 1, 4, 5, 15, 16, 30, 31, 32, 33, 60, 61, 255, 256, 257, 511, 512, 513, 1025, 5425]


def pattern(dtype):
    """Row pointers and columns of a graph of few neighbours a row, long rows in between."""
    generator = torch.Generator().manual_seed(0)
    degrees = torch.randint(9, (NODES,), generator=generator)
    for step in (1, 132, 1511):
        degrees[torch.arange(len(LENGTHS)) * step + step] = torch.tensor(LENGTHS)
    degrees[-1] = LENGTHS[-1]
    rowptr = torch.cat([torch.zeros(1, dtype=torch.int64), degrees.cumsum(0)])
    columns = torch.randint(NODES, (int(rowptr[-1]),), generator=generator, dtype=torch.int32)
    return rowptr.to(dtype), columns


@pytest.mark.cuda
@pytest.mark.parametrize("features", [1, 97, 128, 200, 256, 384])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("letter", ["b", "t"])
def test_every_length_of_a_row(letter, features, dtype):
    generator = torch.Generator().manual_seed(features)
    rowptr, columns = pattern(dtype)
    x = torch.randn(NODES, features, generator=generator)
    if letter == "b":
        x = torch.ops.bitgnn.pack(x)
    else:
        x, _ = torch.ops.bitgnn.pack_ternary(x, torch.tensor(0.9))
    assert x.shape[-1] == words_for(features)
    row, vector = (torch.randn(n, generator=generator) for n in (NODES, features))
    row[0], row[1], row[2], row[3] = 0.0, -1.0, float("nan"), float("inf")
    calls = [
        ("bb", {}),
        ("bb", {"row": row}),
        ("bb", {"row": row, "threshold": vector}),
        ("bf", {"row": row, "bias": vector}),
        ("bf", {"integer": True}),
    ]
    for name, more in calls:
        operator = getattr(torch.ops.bitgnn, f"bspmm_{letter}{name}")
        expected = operator(x, features, rowptr, columns, **more)
        moved = {k: v.to(CUDA) if isinstance(v, torch.Tensor) else v for k, v in more.items()}
        arguments = (x.to(CUDA), features, rowptr.to(CUDA), columns.to(CUDA))
        for _ in range(2):
            found = operator(*arguments, **moved).cpu()
            torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)

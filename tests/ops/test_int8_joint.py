"""Sums of neighbours' bits plus products of 8-bit rows: exact, as the two operators apart."""

import pytest
import torch

from bitgnn.bits import BitAdjacency, BitTensor, Int8Tensor
from bitgnn.ops import fused
from bitgnn.ops.reference.int8 import padded

OPS = torch.ops.bitgnn
CUDA = torch.device("cuda")
NAN, INF = float("nan"), float("inf")
# Around the largest degree whose sums fit 16 bits; the last one's sums leave them indeed.
LENGTHS = [0, 1, 31, 32, 63, 64, 511, 513, 5425, 32_767, 32_768, 32_769, 65_536, 70_001]


def operands(rows, size, outputs, lengths, seed, most=6):
    """Arguments by name; a tenth of the neighbours hold half of the edges."""
    generator = torch.Generator().manual_seed(seed)

    def codes(count):
        drawn = torch.randint(-127, 128, (count, size), dtype=torch.int8, generator=generator)
        return padded(drawn)

    degrees = torch.randint(most, (rows,), generator=generator)
    degrees[torch.arange(len(lengths)) * 7] = torch.tensor(lengths)
    degrees[-1] = lengths[-1]
    rowptr = torch.cat([torch.zeros(1, dtype=torch.int64), degrees.cumsum(0)])
    columns = torch.randint(200, (int(rowptr[-1]),), generator=generator, dtype=torch.int32)
    columns[::2] %= 20
    values = {name: torch.randn(outputs, generator=generator) for name in ("scale", "threshold")}
    row = torch.randn(rows, generator=generator)
    row[1:6] = torch.tensor([NAN, INF, -INF, 0.0, -0.0])
    threshold = 100 * values["threshold"]
    special = [INF, -INF, NAN, 0.0]
    threshold[: len(special)] = torch.tensor(special[:outputs])
    return {
        "neighbours": OPS.pack(torch.randn(200, outputs, generator=generator)),
        "rowptr": rowptr,
        "indices": columns,
        "codes": codes(rows),
        "weight": codes(outputs),
        "size": size,
        "row": row,
        "sum_bias": torch.randn(outputs, generator=generator),
        "scale": values["scale"] / 100,
        "shift": torch.randn(outputs, generator=generator),
        "threshold": threshold,
    }


def apart(a):
    """The same by the operators for the sums and for the product."""
    pattern = (a["rowptr"], a["indices"], a.get("row"), a.get("sum_bias"))
    sums = OPS.bspmm_bbf(a["neighbours"], a["weight"].size(0), *pattern)
    rest = (a.get(name) for name in ("scale", "shift", "threshold"))
    return OPS.bmm_add_iib(a["codes"], a["weight"], sums, a["size"], *rest)


@pytest.mark.parametrize("outputs", [1, 31, 33, 64, 300])
@pytest.mark.parametrize("size", [1, 16, 33, 200])
def test_equals_sums_and_product(size, outputs, device):
    given = operands(130, size, outputs, [0, 1, 31, 700], size)
    moved = {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in given.items()}
    for left_out in ((), ("row",), ("sum_bias", "shift"), ("row", "scale", "threshold")):
        chosen = {name: value for name, value in given.items() if name not in left_out}
        found = OPS.bspmm_bmm_iib(**{name: moved[name] for name in chosen}).cpu()
        assert torch.equal(found, apart(chosen))
        assert torch.equal(found, apart({name: moved[name] for name in chosen}).cpu())


def test_no_rows_and_no_outputs(device):
    for rows, outputs in ((0, 40), (5, 0), (0, 0)):
        found = OPS.bspmm_bmm_iib(
            torch.zeros(3, -(-outputs // 32), dtype=torch.int32, device=device),
            torch.zeros(rows + 1, dtype=torch.int32, device=device),
            torch.zeros(0, dtype=torch.int32, device=device),
            torch.zeros(rows, 16, dtype=torch.int8, device=device),
            torch.zeros(outputs, 16, dtype=torch.int8, device=device),
            16,
        )
        assert found.shape == (rows, -(-outputs // 32))


WRONG = [
    ({"codes": torch.zeros(129, 48, dtype=torch.int8)}, "rows of codes must be 130, got 129"),
    ({"codes": torch.zeros(130, 32, dtype=torch.int8)}, "codes must hold 48 bytes a row"),
    ({"codes": torch.zeros(130, 48)}, "codes must be Char, got Float"),
    ({"neighbours": torch.zeros(200, 2, dtype=torch.int32)}, "neighbours"),
    ({"row": torch.zeros(129)}, "row"),
    ({"sum_bias": torch.zeros(32)}, "sum_bias"),
    ({"threshold": torch.zeros(33, dtype=torch.int32)}, "threshold must be Float, got Int"),
    ({"indices": torch.full((1,), 200, dtype=torch.int32)}, "the last row pointer must be 1"),
    ({"size": -1}, "size must lie between 0 and 133120, got -1"),
]


@pytest.mark.parametrize(("change", "message"), WRONG, ids=[str(i) for i in range(len(WRONG))])
def test_wrong_arguments_are_named(change, message):
    given = operands(130, 33, 33 if "neighbours" not in change else 31, [0, 3], 0)
    with pytest.raises(RuntimeError, match=message):
        OPS.bspmm_bmm_iib(**given | change)


def test_front_end(device):
    given = operands(130, 33, 40, [0, 3, 200], 1)
    adjacency = BitAdjacency(given["rowptr"], given["indices"], 200, given["row"]).to(device)
    neighbours = BitTensor(given["neighbours"], 40).to(device)
    x = Int8Tensor(given["codes"], 33, torch.zeros(33), torch.ones(33)).to(device)
    w = given["weight"].to(device)
    vectors = {name: given[name].to(device) for name in ("sum_bias", "scale", "threshold")}
    found = fused.bspmm_bmm_iib(neighbours, adjacency, x, w, **vectors)
    del given["shift"]
    assert found.size == 40
    assert torch.equal(found.words.cpu(), apart(given))
    for wrong, error, message in (
        ((neighbours, adjacency, x[:9], w), ValueError, "x must have 130 rows, got 9"),
        ((neighbours, adjacency, x, w[:9]), ValueError, "neighbours must hold 9 features like w"),
        ((neighbours, adjacency, neighbours, w), TypeError, "x must be an Int8Tensor"),
        ((neighbours, adjacency, x, w.float()), TypeError, "w must be a torch.int8 tensor"),
        ((neighbours[:9], adjacency, x, w), ValueError, "200"),
    ):
        with pytest.raises(error, match=message):
            fused.bspmm_bmm_iib(*wrong)


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("size", "outputs"),
    [(1, 256), (100, 264), (129, 128), (500, 256), (64, 72), (300, 40), (70, 33), (32, 136)],
)
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_sums_of_every_length(size, outputs, dtype):
    """Rows around the degrees whose sums fit 16 bits, in tiles of codes and at their ragged end."""
    given = operands(40_001, size, outputs, LENGTHS, outputs)
    given["rowptr"] = given["rowptr"].to(dtype)
    moved = {k: v.to(CUDA) if isinstance(v, torch.Tensor) else v for k, v in given.items()}
    for left_out in ((), ("row",), ("sum_bias", "threshold")):
        chosen = {name: value for name, value in given.items() if name not in left_out}
        expected = apart(chosen)
        for _ in range(2):
            found = OPS.bspmm_bmm_iib(**{name: moved[name] for name in chosen})
            assert torch.equal(found.cpu(), expected)

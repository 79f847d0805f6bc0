"""Sums of neighbours' bits plus products of 8-bit rows: exact, as the two operators apart."""

import pytest
import torch
from sampler import Sampler

from bitgnn.bits import BitAdjacency, BitTensor, Int8Tensor
from bitgnn.ops import fused

OPS = torch.ops.bitgnn
CUDA = torch.device("cuda")
NAN, INF = float("nan"), float("inf")
# Around the largest degree whose sums fit 16 bits; the last one's sums leave them indeed.
LENGTHS = [0, 1, 31, 32, 63, 64, 511, 513, 5425, 32_767, 32_768, 32_769, 65_536, 70_001]


def operands(rows, size, outputs, lengths, seed, most=6):
    """Arguments by name; a tenth of the neighbours hold half of the edges."""
    draw = Sampler(seed=seed)
    degrees = torch.randint(most, (rows,), generator=draw.generator)
    degrees[torch.arange(len(lengths)) * 7] = torch.tensor(lengths)
    degrees[-1] = lengths[-1]
    pattern = draw.rows(degrees, 200)
    pattern["indices"][::2] %= 20
    chosen = pattern | {"codes": draw.codes(rows, size), "neighbours": draw.bits(200, outputs)}
    given = draw.arguments("bspmm_bmm_iib", rows, size, outputs, True, **chosen)
    given["row"][1:6] = torch.tensor([NAN, INF, -INF, 0.0, -0.0])
    special = [INF, -INF, NAN, 0.0]
    given["threshold"][: len(special)] = torch.tensor(special[:outputs])
    return given


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

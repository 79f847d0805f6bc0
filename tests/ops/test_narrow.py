"""BMM + BSpMM over narrow integers: values, order of sums, integer ranges and hubs."""

import itertools
from functools import partial

import pytest
import torch

from bitgnn import BitAdjacency, BitTensor
from bitgnn.ops import fused
from bitgnn.ops.reference.bspmm import canonical_sums
from bitgnn.ops.reference.pairs import bmm_bspmm_narrow, finished


def star(num_rows: int, num_cols: int, hub_edges: int, seed: int = 0) -> BitAdjacency:
    """A random pattern with duplicate edges, empty rows and one row of ``hub_edges`` edges."""
    generator = torch.Generator().manual_seed(seed)
    edges = 6 * num_rows
    edge_index = torch.stack(
        [
            torch.randint(num_cols, (edges + hub_edges,), generator=generator),
            torch.randint(max(1, num_rows // 2), (edges + hub_edges,), generator=generator),
        ]
    )
    edge_index[1, edges:] = num_rows // 3
    row, col = (torch.rand(n, generator=generator) + 0.1 for n in (num_rows, num_cols))
    plain = BitAdjacency.from_edge_index(edge_index, (num_rows, num_cols))
    return BitAdjacency(plain.rowptr, plain.indices, num_cols, row, col)


def dense(x: torch.Tensor, w: BitTensor, adjacency: BitAdjacency, scale: bool) -> torch.Tensor:
    """The aggregated product in float64."""
    bits = torch.where(x >= 0, 1.0, -1.0).double()
    product = bits @ BitTensor(w.words, w.size).to_float().double().t()
    if scale:
        product = product * x.double().abs().mean(1, keepdim=True) * w.scale
    edge_index, weight = adjacency.to_edge_index(), adjacency.edge_weight().double()
    out = torch.zeros(adjacency.shape[0], w.words.size(0), dtype=torch.float64)
    return out.index_add_(0, edge_index[1], weight.unsqueeze(1) * product[edge_index[0]])


# Sizes around the bounds of bytes and of words, and odd ones.
SIZES = [1, 31, 64, 127, 128, 254, 255, 256, 257, 500, 1433]


@pytest.mark.parametrize("size", SIZES)
def test_equals_the_dense_product(size, device):
    generator = torch.Generator().manual_seed(size)
    x = torch.randn(90, size, generator=generator)
    adjacency = star(70, 90, 700)
    for classes, scale in itertools.product([1, 3, 7, 12, 13, 41, 60, 61, 130], (False, True)):
        w = BitTensor.from_float(torch.randn(classes, size, generator=generator), scale="mean")
        bias = torch.randn(classes, generator=generator)
        found = fused.bmm_bspmm(
            x.to(device), w.to(device), adjacency.to(device), hidden="I", scale=scale,
            bias=bias.to(device),
        )  # fmt: skip
        expected = dense(x, w, adjacency, scale) + bias
        error = (found.cpu() - expected).abs().max() / expected.abs().max()
        assert float(error) < 1e-5


@pytest.mark.parametrize("size", SIZES)
def test_sums_without_factors_are_exact(size, device):
    generator = torch.Generator().manual_seed(size)
    x = torch.randn(90, size, generator=generator)
    w = BitTensor.from_float(torch.randn(9, size, generator=generator))
    adjacency = star(70, 90, 3000)
    pattern = BitAdjacency(adjacency.rowptr, adjacency.indices, 90)
    expected = dense(x, w, pattern, False)
    for held in (x, BitTensor.from_float(x)):
        found = fused.bmm_bspmm(
            held.to(device), w.to(device), pattern.to(device), hidden="I", scale=False
        )
        assert torch.equal(found.double().cpu(), expected)


@pytest.mark.parametrize("size", [255, 256, 65535, 65536])
def test_extreme_products(size, device):
    # All signs equal or opposite: the largest and the smallest halves there are.
    ones = torch.ones(3, size)
    x = torch.cat([ones, -ones])
    w = BitTensor.from_float(x[1:4])
    adjacency = BitAdjacency(torch.tensor([0, 6, 7]), torch.arange(7, dtype=torch.int32) % 6, 6)
    weighted = BitAdjacency(
        adjacency.rowptr, adjacency.indices, 6, None, torch.tensor([2.0, 1, 1, 4, 1, 1])
    )
    for a in (adjacency, weighted):
        found = fused.bmm_bspmm(x.to(device), w.to(device), a.to(device), hidden="I", scale=False)
        assert torch.equal(found.double().cpu(), dense(x, w, a, False))


# Around the slots and the pieces of the canonical order.
DEGREES = [0, 1, 7, 8, 9, 63, 64, 65, 127, 128, 129, 135, 136, 255, 256, 257, 385, 513, 1025, 5425]


def rows_of(degrees: list[int], nodes: int) -> BitAdjacency:
    rowptr = torch.cat([torch.zeros(1, dtype=torch.int64), torch.tensor(degrees).cumsum(0)])
    generator = torch.Generator().manual_seed(len(degrees))
    indices = torch.randint(nodes, (int(rowptr[-1]),), generator=generator, dtype=torch.int32)
    col = torch.rand(nodes, generator=generator) ** 4
    return BitAdjacency(rowptr, indices, nodes, torch.rand(len(degrees)), col)


@pytest.mark.parametrize("size", [64, 127, 256, 501])
@pytest.mark.parametrize("classes", [7, 41, 100])
def test_every_degree_in_the_order_of_the_reference(size, classes, device):
    adjacency = rows_of(DEGREES * 2, 300)
    generator = torch.Generator().manual_seed(size)
    x = BitTensor.from_float(torch.randn(300, size, generator=generator), scale="mean")
    w = BitTensor.from_float(torch.randn(classes, size, generator=generator), scale="mean")
    expected = bmm_bspmm_narrow(
        x.words, w.words, size, adjacency.rowptr, adjacency.indices, x.scale, w.scale,
        row=adjacency.row_scale, col=adjacency.col_scale,
    )  # fmt: skip
    found = fused.bmm_bspmm(x.to(device), w.to(device), adjacency.to(device), hidden="I")
    if classes <= 48:  # one order and fused multiply-adds on every device: the same bits
        assert torch.equal(found.cpu(), expected)
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", [31, 64, 256, 1025, 1026])
def test_a_shift_of_the_product_takes_the_sum_of_the_factors(size, device):
    adjacency = rows_of(DEGREES[:-1], 300)
    generator = torch.Generator().manual_seed(size)
    for classes in (1, 3, 7, 16, 33, 41, 64, 100):
        shift = torch.randn(classes, generator=generator)
        given = arguments(adjacency, size, classes, device)
        patterns = {name: getattr(adjacency, name) for name in ("rowptr", "indices")}
        for left_out in ((), ("row",), ("x_scale", "col"), ("w_scale", "row", "bias")):
            kept = {name: value for name, value in given.items() if name not in left_out}
            call = partial(torch.ops.bitgnn.bmm_bspmm_narrow, **kept, shift=shift.to(device))
            found = call(**{name: tensor.to(device) for name, tensor in patterns.items()}).cpu()
            on_cpu = {k: v.cpu() if torch.is_tensor(v) else v for k, v in kept.items()}
            expected = bmm_bspmm_narrow(**on_cpu, **patterns, shift=shift)
            if classes <= 48:
                assert torch.equal(found, expected), (classes, left_out)
            atol = 2e-6 * float(expected.abs().max())  # sums cancel out
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=atol)
            assert not torch.equal(expected, bmm_bspmm_narrow(**on_cpu, **patterns))


def test_a_shift_of_more_features_than_halves_hold_is_refused(device):
    adjacency = rows_of([1, 2], 4)
    given = arguments(adjacency, 65536, 3, device)
    patterns = (adjacency.rowptr.to(device), adjacency.indices.to(device))
    with pytest.raises(RuntimeError, match="bmm_bspmm_narrow: shift must be left out with more"):
        torch.ops.bitgnn.bmm_bspmm_narrow(
            given.pop("x"), given.pop("w"), given.pop("size"), *patterns, **given,
            shift=torch.ones(3, device=device),
        )  # fmt: skip


def arguments(adjacency: BitAdjacency, size: int, classes: int, device: torch.device) -> dict:
    """Packed operands of the operator but for the pattern, with every factor and a bias."""
    generator = torch.Generator().manual_seed(size)
    nodes = adjacency.shape[1]
    x = BitTensor.from_float(torch.randn(nodes, size, generator=generator), scale="mean")
    w = BitTensor.from_float(torch.randn(classes, size, generator=generator), scale="mean")
    given = {
        "x": x.words, "w": w.words, "x_scale": x.scale, "w_scale": w.scale,
        "row": adjacency.row_scale, "col": adjacency.col_scale,
        "bias": torch.randn(classes, generator=generator),
    }  # fmt: skip
    return {"size": size} | {name: tensor.to(device) for name, tensor in given.items()}


def over_csr(adjacency: BitAdjacency, given: dict, head: int = 0) -> torch.Tensor:
    pattern = {"rowptr": adjacency.rowptr, "indices": adjacency.indices}
    on_device = {name: tensor.to(given["x"].device) for name, tensor in pattern.items()}
    return torch.ops.bitgnn.bmm_bspmm_narrow(**given, **on_device, head=head)


# Every kind of row that narrow_forms.cuh lists, rows in chunks and rows of floats.
FORMS = [(64, 3), (64, 7), (200, 20), (128, 41), (127, 41), (128, 60), (256, 7), (501, 12)]
FORMS += [(501, 45), (501, 46), (1100, 5), (1100, 40), (1100, 60)]


@pytest.mark.parametrize(("size", "classes"), [*FORMS, (31, 1)])
def test_heads_of_every_kind_of_row(size, classes, device):
    adjacency = rows_of(DEGREES * 2, 300)
    given = arguments(adjacency, size, classes, device)
    scores = over_csr(adjacency, given)
    for head in (1, 2, 3):
        found = over_csr(adjacency, given, head)
        if head == 3:
            assert torch.equal(found, scores.argmax(-1))
        else:
            expected = finished(scores.double(), head).float()
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("classes", [1, 2, 4, 6, 9, 12, 33, 48])
def test_heads_of_ties_and_special_scores(classes, device):
    nan, inf = float("nan"), float("inf")
    adjacency = rows_of([0, 1, 9, 200, 5000], 30)
    rest = arguments(adjacency, 40, classes, device)
    # Rows without factors leave the bias: every score is one of these.
    rest["row"] = torch.zeros_like(rest["row"])
    generator = torch.Generator().manual_seed(classes)
    choices = torch.tensor([1.0, 1.0, -1.0, 0.0, -0.0, inf, -inf, nan])
    for most in (3, 5, 6, 7, 8):
        for _ in range(8):
            picked = torch.randint(most, (classes,), generator=generator)
            rest["bias"] = choices[picked].to(device)
            scores = over_csr(adjacency, rest)
            assert torch.equal(over_csr(adjacency, rest, 3), scores.argmax(-1))
            for head in (1, 2):
                torch.testing.assert_close(
                    over_csr(adjacency, rest, head), finished(scores, head), equal_nan=True
                )
    rest["bias"] = torch.full((classes,), -inf, device=device)
    assert over_csr(adjacency, rest, 3).tolist() == [0] * 5


def test_heads_are_checked(device):
    adjacency = rows_of([2, 3], 30)
    given = arguments(adjacency, 40, 4, device)
    for head in (-1, 4):
        with pytest.raises(RuntimeError, match=rf"bmm_bspmm_narrow: head must be 0 .*got {head}"):
            over_csr(adjacency, given, head)
    none = given | {"w": given["w"][:0], "w_scale": None, "bias": None}
    with pytest.raises(RuntimeError, match=r"head=3 \(classes\) needs at least one output"):
        over_csr(adjacency, none, 3)
    assert over_csr(adjacency, none, 1).shape == (2, 0)


def test_orders_are_checked(device):
    adjacency = rows_of([2, 3], 30)
    given = arguments(adjacency, 40, 4, device)
    order = adjacency.row_order().to(device)
    expected = over_csr(adjacency, given)
    assert torch.equal(over_csr(adjacency, given | {"order": order}), expected)
    strided = order.t().contiguous().t()
    assert torch.equal(over_csr(adjacency, given | {"order": strided}), expected)
    for wrong, message in (
        (order.int(), "order must be Long, got Int"),
        (order[:1], "rows of order must be 2, got 1"),
        (order[:, :1], "columns of order must be 2, got 1"),
        (order[:, 0], "order must have 2 dimensions, got 1"),
    ):
        with pytest.raises(RuntimeError, match=f"bmm_bspmm_narrow: {message}"):
            over_csr(adjacency, given | {"order": wrong})


def test_canonical_order_by_hand():
    degree = 137
    factor, value = torch.rand(degree), torch.randn(degree)
    total = torch.zeros(())
    for begin in range(0, degree, 128):
        slots = [torch.zeros(()) for _ in range(8)]
        for p in range(begin, min(begin + 128, degree)):
            exact = slots[p % 8].double() + factor[p].double() * value[p].double()
            slots[p % 8] = exact.float()
        fours = [slots[i] + slots[i + 4] for i in range(4)]
        twos = [fours[i] + fours[i + 2] for i in range(2)]
        total = total + (twos[0] + twos[1])
    found = canonical_sums(
        torch.tensor([0, degree]), 1, lambda e: factor[e], lambda e: value[e].unsqueeze(1)
    )
    assert torch.equal(found[0, 0], total)


def test_equals_floats_between():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(90, 200, generator=generator)
    w = BitTensor.from_float(torch.randn(9, 200, generator=generator), scale="mean")
    adjacency = star(90, 90, 100)
    shared = {"bias": torch.randn(9), "x_threshold": torch.randn(200), "x_gain": torch.rand(200)}
    narrow = fused.bmm_bspmm(x, w, adjacency, hidden="I", **shared)
    floats = fused.bmm_bspmm(x, w, adjacency, hidden="F", **shared)
    torch.testing.assert_close(narrow, floats, rtol=1e-5, atol=1e-5)


def test_bits_out_take_no_integers():
    w = BitTensor.from_float(torch.ones(3, 40))
    with pytest.raises(ValueError, match="hidden must be 'B' or 'F', got 'I'"):
        fused.bmm_bspmm_bits(torch.ones(90, 40), w, star(90, 90, 1), hidden="I")


@pytest.mark.cuda
def test_results_repeat_on_cuda():
    cuda = torch.device("cuda")
    adjacency = star(20000, 20000, 5000).to(cuda)
    x = torch.randn(20000, 128, device=cuda)
    w = BitTensor.from_float(torch.randn(41, 128, device=cuda), scale="mean")
    first = fused.bmm_bspmm(x, w, adjacency, hidden="I")
    for _ in range(5):
        assert torch.equal(fused.bmm_bspmm(x, w, adjacency, hidden="I"), first)

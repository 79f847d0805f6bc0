"""BMM + BSpMM over narrow integers: values, order of sums, heads, shifts and products of roots."""

import itertools

import pytest
import torch
from sampler import Sampler

from bitgnn import BitAdjacency, BitTensor
from bitgnn.ops import fused
from bitgnn.ops.reference.bspmm import canonical_sums
from bitgnn.ops.reference.pairs import bmm_bspmm_narrow, finished

NODES = 300
# Around the slots and the pieces of the canonical order, and hubs.
DEGREES = [0, 1, 7, 8, 9, 63, 64, 65, 127, 128, 129, 135, 136, 255, 256, 257, 385, 513, 1025, 5425]
# Sizes around the bounds of bytes and of words, and odd ones.
SIZES = [1, 31, 64, 127, 128, 254, 255, 256, 257, 500, 1433]
# Features and outputs of every kind of row that narrow_forms.cuh lists, in chunks and of floats.
FORMS = [(31, 1), (64, 3), (64, 7), (200, 8), (127, 7), (200, 20), (128, 41), (127, 41), (128, 60),
         (256, 7), (300, 12), (501, 12), (501, 45), (501, 46), (1100, 5), (1100, 40), (1100, 60),
         (65540, 4)]  # fmt: skip
FACTORS = ("x_scale", "col")
NAME = "bmm_bspmm_narrow"


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def moved(given, device):
    return {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in given.items()}


def without(given, names):
    return {name: value for name, value in given.items() if name not in names}


def star(num_rows, num_cols, hub_edges):
    """A random pattern with duplicate edges, empty rows and one row of ``hub_edges`` edges."""
    generator, edges = seeded(0), 6 * num_rows
    sources = torch.randint(num_cols, (edges + hub_edges,), generator=generator)
    into = torch.randint(max(1, num_rows // 2), (edges + hub_edges,), generator=generator)
    into[edges:] = num_rows // 3
    row, col = (torch.rand(n, generator=generator) + 0.1 for n in (num_rows, num_cols))
    plain = BitAdjacency.from_edge_index(torch.stack([sources, into]), (num_rows, num_cols))
    return BitAdjacency(plain.rowptr, plain.indices, num_cols, row, col)


def drawn(degrees, size, classes, root_size=0, nodes=NODES, **chosen):
    """Arguments with every factor and bias, packed x, rows of these degrees, perhaps a root."""
    draw = Sampler(seed=size + classes)
    chosen = {"x": draw.bits(nodes, size), "head": 0, "order": None, "shift": None} | chosen
    chosen |= {"root_size": root_size} if root_size else {"root": None}
    return draw.arguments(NAME, nodes, size, classes, True, **draw.rows(degrees, nodes), **chosen)


def run(given, device="cpu", **more):
    return getattr(torch.ops.bitgnn, NAME)(**moved(given | more, device)).cpu()


def assert_heads(given, scores, device):
    for head in (1, 2, 3):
        found = run(given, device, head=head)
        if head == 3:
            assert torch.equal(found, scores.argmax(-1))
        else:
            expected = finished(scores.double(), head).float()
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5, equal_nan=True)


def dense(x, w, adjacency, scale):
    """The aggregated product in float64."""
    bits = torch.where(x >= 0, 1.0, -1.0).double()
    product = bits @ BitTensor(w.words, w.size).to_float().double().t()
    if scale:
        product = product * x.double().abs().mean(1, keepdim=True) * w.scale
    edge_index, weight = adjacency.to_edge_index(), adjacency.edge_weight().double()
    out = torch.zeros(adjacency.shape[0], w.words.size(0), dtype=torch.float64)
    return out.index_add_(0, edge_index[1], weight.unsqueeze(1) * product[edge_index[0]])


def narrow(x, w, adjacency, device, scale, bias=None):
    x, w, adjacency = x.to(device), w.to(device), adjacency.to(device)
    bias = None if bias is None else bias.to(device)
    return fused.bmm_bspmm(x, w, adjacency, hidden="I", scale=scale, bias=bias).cpu()


@pytest.mark.parametrize("size", SIZES)
def test_equals_the_dense_product(size, device):
    generator = seeded(size)
    x, adjacency = torch.randn(90, size, generator=generator), star(70, 90, 700)
    for classes, scale in itertools.product([1, 3, 7, 13, 41, 61, 130], (False, True)):
        w = BitTensor.from_float(torch.randn(classes, size, generator=generator), scale="mean")
        bias = torch.randn(classes, generator=generator)
        expected = dense(x, w, adjacency, scale) + bias
        error = (narrow(x, w, adjacency, device, scale, bias) - expected).abs().max()
        assert float(error / expected.abs().max()) < 1e-5
    # Without factors sums are exact.
    adjacency = star(70, 90, 3000)
    pattern = BitAdjacency(adjacency.rowptr, adjacency.indices, 90)
    for held in (x, BitTensor.from_float(x)):
        found = narrow(held, w, pattern, device, False)
        assert torch.equal(found.double(), dense(x, w, pattern, False))


@pytest.mark.parametrize("size", [255, 256, 65535, 65536])
def test_extreme_products(size, device):
    # All signs equal or opposite: the largest and the smallest halves there are.
    x = torch.cat([torch.ones(3, size), -torch.ones(3, size)])
    w = BitTensor.from_float(x[1:4])
    for col in (None, torch.tensor([2.0, 1, 1, 4, 1, 1])):
        pattern = torch.tensor([0, 6, 7]), torch.arange(7, dtype=torch.int32) % 6
        adjacency = BitAdjacency(*pattern, 6, None, col)
        found = narrow(x, w, adjacency, device, False)
        assert torch.equal(found.double(), dense(x, w, adjacency, False))


@pytest.mark.parametrize("size", [31, 64, 127, 256, 501, 1025, 1026])
def test_every_degree_in_the_order_of_the_reference(size, device):
    """With a shift of the product, which takes the sum of the factors, and without."""
    for classes in (1, 3, 7, 16, 33, 41, 64, 100):
        given = drawn(DEGREES if classes <= 48 else DEGREES[:-1], size, classes)
        shift = {"shift": torch.randn(classes, generator=seeded(classes))}
        for left_out, more in (((), {}), (("row",), shift), (FACTORS, {}), (("w_scale",), shift)):
            kept = without(given, left_out) | more
            found, expected = run(kept, device), bmm_bspmm_narrow(**kept)
            # One order and fused multiply-adds on every device.
            assert torch.equal(found, expected), (classes, left_out)


# Rows of one and of several lanes; packed rows of whole accesses or not, within registers or not.
@pytest.mark.parametrize("root_size", [1, 64, 65, 256, 512, 600])
@pytest.mark.parametrize(("size", "classes"), FORMS)
def test_a_product_of_the_nodes_own_rows(size, classes, root_size, device):
    whole = drawn(DEGREES * 2, size, classes, root_size)
    scales = ("root_scale", "root_w_scale", "root_bias")
    for left_out in ((), (*FACTORS, *scales)):
        given = without(whole, left_out)
        sums = run(without(given, [name for name in given if name.startswith("root")]), device)
        operands = given["root"], given["root_w"], sums, root_size, *map(given.get, scales)
        added = torch.ops.bitgnn.bmm_add(*operands)
        assert torch.equal(run(given, device), added)
    if root_size == 256:
        assert_heads(given, run(given, device), device)
        assert_heads(whole, run(whole, device), device)


@pytest.mark.parametrize("classes", [7, 40])
def test_rows_that_do_not_begin_with_an_access(classes, device):
    given = drawn(DEGREES, 256, classes, 256)
    expected = run(given, device)
    for name in ("x", "root", "root_w"):
        whole = moved(given, device)[name]
        shifted = torch.cat([whole.new_zeros(1), whole.flatten()])[1:].view(whole.shape)
        assert torch.equal(run(given, device, **{name: shifted}), expected)


@pytest.mark.parametrize("classes", [1, 2, 4, 6, 9, 12, 33, 48])
def test_heads_of_ties_and_special_scores(classes, device):
    nan, inf = float("nan"), float("inf")
    # Rows without factors leave the bias: every score is one of these.
    given = drawn([0, 1, 9, 200, 5000], 40, classes, nodes=30, row=torch.zeros(5))
    generator = seeded(classes)
    choices = torch.tensor([1.0, 1.0, -1.0, 0.0, -0.0, inf, -inf, nan])
    for most in (3, 5, 6, 7, 8):
        for _ in range(8):
            picked = torch.randint(most, (classes,), generator=generator)
            given["bias"] = choices[picked]
            assert_heads(given, run(given, device), device)
    given["bias"] = torch.full((classes,), -inf)
    assert run(given, device, head=3).tolist() == [0] * 5


def test_arguments_are_checked(device):
    given = drawn([2, 3], 40, 4, 64, nodes=30)
    given["shift"] = None
    bare = without(given, [name for name in given if name.startswith("root")])
    expected = run(given, device)
    order = BitAdjacency(given["rowptr"], given["indices"], 30).row_order()
    for held in (order, order.t().contiguous().t()):
        assert torch.equal(run(given, device, order=held), expected)
    for wrong, message in (
        ({"root_w": None}, "root and root_w must be given together"),
        ({"root": None}, "root and root_w must be given together"),
        ({"root": None, "root_w": None}, "must be left out without root"),
        ({"head": -1}, "head must be 0 .*got -1"),
        ({"head": 4}, "head must be 0 .*got 4"),
    ):
        with pytest.raises(RuntimeError, match=rf"bmm_bspmm_narrow: .*{message}"):
            run(given, device, **wrong)
    none = bare | {"w": given["w"][:0], "w_scale": None, "bias": None}
    with pytest.raises(RuntimeError, match=r"head=3 \(classes\) needs at least one output"):
        run(none, device, head=3)
    assert run(none, device, head=1).shape == (2, 0)
    with pytest.raises(RuntimeError, match="bmm_bspmm_narrow: shift must be left out with more"):
        run(drawn([2, 3], 65536, 3), device, shift=torch.ones(3))


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
    generator, adjacency = seeded(0), star(90, 90, 100)
    x = torch.randn(90, 200, generator=generator)
    w = BitTensor.from_float(torch.randn(9, 200, generator=generator), scale="mean")
    shared = {"bias": torch.randn(9), "x_threshold": torch.randn(200), "x_gain": torch.rand(200)}
    found, floats = (fused.bmm_bspmm(x, w, adjacency, hidden=h, **shared) for h in "IF")
    torch.testing.assert_close(found, floats, rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="hidden must be 'B' or 'F', got 'I'"):
        fused.bmm_bspmm_bits(x, w, adjacency, hidden="I")

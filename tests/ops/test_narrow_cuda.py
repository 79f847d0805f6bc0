"""BMM + BSpMM over narrow integers on CUDA: rows of every launch and of 16 bits a feature."""

import pytest
import torch
from sampler import Sampler

from bitgnn import BitAdjacency

pytestmark = pytest.mark.cuda
CUDA = torch.device("cuda")
NODES = 500


def operands(size, columns, degrees, nodes, rowptr_type=torch.int64):
    """Arguments of the operator, with every factor and a bias."""
    draw = Sampler(seed=size + columns)
    pattern = draw.rows(degrees, nodes)
    pattern["rowptr"] = pattern["rowptr"].to(rowptr_type)
    chosen = {"x": draw.bits(nodes, size), "root": None, "head": 0, "order": None, "shift": None}
    return draw.arguments("bmm_bspmm_narrow", nodes, size, columns, True, **pattern, **chosen)


def run(given):
    moved = {k: v.to(CUDA) if isinstance(v, torch.Tensor) else v for k, v in given.items()}
    return torch.ops.bitgnn.bmm_bspmm_narrow(**moved)


def on_cpu(given):
    """The same on the CPU, whose order of sums is that of the reference."""
    return torch.ops.bitgnn.bmm_bspmm_narrow(**given)


# Around slots, steps and pieces, hubs of several turns of a block, rows of no edge.
DEGREES = [0, 1, 3, 4, 5, 7, 8, 9, 12, 13, 15, 16, 17, 18, 31, 32, 33, 48, 49, 64, 65, 127, 128,
           129, 255, 256, 257, 511, 512, 513, 0, 5426, 3, 0, 1030]  # fmt: skip


@pytest.mark.parametrize("columns", [49, 64, 65, 100, 128, 129, 200, 256, 257, 300])
@pytest.mark.parametrize("size", [1, 33, 500, 1433])
def test_bits_of_the_cpu(columns, size):
    given = operands(size, columns, DEGREES * 3, 2000)
    shift = {"shift": torch.randn(columns)}
    for left_out in ((), ("x_scale", "col"), ("w_scale", "row", "x_scale", "col")):
        for more in ({}, shift):
            kept = {**given, **dict.fromkeys(left_out), **more}
            assert torch.equal(run(kept).cpu(), on_cpu(kept)), (left_out, list(more))


# Sources few enough for the narrow form, and as many that rows take the wide one.
@pytest.mark.parametrize("columns", [49, 64, 100, 172, 260])
@pytest.mark.parametrize("size", [64, 127, 602])
def test_the_number_of_sources_changes_nothing(columns, size):
    few = operands(size, columns, DEGREES, 300)
    assert len(few["indices"]) >= 16 * 300
    many = dict(few)
    for name, missing in (("x", 0), ("x_scale", 1), ("col", 1)):
        held = few[name]
        more = held.new_full((20_000 - len(held), *held.shape[1:]), missing)
        many[name] = torch.cat([held, more])
    assert torch.equal(run(many), run(few))


def test_integers_that_floats_do_not_hold():
    size, degree = 65535, 3000
    for columns in (7, 64, 130):
        given = operands(size, columns, [degree, 1, 200], 40)
        given |= dict.fromkeys(("x_scale", "col", "w_scale", "row", "bias"))
        given["x"][:] = given["w"][0]  # sums of 2^27 and above
        given["x"][::3] = given["w"][1]
        assert torch.equal(run(given).cpu(), on_cpu(given))


# Runs of rows that are as long as a warp's may be, among so many that a warp takes several.
@pytest.mark.parametrize(
    ("columns", "rows", "degree"), [(64, 40000, 48), (100, 40000, 48), (200, 6000, 256)]
)
def test_warps_of_more_pieces_than_lanes(columns, rows, degree):
    degrees = [row % 3 for row in range(rows)]
    for start in (0, 1003, rows - 50):
        degrees[start : start + 50] = [degree, degree - 1] * 25
    given = operands(75, columns, degrees, 5000)
    assert torch.equal(run(given).cpu(), on_cpu(given))


# The last size that floats of 16 bits hold and the first beyond; weights beyond shared memory.
@pytest.mark.parametrize("size", [4095, 4096, 4097, 9000])
@pytest.mark.parametrize("columns", [64, 300])
def test_large_products(columns, size):
    given = operands(size, columns, [3, 0, 70, 20], 300)
    # All signs equal or opposite: the largest halves there are.
    given["x"][:2] = torch.stack([given["w"][1], ~given["w"][1]])
    given["x"][1, -1] &= 2 ** (size % 32) - 1 if size % 32 else -1
    assert torch.equal(run(given).cpu(), on_cpu(given))


@pytest.mark.parametrize("rowptr_type", [torch.int32, torch.int64])
@pytest.mark.parametrize("rows", [1, 3, 31, 33, 257])
@pytest.mark.parametrize("size", [70, 897, 1024])
def test_few_rows(rows, size, rowptr_type):
    given = operands(size, 64, [row % 4 for row in range(rows)], rows + 4, rowptr_type)
    assert torch.equal(run(given).cpu(), on_cpu(given))


def test_nothing_to_add_up():
    for columns in (64, 256):
        given = operands(40, columns, [0] * 50, 0)
        assert torch.equal(run(given).cpu(), given["bias"].expand(50, columns))


def test_factors_may_be_left_out():
    given = operands(75, 96, DEGREES, 400)
    for names in (["x_scale"], ["col"], ["x_scale", "col"]):
        whole = {**given, **{name: torch.ones_like(given[name]) for name in names}}
        assert torch.equal(run({**given, **dict.fromkeys(names)}), run(whole))
    plain = {**given, "row": None, "w_scale": None, "bias": None}
    whole = {**given, "row": given["row"] * 0 + 1, "w_scale": given["w_scale"] * 0 + 1}
    whole["bias"] = given["bias"] * 0
    assert torch.equal(run(plain), run(whole))


def test_values_that_are_not_finite():
    given = operands(64, 64, [4, 0, 2, 30], 40)
    given["x_scale"][given["indices"][5].long()] = float("nan")
    given["col"][given["indices"][0].long()] = float("inf")
    torch.testing.assert_close(run(given).cpu(), on_cpu(given), rtol=0, atol=0, equal_nan=True)


def test_the_same_bits_again():
    given = operands(501, 256, DEGREES * 20, 3000)
    first = run(given)
    assert all(torch.equal(run(given), first) for _ in range(100))


def many_edges() -> torch.Tensor:
    """Over 2 ** 23 edges, from 32 a row on: rows are ordered by degree. Some are whole blocks'."""
    degrees = torch.randint(440, (40_000,), generator=torch.Generator().manual_seed(1))
    degrees[::1000] = 0
    degrees[[5, 777, 39_999]] = torch.tensor([9_000, 20_001, 513])
    assert int(degrees.sum()) >= max(1 << 23, 32 * len(degrees))
    return degrees


def many_short_rows() -> torch.Tensor:
    """Over 2 ** 15 rows of up to 16 edges on the mean: the first blocks look for long ones."""
    degrees = torch.randint(20, (33_001,), generator=torch.Generator().manual_seed(1))
    degrees[[0, 4_321, 33_000]] = torch.tensor([300, 2_345, 5_000])
    assert int(degrees.sum()) <= 16 * len(degrees)
    return degrees


def few_rows() -> torch.Tensor:
    """Rows about as long as those that whole blocks take of a given order, from 512 edges on."""
    degrees = torch.arange(470, 560).repeat(3)
    degrees[[0, 100, 269]] = torch.tensor([0, 511, 4_000])
    return degrees


@pytest.mark.parametrize("degrees", [many_edges, many_short_rows, few_rows])
@pytest.mark.parametrize(
    ("size", "classes"),
    [
        (64, 3),
        (127, 7),
        (256, 7),
        (200, 20),
        (128, 41),
        (127, 41),
        (501, 45),
        (300, 60),
        (300, 20),
        (256, 40),
    ],
)
def test_rows_have_the_bits_of_the_cpu(degrees, size, classes):
    degrees = degrees()
    given = operands(size, classes, degrees, NODES)
    draw, root = Sampler(seed=size), {"root_size": 192}
    root |= {"root": draw.bits(len(degrees), 192), "root_w": draw.bits(classes, 192)}
    root |= {"root_scale": draw.floats(len(degrees))}
    order = BitAdjacency(given["rowptr"], given["indices"], NODES).row_order()
    for factors in (("x_scale", "col"), ()):
        kept = {key: given[key] for key in given if key not in ("x_scale", "col") or key in factors}
        expected, with_root = (
            torch.ops.bitgnn.bmm_bspmm_narrow(**kept | more) for more in ({}, root)
        )
        for held in (None, order):
            found = run(kept | {"order": held})
            assert torch.equal(found.cpu(), expected)
            assert torch.equal(run(kept | {"order": held}), found)
            assert torch.equal(run(kept | root | {"order": held}).cpu(), with_root)
            if factors:  # without them there are ties
                assert torch.equal(run(kept | {"order": held, "head": 3}), found.argmax(-1))
        # Rows that groups of other lanes take have the same exponentials' sums.
        for head in (1, 2):
            soft = run(kept | {"head": head})
            assert torch.equal(run(kept | {"head": head, "order": order}), soft)

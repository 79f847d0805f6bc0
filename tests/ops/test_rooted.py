"""BMM + BSpMM plus a product of the nodes' own packed rows in one call."""

import pytest
import torch

from bitgnn import BitAdjacency, BitTensor
from bitgnn.ops.reference.pairs import finished

# Around the slots and the pieces of the sums, and a hub.
DEGREES = [0, 1, 7, 8, 9, 63, 65, 127, 128, 129, 256, 257, 385, 1025, 5425] * 2
NODES = 300


def pattern(degrees: list[int], nodes: int) -> BitAdjacency:
    """Rows of these degrees with factors, their columns in order."""
    generator = torch.Generator().manual_seed(len(degrees))
    rows = torch.repeat_interleave(torch.arange(len(degrees)), torch.tensor(degrees).long())
    columns = torch.randint(max(1, nodes), rows.shape, generator=generator)
    columns = torch.sort(rows * nodes + columns).values - rows * nodes
    rowptr = torch.cat([torch.zeros(1, dtype=torch.int64), torch.tensor(degrees).long().cumsum(0)])
    row, col = (torch.rand(n, generator=generator) for n in (len(degrees), nodes))
    return BitAdjacency(rowptr, columns.int(), nodes, row, col)


def operands(prefix: tuple[str, ...], rows: int, size: int, classes: int) -> dict:
    """Packed rows and weights with every scale and a bias, under these names."""
    generator = torch.Generator().manual_seed(size)
    x = BitTensor.from_float(torch.randn(rows, size, generator=generator), scale="mean")
    w = BitTensor.from_float(torch.randn(classes, size, generator=generator), scale="mean")
    bias = torch.randn(classes, generator=generator)
    return dict(zip(prefix, (x.words, w.words, size, x.scale, w.scale, bias), strict=True))


NEIGHBOURS = ("x", "w", "size", "x_scale", "w_scale", "bias")
OWN = ("root", "root_w", "root_size", "root_scale", "root_w_scale", "root_bias")


def arguments(adjacency: BitAdjacency, size: int, classes: int, device: torch.device) -> dict:
    """What both forms of the operator take but for the pattern and the added product."""
    given = operands(NEIGHBOURS, adjacency.shape[1], size, classes)
    given |= {"row": adjacency.row_scale, "col": adjacency.col_scale}
    return moved(given, device)


def root_of(rows: int, size: int, classes: int, device: torch.device) -> dict:
    return moved(operands(OWN, rows, size, classes), device)


def moved(given: dict, device: torch.device) -> dict:
    return {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in given.items()}


def over_csr(adjacency: BitAdjacency, given: dict, head: int = 0) -> torch.Tensor:
    rows = {"rowptr": adjacency.rowptr, "indices": adjacency.indices}
    on_device = moved(rows, given["x"].device)
    return torch.ops.bitgnn.bmm_bspmm_narrow(**given, **on_device, head=head)


def added(sums: torch.Tensor, root: dict) -> torch.Tensor:
    """The same by an operator of its own."""
    return torch.ops.bitgnn.bmm_add(
        root["root"], root["root_w"], sums, root["root_size"], root.get("root_scale"),
        root.get("root_w_scale"), root.get("root_bias"),
    )  # fmt: skip


FACTORS = ("x_scale", "col")
SCALES = ("root_scale", "root_w_scale", "root_bias")


# Every kind of row that narrow_forms.cuh lists, rows in chunks and rows of floats.
SHAPES = [(31, 1), (64, 3), (64, 7), (200, 8), (127, 7), (200, 20), (128, 41), (128, 60), (256, 7)]
SHAPES += [(300, 12), (501, 12), (501, 45), (1100, 5), (1100, 40), (1100, 60), (65540, 4)]


# Rows of one and of several lanes, in chunks and of floats; packed rows of whole accesses or not,
# within registers or beyond.
@pytest.mark.parametrize("root_size", [1, 64, 65, 256, 512, 600])
@pytest.mark.parametrize(("size", "classes"), SHAPES)
def test_equals_two_operators(size, classes, root_size, device):
    adjacency = pattern(DEGREES, NODES)
    given = arguments(adjacency, size, classes, device)
    for left_out in ((), FACTORS, SCALES, (*FACTORS, *SCALES)):
        kept = {name: value for name, value in given.items() if name not in left_out}
        root = root_of(len(DEGREES), root_size, classes, device)
        root = {name: value for name, value in root.items() if name not in left_out}
        expected = added(over_csr(adjacency, kept), root)
        assert torch.equal(over_csr(adjacency, kept | root), expected)


@pytest.mark.parametrize("classes", [3, 7, 60])
def test_heads(classes, device):
    adjacency = pattern(DEGREES, NODES)
    given = arguments(adjacency, 256, classes, device)
    given |= root_of(len(DEGREES), 256, classes, device)
    scores = over_csr(adjacency, given)
    for head in (1, 2, 3):
        found = over_csr(adjacency, given, head)
        if head == 3:
            assert torch.equal(found, scores.argmax(-1))
        else:
            torch.testing.assert_close(found, finished(scores, head), rtol=1e-5, atol=1e-5)


def test_rows_that_do_not_begin_with_an_access(device):
    adjacency = pattern(DEGREES, NODES)
    given = arguments(adjacency, 256, 7, device)
    root = root_of(len(DEGREES), 256, 7, device)
    expected = over_csr(adjacency, given | root)
    for name in ("x", "root", "root_w"):
        whole = {**given, **root}[name]
        shifted = torch.cat([whole.new_zeros(1), whole.flatten()])[1:].view(whole.shape)
        assert torch.equal(over_csr(adjacency, given | root | {name: shifted}), expected)


@pytest.mark.parametrize(("rows", "columns"), [(0, 0), (0, 5), (5, 0), (1, 1), (33, 31)])
def test_small_graphs(rows, columns, device):
    adjacency = pattern([3 * (columns > 0)] * rows, columns)
    given = arguments(adjacency, 256, 7, device)
    root = root_of(rows, 256, 7, device)
    expected = added(over_csr(adjacency, given), root)
    assert torch.equal(over_csr(adjacency, given | root), expected)


def test_arguments_are_checked(device):
    adjacency = pattern([2, 3], 30)
    given = arguments(adjacency, 40, 4, device)
    root = root_of(2, 64, 4, device)
    for wrong, message in (
        ({"root_w": None}, "root and root_w must be given together"),
        ({"root": None}, "root and root_w must be given together"),
        ({"root": None, "root_w": None}, "must be left out without root"),
        ({"root": root["root"][:1]}, "rows of root must be 2, got 1"),
        ({"root_w": root["root_w"][:3]}, "rows of root_w must be 4, got 3"),
        ({"root_size": 65}, "root must hold 3 words a row for 65 features, got 2"),
        ({"root": root["root"].float()}, "root must be Int, got Float"),
        ({"root_scale": root["root_scale"][:1]}, "root_scale must have 2 entries, got 1"),
        ({"root_w_scale": root["root_w_scale"][:1]}, "root_w_scale must have 4 entries, got 1"),
        ({"root_bias": root["root_bias"][:1]}, "root_bias must have 4 entries, got 1"),
    ):
        with pytest.raises(RuntimeError, match=rf"bmm_bspmm_narrow: .*{message}"):
            over_csr(adjacency, given | root | wrong)


# Where the kernels look for long rows first, and where rows are in the order of their degrees.
@pytest.mark.cuda
@pytest.mark.parametrize(("rows", "most"), [(33_001, 20), (40_000, 440)])
@pytest.mark.parametrize(("size", "classes"), [(256, 7), (64, 3), (127, 7), (300, 20)])
def test_large_graphs(size, classes, rows, most):
    cuda = torch.device("cuda")
    degrees = torch.randint(most, (rows,), generator=torch.Generator().manual_seed(1))
    degrees[[0, 4_321, rows - 1]] = torch.tensor([300, 20_000, 5_000])
    adjacency = pattern(degrees.tolist(), NODES)
    given = arguments(adjacency, size, classes, cuda)
    root = root_of(rows, size, classes, cuda)
    for left_out in ((), FACTORS):
        kept = {name: value for name, value in given.items() if name not in left_out}
        found = over_csr(adjacency, kept | root)
        assert torch.equal(found, added(over_csr(adjacency, kept), root))
        assert torch.equal(over_csr(adjacency, kept | root), found)

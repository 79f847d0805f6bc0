"""CUDA kernels: shapes that reach each code path, graph capture, streams, devices, compilation."""

import itertools

import pytest
import torch

from bitgnn import BitAdjacency, BitTensor
from bitgnn.bits import TernaryTensor
from bitgnn.ops import bmm, bspmm
from bitgnn.ops.reference import OPERATORS

pytestmark = pytest.mark.cuda
CUDA = torch.device("cuda")


def moved(arguments, device):
    return {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in arguments.items()}


def equal(found, expected, is_exact=False):
    found, expected = (r if isinstance(r, tuple) else (r,) for r in (found, expected))
    for mine, theirs in zip(found, expected, strict=True):
        exact = is_exact or not theirs.is_floating_point()
        atol = 0.0 if exact else 1e-5
        torch.testing.assert_close(
            mine.cpu(), theirs.cpu(), rtol=0 if exact else 1e-5, atol=atol, equal_nan=True
        )


# Rows, features, outputs: one row and one output, odd words, tiles and their edges, few rows with
# many outputs, weights beyond shared memory, shapes that suit every tensor-core path.
PRODUCTS = [
    (1, 1, 1),
    (1, 4096, 1),
    (7, 33, 1000),
    (64, 128, 64),
    (65, 129, 63),
    (128, 256, 256),
    (129, 1024, 257),
    (1000, 602, 41),
    (1024, 1024, 1024),
    (1025, 1027, 1023),
    (300, 20000, 77),
    (513, 8192, 2048),
    (2708, 1433, 7),
    (4000, 128, 128),
    # Many rows with weights beyond shared memory, aligned and not, and rows beyond shared memory.
    (8500, 1152, 400),
    (8600, 602, 300),
    (40, 70000, 33),
    # Many rows with few weights, which lie in shared memory.
    (33000, 1, 1),
    (33001, 500, 256),
    (40000, 602, 130),
    (33333, 128, 33),
    # Rows of one and two steps of the kernels that keep weights in registers, of odd many words.
    (32769, 100, 7),
    (33011, 200, 65),
    (40001, 265, 70),
    (40001, 512, 300),
    # Float rows that the copy engine brings, the last of them less than its unit.
    (5003, 301, 65),
]


# Ternary rows: few and many, weights of one and several tiles, rows and weights beyond memories.
TERNARY = [
    (1, 31, 33), (3, 33, 31), (8, 2560, 96), (1, 2560, 13824), (8, 4096, 260), (5, 768, 13825),
    (16, 100, 100), (17, 264, 257), (33, 1000, 66), (31, 520, 48), (128, 768, 768),
    (128, 768, 3072), (127, 3072, 768), (32, 5120, 1000), (256, 128, 128), (3700, 1664, 4104),
    (300, 768, 520), (257, 1152, 129), (1000, 4096, 384), (70, 90000, 3), (2, 500000, 5),
    (100, 640, 4096), (9, 768, 3072), (2, 11008, 4096), (3, 120, 20), (12, 888, 30),
    (40, 2176, 131), (129, 11008, 72), (20, 16384, 36), (32, 4096, 4096), (64, 2048, 12),
    (4033, 1144, 2080), (1984, 4088, 4096), (1601, 5120, 4096), (4096, 1000, 1280),
]  # fmt: skip
FEW = [*itertools.product((1, 7, 8, 9, 16, 17), (1, 32, 33, 512, 1000, 9216), (1, 10, 17, 33, 100))]
FEW += [(8, size, outputs) for size in (128, 1056) for outputs in (4096, 4100)]  # wide blocks
MATRICES = [
    (rows, size, columns)
    for rows, columns in [(1, 1), (16, 64), (65, 130), (300, 260), (257, 515)]
    for size in (0, 1, 33, 64, 96, 128, 256, 500, 1024, 2048, 5000)
]
SHAPES = {name: PRODUCTS for name in OPERATORS if name.startswith("bmm")}
EXACT = ("bmm_tbf", "bmm_tbb", "linear_ternary", "matmul_ttf", "matmul_btf")
"""Their floats, too, have the bits of the CPU."""
SHAPES |= {name: [*PRODUCTS, *TERNARY] for name in EXACT[:3]}
SHAPES |= {name: [*PRODUCTS, *FEW] for name in ("bmm_bbb", "bmm_bbf")}
SHAPES |= dict.fromkeys(EXACT[3:], MATRICES)
CASES = [(name, *shape) for name, shapes in SHAPES.items() for shape in shapes]


@pytest.mark.parametrize(("name", "n", "k", "m"), CASES)
def test_products_equal_the_cpu_kernels(name, n, k, m, sampler):
    operator = getattr(torch.ops.bitgnn, name)
    types = [torch.float32]
    types += [torch.float16, torch.bfloat16] if name == "linear_ternary" else []
    for dtype, optional in itertools.product(types, (False, True, None)):
        draw = sampler(seed=n + m, dtype=dtype, special=dtype != torch.float32)
        arguments = draw.arguments(name, n, k, m, optional)
        found, expected = operator(**moved(arguments, CUDA)), operator(**arguments)
        equal(found, expected, is_exact=name in EXACT)


# Float rows, features and outputs of every way to binarise inside the product.
FLOAT_PRODUCTS = [(300, 0, 70), (300, 40, 70), (9000, 40, 600), (9000, 1152, 600), (50, 70000, 33)]
FLOAT_TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.uint8]


@pytest.mark.parametrize("dtype", FLOAT_TYPES)
@pytest.mark.parametrize(("n", "k", "m"), FLOAT_PRODUCTS)
def test_float_products_take_every_type(n, k, m, dtype, sampler):
    for name in ("bmm_fbb", "bmm_fbf"):
        arguments = sampler(seed=k, dtype=dtype).arguments(name, n, k, m, optional=None)
        operator = getattr(torch.ops.bitgnn, name)
        equal(operator(**moved(arguments, CUDA)), operator(**arguments))


# Rows whose features lanes take one, two and four at a time, short ones many to a copy, long ones
# shared by warps: a tile of them a copy, half of one, a quarter.
@pytest.mark.parametrize(
    ("n", "k", "m"),
    [
        (5001, 45, 256),
        (5003, 602, 33),
        (5017, 500, 64),
        (6001, 64, 200),
        (5005, 301, 200),
        (5009, 500, 256),
        (5011, 602, 130),
        (33001, 1000, 96),
        (33003, 1433, 64),
    ],
)
@pytest.mark.parametrize("shifted", [False, True])
def test_many_float_rows_with_special_values(n, k, m, shifted):
    generator = torch.Generator().manual_seed(k)
    special = [float("nan"), -float("nan"), float("inf"), -float("inf"), 0.0, -0.0]
    special += [1e-45, -1e-45, 3.4e38, -3.4e38]
    x = torch.randn(n, k, generator=generator)
    places = torch.randint(x.numel(), (x.numel() // 5,), generator=generator)
    x.view(-1)[places] = torch.tensor(special).repeat(len(places) // len(special) + 1)[
        : len(places)
    ]
    arguments = {
        "x": x,
        "w": torch.ops.bitgnn.pack(torch.randn(m, k, generator=generator)),
        "scale": False,
    }
    if shifted:
        limits = torch.randn(k, generator=generator)
        limits[::7] = float("inf")
        limits[1::7] = -0.0
        arguments["x_threshold"] = limits
        arguments["threshold"] = torch.randn(m, generator=generator) * k**0.5
        arguments["flip"] = torch.rand(m, generator=generator) < 0.5
    expected = torch.ops.bitgnn.bmm_fbb(**arguments)
    assert torch.equal(torch.ops.bitgnn.bmm_fbb(**moved(arguments, CUDA)).cpu(), expected)


@pytest.mark.parametrize("dtype", FLOAT_TYPES)
@pytest.mark.parametrize(("n", "k", "m"), [*FLOAT_PRODUCTS, (4096, 4096, 4096), (20000, 602, 128)])
def test_float_products_allocate_packed_rows_at_most(n, k, m, dtype):
    x = torch.randn(n, k, device=CUDA).to(dtype)
    w = torch.ops.bitgnn.pack(torch.randn(m, k, device=CUDA))
    packed = torch.ops.bitgnn.pack(x)
    for operator in (torch.ops.bitgnn.bmm_fbb, torch.ops.bitgnn.bmm_fbf):
        torch.cuda.reset_peak_memory_stats()
        # What is asked for: cached blocks may be larger.
        before = torch.cuda.memory_stats()["requested_bytes.all.current"]
        result = operator(x, w)
        peak = torch.cuda.memory_stats()["requested_bytes.all.peak"] - before
        # Beside the result and the packed rows a number or two of each row and output.
        assert peak <= 4 * (result.numel() + packed.numel()) + 8 * (n + m)


@pytest.mark.parametrize("size", [1, 7, 32, 40, 64, 96, 128, 160, 256, 500, 512, 1000])
@pytest.mark.parametrize("name", [name for name in OPERATORS if name.startswith("bspmm")])
def test_aggregation_equals_the_cpu_kernels(name, size, sampler):
    for seed, (n, m) in enumerate([(3000, 2500), (700, 4000), (40000, 300)]):
        arguments = sampler(seed=seed).arguments(name, n, size, m, optional=seed == 1 or None)
        operator = getattr(torch.ops.bitgnn, name)
        equal(operator(**moved(arguments, CUDA)), operator(**arguments))


def star(num_nodes, hub_edges, edges, seed=0):
    """A random graph with one node that ``hub_edges`` edges enter."""
    generator = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(num_nodes, (2, edges), generator=generator)
    edge_index[1, :hub_edges] = num_nodes // 3
    return BitAdjacency.from_edge_index(edge_index, num_nodes, normalize="sym")


@pytest.mark.parametrize("hub_edges", [0, 31, 33, 300, 1025, 5425, 70000])
@pytest.mark.parametrize("size", [40, 128, 256, 602])
@pytest.mark.parametrize("letter", ["b", "t"])
def test_hubs_and_layouts(letter, hub_edges, size):
    adjacency = star(20000, hub_edges, 100_000 + hub_edges)
    x, threshold = torch.randn(20000, size), torch.randn(size)
    x = BitTensor.from_float(x) if letter == "b" else TernaryTensor.from_float(x, 0.9)
    to_float, to_bits = (getattr(bspmm, f"{letter}b{z}") for z in "fb")
    for layout in ("csr", "sliced"):
        there = x.to(CUDA), adjacency.to(CUDA)
        for more in ({"integer": True}, {"bias": threshold}):
            found = to_float(*there, layout=layout, **moved(more, CUDA))
            assert torch.equal(found.cpu(), to_float(x, adjacency, **more))
        for more in ({}, {"threshold": threshold}):
            found = to_bits(*there, layout=layout, **moved(more, CUDA))
            assert torch.equal(found.words.cpu(), to_bits(x, adjacency, **more).words)


def test_slices_beyond_shared_memory_are_refused():
    adjacency = star(40000, 0, 1000).to(CUDA)
    bits = BitTensor.from_float(torch.randn(40000, 40, device=CUDA))
    slices = vars(adjacency.sliced(40000))
    arguments = {k: v for k, v in slices.items() if k not in ("num_rows", "num_cols")}
    with pytest.raises(RuntimeError, match=r"slice_size must be at most \d+ on this device, got"):
        torch.ops.bitgnn.bspmm_bbb_sliced(x=bits.words, size=40, **arguments)


def test_default_layout_on_a_dense_graph():
    generator = torch.Generator(CUDA).manual_seed(0)
    edge_index = torch.randint(20000, (2, 12_000_000), device=CUDA, generator=generator)
    adjacency = BitAdjacency.from_edge_index(edge_index, 20000)
    bits = BitTensor.from_float(torch.randn(20000, 128, device=CUDA))
    found = bspmm.bbf(bits, adjacency, integer=True)
    assert adjacency.has_sliced()
    assert torch.equal(found, bspmm.bbf(bits, adjacency, integer=True, layout="csr"))
    fresh = BitAdjacency.from_edge_index(edge_index, 20000)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):  # where a layout cannot be built
        captured = bspmm.bbf(bits, fresh, integer=True)
    graph.replay()
    assert torch.equal(captured, found)


@pytest.mark.parametrize("name", OPERATORS)
def test_graph_capture(name, sampler):
    operator = getattr(torch.ops.bitgnn, name)
    arguments = moved(sampler(seed=1).arguments(name, 300, 130, 200, optional=True), CUDA)
    if any(a.name == "trusted" for a in operator.default._schema.arguments):
        arguments["trusted"] = True  # looking at patterns waits for the GPU
    expected = operator(**arguments)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = operator(**arguments)
    for result in captured if isinstance(captured, tuple) else (captured,):
        result.zero_()
    graph.replay()
    torch.cuda.synchronize()
    equal(captured, expected)


@pytest.mark.parametrize("name", ["bmm_fbb", "bmm_bbb", "bspmm_bbb", "bspmm_fbf", "pack_scaled"])
def test_two_streams_at_once(name, sampler):
    operator = getattr(torch.ops.bitgnn, name)
    jobs = [sampler(seed=seed).arguments(name, 3000, 300, 2000, optional=True) for seed in (1, 2)]
    expected = [operator(**job) for job in jobs]
    on_gpu = [moved(job, CUDA) for job in jobs]
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    found: list[list] = [[], []]
    for _ in range(20):
        for i, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                found[i].append(operator(**on_gpu[i]))
    torch.cuda.synchronize()
    for i in range(2):
        for result in found[i]:
            equal(result, expected[i])


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="fewer than two CUDA devices")
@pytest.mark.parametrize("name", OPERATORS)
def test_second_device(name, sampler):
    operator = getattr(torch.ops.bitgnn, name)
    arguments = sampler(seed=3).arguments(name, 200, 130, 150, optional=True)
    assert torch.cuda.current_device() == 0
    found = operator(**moved(arguments, torch.device("cuda:1")))
    first = found[0] if isinstance(found, tuple) else found
    assert first.device.index == 1
    assert torch.cuda.current_device() == 0
    equal(found, operator(**arguments))


def test_operands_on_different_devices_are_refused():
    x, w = torch.randn(4, 40), torch.randn(3, 40)
    with pytest.raises(ValueError, match=r"bmm.fbb: w must be on cuda:0 .*got cpu"):
        bmm.fbb(x.to(CUDA), BitTensor.from_float(w))
    words = torch.ops.bitgnn.pack(w)
    with pytest.raises(RuntimeError, match="bmm_fbb: w must be on a CUDA device"):
        torch.ops.bitgnn.bmm_fbb(x.to(CUDA), words)
    with pytest.raises(RuntimeError, match="bmm_fbb: x must be on a CUDA device"):
        torch.ops.bitgnn.bmm_fbb(x, words.to(CUDA))


def test_results_repeat():
    adjacency = star(20000, 5000, 200_000).to(CUDA)
    x = torch.randn(20000, 128, device=CUDA)
    first = bspmm.fbf(x, adjacency)
    for _ in range(5):
        assert torch.equal(bspmm.fbf(x, adjacency), first)


def test_layouts_are_built_on_the_gpu():
    adjacency = BitAdjacency.from_edge_index(torch.randint(3000, (2, 20000)), 3000, coalesce=True)
    on_gpu = adjacency.to(CUDA)
    mine, theirs = on_gpu.frdc(), adjacency.frdc()
    assert mine is not None
    assert theirs is not None
    for name in ("tile_rowptr", "tile_cols", "tiles"):
        assert getattr(mine, name).is_cuda
        assert torch.equal(getattr(mine, name).cpu(), getattr(theirs, name))

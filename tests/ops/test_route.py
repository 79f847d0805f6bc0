"""Dry runs: every operator has a route for every shape, inside the device's limits, without a GPU.

Where torch has no CUDA, BITGNN_CUDA_LIBRARY names the folder of a library from build_cuda.sh.
"""

import math
import random

import pytest
import torch
from sampler import Sampler

from bitgnn._library import load_for_dry_runs
from bitgnn.ops.reference import OPERATORS
from bitgnn.ops.reference.pairs import HEADS
from bitgnn.ops.route import DEVICES, route

PROBLEM = load_for_dry_runs()
needs_library = pytest.mark.skipif(bool(PROBLEM), reason=f"no dry runs: {PROBLEM}")
MOST_IN_X, MOST_IN_Y = 2**31 - 1, 65535
META = torch.device("meta")


def words(*shape):
    return torch.empty(*shape[:-1], -(-shape[-1] // 32), dtype=torch.int32, device=META)


def bytes_of(rows, size):
    return torch.empty(rows, -(-size // 16) * 16, dtype=torch.int8, device=META)


def floats(*shape):
    return torch.empty(*shape, device=META)


def check(name, device, found, works=True):
    limits = DEVICES[device]
    assert found.launches or not works, f"{name} on {device}: nothing is launched"
    for launch in found.launches:
        assert 1 <= launch.threads <= 1024, f"{name} on {device}: {launch}"
        assert 0 <= launch.shared_bytes <= limits.shared_bytes, f"{name} on {device}: {launch}"
        x, y, z = launch.blocks
        inside = 1 <= x <= MOST_IN_X and 1 <= y <= MOST_IN_Y and 1 <= z <= MOST_IN_Y
        assert inside, f"{name} on {device}: {launch}"
    assert 0 <= found.scratch_bytes < 2**40


@needs_library
def test_small_and_ragged_shapes():
    count = 0
    names = [n for n in OPERATORS if torch._C._dispatch_has_kernel(f"bitgnn_dry::{n}")]
    assert len(names) >= 60
    for seed, (n, k, m) in enumerate([(1, 1, 1), (7, 33, 5), (40, 64, 32), (130, 257, 70)]):
        for name in names:
            for optional in (False, True):
                arguments = Sampler(seed).arguments(name, n, k, m, optional=optional)
                tensors = [t for t in arguments.values() if isinstance(t, torch.Tensor)]
                works = all(t.numel() for t in tensors)  # without images there is nothing to do
                for device in DEVICES:
                    try:
                        found = route(name, **arguments, device=device)
                    except RuntimeError as error:  # what a device cannot hold is refused by name
                        problem = str(error)
                    else:
                        problem = ""
                    if problem:
                        assert problem.startswith(f"{name}: "), (device, problem)
                        continue
                    check(name, device, found, works)
                    count += 1
    assert count > 1500


def shapes(number):
    """Rows, outputs and features: small, large, long, ragged and whole."""
    draw = random.Random(0)
    for _ in range(number):
        rows = int(2 ** draw.uniform(0, 22))
        outputs = int(2 ** draw.uniform(0, 13))
        size = int(2 ** draw.uniform(0, 15))
        if draw.random() < 0.5:
            size = -(-size // 128) * 128
        if draw.random() < 0.3:
            outputs = -(-outputs // 64) * 64
        yield rows, outputs, size


def calls(rows, outputs, size):
    """A call of each operator that takes operands of any size."""
    x, w, vector = words(rows, size), words(outputs, size), floats(outputs)
    yield "bmm_bbb", (x, w, size)
    yield "bmm_bbb", (x, w, size, None, vector, vector, vector)
    yield "bmm_bbf", (x, w, size, None, vector)
    yield "bmm_fbb", (floats(rows, size), w)
    yield "bmm_add", (x, w, floats(rows, outputs), size)
    codes, weight = bytes_of(rows, size), bytes_of(outputs, size)
    yield "bmm_iif", (codes, weight, size, vector, vector)
    yield "bmm_iib", (codes, weight, size)
    yield "bmm_add_iib", (codes, weight, floats(rows, outputs), size)
    yield "bmm_fib", (floats(rows, size), floats(size), floats(size), weight)
    yield "pack_int8", (floats(rows, size), floats(size), floats(size))
    planes = torch.empty(rows, 2, x.size(1), dtype=torch.int32, device=META)
    yield "bmm_tbf", (planes, torch.empty(rows, dtype=torch.int32, device=META), w, size)
    yield "pack", (floats(rows, size),)
    yield "pack_scaled", (floats(rows, size),)
    yield "pack_standardized", (floats(rows, size), True, True)
    yield "unpack", (x, size)
    yield "transpose_bits", (x, size)
    yield "linear_ternary", (floats(rows, size), w, size, torch.ones(()))
    rowptr = torch.empty(rows + 1, dtype=torch.int64, device=META)
    indices = torch.empty(rows * min(outputs, 100), dtype=torch.int32, device=META)
    yield "bspmm_bbb", (x, size, rowptr, indices)
    yield "bspmm_bbf", (x, size, rowptr, indices)
    yield "bspmm_fbf", (floats(rows, size), rowptr, indices)
    yield "bspmm_fbb", (floats(rows, size), rowptr, indices)
    yield "bmm_bspmm", (x, w, size, rowptr, indices)
    yield "bmm_bspmm_narrow", (x, w, size, rowptr, indices)


@needs_library
def test_every_size_has_a_route_inside_the_limits():
    count = 0
    for rows, outputs, size in shapes(250):
        for name, arguments in calls(rows, outputs, size):
            for device in DEVICES:
                found = route(name, *arguments, device=device)
                check(name, device, found)
                count += 1
                # Work for milliseconds keeps the schedulers of every multiprocessor busy.
                work = rows * outputs * size if name.startswith("bmm_") else 0
                busiest = max(
                    math.prod(launch.blocks) * launch.threads for launch in found.launches
                )
                is_busy = busiest >= 128 * DEVICES[device].sm_count
                assert work < 2**36 or is_busy, (name, device, rows, outputs, size, found)
    assert count > 20_000


PINNED = {
    (2048, 2048, 2048): "bmm_wgmma_kernel",
    (2708, 64, 1433): "bmm_mma_kernel",
    (10, 5, 33): "bmm_few_kernel",
    (89250, 64, 500): "bmm_compared_direct_kernel",
    (232965, 64, 602): "bmm_compared_kernel",
    (89250, 64, 7000): "bmm_mma_kernel",
}


@needs_library
@pytest.mark.parametrize("shape", PINNED, ids=str)
def test_benchmarked_products_stay_where_they_were_measured(shape):
    rows, outputs, size = shape
    found = route("bmm_bbb", words(rows, size), words(outputs, size), size, device="H200")
    assert PINNED[shape] in found.launches[-1].kernel, found
    logic = route("bmm_bbb", words(rows, size), words(outputs, size), size, device="RTX 5090")
    assert "(bitgnn::cuda::bmm::BmmUnit)1" in logic.launches[-1].kernel, logic


# Rows, outputs and features: kernels from codes and from float32, each to bits and to floats.
PINNED_INT8 = {
    (89250, 256, 500): ("wgmma", "wgmma", "wgmma", "wgmma"),
    (2449029, 128, 100): ("wgmma", "wgmma", "wgmma", "pack wgmma"),
    (169343, 256, 128): ("wgmma", "wgmma", "wgmma", "pack wgmma"),
    (89250, 256, 1000): ("wgmma", "wgmma", "wgmma", "pack wgmma"),
    (89250, 500, 1000): ("wgmma", "wgmma", "pack wgmma", "pack wgmma"),
    (89250, 256, 4096): ("mma", "mma", "pack mma", "pack mma"),
    (10, 5, 33): ("mma", "mma", "mma", "mma"),
}


@needs_library
@pytest.mark.parametrize("shape", PINNED_INT8, ids=str)
def test_8_bit_products_stay_where_they_were_measured(shape):
    rows, outputs, size = shape
    weight, scales = bytes_of(outputs, size), (floats(size), floats(size))
    calls = (
        ("bmm_iib", (bytes_of(rows, size), weight, size)),
        ("bmm_iif", (bytes_of(rows, size), weight, size)),
        ("bmm_fib", (floats(rows, size), *scales, weight)),
        ("bmm_fif", (floats(rows, size), *scales, weight)),
    )
    for (name, arguments), expected in zip(calls, PINNED_INT8[shape], strict=True):
        found = route(name, *arguments, device="H200")
        steps = [
            next(step for step in ("pack", "wgmma", "mma") if step in launch.kernel.split("<")[0])
            for launch in found.launches
        ]
        assert " ".join(steps) == expected, (name, found)
        ampere = route(name, *arguments, device="A100").launches[-1].kernel
        assert "int8_mma_kernel" in ampere, (name, ampere)


@needs_library
def test_floats_are_packed_first_where_no_kernel_does_both():
    def kernels(x, outputs, device):
        w = words(outputs, x.size(1))
        found = route("bmm_fbf", x, w, None, torch.empty(outputs, device=META), device=device)
        return [launch.kernel for launch in found.launches], found.scratch_bytes

    many, bytes_of_many = kernels(floats(100_000, 1024), 512, "H200")
    assert "pack_kernel" in many[0]
    assert "bmm_wgmma_kernel" in many[-1]
    assert bytes_of_many >= 100_000 * 1024 // 8
    assert len(kernels(floats(100_000, 1024), 256, "A100")[0]) == 1
    assert "pack_kernel" in kernels(floats(100_000, 1024), 512, "A100")[0][0]
    assert len(kernels(floats(100_000, 1024), 64, "H200")[0]) == 1
    for x in (floats(100, 40), floats(100, 40).double(), floats(100, 40).byte()):
        first, *_, last = kernels(x, 9, "RTX 5090")[0]
        assert "pack_kernel" in first
        assert "(bitgnn::cuda::bmm::BmmUnit)1" in last
    assert "pack_kernel" in kernels(floats(100, 40).double(), 9, "H200")[0][0]


@needs_library
def test_rows_of_tiles_and_ragged_ternary_planes_share_kernels():
    rowptr = torch.empty(1001, dtype=torch.int64, device=META)
    indices = torch.empty(9000, dtype=torch.int32, device=META)
    tile_rowptr, tile_cols = rowptr[:251], indices[:4000]
    tiles = torch.empty(4000, dtype=torch.int16, device=META)
    found = route(
        "bspmm_bbb_frdc", words(1000, 128), 128, tile_rowptr, tile_cols, tiles, 1000, device="H200"
    )
    first, second = found.launches
    assert "count_tile_edges" in first.kernel
    assert "TileRows" in second.kernel
    assert found.scratch_bytes == 4000
    for size, copied in ((33, False), (20, True), (64, False), (65, True), (128, False)):
        planes = words(1000, 2, size)
        found = route("bspmm_tbf", planes, size, rowptr, indices, device="H200")
        assert (found.scratch_bytes > 0) is copied, (size, found)


@needs_library
@pytest.mark.parametrize(("degree", "size"), [(10, 128), (10, 96), (10, 640), (50, 128)])
def test_sums_beside_a_product_take_two_kernels_at_most(degree, size):
    rows = 40_000
    rowptr = torch.empty(rows + 1, dtype=torch.int64, device=META)
    indices = torch.empty(degree * rows, dtype=torch.int32, device=META)
    found = route(
        "bspmm_bmm", words(rows, 128), rowptr, indices, words(rows, size), words(128, size), size,
        device="H200",
    )  # fmt: skip
    staged = ["staged" in launch.kernel for launch in found.launches]
    assert staged == ([True, True] if (degree, size) == (10, 128) else [False]), found


# Classes, features, features of the root and the product's kernel; a root of too many features for
# the elements of the sums takes a kernel of its own.
@needs_library
@pytest.mark.parametrize(
    ("classes", "size", "root_size", "product", "count"),
    [
        (7, 256, 256, "narrow_product_kernel", 2),
        (40, 256, 256, "narrow_tensor_kernel", 2),
        (41, 128, 128, "narrow_tensor_kernel", 2),
        (40, 96, 96, "narrow_product_kernel", 2),  # odd words
        (40, 256, 2048, "narrow_tensor_kernel", 3),
    ],
)
def test_root_terms_are_part_of_the_products_and_the_sums(classes, size, root_size, product, count):
    rows = 100_000
    rowptr = torch.empty(rows + 1, dtype=torch.int64, device=META)
    indices = torch.empty(8 * rows, dtype=torch.int32, device=META)
    order = torch.empty(rows, 2, dtype=torch.int64, device=META)
    operands = (words(rows, size), words(classes, size), size, rowptr, indices)
    for given in ({}, {"order": order}):
        found = route(
            "bmm_bspmm_narrow", *operands,
            x_scale=floats(rows), root=words(rows, root_size), root_w=words(classes, root_size),
            root_size=root_size, **given, device="H200",
        )  # fmt: skip
        kernels = [launch.kernel for launch in found.launches]
        assert len(kernels) == count, found
        assert product in kernels[0], found
        assert "aggregate_narrow_kernel" in kernels[1], found
        assert ("OrderedPattern" in kernels[1]) is bool(given), found
    blackwell = route("bmm_bspmm_narrow", *operands, device="RTX 5090")
    assert "narrow_product_kernel" in blackwell.launches[0].kernel, blackwell


@needs_library
def test_a_route_says_what_is_wrong():
    with pytest.raises(ValueError, match="operator must be one with CUDA kernels, got 'bmm_xyz'"):
        route("bmm_xyz")
    with pytest.raises(ValueError, match="device must be one of A100, H100"):
        route("bmm_bbb", words(3, 40), words(2, 40), 40, device="abacus")
    with pytest.raises(RuntimeError, match=r"^bmm_bbb: "):
        route("bmm_bbb", words(3, 40), words(2, 70), 40, device="H200")
    found = route("bmm_bbb", words(3, 40), words(2, 40), 40, device="H200")
    assert len(found.launches) == 1  # nothing of the calls that failed
    assert str(found).endswith("scratch memory: 0 bytes")


@pytest.mark.cuda
def test_calls_run_as_before_behind_a_dry_run():
    x, w = (torch.ops.bitgnn.pack(torch.randn(n, 500, device="cuda")) for n in (3000, 700))
    before = torch.ops.bitgnn.bmm_bbf(x, w, 500)
    found = route("bmm_bbf", x, w, 500)
    assert len(found.launches) >= 1
    assert "unknown" not in str(found)
    assert torch.equal(torch.ops.bitgnn.bmm_bbf(x, w, 500), before)


@needs_library
def test_scratch_memory_is_the_most_at_once_beside_the_result():
    rows, size, outputs = 5000, 256, 200
    rowptr = torch.empty(rows + 1, dtype=torch.int64, device=META)
    indices = torch.empty(rows * 4, dtype=torch.int32, device=META)
    x, w = words(rows, size), words(outputs, size)
    # What a call makes for itself alone counts, in operators and in torch's part of them.
    hidden = route("bmm_bspmm", x, w, size, rowptr, indices, hidden_bits=False, device="H200")
    sums = route("bspmm_fbf", floats(rows, outputs), rowptr, indices, device="H200")
    assert hidden.scratch_bytes == 4 * rows * outputs + sums.scratch_bytes
    pair = ("bmm_bspmm_narrow", x, w, size, rowptr, indices)
    scores = route(*pair, device="H200").scratch_bytes
    softmax = route(*pair, head=HEADS["softmax"], device="H200").scratch_bytes
    assert softmax == max(scores, 4 * rows * outputs)  # one after the other
    # Results of calls before are none of this one's, whether they are still there or not.
    assert route(*pair, device="H200").scratch_bytes == scores
    assert route("unpack", x, size, device="H200").scratch_bytes == 0

"""Dry runs: every operator has a route for every shape, inside the device's limits, without a GPU.

Where torch has no CUDA, BITGNN_CUDA_LIBRARY names the folder of a library from build_cuda.sh.
"""

import inspect
import math
import random

import pytest
import torch
from sampler import Sampler

from bitgnn._library import load_for_dry_runs
from bitgnn.bits.int8 import bytes_for
from bitgnn.bits.tensor import words_for
from bitgnn.ops.reference.pairs import HEADS
from bitgnn.ops.reference.table import TABLE
from bitgnn.ops.route import DEVICES, route

PROBLEM = load_for_dry_runs()
needs_library = pytest.mark.skipif(bool(PROBLEM), reason=f"no dry runs: {PROBLEM}")
MOST_IN_X, MOST_IN_Y = 2**31 - 1, 65535
META = torch.device("meta")


KINDS = {
    "W(": torch.int32, "C(": torch.int8, "rowptr": torch.int64, "indices": torch.int32,
    "counts": torch.int32, "order": torch.int64, "flip": torch.bool,
}  # fmt: skip


def on_meta(name, rows, size, outputs, edges=0, optional=(), **chosen):
    """Required and some optional arguments by the operator's row of the table, without memory."""
    sizes = {"N": rows, "_": rows, "K": size, "size": size, "M": outputs, "P": rows + 1}
    sizes |= {"E": edges, "R": rows, "root_size": chosen.get("root_size", 0)}
    given = {}
    for key, parameter in inspect.signature(TABLE[name].reference).parameters.items():
        required = parameter.default is inspect.Parameter.empty
        if key in chosen or not (required or key in optional):
            continue
        if key not in TABLE[name].operands:
            given[key] = size if parameter.annotation is int else torch.empty((), device=META)
            continue
        shape, dtype = [], KINDS.get(key, torch.float32)
        for term in TABLE[name].operands[key]:
            base, _, less = term.strip("WC()").partition("-")
            value = int(base) if base.isdigit() else sizes[base] - int(less or 0)
            value = {"W(": words_for, "C(": bytes_for}.get(term[:2], int)(value)
            dtype = KINDS.get(term[:2], dtype)
            shape.append(value)
        given[key] = torch.empty(shape, dtype=dtype, device=META)
    return given | chosen


def floats(*shape):
    return torch.empty(*shape, device=META)


def packed(rows, size):
    return torch.empty(rows, words_for(size), dtype=torch.int32, device=META)


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
    names = [n for n in TABLE if torch._C._dispatch_has_kernel(f"bitgnn_dry::{n}")]
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


COMPARED = ("bias", "threshold", "flip")
CALLS = [("bmm_bbb", ()), ("bmm_bbb", COMPARED), ("bmm_bbf", ("bias",)), ("bmm_iif", ("scale",))]
CALLS += [
    (name, ())
    for name in (
        "bmm_fbb", "bmm_iib", "bmm_add_iib", "bmm_fib", "pack_int8", "bmm_tbf", "pack",
        "pack_scaled", "pack_standardized", "unpack", "transpose_bits", "bspmm_bbb", "bspmm_bbf",
        "bspmm_fbf", "bspmm_fbb",
    )
]  # fmt: skip
# Their x may be packed or floats, and has no rule where it may be of any shape.
WITH_X = {"bmm_add": "W", "bmm_bspmm": "W", "bmm_bspmm_narrow": "W", "linear_ternary": "F"}


def calls(rows, outputs, size):
    """A call of each operator that takes operands of any size."""
    edges = rows * min(outputs, 100)
    for name, optional in CALLS:
        yield name, on_meta(name, rows, size, outputs, edges, optional)
    for name, kind in WITH_X.items():
        x = packed(rows, size) if kind == "W" else floats(rows, size)
        yield name, on_meta(name, rows, size, outputs, edges, x=x)


@needs_library
def test_every_size_has_a_route_inside_the_limits():
    count = 0
    for rows, outputs, size in shapes(250):
        for name, arguments in calls(rows, outputs, size):
            for device in DEVICES:
                found = route(name, **arguments, device=device)
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
    given = on_meta("bmm_bbb", rows, size, outputs)
    found = route("bmm_bbb", **given, device="H200")
    assert PINNED[shape] in found.launches[-1].kernel, found
    logic = route("bmm_bbb", **given, device="RTX 5090")
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
    names = ("bmm_iib", "bmm_iif", "bmm_fib", "bmm_fif")
    for name, expected in zip(names, PINNED_INT8[shape], strict=True):
        arguments = on_meta(name, rows, size, outputs)
        found = route(name, **arguments, device="H200")
        steps = [
            next(step for step in ("pack", "wgmma", "mma") if step in launch.kernel.split("<")[0])
            for launch in found.launches
        ]
        assert " ".join(steps) == expected, (name, found)
        ampere = route(name, **arguments, device="A100").launches[-1].kernel
        assert "int8_mma_kernel" in ampere, (name, ampere)


@needs_library
def test_floats_are_packed_first_where_no_kernel_does_both():
    def kernels(x, outputs, device):
        given = on_meta("bmm_fbf", *x.shape, outputs, optional=("bias",), x=x)
        found = route("bmm_fbf", **given, device=device)
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
    tile_rowptr = torch.empty(251, dtype=torch.int64, device=META)
    tile_cols = torch.empty(4000, dtype=torch.int32, device=META)
    tiles = torch.empty(4000, dtype=torch.int16, device=META)
    found = route(
        "bspmm_bbb_frdc", packed(1000, 128), 128, tile_rowptr, tile_cols, tiles, 1000, device="H200"
    )
    first, second = found.launches
    assert "count_tile_edges" in first.kernel
    assert "TileRows" in second.kernel
    assert found.scratch_bytes == 4000
    for size, copied in ((33, False), (20, True), (64, False), (65, True), (128, False)):
        found = route("bspmm_tbf", **on_meta("bspmm_tbf", 1000, size, 0, 9000), device="H200")
        assert (found.scratch_bytes > 0) is copied, (size, found)


@needs_library
@pytest.mark.parametrize(("degree", "size"), [(10, 128), (10, 96), (10, 640), (50, 128)])
def test_sums_beside_a_product_take_two_kernels_at_most(degree, size):
    given = on_meta("bspmm_bmm", 40_000, size, 128, degree * 40_000)
    found = route("bspmm_bmm", **given, device="H200")
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
    rows, name = 100_000, "bmm_bspmm_narrow"
    plain = {"x": packed(rows, size), "root_size": root_size}
    for optional in ((), ("order",)):
        more = ("x_scale", "root", "root_w", *optional)
        given = on_meta(name, rows, size, classes, 8 * rows, more, **plain)
        found = route(name, **given, device="H200")
        kernels = [launch.kernel for launch in found.launches]
        assert len(kernels) == count, found
        assert product in kernels[0], found
        assert "aggregate_narrow_kernel" in kernels[1], found
        assert ("OrderedPattern" in kernels[1]) is bool(optional), found
    given = on_meta(name, rows, size, classes, 8 * rows, x=packed(rows, size))
    blackwell = route(name, **given, device="RTX 5090")
    assert "narrow_product_kernel" in blackwell.launches[0].kernel, blackwell


@needs_library
def test_a_route_says_what_is_wrong():
    with pytest.raises(ValueError, match="operator must be one with CUDA kernels, got 'bmm_xyz'"):
        route("bmm_xyz")
    with pytest.raises(ValueError, match="device must be one of A100, H100"):
        route("bmm_bbb", packed(3, 40), packed(2, 40), 40, device="abacus")
    with pytest.raises(RuntimeError, match=r"^bmm_bbb: "):
        route("bmm_bbb", packed(3, 40), packed(2, 70), 40, device="H200")
    found = route("bmm_bbb", packed(3, 40), packed(2, 40), 40, device="H200")
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
    rows, size, outputs, edges = 5000, 256, 200, 20_000

    def scratch(name, size=size, **chosen):
        return route(name, **on_meta(name, rows, size, outputs, edges, **chosen), device="H200")

    # What a call makes for itself alone counts, in operators and in torch's part of them.
    x = packed(rows, size)
    hidden = scratch("bmm_bspmm", x=x, hidden_bits=False).scratch_bytes
    sums = scratch("bspmm_fbf", outputs).scratch_bytes
    assert hidden == 4 * rows * outputs + sums
    scores = scratch("bmm_bspmm_narrow", x=x).scratch_bytes
    softmax = scratch("bmm_bspmm_narrow", x=x, head=HEADS["softmax"]).scratch_bytes
    assert softmax == max(scores, 4 * rows * outputs)  # one after the other
    # Results of calls before are none of this one's, whether they are still there or not.
    assert scratch("bmm_bspmm_narrow", x=x).scratch_bytes == scores
    assert scratch("unpack").scratch_bytes == 0

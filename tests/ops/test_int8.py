"""8-bit rows: codes, exact products, the order of float steps, ugly values, strides and threads."""

import math

import pytest
import torch
from sampler import CODES
from torch.nn import functional

from bitgnn.bits.int8 import MOST_FEATURES
from bitgnn.ops.reference import OPERATORS

OPS = torch.ops.bitgnn
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
FEATURES = [0, 1, 15, 16, 17, 31, 32, 33, 47, 63, 64, 65, 130, 1000]
# None, one, few that read weights in place, tiles of rows and what is left of them, whole blocks.
ROWS = [0, 1, 2, 3, 5, 8, 9, 31, 32, 33, 95, 97, 200]
OUTPUTS = [1, 31, 32, 33, 64, 256]


def assert_same(name, arguments, device):
    """An operator equals its reference to the last bit, on every device."""
    moved = {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in arguments.items()}
    found, expected = getattr(OPS, name)(**moved).cpu(), OPERATORS[name](**arguments)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("size", FEATURES)
@pytest.mark.parametrize("name", CODES)
def test_sizes(name, size, device, sampler):
    draw = sampler(seed=size)
    for place, rows in enumerate(ROWS):  # all pairs within a few features
        for outputs in {
            OUTPUTS[(place + size) % len(OUTPUTS)],
            OUTPUTS[(place + 2) % len(OUTPUTS)],
        }:
            assert_same(name, draw.arguments(name, rows, size, outputs), device)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ["pack_int8", "bmm_fif", "bmm_fib"])
def test_floats_of_every_type_and_layout(name, dtype, device, sampler):
    draw = sampler(seed=1, dtype=dtype, special=True)
    for rows, size in ((7, 33), (150, 100), (40, 500), (2100, 260)):
        arguments = draw.arguments(name, rows, size, 70, optional=True)
        x = arguments["x"].contiguous()
        wide, twice = torch.cat([x, x], 1), x.repeat_interleave(2, 0)
        spread = torch.stack([x, x], 2).flatten(1)[:, ::2]
        for view in (x, x.t().contiguous().t(), wide[:, :size], twice[::2], spread, wide[:, size:]):
            assert torch.equal(view.nan_to_num(7.0), x.nan_to_num(7.0))
            assert_same(name, arguments | {"x": view}, device)


def test_rounding_clamping_and_what_is_no_number(device):
    values = [0.5, 1.5, 2.5, -0.5, -1.5, 126.5, 127.4, 127.6, 1e30, -127.5, -1e30, -0.0, 0.49999997]
    codes = [0, 2, 2, 0, -2, 126, 127, 127, 127, -127, -127, 0, 0]
    values += [math.nan, math.inf, -math.inf]
    codes += [0, 127, -127]
    x = torch.tensor([values, values[::-1]], device=device)
    zeros, ones = torch.zeros(16, device=device), torch.ones(16, device=device)
    assert OPS.pack_int8(x, zeros, ones).tolist() == [codes, codes[::-1]]
    # A constant column; without a difference there is nothing to scale, not even infinity.
    assert OPS.pack_int8(x, zeros, zeros).count_nonzero() == 0
    found = OPS.pack_int8(x[:, :3], torch.tensor([0.5, math.nan, math.inf]).to(device), ones[:3])
    assert found.tolist() == [[0, 0, -127, *[0] * 13], [-127, 0, 0, *[0] * 13]]
    third = OPS.pack_int8(x[:1, 2:3], zeros[:1], torch.tensor([math.nan]).to(device))
    assert third.count_nonzero() == 0


def test_difference_and_product_are_rounded_one_by_one(device):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(6000, 300, generator=generator)
    centre, step = (torch.randn(300, generator=generator) for _ in range(2))
    step = step.abs() * 40
    codes = ((x - centre) * step).round().clamp(-127, 127).to(torch.int8)
    fused = (x.double() * step.double() - (centre * step).double()).float().round().clamp(-127, 127)
    exact = ((x.double() - centre.double()) * step.double()).round().clamp(-127, 127)
    for other in (fused, exact):
        assert not torch.equal(codes, other.to(torch.int8))  # some lie where it matters
    found = OPS.pack_int8(x.to(device), centre.to(device), step.to(device)).cpu()
    assert torch.equal(found, functional.pad(codes, (0, 4)))


@pytest.mark.parametrize("rows", [1, 5, 40])
def test_the_largest_products_are_exact(rows, device):
    largest = 127 * 127 * MOST_FEATURES
    codes = torch.full((rows, MOST_FEATURES), 127, dtype=torch.int8, device=device)
    weight = torch.stack([codes[0], -codes[0], codes[0]])
    weight[2, -1] = 126
    limits = torch.tensor([largest, -largest, largest - 127], dtype=torch.int32, device=device)
    for change, bits in ((0, 7), (1, 0), (-1, 7)):
        assert OPS.bmm_iib(codes, weight, MOST_FEATURES, limits + change).eq(bits).all()
    values = OPS.bmm_iif(codes, weight, MOST_FEATURES)
    assert torch.equal(values.cpu(), limits.cpu().float().expand(rows, 3))
    x, centre = codes.float(), torch.zeros(MOST_FEATURES, device=device)
    assert OPS.bmm_fib(x, centre, centre + 1, weight, limits).eq(7).all()


def test_thresholds_that_float32_does_not_tell_apart(device):
    size = 2000
    codes = torch.zeros(6, size, dtype=torch.int8)
    codes[:, :1041] = 127
    codes[:, 1100:1106] = torch.eye(6, dtype=torch.int8)
    weight = torch.ones(1, size, dtype=torch.int8)
    weight[0, :1041] = 127
    weight[0, 1041:] = torch.arange(959) % 60 - 1
    dots = codes.long() @ weight[0].long()
    assert dots.unique().numel() == 6
    assert dots.float().unique().numel() < 6
    assert int(dots.min()) > 2**24
    codes, weight = codes.to(device), weight.to(device)
    for limit in dots.tolist():
        threshold = torch.tensor([limit], dtype=torch.int32, device=device)
        found = OPS.bmm_iib(codes, weight, size, threshold).flatten().cpu()
        assert found.tolist() == (dots >= limit).int().tolist()


def test_every_float_step_is_rounded_in_its_order(device):
    generator = torch.Generator().manual_seed(0)
    codes, weight = (
        torch.randint(-127, 128, (rows, 48), dtype=torch.int8, generator=generator)
        for rows in (300, 96)
    )
    scale, shift = (torch.randn(96, generator=generator) for _ in range(2))
    addend = torch.randn(300, 96, generator=generator) * 1e4
    dot = (codes.double() @ weight.double().t()).float()
    shift = shift * 1e4
    value = (scale * dot + shift) + addend
    others = (
        scale * dot + (shift + addend),
        (scale.double() * dot.double() + shift.double()).float() + addend,
        (scale.double() * dot.double() + shift.double() + addend.double()).float(),
    )
    on_device = [t.to(device) for t in (codes, weight, scale, shift, addend)]
    codes, weight, scale, shift, addend = on_device
    assert torch.equal(OPS.bmm_iif(codes, weight, 48, scale, shift, addend).cpu(), value)
    for part in (48, None):  # of the outputs' thresholds, some are values of the first rows
        threshold = value[0] if part is None else value[torch.arange(96) % 7, torch.arange(96)]
        bits = OPS.bmm_add_iib(codes, weight, addend, 48, scale, shift, threshold.to(device))
        found = OPS.unpack(bits, 96).cpu() > 0
        assert torch.equal(found, value >= threshold)
        assert not any(torch.equal(found, other >= threshold) for other in others)
    bare = OPS.bmm_iif(codes, weight, 48, None, shift).cpu()
    assert torch.equal(bare, dot + shift.cpu())


def test_rows_and_weights_that_begin_anywhere(device, sampler):
    arguments = sampler(seed=2).arguments("bmm_iif", 40, 60, 50, optional=True)
    expected = OPERATORS["bmm_iif"](**arguments)
    moved = {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in arguments.items()}
    for key in ("codes", "weight"):
        held = moved[key]
        raw = torch.zeros(held.numel() + 5, dtype=torch.int8, device=device)[5:]
        odd = raw.copy_(held.flatten()).view_as(held)
        assert odd.data_ptr() % 16
        wide = torch.cat([held, held], 1)[:, : held.size(1)]
        for other in (odd, wide, held.t().contiguous().t()):
            found = OPS.bmm_iif(**moved | {key: other})
            assert torch.equal(found.cpu(), expected)
    rows = moved | {"codes": moved["codes"][7:], "addend": moved["addend"][7:]}
    assert torch.equal(OPS.bmm_iif(**rows).cpu(), expected[7:])


def test_padding_of_rows_has_no_part_in_products(device, sampler):
    arguments = sampler(seed=3).arguments("bmm_iif", 100, 50, 40, optional=False)
    expected = OPERATORS["bmm_iif"](**arguments)
    for key in ("codes", "weight"):  # either is enough
        changed = arguments[key].clone()
        changed[:, 50:] = 99
        moved = {k: v.to(device) if k != "size" else v for k, v in arguments.items()}
        found = OPS.bmm_iif(**moved | {key: changed.to(device)})
        assert torch.equal(found.cpu(), expected)


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_share_rows_or_outputs(threads, sampler):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        for rows, size, outputs in ((1, 4000, 300), (7, 2000, 300), (97, 900, 200), (2000, 90, 70)):
            for name in CODES:
                arguments = sampler(seed=rows).arguments(name, rows, size, outputs)
                assert_same(name, arguments, torch.device("cpu"))
    finally:
        torch.set_num_threads(before)

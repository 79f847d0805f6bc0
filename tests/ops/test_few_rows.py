"""Products of a few rows with many weights, and fully connected first layers, of every odd size."""

import pytest
import torch

CUDA = torch.device("cuda")
pytestmark = pytest.mark.cuda


@pytest.mark.parametrize("name", ["bmm_bbb", "bmm_bbf"])
@pytest.mark.parametrize("rows", [1, 7, 8, 9, 16, 17])
@pytest.mark.parametrize("size", [1, 32, 33, 512, 1000, 9216])
def test_products(name, rows, size, sampler, assert_kernel_equals_reference):
    draw = sampler(seed=rows + size)
    for outputs in (1, 10, 16, 17, 31, 33, 100):
        for optional in (False, True, None):
            arguments = draw.arguments(name, rows, size, outputs, optional)
            assert_kernel_equals_reference(name, arguments, CUDA)


@pytest.mark.parametrize("size", [128, 1056])
def test_enough_outputs_for_wide_blocks(size, sampler, assert_kernel_equals_reference):
    for name in ("bmm_bbb", "bmm_bbf"):
        for outputs in (4096, 4100):
            arguments = sampler(seed=outputs).arguments(name, 8, size, outputs, True)
            assert_kernel_equals_reference(name, arguments, CUDA)


@pytest.mark.parametrize("rows", [1, 8, 9, 16, 17, 33, 70])
@pytest.mark.parametrize("size", [1, 4, 31, 160, 161, 784, 3000, 7000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.uint8])
def test_first_layers(rows, size, dtype, sampler, assert_kernel_equals_reference):
    draw = sampler(seed=rows + size)
    step = 1.0 if dtype == torch.uint8 else 2.0**-9
    x = torch.randn(rows, size, 1, 1, generator=draw.generator).mul(9 if step < 1 else 99)
    x = x.to(dtype)
    numbers = {"step": step, "stride": [1, 1], "padding": [0] * 4, "dilation": [1, 1]}
    for outputs in (10, 16, 257):
        w = draw.bits(outputs, size).view(outputs, 1, 1, -1)
        bias, threshold = draw.floats(outputs), draw.floats(outputs)
        flip = torch.rand(outputs, generator=draw.generator) < 0.5
        scale = torch.rand(outputs, generator=draw.generator)
        shared = numbers | {"x": x, "w": w, "w_scale": scale, "bias": bias}
        compared = {"threshold": threshold, "flip": flip}
        assert_kernel_equals_reference("conv_fbb", shared | compared, CUDA)
        assert_kernel_equals_reference("conv_fbf", shared, CUDA)
        integers = numbers | {"x": x, "w": w, "integer": True}
        assert_kernel_equals_reference("conv_fbf", integers, CUDA)

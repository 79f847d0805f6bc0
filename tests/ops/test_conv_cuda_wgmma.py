"""Big binary convolutions on Hopper, whose kernel multiplies in warpgroups: equal to the CPU's."""

import pytest
import torch

from bitgnn.bits import BitImages
from bitgnn.ops import conv

pytestmark = pytest.mark.cuda

# Images, height, width, channels, outputs, kernel, stride, padding: layers of networks; channels
# with an odd number of 128-bit pieces; outputs that fill no tile; borders of many classes; images
# smaller than a tile; weights that stay and weights that stream. Then boxes of pixels: many a
# block; rows of several units, too long to be copied as one, the longest; units of several rows
# and running on; boxes of several images; phases of strides in another order than theirs; a border
# of 25 classes.
SHAPES = [
    (40, 28, 28, 128, 128, 3, 1, 1), (24, 28, 28, 64, 64, 3, 1, 1), (80, 28, 28, 64, 128, 3, 2, 1),
    (80, 14, 14, 256, 512, 3, 2, 1), (96, 7, 7, 512, 512, 3, 1, 1), (8, 32, 32, 640, 320, 3, 1, 1),
    (3, 33, 95, 384, 288, 3, 1, 1), (90, 28, 28, 128, 256, 1, 2, 0), (40, 21, 20, 128, 96, 5, 1, 2),
    (40, 23, 19, 64, 64, 5, 2, 2), (75, 14, 14, 256, 64, 7, 1, 3),
    (9000, 2, 3, 128, 32, (2, 3), 1, (1, 2)), (40, 30, 17, 256, 128, 3, (1, 2), (0, 2)),
    (2, 64, 64, 2048, 256, 3, 1, 1), (440, 28, 28, 128, 128, 3, 1, 1),
    (150, 32, 32, 128, 128, 3, 1, 1), (16, 40, 65, 256, 128, 3, 1, (0, 2)),
    (140, 21, 22, 256, 128, (2, 3), (2, 1), (1, 2)), (9, 40, 65, 128, 256, 3, 1, (0, 2)),
    (16, 40, 128, 128, 128, 3, 1, 1), (8, 33, 256, 128, 128, 3, 1, (1, 0)),
    (70, 14, 14, 256, 256, 3, 1, 1), (300, 7, 7, 512, 512, 3, 1, 1),
    (130, 28, 28, 128, 256, 3, 2, 1), (600, 15, 13, 256, 128, 3, 2, 1),
    (300, 21, 22, 128, 128, (2, 3), (2, 1), (1, 2)), (900, 12, 12, 128, 128, (3, 1), 1, (1, 0)),
    (1100, 5, 5, 128, 128, 3, 1, 2),
]  # fmt: skip


def images(count, channels, height, width, seed):
    generator = torch.Generator().manual_seed(seed)
    size = (count, height, width, channels // 32)
    words = torch.randint(-(2**31), 2**31, size, generator=generator).to(torch.int32)
    return BitImages(words, channels)


def operands(shape):
    count, height, width, channels, outputs, kernel, stride, padding = shape
    rows, columns = kernel if isinstance(kernel, tuple) else (kernel, kernel)
    x = images(count, channels, height, width, 0)
    w = images(outputs, channels, rows, columns, 1)
    return x, w, {"stride": stride, "padding": padding}


def per_output(outputs, seed=2):
    generator = torch.Generator().manual_seed(seed)
    bias = torch.randn(outputs, generator=generator) * 9
    threshold = torch.randn(outputs, generator=generator) * 30
    threshold[:3] = torch.tensor([float("nan"), float("inf"), -float("inf")])
    flip = torch.rand(outputs, generator=generator) < 0.5
    return bias, threshold, flip


@pytest.mark.parametrize("shape", SHAPES)
def test_bits(shape):
    x, w, numbers = operands(shape)
    bias, threshold, flip = per_output(shape[4])
    gx, gw = x.to("cuda"), w.to("cuda")
    assert torch.equal(conv.bbb(gx, gw, **numbers).words.cpu(), conv.bbb(x, w, **numbers).words)
    named = {"bias": bias, "threshold": threshold, "flip": flip}
    expected = conv.bbb(x, w, **numbers, **named).words
    on_gpu = {k: v.cuda() for k, v in named.items()}
    assert torch.equal(conv.bbb(gx, gw, **numbers, **on_gpu).words.cpu(), expected)
    prepared = conv.prepare(gw, **on_gpu)
    found = conv.bbb(gx, gw, **numbers, **on_gpu, prepared=prepared)
    assert torch.equal(found.words.cpu(), expected)


@pytest.mark.parametrize("shape", SHAPES)
def test_values(shape):
    x, w, numbers = operands(shape)
    bias, _, _ = per_output(shape[4])
    w = BitImages(w.words, w.channels, torch.rand(shape[4]) + 0.5)
    gx, gw = x.to("cuda"), w.to("cuda")
    dots = conv.bbf(x, w, integer=True, **numbers)
    assert torch.equal(conv.bbf(gx, gw, integer=True, **numbers).cpu(), dots)
    expected = conv.bbf(x, w, bias=bias, **numbers)
    assert torch.equal(conv.bbf(gx, gw, bias=bias.cuda(), **numbers).cpu(), expected)
    plain = conv.bbf(x, w, scale=False, **numbers)
    assert torch.equal(conv.bbf(gx, gw, scale=False, **numbers).cpu(), plain)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["narrow", "half of the outputs", "wide", "none"])
def test_sums(shape, kind):
    x, w, numbers = operands(shape)
    _, threshold, flip = per_output(shape[4])
    size = conv.bbf(x, w, integer=True, **numbers).permute(0, 2, 3, 1).shape
    generator = torch.Generator().manual_seed(3)
    step = (2, 2) if kind == "half of the outputs" else (1, 1)
    channels = size[3] // (2 if kind == "half of the outputs" else 1)
    height, width = (step[0] * size[1], step[1] * size[2])
    dtype, most = (torch.int32, 2**20) if kind == "wide" else (torch.int16, 2**15)
    addend = torch.randint(-most, most, (size[0], height, width, channels), generator=generator).to(
        dtype
    )
    named = {"wide": kind == "wide", "threshold": threshold, "flip": flip}
    if kind != "none":
        named |= {"addend": addend.permute(0, 3, 1, 2), "addend_stride": step}
    expected = conv.add(x, w, **numbers, **named)
    on_gpu = {k: v.cuda() if isinstance(v, torch.Tensor) else v for k, v in named.items()}
    found = conv.add(x.to("cuda"), w.to("cuda"), **numbers, **on_gpu)
    assert torch.equal(found[0].cpu(), expected[0])
    assert torch.equal(found[1].words.cpu(), expected[1].words)
    only_bits = conv.add(x.to("cuda"), w.to("cuda"), **numbers, **on_gpu, sums=False)
    assert torch.equal(only_bits[1].words.cpu(), expected[1].words)

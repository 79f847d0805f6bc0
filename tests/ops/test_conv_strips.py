"""3 x 3 convolutions of 64 to 512 channels, on a GPU in strips of pixels: the reference."""

import pytest
import torch

# Images, height, width, channels, outputs, stride, padding (top, bottom, left, right): strips that
# are cut off at both sides, one strip, all borders and none, walks over several images.
SHAPES = {
    "walks": (13, 25, 28, 64, 64, 1, (1, 1, 1, 1)),
    "two tiles of outputs": (3, 13, 9, 64, 128, 1, (1, 1, 1, 1)),
    "stride": (5, 15, 22, 64, 64, 2, (1, 1, 1, 1)),
    "no padding": (2, 9, 11, 128, 64, 1, (0, 0, 0, 0)),
    "other padding at each side": (2, 8, 17, 128, 64, 1, (0, 1, 1, 0)),
    "stride of 128 channels": (4, 14, 30, 128, 128, 2, (1, 0, 1, 1)),
    "smallest image": (3, 2, 2, 128, 64, 1, (1, 1, 1, 1)),
    "one strip": (1, 2, 8, 256, 64, 1, (1, 1, 1, 1)),
    "256 channels": (3, 11, 14, 256, 128, 1, (1, 1, 1, 1)),
    "stride of 256 channels": (3, 14, 13, 256, 64, 2, (1, 1, 1, 1)),
    "512 channels": (5, 7, 7, 512, 64, 1, (1, 1, 1, 1)),
    "stride of 512 channels": (2, 8, 9, 512, 128, 2, (1, 1, 1, 0)),
}


def _arguments(case, draw):
    count, height, width, channels, outputs, stride, padding = SHAPES[case]
    return {
        "x": draw.images(count, channels, height, width),
        "w": draw.images(outputs, channels, 3, 3),
        "channels": channels,
        "stride": [stride, stride],
        "padding": list(padding),
        "dilation": [1, 1],
    }


def _compared(draw, outputs):
    threshold = draw.floats(outputs) * 40
    threshold[:3] = torch.tensor([float("nan"), float("inf"), -float("inf")])
    return {"threshold": threshold, "flip": draw.floats(outputs) > 0}


@pytest.mark.parametrize("case", SHAPES)
def test_bits(case, device, sampler, assert_kernel_equals_reference):
    draw = sampler(seed=5)
    arguments = _arguments(case, draw)
    outputs = arguments["w"].size(0)
    assert_kernel_equals_reference("conv_bbb", arguments, device)
    arguments |= _compared(draw, outputs)
    assert_kernel_equals_reference("conv_bbb", arguments, device)
    pool = {"pool": [2, 2], "pool_flip": draw.bits(1, outputs).flatten()}
    if min(_images(case)[1:3]) >= 2:
        assert_kernel_equals_reference("conv_bbb", arguments | pool, device)
    # Pixels without and with all bits.
    for x in (torch.zeros_like(arguments["x"]), torch.full_like(arguments["x"], -1)):
        assert_kernel_equals_reference("conv_bbb", arguments | {"x": x}, device)


def _images(case):
    """Images, height and width of the result."""
    count, height, width, _, _, stride, (top, bottom, left, right) = SHAPES[case]
    return (
        count,
        (height + top + bottom - 3) // stride + 1,
        (width + left + right - 3) // stride + 1,
    )


@pytest.mark.parametrize("case", SHAPES)
@pytest.mark.parametrize("kept", ["sums", "bits", "both"])
def test_sums(case, kept, device, sampler, assert_kernel_equals_reference):
    draw = sampler(seed=6)
    arguments = _arguments(case, draw)
    outputs = arguments["w"].size(0)
    arguments |= _compared(draw, outputs) | {"sums": kept != "bits", "bits": kept != "sums"}
    assert_kernel_equals_reference("conv_add", arguments, device)
    count, rows, columns = _images(case)
    for channels in (outputs, 8, 12):
        for step in (1, 2):
            size = (count, step * (rows - 1) + 1, step * columns, channels)
            # Totals beyond 16 bits are clamped.
            addend = torch.randint(-33000, 33000, size, generator=draw.generator)
            addend = addend.clamp(-32768, 32767).to(torch.int16)
            more = {"addend": addend, "addend_stride": [step, step]}
            assert_kernel_equals_reference("conv_add", arguments | more, device)
    wide = {"wide": True, "addend": addend.int(), "addend_stride": [2, 2]}
    assert_kernel_equals_reference("conv_add", arguments | wide, device)

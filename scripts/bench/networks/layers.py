"""Binary convolutions and linear layers of the papers' sweeps, against cuDNN, cuBLAS and oneDNN."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from bench.cases import Case, Contender, Goal, WrongResultError, same_call
from bitgnn.bits import BitImages, BitTensor
from bitgnn.ops import bmm, conv

SEED = 0
BITS, INTEGERS = "bits in and out", "bits in, int32 out"
FLOAT16 = "cuDNN fp16"
CONV_GOALS: Mapping[int, tuple[Goal, ...]] = {
    128: (Goal("ratio", 4.0, FLOAT16),),
    640: (Goal("seconds", 78e-6), Goal("ratio", 8.0, FLOAT16)),
    2048: (Goal("ratio", 9.0, FLOAT16),),
}
"""Bits in and out, 3x3, 16 images of 64x64, by channels."""
CPU_GOALS: Mapping[str, tuple[Goal, ...]] = {"128 to 128, 3x3, 56x56": (Goal("ratio", 10.0),)}
"""Times faster than torch in fp32 on two cores."""
# One product of int8 is as large as this at most: its im2col matrix is made beforehand.
MAX_COLUMN_BYTES = 2**31


@dataclass(frozen=True)
class ConvShape:
    """A convolution with stride 1 that keeps the image's size, unless ``stride`` says otherwise."""

    images: int
    size: int
    channels: int
    outputs: int
    kernel: int = 3
    stride: int = 1

    @property
    def padding(self) -> int:
        """Half of the kernel."""
        return self.kernel // 2

    @property
    def out_size(self) -> int:
        """Height and width of the result."""
        return (self.size + 2 * self.padding - self.kernel) // self.stride + 1

    @property
    def operations(self) -> float:
        """Multiplications and additions, those with the padding included."""
        pixels = self.images * self.out_size**2
        return 2.0 * pixels * self.kernel**2 * self.channels * self.outputs

    @property
    def name(self) -> str:
        """Channels, kernel and size."""
        step = "" if self.stride == 1 else f"/{self.stride}"
        return (
            f"{self.channels} to {self.outputs}, {self.kernel}x{self.kernel}{step}, "
            f"{self.size}x{self.size}"
        )


def _sweep(quick: bool) -> Iterator[tuple[str, ConvShape]]:
    """Figures 20 to 23 of TCBNN, then of BSTC: one image, one number of channels at a time."""
    if quick:
        yield "BConv, 2 images", ConvShape(2, 8, 32, 32)
        return
    for channels in range(128, 2048 + 1, 128):
        yield "BConv, 16 images", ConvShape(16, 64, channels, channels)
    for channels in (64, 128, 192, 256, 320, 384, 448, 512, 576, 640):
        yield "BConv, 1 image, 64 outputs", ConvShape(1, 64, channels, 64)
        if channels != 64:
            yield "BConv, 1 image, 64 channels", ConvShape(1, 64, 64, channels)


def conv_cases(quick: bool = False) -> Iterator[Case]:
    """Both sweeps on a GPU: bits to bits, and for that of TCBNN to integers too."""
    for group, shape in _sweep(quick):
        large = shape.images > 1
        for form in (BITS, INTEGERS) if large else (BITS,):
            goals = CONV_GOALS.get(shape.channels, ()) if large and form == BITS else ()
            yield Case(
                f"{group}, {form}",
                shape.name,
                partial(_cuda_contenders, shape, form),
                goals,
                details={"operations": shape.operations, "channels": shape.channels,
                         "outputs": shape.outputs, "images": shape.images},
            )  # fmt: skip


def _signs(*shape: int, device: str) -> Tensor:
    generator = torch.Generator(device).manual_seed(SEED)
    return torch.randint(0, 2, shape, generator=generator, device=device) * 2.0 - 1.0


def _operands(shape: ConvShape, device: str) -> tuple[Tensor, Tensor]:
    """Images and kernels of +-1 in float32, channels_last."""
    x = _signs(shape.images, shape.size, shape.size, shape.channels, device=device)
    w = _signs(shape.outputs, shape.kernel, shape.kernel, shape.channels, device=device)
    return x.permute(0, 3, 1, 2), w.permute(0, 3, 1, 2)


def _numbers(shape: ConvShape) -> dict[str, Any]:
    return {"stride": shape.stride, "padding": shape.padding}


def _cuda_contenders(shape: ConvShape, form: str) -> Iterator[Contender]:
    x, w = _operands(shape, "cuda")
    numbers = _numbers(shape)
    half = partial(functional.conv2d, x.half(), w.half(), **numbers)
    yield Contender(FLOAT16, False, same_call(half))
    if shape.images > 1 and shape.channels in CONV_GOALS:
        # Not everywhere: building the plans of a shape takes cuDNN seconds.
        yield Contender("cuDNN int8", False, partial(_int8_call, shape, x, w))
        # Signs switch fewer transistors than other values, which the clock shows.
        random = partial(functional.conv2d, _normal(x), _normal(w), **numbers)
        yield Contender("cuDNN fp16, normal values", False, same_call(random), ranked=False)
    yield Contender("torch._int_mm int8, im2col made before", False, partial(_columns, shape, x, w))
    yield Contender(form, True, partial(_our_call, shape, x, w, form))


def _normal(like: Tensor) -> Tensor:
    return torch.randn_like(like, dtype=torch.float16, memory_format=torch.channels_last)


def _int8_call(shape: ConvShape, x: Tensor, w: Tensor) -> Callable[[], Tensor]:
    """Convolution of torch's quantized tensors, int8 in and out."""
    images, kernels = (torch.quantize_per_tensor(t, 1.0, 0, torch.qint8) for t in (x, w))
    step, edge = [shape.stride] * 2, [shape.padding] * 2
    packed = torch.ops.quantized.conv2d_prepack(kernels, None, step, edge, [1, 1], 1)
    call = partial(torch.ops.quantized.conv2d, images, packed, 1.0, 0)
    expected = _exact(shape, x, w).clamp(-128, 127).to(torch.int8)
    if not torch.equal(call()[:1].int_repr(), expected):
        raise WrongResultError
    return call


def _columns(shape: ConvShape, x: Tensor, w: Tensor) -> Callable[[], Tensor]:
    """Only the product of a matrix of patches; making the patches is not timed."""
    patch = shape.kernel**2 * shape.channels
    if shape.images * shape.out_size**2 * patch > MAX_COLUMN_BYTES:
        raise RuntimeError(f"the im2col matrix is larger than {MAX_COLUMN_BYTES >> 30} GiB")
    edge = [shape.padding] * 4
    padded = functional.pad(x.to(torch.int8), edge).permute(0, 2, 3, 1).contiguous()
    windows = padded.unfold(1, shape.kernel, shape.stride).unfold(2, shape.kernel, shape.stride)
    columns = windows.permute(0, 1, 2, 4, 5, 3).reshape(-1, patch)
    kernels = w.permute(0, 2, 3, 1).reshape(shape.outputs, patch).to(torch.int8).t()
    product = torch._int_mm(columns, kernels)
    expected = _exact(shape, x, w).permute(0, 2, 3, 1).reshape(-1, shape.outputs)
    if not torch.equal(product[: expected.size(0)], expected):
        raise WrongResultError
    del product
    return partial(torch._int_mm, columns, kernels)


def _exact(shape: ConvShape, x: Tensor, w: Tensor, image: int = 0) -> Tensor:
    """Integers of one image: sums of +-1 are exact in float32, whatever the algorithm rounds."""
    one = x[image : image + 1] if image >= 0 else x[image:]
    return functional.conv2d(one, w, **_numbers(shape)).round().to(torch.int32)


def _our_call(shape: ConvShape, x: Tensor, w: Tensor, form: str) -> Callable[[], Any]:
    """Ours, equal to the integers or their signs in the first and the last image."""
    images, kernels = BitImages.from_float(x), BitImages.from_float(w)
    numbers = {**_numbers(shape), "prepared": conv.prepare(kernels)}
    if form == BITS:
        call: Callable[[], Any] = partial(conv.bbb, images, kernels, **numbers)
        values = call().to_float() > 0
    else:
        call = partial(conv.bbf, images, kernels, integer=True, **numbers)
        values = call()
    for image in (0, -1):
        expected = _exact(shape, x, w, image)
        if form == BITS:
            expected = expected >= 0
        if not torch.equal(values[image], expected[0]):
            raise WrongResultError
    return call


LINEARS = (
    (8, 784, 1024), (8, 1024, 1024), (8, 8192, 1024), (8, 12544, 4096), (8, 25088, 4096),
    (8, 4096, 4096), (512, 12544, 4096), (512, 25088, 4096), (512, 4096, 4096),
    (1024, 1024, 1024), (1024, 8192, 1024),
)  # fmt: skip
"""Rows, inputs, outputs: the linear layers of the networks."""


def linear_cases(quick: bool = False) -> Iterator[Case]:
    """The networks' linear layers on a GPU, bits to bits."""
    for rows, inputs, outputs in ((32, 64, 32),) if quick else LINEARS:
        yield Case(
            "linear, bits in and out",
            f"[{rows}, {inputs}] to {outputs}",
            partial(_linear_contenders, rows, inputs, outputs),
            details={"operations": 2.0 * rows * inputs * outputs},
        )


def _linear_contenders(rows: int, inputs: int, outputs: int) -> Iterator[Contender]:
    x, w = _signs(rows, inputs, device="cuda"), _signs(outputs, inputs, device="cuda")
    half = partial(functional.linear, x.half(), w.half())
    yield Contender("cuBLAS fp16", False, same_call(half))
    if rows > 16:  # the least that torch._int_mm takes
        narrow = partial(torch._int_mm, x.to(torch.int8), w.to(torch.int8).t())
        yield Contender("torch._int_mm int8", False, same_call(narrow))

    def ours() -> Callable[[], Any]:
        rows_bits, weight = BitTensor.from_float(x), BitTensor.from_float(w)
        call = partial(bmm.bbb, rows_bits, weight)
        if not torch.equal(call().to_float() > 0, functional.linear(x, w) >= 0):
            raise WrongResultError
        return call

    yield Contender("bits in and out", True, ours)


CPU_SHAPES = (
    ConvShape(1, 56, 128, 128),
    ConvShape(1, 56, 64, 64),
    ConvShape(1, 56, 64, 128, stride=2),
    ConvShape(1, 28, 128, 128),
    ConvShape(1, 28, 128, 256, stride=2),
    ConvShape(1, 14, 256, 256),
    ConvShape(1, 14, 256, 512, stride=2),
    ConvShape(1, 7, 512, 512),
)
"""That of the goal, and those of ResNet-18."""


def cpu_conv_cases(quick: bool = False) -> Iterator[Case]:
    """Convolutions of packed images on the CPU, against torch in fp32 in both memory formats."""
    for shape in (ConvShape(1, 8, 32, 32),) if quick else CPU_SHAPES:
        yield Case(
            "BinaryConv2d, 1 image",
            shape.name,
            partial(_cpu_contenders, shape),
            CPU_GOALS.get(shape.name, ()),
            details={"operations": shape.operations},
        )


def _cpu_contenders(shape: ConvShape) -> Iterator[Contender]:
    x, w = _operands(shape, "cpu")
    numbers = _numbers(shape)
    for name, memory_format in (
        ("fp32 contiguous", torch.contiguous_format),
        ("fp32 channels_last", torch.channels_last),
    ):
        operands = [t.contiguous(memory_format=memory_format) for t in (x, w)]
        call = partial(functional.conv2d, *operands, **numbers)
        yield Contender(f"torch {name}", False, same_call(call))
    yield Contender(BITS, True, partial(_our_call, shape, x, w, BITS))
    yield Contender(INTEGERS, True, partial(_our_call, shape, x, w, INTEGERS), ranked=False)
    kernels = BitImages.from_float(w)
    numbers["prepared"] = conv.prepare(kernels)
    whole = partial(_floats, x, kernels, numbers)
    yield Contender("floats in and out", True, same_call(whole), ranked=False)


def _floats(x: Tensor, kernels: BitImages, numbers: dict[str, Any]) -> Tensor:
    return conv.bbf(BitImages.from_float(x), kernels, **numbers)

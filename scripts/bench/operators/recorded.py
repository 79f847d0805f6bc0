"""Calls of operators on the shapes in ``scripts/results``, with operands on any device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from bitgnn.bits import BooleanTensor, TernaryTensor
from bitgnn.bits.int8 import bytes_for
from bitgnn.bits.tensor import WORD_BITS, BitImages, words_for
from bitgnn.ops import conv

GRAPHS = {
    "Cora": (2708, 13264),
    "PubMed": (19717, 108365),
    "Flickr": (89250, 989006),
    "Reddit": (232965, 114500173),
}
"""Nodes and edges; which nodes they join is random."""
FEATURES = ((232965, 602, 128), (2708, 1433, 64), (19717, 500, 64), (89250, 500, 256))
"""Rows, features and outputs of products that pack."""
PRODUCTS = (
    *((side, side, side) for side in (8192, 4096, 2048, 1024)),
    *((8, 784, 1024), (8, 8192, 1024), (8, 25088, 4096), (512, 4096, 4096), (512, 25088, 4096)),
    *((1024, 1024, 1024), (1024, 8192, 1024)),
    *((89250, 500, 64), (232965, 602, 64), (232965, 64, 64), (19717, 64, 64), (2708, 1433, 64)),
)
"""The same of products of bits."""
LAYERS = (
    *((32, 128, 128), (16, 128, 256), (8, 256, 512), (8, 512, 512), (56, 64, 64)),
    *((28, 128, 128), (14, 256, 256), (7, 512, 512)),
)
"""Side, channels and outputs of layers of the networks of images."""
FIRST = (
    (3, 32, 128, 3, 1, 1),
    (3, 224, 64, 7, 2, 3),
    (3, 224, 64, 11, 4, 2),
    (784, 1, 1024, 1, 1, 0),
)
"""Channels, side, outputs, kernel, stride and padding of first layers."""
LINEAR = (
    *((128, 768, 768), (128, 768, 3072), (128, 3072, 768), (32, 5120, 13824), (1, 4096, 4096)),
    *((32, 4096, 4096), (512, 4096, 4096), (2048, 4096, 4096), (2048, 11008, 4096)),
    *((1, 2560, 13824), (1, 10240, 3200)),
)
"""Rows, features and outputs of ternary layers."""
HALF = torch.float16


class Operands:
    """Makes random operands on a device, empty ones on ``"meta"``."""

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)

    def floats(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Normally distributed."""
        return torch.randn(*shape, device=self.device, dtype=dtype)

    def one(self) -> Tensor:
        """A scale of 1."""
        return torch.ones((), device=self.device)

    def integers(self, low: int, high: int, *shape: int, dtype: torch.dtype) -> Tensor:
        """Uniform in ``[low, high)``."""
        if self.device.type == "meta":
            return torch.empty(*shape, device=self.device, dtype=dtype)
        return torch.randint(low, high, shape, device=self.device, dtype=dtype)

    def words(self, *shape: int) -> Tensor:
        """Words of signs; the last size is that of features."""
        *rows, size = shape
        found = self.integers(-(2**31), 2**31, *rows, words_for(size), dtype=torch.int32)
        if size % WORD_BITS and self.device.type != "meta":
            found[..., -1] &= (1 << size % WORD_BITS) - 1
        return found

    def codes(self, rows: int, size: int) -> Tensor:
        """Rows of 8-bit codes, padded with zeros."""
        found = self.integers(-127, 128, rows, bytes_for(size), dtype=torch.int8)
        if self.device.type != "meta":
            found[:, size:] = 0
        return found

    def ternary(self, *shape: int, boolean: bool = False) -> tuple[Tensor, Tensor]:
        """Words and counts of ternary or boolean rows."""
        *rows, size = shape
        if self.device.type == "meta":
            planes = () if boolean else (2,)
            words = torch.empty(*rows, *planes, words_for(size), device="meta", dtype=torch.int32)
            return words, torch.empty(*rows, device="meta", dtype=torch.int32)
        kind = BooleanTensor if boolean else TernaryTensor
        found = kind.from_float(self.floats(*shape), 1.0)
        return found.words, found.counts

    def prepared(self, w: Tensor, channels: int, threshold: Tensor | None = None) -> Tensor:
        """Integers that ``conv.prepare`` makes of a kernel's words."""
        if self.device.type == "meta":
            return self.integers(0, 1, w.size(0), w.size(1) * w.size(2) + 2, dtype=torch.int32)
        return conv.prepare(BitImages._trusted(w, channels), threshold=threshold)

    @cache  # noqa: B019  (one of these lives as long as the benchmark)
    def csr(self, graph: str) -> tuple[Tensor, Tensor]:
        """Row pointer and columns of rows that are about equally long."""
        nodes, edges = GRAPHS[graph]
        rowptr = torch.arange(nodes + 1, device=self.device, dtype=torch.int64) * edges // nodes
        return rowptr.int(), self.integers(0, nodes, edges, dtype=torch.int32)


@dataclass(frozen=True)
class Call:
    """A call of an operator, whose operands are made on a device when its turn comes."""

    group: str
    name: str
    operator: str
    operands: Callable[[Operands], tuple[Any, ...]]
    keywords: tuple[tuple[str, Any], ...] = ()


def calls() -> Iterator[Call]:
    """Calls of the shapes in ``scripts/results``, by operator."""
    yield from _dense_calls()
    yield from _graph_calls()
    yield from _image_calls()
    yield from _ternary_calls()


def _dense_calls() -> Iterator[Call]:
    unscaled = (("scale", False),)
    for n, k, m in FEATURES:
        for dtype in (torch.float32, HALF):
            given = partial(_packable, n, k, dtype)
            yield Call("pack", f"{str(dtype)[6:]} [{n}, {k}] to bits", "pack", given)
            name = f"FBB from {str(dtype)[6:]}, [{n}, {k}] → {m}"
            yield Call("BMM", name, "bmm_fbb", partial(_fbb, n, k, m, dtype), unscaled)
        yield Call("BMM", f"FIB, [{n}, {k}] → {m}", "bmm_fib", partial(_fib, n, k, m))
    for n, k, m in PRODUCTS:
        for letters in ("BBB", "BBF"):
            name = f"{letters}, [{n}, {k}] → {m}"
            yield Call("BMM", name, f"bmm_{letters.lower()}", partial(_bits, n, k, m))


def _graph_calls() -> Iterator[Call]:
    for graph in GRAPHS:
        for size in (128, 256):
            for letters in ("BBB", "BBF"):
                name = f"{letters}, H = {size}, {graph}"
                yield Call("BSpMM", name, f"bspmm_{letters.lower()}", partial(_signs, graph, size))
            for letters in ("TBB", "TBF"):
                name = f"{letters}, H = {size}, {graph}"
                given = partial(_ternary_rows, graph, size)
                yield Call("BSpMM", name, f"bspmm_{letters.lower()}", given)
        for dtype in (torch.float32, HALF):
            name = f"FBF {str(dtype)[6:]}, H = 128, {graph}"
            yield Call("BSpMM", name, "bspmm_fbf", partial(_floats, graph, dtype))
        yield Call("BSpMM", f"FBF int8, H = 41, {graph}", "bspmm_fbf", partial(_integers, graph))
        for classes in (7, 41, 64):
            name = f"BMM + BSpMM, 64 → {classes}, {graph}"
            yield Call("pairs", name, "bmm_bspmm_narrow", partial(_narrow, graph, classes))
            given = partial(_rooted, graph, classes)
            yield Call("pairs", f"{name}, with a root term", "bmm_bspmm_narrow", given)
        yield Call("pairs", f"BSpMM + BMM, 64 → 64, {graph}", "bspmm_bmm", partial(_joint, graph))
        given = partial(_coded, graph, 500)
        yield Call("pairs", f"BSpMM + IIB, 500 → 64, {graph}", "bspmm_bmm_iib", given)


def _image_calls() -> Iterator[Call]:
    shapes = [(16, 64, c, c) for c in (128, 512, 1024, 2048)]
    shapes += [(1, 64, 64, c) for c in (64, 256, 640)]
    shapes += [(images, *layer) for images in (8, 512) for layer in LAYERS]
    for shape in shapes:
        images, side, channels, outputs = shape
        title = f"{images} of {channels} → {outputs}, 3x3, {side}x{side}"
        for letters in ("bbb", "bbf", "add")[: 3 if images in (8, 512) else 2]:
            given = partial(_images, letters, shape)
            yield Call("convolution", f"{letters.upper()}, {title}", f"conv_{letters}", given)
    for images in (8, 512):
        for channels, side, outputs, kernel, *rest in FIRST:
            name = f"{images} of {channels} → {outputs}, {kernel}x{kernel}, {side}x{side}"
            given = partial(_first, images, (channels, side, outputs, kernel, *rest))
            yield Call("first layer", name, "conv_fbb", given)


def _ternary_calls() -> Iterator[Call]:
    for n, k, m in LINEAR:
        name = f"linear, [{n}, {k}] → {m}"
        yield Call("ternary", name, "linear_ternary", partial(_linear, n, k, m))
    for length in (128, 512, 2048):
        name = f"16 of length {length}"
        yield Call("ternary", f"TTF, {name}", "matmul_ttf", partial(_scores, length))
        yield Call("ternary", f"BTF, {name}", "matmul_btf", partial(_values, length))
        name = f"attention, 8 x 16 heads of 64, length {length}"
        given = partial(_attention, length)
        yield Call("ternary", name, "attention_ternary_floats", given, (("dtype", HALF),))


def _packable(n: int, k: int, dtype: torch.dtype, o: Operands) -> tuple[Any, ...]:
    return (o.floats(n, k, dtype=dtype),)


def _fbb(n: int, k: int, m: int, dtype: torch.dtype, o: Operands) -> tuple[Any, ...]:
    return o.floats(n, k, dtype=dtype), o.words(m, k)


def _fib(n: int, k: int, m: int, o: Operands) -> tuple[Any, ...]:
    return o.floats(n, k), o.floats(k), o.floats(k), o.codes(m, k)


def _bits(n: int, k: int, m: int, o: Operands) -> tuple[Any, ...]:
    return o.words(n, k), o.words(m, k), k


def _signs(graph: str, size: int, o: Operands) -> tuple[Any, ...]:
    nodes = GRAPHS[graph][0]
    return o.words(nodes, size), size, *o.csr(graph), o.floats(nodes)


def _ternary_rows(graph: str, size: int, o: Operands) -> tuple[Any, ...]:
    nodes = GRAPHS[graph][0]
    return o.ternary(nodes, size)[0], size, *o.csr(graph), o.floats(nodes)


def _floats(graph: str, dtype: torch.dtype, o: Operands) -> tuple[Any, ...]:
    nodes = GRAPHS[graph][0]
    return o.floats(nodes, 128, dtype=dtype), *o.csr(graph), o.floats(nodes), o.floats(nodes)


def _integers(graph: str, o: Operands) -> tuple[Any, ...]:
    x = o.integers(-9, 10, GRAPHS[graph][0], 41, dtype=torch.int8)
    return x, *o.csr(graph), None, None, None, True


def _narrow(graph: str, classes: int, o: Operands) -> tuple[Any, ...]:
    """Scores of a last layer with row factors."""
    nodes = GRAPHS[graph][0]
    x, w = o.words(nodes, 64), o.words(classes, 64)
    return x, w, 64, *o.csr(graph), None, o.floats(classes), None, None, False, o.floats(nodes)


def _rooted(graph: str, classes: int, o: Operands) -> tuple[Any, ...]:
    """Scores of a last layer of GraphSAGE."""
    nodes = GRAPHS[graph][0]
    root = (o.words(nodes, 64), o.words(classes, 64), 64)
    return *_narrow(graph, classes, o), None, o.floats(classes), 0, *root


def _coded(graph: str, size: int, o: Operands) -> tuple[Any, ...]:
    """A first layer of GraphSAGE on 8-bit rows."""
    nodes = GRAPHS[graph][0]
    x, w = o.codes(nodes, size), o.codes(64, size)
    return o.words(nodes, 64), *o.csr(graph), x, w, size, o.floats(nodes)


def _joint(graph: str, o: Operands) -> tuple[Any, ...]:
    """A hidden layer of GraphSAGE: sums of neighbours and a product, compared."""
    nodes = GRAPHS[graph][0]
    x, w, row = o.words(nodes, 64), o.words(64, 64), o.floats(nodes)
    factors = (row, None, None, o.floats(64), None, o.floats(64))
    return o.words(nodes, 64), *o.csr(graph), x, w, 64, *factors


def _images(letters: str, shape: tuple[int, int, int, int], o: Operands) -> tuple[Any, ...]:
    """A 3 x 3 convolution; sums take an addend of their own size."""
    images, side, channels, outputs = shape
    x, w = o.words(images, side, side, channels), o.words(outputs, 3, 3, channels)
    numbers = (channels, [1, 1], [1] * 4, [1, 1], 1)
    if letters == "bbf":
        return x, w, *numbers, None, None, True, o.prepared(w, channels)
    threshold = o.floats(outputs)
    prepared = o.prepared(w, channels, threshold)
    if letters == "bbb":
        return x, w, *numbers, None, None, threshold, None, prepared
    addend = o.integers(-99, 100, images, side, side, outputs, dtype=torch.int16)
    return x, w, *numbers, addend, [1, 1], threshold, None, False, True, True, prepared


def _first(images: int, layer: tuple[int, ...], o: Operands) -> tuple[Any, ...]:
    channels, side, outputs, kernel, stride, padding = layer
    x, w = o.floats(images, channels, side, side), o.words(outputs, kernel, kernel, channels)
    numbers = ([stride] * 2, [padding] * 4, [1, 1])
    return x, w, 2.0**-8, *numbers, None, None, o.floats(outputs)


def _linear(n: int, k: int, m: int, o: Operands) -> tuple[Any, ...]:
    return o.floats(n, k, dtype=HALF), o.words(m, k), k, o.one(), o.floats(m), None, HALF


def _scores(length: int, o: Operands) -> tuple[Any, ...]:
    return *o.ternary(16, length, 64), *o.ternary(16, length, 64), 64, None, HALF


def _values(length: int, o: Operands) -> tuple[Any, ...]:
    probabilities = o.ternary(16, length, length, boolean=True)
    return *probabilities, *o.ternary(16, 64, length), length, None, HALF


def _attention(length: int, o: Operands) -> tuple[Any, ...]:
    operands = [o.floats(8, 16, length, 64, dtype=HALF) for _ in range(3)]
    return *operands, *(o.one() for _ in range(3)), 0.1, 0.5, 1.0

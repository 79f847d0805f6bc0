"""Random arguments for every operator, and exact comparison with the reference."""

import inspect
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from bitgnn.bits import BitAdjacency, BitTensor
from bitgnn.ops.linear import weight_digits
from bitgnn.ops.linear_chain import make_chain
from bitgnn.ops.reference import OPERATORS
from bitgnn.ops.reference.conv import conv_bbb
from bitgnn.ops.reference.conv_add import conv_add
from bitgnn.ops.reference.pack import to_words

# Half of the drawn numbers lie on this grid, so that ties and exact thresholds occur.
GRID = 0.5
TERNARY_LETTERS = ("_tbf", "_tbb", "_ttf", "_btf")
OUT_DTYPES = (None, torch.float32, torch.float16, torch.bfloat16, torch.int32)
NARROW = ("bmm_bspmm_narrow", "bmm_bspmm_narrow_blocked")


@dataclass
class Sampler:
    """Draws arguments of operators from one seeded generator."""

    seed: int = 0
    special: bool = False
    dtype: torch.dtype = torch.float32

    def __post_init__(self) -> None:
        self.generator = torch.Generator().manual_seed(self.seed)

    def integer(self, high: int) -> int:
        return int(torch.randint(high, (), generator=self.generator))

    def floats(self, *shape: int) -> Tensor:
        """Normal numbers, half of them rounded to the grid; with NaN and infinities if special."""
        x = torch.randn(shape, generator=self.generator)
        rounded = (x / GRID).round() * GRID
        x = torch.where(torch.rand(shape, generator=self.generator) < 0.5, rounded, x)
        if self.special and x.numel():
            for value in (float("nan"), float("inf"), -float("inf"), -0.0):
                x.view(-1)[self.integer(x.numel())] = value
        return x

    def matrix(self, rows: int, size: int) -> Tensor:
        """A float operand in the sampler's dtype, with a row of zeros, at times not contiguous."""
        if self.dtype.is_floating_point:
            x = self.floats(rows, size).to(self.dtype)
        else:
            limits = torch.iinfo(self.dtype)
            x = torch.randint(
                limits.min, limits.max + 1, (rows, size), generator=self.generator
            ).to(self.dtype)
        if rows:
            x[self.integer(rows)] = 0
        kind = self.integer(4)
        if kind == 1:
            return x.t().contiguous().t()
        if kind == 2:
            return torch.cat([x, x], dim=1)[:, :size]
        if kind == 3:
            return torch.stack([x, x], dim=2).flatten(1)[:, ::2]
        return x

    def bits(self, rows: int, size: int) -> Tensor:
        return to_words(torch.rand(rows, size, generator=self.generator) < 0.5)

    def adjacency(self, rows: int, columns: int, coalesce: bool) -> BitAdjacency:
        """A random pattern with empty rows, a hub and, unless coalesced, duplicate edges."""
        edges = 0 if rows == 0 or columns == 0 else self.integer(6 * max(rows, columns))
        edge_index = torch.stack(
            [
                torch.randint(max(1, columns), (edges,), generator=self.generator),
                torch.randint(max(1, rows), (edges,), generator=self.generator),
            ]
        )
        if edges:
            edge_index[1, : edges // 3] = rows // 2
        return BitAdjacency.from_edge_index(edge_index, (rows, columns), coalesce=coalesce)

    def arguments(
        self, name: str, n: int, k: int, m: int, optional: bool | None = None
    ) -> dict[str, Any]:
        """Keyword arguments of operator ``name``; optional tensors all, none or (None) at random.

        For products n, k, m are rows of x, features and rows of w; for aggregations sources,
        features and destinations; for CONCAT rows and both feature counts.
        """
        if name in ("bmm_add", "bmm_bspmm", *NARROW):
            return self._fused_arguments(name, n, k, m, optional)
        if name == "bspmm_slots":
            return self._slot_arguments(n, k, m, optional)
        if name == "linear_chain":
            return self._chain_arguments(n, k, m)
        if name == "bits_linear":
            return self._linear_arguments(n, k, m, optional)
        if name in ("bspmm_bmm", "bspmm_bmm_sliced"):
            return self._joint_arguments(name, n, k, m, optional)
        if name == "conv_bbb":
            return self._pooled_arguments(self._conv_arguments(name, k, m, optional), optional)
        if name == "conv_bbf":
            return self._conv_arguments(name, k, m, optional)
        if name == "conv_add":
            return self._conv_add_arguments(k, m, optional)
        if name in ("conv_fbb", "conv_fbf"):
            return self._fixed_conv_arguments(name, k, m, optional)
        if name == "pool_bits":
            return self._pool_arguments(k, optional)
        if name == "pack_patches":
            return self._patch_arguments(k, optional)
        if name == "pack_images":
            x = self.matrix(n * k, 12).reshape(n, k, 3, 4)
            return {"x": x, "threshold": self.floats(k)} if optional else {"x": x}
        if "ternary" in name or name.endswith(TERNARY_LETTERS) or name == "pack_bool":
            return self._ternary_arguments(name, n, k, m, optional)
        parameters = inspect.signature(OPERATORS[name]).parameters
        family, _, rest = name.partition("_")
        given: dict[str, Any] = {"size": k, "a_size": k, "b_size": m}
        wide = {"pack": k, "bmm": m, "bspmm": k, "add": k, "concat": k + m}.get(family, k)
        lengths = {
            "scale": n, "x_scale": n, "a_scale": n, "b_scale": n, "w_scale": m, "bias": wide,
            "threshold": wide, "x_threshold": k, "gain": k, "x_gain": k, "col": n, "row": m,
        }  # fmt: skip
        operands = {
            "pack": {"x": (n, k)},
            "unpack": {"words": (n, k)},
            "transpose": {"words": (n, k)},
            "bmm": {"x": (n, k), "w": (m, k)},
            "bspmm": {"x": (n, k)},
            "add": {"a": (n, k), "b": (n, k)},
            "concat": {"a": (n, k), "b": (n, m)},
        }[family]
        for place, (operand, shape) in enumerate(operands.items()):
            packed = family in ("unpack", "transpose") or (family != "pack" and rest[place] == "b")
            given[operand] = self.bits(*shape) if packed else self.matrix(*shape)
        if family == "bspmm":
            given |= self._layout(rest, n, m)
        # Floats have no exact sums; only integer rows may ask for them.
        dense_sums = name == "bspmm_fbf" and self.dtype.is_floating_point
        if "integer" in parameters:
            given["integer"] = bool(self.integer(2)) if optional is None else False
            given["integer"] = given["integer"] and not dense_sums
        if parameters.get("scale", None) is not None and parameters["scale"].annotation is bool:
            given["scale"] = not given.get("integer") and (optional or bool(self.integer(2)))
        for parameter in parameters.values():
            left_out = given.get("integer") and parameter.name in (
                "x_scale", "w_scale", "bias", "row",
            )  # fmt: skip
            left_out = left_out or (parameter.name == "col" and not self.dtype.is_floating_point)
            take = bool(self.integer(2)) if optional is None else optional
            if parameter.name in given or left_out or not take:
                continue
            if parameter.name == "flip":
                given["flip"] = torch.rand(m, generator=self.generator) < 0.5
            elif parameter.annotation is bool:
                given[parameter.name] = True
            else:
                given[parameter.name] = self.floats(lengths[parameter.name])
        return {key: value for key, value in given.items() if key in parameters}

    def _fused_arguments(
        self, name: str, n: int, k: int, m: int, optional: bool | None
    ) -> dict[str, Any]:
        """Arguments of a pair of operators; which optional ones go together depends on flags."""

        def maybe(tensor: Tensor) -> Tensor | None:
            return tensor if (bool(self.integer(2)) if optional is None else optional) else None

        packed = bool(self.integer(2))
        x = self.bits(n, k) if packed else self.matrix(n, k)
        given: dict[str, Any] = {"x": x, "w": self.bits(m, k), "size": k}
        given["out_bits"] = name not in NARROW and bool(self.integer(2))
        hidden_bits = name == "bmm_bspmm" and bool(self.integer(2))
        if not packed:
            given["x_threshold"] = maybe(self.floats(k))
            if not hidden_bits:
                given |= {"x_gain": maybe(self.floats(k)), "scale": bool(self.integer(2))}
        elif not hidden_bits:
            given["x_scale"] = maybe(self.floats(n))
        if not hidden_bits:
            given["w_scale"] = maybe(self.floats(m))
        if given["out_bits"]:
            given["threshold"] = maybe(self.floats(m))
        if name == "bmm_add":
            given |= {"addend": self.floats(n, m), "bias": maybe(self.floats(m))}
            if given["out_bits"]:
                given["flip"] = maybe(torch.rand(m, generator=self.generator) < 0.5)
            return given
        adjacency = self.adjacency(n + 3, n, coalesce=False)
        if name == "bmm_bspmm_narrow_blocked":
            blocks = adjacency.blocked(max(1, n // (1 + self.integer(3))))
            names = ("block_rowptr", "local_indices", "block_size")
            given |= dict(zip(names, blocks.arguments, strict=True))
        else:
            given |= {"rowptr": adjacency.rowptr, "indices": adjacency.indices}
        if name == "bmm_bspmm_narrow":
            given["order"] = maybe(adjacency.row_order())
        given |= {"row": maybe(self.floats(n + 3)), "hidden_bits": hidden_bits}
        if not hidden_bits:
            given["col"] = maybe(self.floats(n))
        if not given["out_bits"]:
            given["bias"] = maybe(self.floats(m))
        if name in NARROW:
            del given["out_bits"], given["hidden_bits"]
            # Wider rows have sums in another order on a GPU, which may change their classes.
            given["head"] = self.integer(4) if 0 < m <= 48 else 0
            if bool(self.integer(2)) if optional is None else optional:
                size = (k, 64, 256)[self.integer(3)]
                given |= {"root": self.bits(n + 3, size), "root_w": self.bits(m, size)}
                given |= {"root_size": size, "root_scale": maybe(self.floats(n + 3))}
                given |= {"root_w_scale": maybe(self.floats(m)), "root_bias": maybe(self.floats(m))}
        return given

    def _slot_arguments(self, n: int, k: int, m: int, optional: bool | None) -> dict[str, Any]:
        """Arguments of sums of n rows of k floats over m destinations."""
        wide = self.floats(n, k + self.integer(9))
        adjacency = self.adjacency(m, n, coalesce=False)
        given: dict[str, Any] = {"x": wide[:, :k], "rowptr": adjacency.rowptr}
        given["indices"] = adjacency.indices
        shapes = {"row": (m,), "bias": (k,), "addend": (m, k)}
        for name, shape in shapes.items():
            if bool(self.integer(2)) if optional is None else optional:
                given[name] = self.floats(*shape)
        return given

    def _chain_arguments(self, n: int, k: int, m: int) -> dict[str, Any]:
        sizes = [max(k, 1), *([max(m, 1)] * self.integer(3)), 10]
        layers = []
        for size, outputs in itertools.pairwise(sizes):
            limits = torch.stack([torch.zeros(outputs), torch.arange(outputs) % 2], 1).int()
            layers.append((BitTensor(self.bits(outputs, size), size), limits))
        last, _ = layers.pop()
        chain = make_chain(layers, last, self.floats(10), self.floats(10))
        return {"x": self.bits(n, sizes[0]), "image": chain.image, "layers": chain.layers}

    def _linear_arguments(self, n: int, k: int, m: int, optional: bool | None) -> dict[str, Any]:
        """Arguments of a product of n rows of k signs with m rows of float weights."""
        digits, step = weight_digits(self.floats(m, k).nan_to_num(1.0, 2.0, -2.0))
        given: dict[str, Any] = {"x": self.bits(n, k), "digits": digits, "step": step, "size": k}
        shapes = {"x_scale": (n,), "bias": (m,), "addend": (n, m)}
        for name, shape in shapes.items():
            if bool(self.integer(2)) if optional is None else optional:
                given[name] = self.floats(*shape)
        return given

    def _joint_arguments(
        self, name: str, n: int, k: int, m: int, optional: bool | None
    ) -> dict[str, Any]:
        """Arguments of a sum of neighbours plus a product of n rows of k features, m outputs."""
        given = self._layout(name, n + 3, n)
        given |= {"neighbours": self.bits(n + 3, m), "x": self.bits(n, k), "w": self.bits(m, k)}
        vectors = {"row": n, "sum_bias": m, "x_scale": n, "w_scale": m, "bias": m, "threshold": m}
        for vector, length in vectors.items():
            if bool(self.integer(2)) if optional is None else optional:
                given[vector] = self.floats(length)
        if bool(self.integer(2)) if optional is None else optional:
            given["flip"] = torch.rand(m, generator=self.generator) < 0.5
        parameters = inspect.signature(OPERATORS[name]).parameters
        return {key: value for key, value in (given | {"size": k}).items() if key in parameters}

    def _conv_arguments(self, name: str, k: int, m: int, optional: bool | None) -> dict[str, Any]:
        """Arguments of a convolution of about k channels with about m outputs."""
        groups = (1, 1, 2, 3)[self.integer(4)]
        size, outputs = max(1, k // groups), groups * max(1, m // groups)
        kernel = [1 + self.integer(3), 1 + self.integer(4)]
        dilation = [1 + self.integer(2), 1 + self.integer(2)]
        padding = [self.integer(3) for _ in range(4)]
        spans = [d * (s - 1) + 1 for d, s in zip(dilation, kernel, strict=True)]
        pads = padding[0] + padding[1], padding[2] + padding[3]
        image = [max(1, s - p) + self.integer(7) for s, p in zip(spans, pads, strict=True)]
        given: dict[str, Any] = {
            "x": self.images(self.integer(4), groups * size, *image),
            "w": self.images(outputs, size, *kernel),
            "channels": groups * size,
            "stride": [1 + self.integer(3), 1 + self.integer(2)],
            "padding": padding,
            "dilation": dilation,
            "groups": groups,
        }
        if name == "conv_bbf":
            given["integer"] = bool(self.integer(2)) if optional is None else False
        for vector in ("w_scale", "bias", "threshold", "flip"):
            if name == "conv_bbf" and (given["integer"] or vector in ("threshold", "flip")):
                continue
            if bool(self.integer(2)) if optional is None else optional:
                drawn = self.floats(outputs)
                given[vector] = drawn > 0 if vector == "flip" else drawn
        return given

    def _pooled_arguments(self, given: dict[str, Any], optional: bool | None) -> dict[str, Any]:
        """The same with a window over the convolution's images, where it is drawn."""
        if self.integer(2) if optional is None else optional:
            _, height, width, words = conv_bbb(**given).shape
            given["pool"] = [1 + self.integer(min(3, size)) for size in (height, width)]
            if self.integer(2) or optional:
                given["pool_flip"] = self.bits(1, given["w"].size(0)).flatten()
                assert given["pool_flip"].numel() == words
        return given

    def _conv_add_arguments(self, k: int, m: int, optional: bool | None) -> dict[str, Any]:
        """Arguments of a convolution with an addend of fewer or as many channels."""
        given = self._conv_arguments("conv_bbb", k, m, optional)
        given = {key: given[key] for key in given if key not in ("w_scale", "bias")}
        if bool(self.integer(2)) if optional is None else optional:
            size = conv_add(**given)[0].shape
            step = given["addend_stride"] = [1 + self.integer(2), 1 + self.integer(3)]
            rows, columns = (
                max(0, (size[1 + i] - 1) * step[i] + 1 + self.integer(step[i])) for i in range(2)
            )
            wide = bool(self.integer(2))
            given["addend"] = torch.randint(
                -32768, 32768, (size[0], rows, columns, self.integer(size[3] + 1)),
                generator=self.generator, dtype=torch.int32 if wide else torch.int16,
            ) // (1 + 999 * self.integer(2))  # fmt: skip
        given["wide"] = bool(self.integer(2))
        kept = self.integer(3)
        return given | {"sums": kept != 1, "bits": kept != 2}

    def _fixed_conv_arguments(
        self, name: str, k: int, m: int, optional: bool | None
    ) -> dict[str, Any]:
        """Arguments of a first layer; its floats span the range of the fixed point and beyond."""
        given = self._conv_arguments(name.replace("_f", "_b"), k, m, optional)
        images, height, width, _ = given.pop("x").shape
        channels, groups = given.pop("channels"), given.pop("groups")
        outputs, kernel = given["w"].size(0), given["w"].shape[1:3]
        given["w"] = self.images(outputs, channels, *kernel) if groups > 1 else given["w"]
        shape = images, height, width, channels
        last = bool(self.integer(2))
        kind = self.integer(4)
        if kind == 0:
            x = torch.randint(256, shape, generator=self.generator, dtype=torch.uint8)
            given["step"] = 1.0
        else:
            given["step"] = 2.0 ** (self.integer(20) - 16)
            dtype = (torch.float32, torch.float16, torch.bfloat16)[kind - 1]
            x = (self.floats(*shape) * 2.0 ** self.integer(6)).to(dtype)
        x = x.permute(0, 3, 1, 2)
        given["x"] = x if last else x.contiguous()
        return given

    def _pool_arguments(self, k: int, optional: bool | None) -> dict[str, Any]:
        """Arguments of max pooling of images of k channels."""
        kernel = [1 + self.integer(3), 1 + self.integer(4)]
        padding = [self.integer(kernel[i // 2]) for i in range(4)]
        image = [kernel[i] + self.integer(7) for i in range(2)]
        given: dict[str, Any] = {
            "x": self.images(self.integer(4), max(1, k), *image),
            "kernel": kernel,
            "stride": [1 + self.integer(3), 1 + self.integer(3)],
            "padding": padding,
        }
        if bool(self.integer(2)) if optional is None else optional:
            given["flip"] = self.bits(1, max(1, k)).flatten()
        return given

    def _patch_arguments(self, k: int, optional: bool | None) -> dict[str, Any]:
        """Arguments of packing the patches of images of k channels."""
        kernel = [1 + self.integer(5), 1 + self.integer(6)]
        dilation = [1 + self.integer(2), 1 + self.integer(2)]
        image = [1 + dilation[i] * (kernel[i] - 1) + self.integer(7) for i in range(2)]
        shape = self.integer(4), max(1, k), *image
        given: dict[str, Any] = {
            "x": self.floats(*shape),
            "kernel": kernel,
            "stride": [1 + self.integer(3), 1 + self.integer(3)],
            "padding": [self.integer(4) for _ in range(4)],
            "dilation": dilation,
        }
        if bool(self.integer(2)) if optional is None else optional:
            given["threshold"] = self.floats(max(1, k))
        return given

    def ternary(self, *shape: int, boolean: bool = False) -> tuple[Tensor, Tensor]:
        """Words and counts of random values in {-1, 0, 1} or {0, 1}, at times not contiguous."""
        turned = len(shape) > 2 and bool(self.integer(2))
        if turned:
            shape = (*shape[:-3], shape[-2], shape[-3], shape[-1])
        drawn = torch.randint(0 if boolean else -1, 2, shape, generator=self.generator)
        counts = (drawn != 0).sum(-1, dtype=torch.int32)
        rows = math.prod(shape[:-1])
        kinds = [drawn == 1] if boolean else [drawn == 1, drawn == -1]
        planes = [to_words(kind.reshape(rows, shape[-1])) for kind in kinds]
        words = planes[0] if boolean else torch.stack(planes, 1)
        words = words.view(*shape[:-1], *words.shape[1:])
        if turned:
            dim = len(shape) - 3
            words, counts = words.transpose(dim, dim + 1), counts.transpose(dim, dim + 1)
        return words, counts

    def positive(self) -> Tensor:
        """A positive number, often one whose half lies on the grid."""
        return torch.tensor([1.0, 2.0, 0.7, 3.1])[self.integer(4)]

    def _ternary_arguments(
        self, name: str, n: int, k: int, m: int, optional: bool | None
    ) -> dict[str, Any]:
        """Arguments of a ternary operator."""

        def taken() -> bool:
            return bool(self.integer(2)) if optional is None else optional

        if name.startswith("bspmm"):
            layout = self._layout(name, n, m)
            given: dict[str, Any] = {key: layout[key] for key in ("rowptr", "indices")}
            given |= {"x": self.ternary(n, k)[0], "size": k}
            if name == "bspmm_tbf":
                given["integer"] = taken()
                if given["integer"]:
                    return given
            if taken():
                given["row"] = self.floats(m)
            if taken():
                given["threshold" if name == "bspmm_tbb" else "bias"] = self.floats(k)
            return given
        if name.startswith("pack"):
            x = self.matrix(n, k)
            if self.integer(2):
                x = torch.stack([x, -x], 1) if self.integer(2) else torch.stack([x, -x])
            return {"x": x, "scale": self.positive()}
        if name == "attention_ternary":
            return self._attention_arguments(n, k, m, taken)
        if name.startswith("matmul"):
            leading = [(), (2,), (2, 3), (2, 1, 3)][self.integer(4)]
            first, second = ("a", "v") if name == "matmul_btf" else ("q", "k")
            words, counts = self.ternary(*leading, n, k, boolean=first == "a")
            given = {first: words, f"{first}_counts": counts, "size": k}
            given[second], given[f"{second}_counts"] = self.ternary(*leading, m, k)
            given["dtype"] = OUT_DTYPES[self.integer(5)]
            if taken() and given["dtype"] != torch.int32:
                given["scale"] = self.positive()
            return given
        if name == "linear_ternary":
            given = {"x": self.matrix(n, k), "scale": self.positive()}
            given["boolean"] = bool(self.integer(2))
        else:
            given = dict(zip(("x", "counts"), self.ternary(n, k), strict=True))
            if taken():
                given["x_scale"] = self.positive()
        given |= {"w": self.bits(m, k), "size": k}
        if name != "bmm_tbb":
            given["dtype"] = OUT_DTYPES[self.integer(5)]
            if given["dtype"] == torch.int32:
                given.pop("x_scale", None)
                return given
        elif taken():
            given["threshold"] = self.floats(m)
            given["flip"] = torch.rand(m, generator=self.generator) < 0.5
        if taken():
            given["w_scale"] = self.floats(m) if self.integer(2) else self.positive()
        if taken():
            given["bias"] = self.floats(m)
        return given

    def _attention_arguments(
        self, n: int, k: int, m: int, taken: Callable[[], bool]
    ) -> dict[str, Any]:
        """Arguments of attention of n queries to m keys with heads of k values."""
        batch, shared, group = 1 + self.integer(2), 1 + self.integer(2), 1 + self.integer(2)
        given: dict[str, Any] = {"size": k, "length": m, "bool_scale": 0.01 + self.integer(4) / 9}
        given |= {"scale": [0.02, 0.125, 1.0, 30.0][self.integer(4)], "out_scale": 0.3}
        shapes = {"q": (shared * group, n, k), "k": (shared, m, k), "v": (shared, k, m)}
        for operand, shape in shapes.items():
            given[operand], given[f"{operand}_counts"] = self.ternary(batch, *shape)
        if taken():
            given["mask"] = self.bits(batch, m)
            if m:
                given["mask"][0] = 0  # hides every key
        given["causal"] = taken()
        given["dtype"] = OUT_DTYPES[self.integer(4)]
        return given

    def images(self, count: int, channels: int, height: int, width: int) -> Tensor:
        """Packed images, as ``bits``."""
        rows = self.bits(count * height * width, channels)
        return rows.view(count, height, width, rows.size(1))

    def _layout(self, rest: str, n: int, m: int) -> dict[str, Any]:
        adjacency = self.adjacency(m, n, coalesce=rest.endswith("frdc"))
        given: dict[str, Any] = {"num_rows": m, "method": self.integer(3)}
        if rest.endswith("frdc"):
            tiles = adjacency.frdc()
            assert tiles is not None
            return given | vars(tiles)
        if rest.endswith("blocked"):
            return vars(adjacency.blocked(max(1, n // (1 + self.integer(3)))))
        if rest.endswith("sliced"):
            # More columns than a GPU's shared memory holds make several slices.
            return vars(adjacency.sliced(min(6000, max(1, n // (1 + self.integer(3))))))
        values = self.floats(adjacency.nnz)
        return {"rowptr": adjacency.rowptr, "indices": adjacency.indices, "values": values}


@pytest.fixture
def sampler() -> Callable[..., Sampler]:
    """Make a :class:`Sampler`."""
    return Sampler


@pytest.fixture
def assert_kernel_equals_reference() -> Callable[..., None]:
    """Run an operator on a device and the reference on the CPU; they must be equal."""

    def check(name: str, arguments: dict[str, Any], device: torch.device) -> None:
        expected = OPERATORS[name](**arguments)
        moved = {
            key: value.to(device) if isinstance(value, Tensor) else value
            for key, value in arguments.items()
        }
        found = getattr(torch.ops.bitgnn, name)(**moved)
        expected = expected if isinstance(expected, tuple) else (expected,)
        found = found if isinstance(found, tuple) else (found,)
        for mine, theirs in zip(found, expected, strict=True):
            # Bits, integers and, on the CPU, floats too are the same to the last bit.
            exact = device.type == "cpu" or not theirs.is_floating_point()
            torch.testing.assert_close(
                mine.cpu(), theirs, rtol=0 if exact else 1e-5, atol=0 if exact else 1e-5,
                equal_nan=True,
            )  # fmt: skip

    return check

"""Random arguments that depend on one another: windows over images, heads, sampled graphs."""

from collections.abc import Sequence
from typing import Any

import torch
from draws import Draws

from bitgnn.ops.reference.conv import window_places

OUT_DTYPES = (None, torch.float32, torch.float16, torch.bfloat16, torch.int32)
RELATIONS = ((0, 1), (1, 0), (0, 0))
"""Types of source and destination in a sampled graph."""
FANOUTS = (-1, 0, 1, 2, 3, 1000)


class Groups(Draws):
    """Draws groups of arguments whose sizes the table leaves open."""

    optional: bool | None = None
    """Whether optional arguments are given, at random if None."""
    sizes: dict[str, int]
    """Values of the letters of a row."""

    def taken(self) -> bool:
        """Whether an optional argument is given."""
        return bool(self.integer(2)) if self.optional is None else self.optional

    def _windows(self, name: str, k: int, m: int) -> dict[str, Any]:
        """Windows over images of about k channels, and kernels of about m outputs."""
        pools, floats = name == "pool_bits", name.startswith("conv_f")
        groups = 1 if pools or name == "pack_patches" else (1, 1, 2, 3)[self.integer(4)]
        size = max(1, k // groups)
        channels, outputs = groups * size, groups * max(1, m // groups)
        self.sizes |= {"C": channels, "M": outputs, "groups": groups, "channels": channels}
        kernel = [1 + self.integer(3), 1 + self.integer(4)]
        dilation = [1, 1] if pools else [1 + self.integer(2), 1 + self.integer(2)]
        padding = [self.integer(kernel[i // 2] if pools else 3) for i in range(4)]
        stride = [1 + self.integer(3), 1 + self.integer(3)]
        spans = [d * (s - 1) + 1 for d, s in zip(dilation, kernel, strict=True)]
        sides = zip(spans, (sum(padding[:2]), sum(padding[2:])), strict=True)
        image = [max(1, span - pads) + self.integer(7) for span, pads in sides]
        count, given = self.integer(4), {"kernel": kernel, "stride": stride}
        given |= {"padding": padding, "dilation": dilation, "groups": groups}
        if name == "pack_patches":
            return given | {"x": self.floats(count, channels, *image)}
        if pools:
            flip = self.bits(1, channels).flatten() if self.taken() else None
            return given | {"x": self.images(count, channels, *image), "flip": flip}
        given["w"] = self.images(outputs, channels if floats else size, *kernel)
        if floats:
            return given | self._fixed_point(count, channels, *image)
        given["x"] = self.images(count, channels, *image)
        places = window_places(image, kernel, stride, padding, dilation)
        if name == "conv_bbb" and self.taken():
            flip = self.bits(1, outputs).flatten() if self.taken() else None
            given |= {"pool": [1 + self.integer(min(3, p)) for p in places], "pool_flip": flip}
        elif name == "conv_bbb":
            given |= {"pool": None, "pool_flip": None}
        if name == "conv_add":
            kept = self.integer(3)
            given |= {"sums": kept != 1, "bits": kept != 2} | self._addend(count, places, outputs)
        return given

    def _fixed_point(self, count: int, channels: int, *image: int) -> dict[str, Any]:
        """Floats that span the range of the fixed point and beyond, or bytes."""
        shape, kind = (count, *image, channels), self.integer(4)
        if kind == 0:
            x = torch.randint(256, shape, generator=self.generator, dtype=torch.uint8)
        else:
            dtype = (torch.float32, torch.float16, torch.bfloat16)[kind - 1]
            x = (self.floats(*shape) * 2.0 ** self.integer(6)).to(dtype)
        x = x.permute(0, 3, 1, 2)
        step = 2.0 ** (self.integer(20) - 16) if kind else 1.0
        return {"x": x if self.integer(2) else x.contiguous(), "step": step}

    def _addend(self, count: int, places: Sequence[int], outputs: int) -> dict[str, Any]:
        """An addend of fewer or as many channels, at strides of its own."""
        if not self.taken():
            return {"addend": None, "addend_stride": None}
        step = [1 + self.integer(2), 1 + self.integer(3)]
        rows, columns = (
            max(0, (places[i] - 1) * step[i] + 1 + self.integer(step[i])) for i in range(2)
        )
        dtype = torch.int32 if self.integer(2) else torch.int16
        addend = torch.randint(
            -32768, 32768, (count, rows, columns, self.integer(outputs + 1)),
            generator=self.generator, dtype=dtype,
        )  # fmt: skip
        return {"addend": addend // (1 + 999 * self.integer(2)), "addend_stride": step}

    def _matrices(self, first: str, second: str, n: int, k: int, m: int) -> dict[str, Any]:
        """Stacks of ternary rows, the first ones perhaps boolean."""
        leading = [(), (2,), (2, 3), (2, 1, 3)][self.integer(4)]
        words, counts = self.ternary(*leading, n, k, boolean=first == "a")
        given = {first: words, f"{first}_counts": counts}
        given[second], given[f"{second}_counts"] = self.ternary(*leading, m, k)
        return given

    def _attended(self, name: str, n: int, k: int, m: int) -> dict[str, Any]:
        """Attention of n queries to m keys with heads of k values; a mask may hide every key."""
        batch, shared, group = (1 + self.integer(2) for _ in range(3))
        given: dict[str, Any] = {"bool_scale": 0.01 + self.integer(4) / 9, "length": m}
        given |= {"scale": [0.02, 0.125, 1.0, 30.0][self.integer(4)]}
        given["dtype"] = OUT_DTYPES[self.integer(4)]
        shapes = {"q": (shared * group, n, k), "k": (shared, m, k), "v": (shared, k, m)}
        for operand, (heads, rows, size) in shapes.items():
            if name == "attention_ternary":
                given[operand], given[f"{operand}_counts"] = self.ternary(batch, heads, rows, size)
                continue
            rows = m if operand == "v" else rows
            x = self.matrix(batch * rows * heads, k)
            apart = self.integer(2)  # or as projections leave heads: side by side
            shape = (batch, heads, rows, k) if apart else (batch, rows, heads, k)
            given[operand] = x.reshape(shape) if apart else x.reshape(shape).transpose(1, 2)
            given[f"{operand}_scale"] = self.positive()
        given["mask"] = self.bits(batch, m) if self.taken() else None
        if given["mask"] is not None and m:
            given["mask"][0] = 0
        return given

    def _sampled(self, n: int, k: int, m: int) -> dict[str, Any]:
        """Nodes of two types, n and m, and about k edges in each of three relations."""
        sizes = [n, m]
        pairs = [
            self.csc(k if sizes[a] and sizes[b] else 0, sizes[a], sizes[b]) for a, b in RELATIONS
        ]
        given: dict[str, Any] = {
            "colptrs": [colptr for colptr, _ in pairs],
            "rows": [row for _, row in pairs],
            "seeds": [self.nodes(self.integer(4) if size else 0, size) for size in sizes],
            "num_nodes": sizes,
            "sources": [a for a, _ in RELATIONS],
            "destinations": [b for _, b in RELATIONS],
            "random_seed": self.integer(2**62),
        }
        hops = len(RELATIONS) * self.integer(4)
        return given | {"fanouts": [FANOUTS[self.integer(len(FANOUTS))] for _ in range(hops)]}

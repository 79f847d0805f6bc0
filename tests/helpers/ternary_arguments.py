"""Random arguments of the operators of ternary values."""

import math
from collections.abc import Callable
from typing import Any

import torch
from draws import Draws
from torch import Tensor

from bitgnn.ops.reference.pack import to_words

OUT_DTYPES = (None, torch.float32, torch.float16, torch.bfloat16, torch.int32)


class TernaryArguments(Draws):
    """Arguments of products and attention of ternary values."""

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
        if name.startswith("attention"):
            floats = name == "attention_ternary_floats"
            return self._attention_arguments(n, k, m, taken, floats)
        if name.startswith("matmul"):
            leading = [(), (2,), (2, 3), (2, 1, 3)][self.integer(4)]
            first, second = ("a", "v") if name == "matmul_btf" else ("q", "k")
            words, counts = self.ternary(*leading, n, k, boolean=first == "a")
            given = {first: words, f"{first}_counts": counts, "size": k}
            given[second], given[f"{second}_counts"] = self.ternary(*leading, m, k)
            given["dtype"] = OUT_DTYPES[self.integer(5)]
            if taken() and given["dtype"] != torch.int32:
                given["scale"] = self.positive()
            if taken() and given["dtype"] != torch.int32:
                given[f"{second}_scale"] = self.positive()
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
        self, n: int, k: int, m: int, taken: Callable[[], bool], floats: bool
    ) -> dict[str, Any]:
        """Arguments of attention of n queries to m keys with heads of k values."""
        batch, shared, group = 1 + self.integer(2), 1 + self.integer(2), 1 + self.integer(2)
        given: dict[str, Any] = {"bool_scale": 0.01 + self.integer(4) / 9}
        given |= {"scale": [0.02, 0.125, 1.0, 30.0][self.integer(4)], "out_scale": 0.3}
        if floats:
            for operand, heads, rows in (
                ("q", shared * group, n),
                ("k", shared, m),
                ("v", shared, m),
            ):
                x = self.matrix(batch * rows * heads, k)
                if self.integer(2):  # as projections leave heads: side by side
                    given[operand] = x.reshape(batch, rows, heads, k).transpose(1, 2)
                else:
                    given[operand] = x.reshape(batch, heads, rows, k)
                given[f"{operand}_scale"] = self.positive()
        else:
            given |= {"size": k, "length": m}
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

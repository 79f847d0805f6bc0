"""Random arguments of fused and chained operators."""

import inspect
import itertools
from typing import Any

import torch
from draws import Draws
from torch import Tensor

from bitgnn.bits import BitTensor
from bitgnn.ops.linear import make_chain, weight_digits
from bitgnn.ops.reference import OPERATORS
from bitgnn.ops.reference.pairs import MAX_NARROW_SIZE


class FusedArguments(Draws):
    """Arguments of operators that do several products in one call."""

    def _fused_arguments(
        self, name: str, n: int, k: int, m: int, optional: bool | None
    ) -> dict[str, Any]:
        """Arguments of a pair of operators; which optional ones go together depends on flags."""

        def maybe(tensor: Tensor) -> Tensor | None:
            return tensor if (bool(self.integer(2)) if optional is None else optional) else None

        packed = bool(self.integer(2))
        x = self.bits(n, k) if packed else self.matrix(n, k)
        given: dict[str, Any] = {"x": x, "w": self.bits(m, k), "size": k}
        given["out_bits"] = name != "bmm_bspmm_narrow" and bool(self.integer(2))
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
        given |= {"rowptr": adjacency.rowptr, "indices": adjacency.indices}
        is_narrow = name == "bmm_bspmm_narrow"
        if is_narrow:
            given["order"] = maybe(adjacency.row_order())
            given["shift"] = maybe(self.floats(m)) if k <= MAX_NARROW_SIZE else None
        given |= {"row": maybe(self.floats(n + 3)), "hidden_bits": hidden_bits}
        if not hidden_bits:
            given["col"] = maybe(self.floats(n))
        if not given["out_bits"]:
            given["bias"] = maybe(self.floats(m))
        if is_narrow:
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

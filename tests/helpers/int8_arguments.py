"""Random arguments of the operators on 8-bit rows."""

from typing import Any

import torch
from draws import Draws
from torch import Tensor

from bitgnn.bits.int8 import MOST
from bitgnn.ops.reference.int8 import padded

INT8 = ("pack_int8", "bmm_iif", "bmm_iib", "bmm_add_iib", "bmm_fif", "bmm_fib", "bspmm_bmm_iib")


class Int8Arguments(Draws):
    """Arguments of packing to codes and of their products."""

    def codes(self, rows: int, size: int) -> Tensor:
        """Padded rows of codes of every value."""
        drawn = torch.randint(-MOST, MOST + 1, (rows, size), generator=self.generator)
        return padded(drawn.to(torch.int8))

    def _int8_arguments(
        self, name: str, n: int, k: int, m: int, optional: bool | None
    ) -> dict[str, Any]:
        """Arguments of n rows of k features and m outputs."""
        if name == "pack_int8" or name.startswith("bmm_f"):
            step = self.floats(k).abs() * 20
            given = {"x": self.matrix(n, k), "centre": self.floats(k), "inverse_step": step}
        else:
            given = {"codes": self.codes(n, k)}
        if name == "pack_int8":
            return given
        given["weight"] = self.codes(m, k)
        if name == "bspmm_bmm_iib":
            return given | self._summed_arguments(n, k, m, optional)
        if name == "bmm_add_iib":
            given["addend"] = self.floats(n, m) * 1000
        given_size = {} if "x" in given else {"size": k}
        chosen: dict[str, Tensor] = {}
        if name in ("bmm_iib", "bmm_fib"):
            spread = 200 * (k + 1)
            drawn = torch.randint(-spread, spread, (m,), generator=self.generator)
            chosen["threshold"] = drawn.to(torch.int32)
            chosen["flip"] = torch.rand(m, generator=self.generator) < 0.5
        else:
            chosen |= {"scale": self.floats(m), "shift": self.floats(m) * 1000}
            if name == "bmm_iif":
                chosen["addend"] = self.floats(n, m) * 1000
            if name == "bmm_add_iib":
                chosen["threshold"] = self.floats(m) * 1000
        kept = {
            key: value
            for key, value in chosen.items()
            if (bool(self.integer(2)) if optional is None else optional)
        }
        return given | given_size | kept

    def _summed_arguments(self, n: int, k: int, m: int, optional: bool | None) -> dict[str, Any]:
        """Neighbours of n rows whose signs of m features are summed, and vectors of both parts."""
        adjacency = self.adjacency(n, n + 3, coalesce=False)
        given: dict[str, Any] = {"neighbours": self.bits(n + 3, m), "size": k}
        given |= {"rowptr": adjacency.rowptr, "indices": adjacency.indices}
        vectors = {"row": n, "sum_bias": m, "scale": m, "shift": m, "threshold": m}
        for vector, length in vectors.items():
            if bool(self.integer(2)) if optional is None else optional:
                given[vector] = self.floats(length) * (1 if vector == "row" else 1000)
        return given

"""Random arguments of every operator, drawn from its row of the operator table."""

import inspect
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from groups import OUT_DTYPES, Groups

from bitgnn.bits import BitTensor
from bitgnn.ops.linear import make_chain, weight_digits
from bitgnn.ops.reference.pairs import MAX_NARROW_SIZE
from bitgnn.ops.reference.table import HOST_TABLE, TABLE

__all__ = ["CODES", "Sampler"]

ROWS = TABLE | HOST_TABLE
CODES = [name for name, row in TABLE.items() if "C(" in str(row.operands)] + ["pack_int8"]
"""The operators on 8-bit rows."""
OPERANDS = ("a", "b", "grad", "sums", "w", "weight", "x")
"""Float arguments of the sampler's dtype."""
WHOLE = ("addend", "shift", "sum_bias", "threshold")
"""Floats beside sums of 8-bit products, which are large."""
NUMBERS = {"factor": 0.3, "memory": 100.0, "out_scale": 0.3, "slope": 1.5, "threshold": 0.5}


class Sampler(Groups):
    """Draws arguments of operators from one seeded generator."""

    def arguments(
        self, name: str, n: int, k: int, m: int, optional: bool | None = None, **chosen: Any
    ) -> dict[str, Any]:
        """Keyword arguments of operator ``name``; optional tensors all, none or (None) at random.

        n, k and m are the row's N, K (or size) and M; for aggregations without M sources, features
        and destinations; for CONCAT rows and both feature counts. What is chosen is not drawn; row
        pointers among it set the number of destinations.
        """
        self.optional, operands = optional, ROWS[name].operands
        parameters = inspect.signature(ROWS[name].reference).parameters
        rows = n + 3 * self.integer(2) if "'M'" in str(operands.values()) else m
        rows = len(chosen["rowptr"]) - 1 if "rowptr" in chosen else rows
        self.sizes = {
            "N": n, "_": k + m if name == "concat_ffb" else n, "K": k, "B": k, "size": k,
            "a_size": k, "b_size": m, "M": m, "L": m, "C": k, "H": 3, "V": 4, "P": rows + 1,
            "num_rows": rows,
        }  # fmt: skip
        given = self._together(name, parameters, chosen) | chosen
        for key, parameter in parameters.items():
            required = parameter.default is inspect.Parameter.empty
            if key in given or key in ("trusted", "prepared"):
                continue
            if required or parameter.annotation is bool or self.taken():
                drawn = self._argument(key, operands.get(key, ()), parameter.annotation, name)
                given |= drawn if isinstance(drawn, dict) else {key: drawn}
        given = {key: value for key, value in given.items() if key in parameters}
        for key in self._left_out(name, given, parameters) & given.keys():
            if parameters[key].default is not inspect.Parameter.empty:
                given.pop(key, None)
        return given

    def _argument(self, key: str, sizes: Sequence[str], kind: Any, name: str) -> Any:
        """A value by the sizes or the type that the table gives an argument."""
        if kind is bool:
            return bool(self.integer(2))
        if kind is int:
            return {
                "lowest": -self.integer(5), "highest": 1 + self.integer(4),
                "every": 1 + self.integer(3),
            }.get(key, self.sizes.get(key))  # fmt: skip
        if kind is float:
            return (0.5, 1.0)[self.integer(2)] if key == "step" else NUMBERS[key]
        if "dtype" in str(kind):
            return OUT_DTYPES[self.integer(5)]
        if not sizes:
            return self._without_rule(key, name)
        row = ROWS[name]
        dtype = row.dtypes[key][0] if len(sizes) == 1 and row.parameters[key] else None
        if dtype == torch.bool:
            return torch.rand(self.size(sizes[0]), generator=self.generator) < 0.5
        if sizes[-1][:2] in ("W(", "C("):
            rows, size = [self.size(s) for s in sizes[:-1]], self.size(sizes[-1][2:-1])
            if len(sizes) == 3:
                return dict(zip((key, "counts"), self.ternary(rows[0], size), strict=True))
            return (self.bits if sizes[-1][0] == "W" else self.codes)(*rows, size)
        shape = [self.size(size) for size in sizes]
        if dtype == torch.int32:
            spread = 200 * (self.sizes["K"] + 1)
            return torch.randint(-spread, spread, shape, generator=self.generator, dtype=dtype)
        if key in OPERANDS and len(shape) > 1:
            if sizes[-1] == "_":
                shape[-1] = self.sizes["K"]
                if self.integer(2):
                    return self.bits(*shape)
            return self.matrix(math.prod(shape[:-1]), shape[-1]).reshape(shape)
        if key == "inverse_step":
            return self.floats(*shape).abs() * 20
        if key == "offset":
            return (self.floats(*shape) * 2**16).round() / 2**16
        return self.floats(*shape) * (1000 if name in CODES and key in WHOLE else 1)

    def _without_rule(self, key: str, name: str) -> Any:
        """Rows of K where the table leaves sizes open, else a number."""
        n, k, m = (self.sizes[letter] for letter in "NKM")
        if key in OPERANDS:
            x = self.matrix(n, k)
            if name.startswith("pack") and self.integer(2):
                x = torch.stack([x, -x], self.integer(2))
            return x
        if key == "bias":
            return self.floats(k)
        if key == "log_gain":
            return self.floats(1 if m % 2 or not m else 2)
        return self.floats(m) if key == "w_scale" and self.integer(2) else self.positive()

    def size(self, term: str) -> int:
        """The value of a size such as ``P-1`` or ``8``."""
        base, _, less = term.partition("-")
        return int(base) if base.isdigit() else self.sizes[base] - int(less or 0)

    def _left_out(
        self, name: str, given: dict[str, Any], parameters: Mapping[str, Any]
    ) -> set[str]:
        """Optional arguments that do not go with the others."""
        is_float, out = self.dtype.is_floating_point, set()
        if given.get("integer"):
            # Floats have no exact sums, and integers no optional vectors.
            if self.optional or (name == "bspmm_fbf" and is_float):
                given["integer"] = False
            else:
                out |= {"x_scale", "w_scale", "bias", "row"}
                given |= {"scale": False} if "scale" in parameters else {}
        if name.startswith("bspmm_f") and not is_float:
            out.add("col")
        if given.get("dtype") == torch.int32:
            out |= {"scale", "x_scale", "w_scale", "k_scale", "v_scale", "bias"}
        if "x_threshold" in parameters and "size" in parameters:
            packed = given["x"].dtype == torch.int32
            out |= {"x_threshold", "x_gain", "scale"} if packed else {"x_scale"}
        if given.get("hidden_bits"):
            out |= {"x_gain", "scale", "x_scale", "w_scale", "col"}
        if "out_bits" in parameters:
            out |= set() if given["out_bits"] else {"threshold", "flip"}
            out |= {"bias"} if given["out_bits"] and name != "bmm_add" else set()
        if given.get("size", 0) > MAX_NARROW_SIZE:
            out.add("shift")
        if "gain" not in given and name == "clip_gradients":
            out.add("sign")
        return out

    def _together(
        self, name: str, parameters: Mapping[str, Any], chosen: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Arguments that depend on one another."""
        n, k, m = (self.sizes[letter] for letter in "NKM")
        if name == "sample_neighbors":
            return self._sampled(n, k, m)
        if name == "hamming_topk":
            return {"k": self.integer(n + 1)}
        if name == "pack_csr":
            return self._entries(n, k)
        if name.startswith("attention"):
            return self._attended(name, n, k, m)
        if name.startswith("matmul"):
            return self._matrices(*(("a", "v") if name == "matmul_btf" else ("q", "k")), n, k, m)
        if "stride" in parameters:
            return self._windows(name, k, m)
        if name == "linear_chain":
            return self._chain(n, k, m)
        given = {}
        if name.startswith(("gat", "transformer")):
            return self._graph_attention(name, parameters, n, k)
        if "digits" in parameters:
            digits, step = weight_digits(self.floats(m, k).nan_to_num(1.0, 2.0, -2.0))
            given = {"digits": digits, "step": step}
        if name.startswith("bspmm") or "rowptr" in parameters:
            given = self._pattern(name, n, self.sizes["num_rows"])
        if name == "bmm_bspmm_narrow":
            given["head"] = self.integer(4) if m > 0 else 0
            given["shift"] = self.floats(m) if self.taken() else None
            size = chosen.get("root_size", (k, 64, 256)[self.integer(3)])
            if "root" in chosen or not self.taken():
                given |= dict.fromkeys(key for key in parameters if key.startswith("root"))
                given["root_size"] = 0
            else:
                self.sizes |= {"R": self.sizes["num_rows"], "root_size": size}
                given |= {"root": self.bits(self.sizes["R"], size), "root_w": self.bits(m, size)}
                given["root_size"] = size
        return given

    def _graph_attention(
        self, name: str, parameters: Mapping[str, Any], n: int, k: int
    ) -> dict[str, Any]:
        """A pattern, and heads that divide the features unless all of them share these."""
        rows, shared = self.sizes["num_rows"], bool(self.integer(2))
        heads = 3 if shared else next(h for h in (8, 4, 3, 2, 1) if k % h == 0)
        channels = (0, 1, 5, 8, 32)[self.integer(5)]
        given = {"heads": heads, "shared": shared, "negative_slope": 0.2, "width": heads * channels}
        for key in ("alone", "both"):
            given[key] = torch.randint(
                -(2**20), 2**20, (heads * channels,), generator=self.generator
            )
            given[key] = given[key].int()
        given |= {"out_bits": not shared and bool(self.integer(2))}
        self.sizes |= given | {"_": heads * k if shared else k, "R": rows}
        given |= self._pattern(name, n, rows)
        self.sizes["E"] = len(given["indices"])
        return {key: value for key, value in given.items() if key in parameters}

    def _pattern(self, name: str, sources: int, rows: int) -> dict[str, Any]:
        """A pattern in its layout, and values of its entries."""
        adjacency = self.adjacency(rows, sources, coalesce=name.endswith("frdc"))
        if name.endswith("frdc"):
            return {**vars(adjacency.frdc()), "num_rows": rows}
        if name.endswith("sliced"):
            # More columns than a GPU's shared memory holds make several slices.
            size = min(6000, max(1, sources // (1 + self.integer(3))))
            return dict(vars(adjacency.sliced(size)))
        given = {"rowptr": adjacency.rowptr, "indices": adjacency.indices}
        order = adjacency.row_order() if name.endswith("narrow") and self.taken() else None
        return given | {"values": self.floats(adjacency.nnz), "order": order}

    def _entries(self, n: int, k: int) -> dict[str, Any]:
        """Entries in any order, columns that occur twice and zeros among them."""
        entries = self.integer(3 * n + 1) if k else 0
        rows = torch.randint(max(n, 1), (entries,), generator=self.generator).bincount(minlength=n)
        kinds = [(torch.int32, torch.int64)[self.integer(2)] for _ in range(2)]
        indices = torch.randint(max(k, 1), (entries,), generator=self.generator)
        return {
            "rowptr": torch.cat([torch.zeros(1), rows.cumsum(0)]).to(kinds[0]),
            "indices": indices.to(kinds[1]),
            "values": self.matrix(1, entries).view(-1),
        }

    def _chain(self, n: int, k: int, m: int) -> dict[str, Any]:
        sizes = [max(k, 1), *([max(m, 1)] * self.integer(3)), 10]
        layers = []
        for size, outputs in itertools.pairwise(sizes):
            limits = torch.stack([torch.zeros(outputs), torch.arange(outputs) % 2], 1).int()
            layers.append((BitTensor(self.bits(outputs, size), size), limits))
        last, _ = layers.pop()
        chain = make_chain(layers, last, self.floats(10), self.floats(10))
        return {"x": self.bits(n, sizes[0]), "image": chain.image, "layers": chain.layers}

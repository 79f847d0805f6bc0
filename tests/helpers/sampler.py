"""Random arguments for every operator."""

import inspect
from typing import Any

import torch
from fused_arguments import FusedArguments
from image_arguments import ImageArguments
from int8_arguments import INT8, Int8Arguments
from looked_up_arguments import LOOKED_UP, LookedUpArguments
from quantise_arguments import QUANTISE, QuantiseArguments
from row_arguments import RowArguments
from sampling_arguments import SamplingArguments
from ternary_arguments import TernaryArguments

from bitgnn.ops.reference import OPERATORS

__all__ = ["Sampler"]

TERNARY_LETTERS = ("_tbf", "_tbb", "_ttf", "_btf")


class Sampler(
    FusedArguments,
    ImageArguments,
    Int8Arguments,
    LookedUpArguments,
    QuantiseArguments,
    RowArguments,
    SamplingArguments,
    TernaryArguments,
):
    """Draws arguments of operators from one seeded generator."""

    def arguments(
        self, name: str, n: int, k: int, m: int, optional: bool | None = None
    ) -> dict[str, Any]:
        """Keyword arguments of operator ``name``; optional tensors all, none or (None) at random.

        For products n, k, m are rows of x, features and rows of w; for aggregations sources,
        features and destinations; for CONCAT rows and both feature counts.
        """
        if name in ("bmm_add", "bmm_bspmm", "bmm_bspmm_narrow"):
            return self._fused_arguments(name, n, k, m, optional)
        if name == "sample_neighbors":
            return self._sampling_arguments(n, k, m, optional)
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
        if name == "pack_csr":
            return self._csr_pack_arguments(n, k, optional)
        if name == "pack_images":
            x = self.matrix(n * k, 12).reshape(n, k, 3, 4)
            return {"x": x, "threshold": self.floats(k)} if optional else {"x": x}
        if name in INT8:
            return self._int8_arguments(name, n, k, m, optional)
        if name in QUANTISE:
            return self._quantise_arguments(name, n, k)
        if name in LOOKED_UP:
            return self._looked_up_arguments(name, n, k, optional)
        if "ternary" in name or name.endswith(TERNARY_LETTERS) or name == "pack_bool":
            return self._ternary_arguments(name, n, k, m, optional)
        family, _, rest = name.partition("_")
        if family not in ("bmm", "bspmm"):
            return self._row_arguments(name, n, k, m, optional)
        return self._product_arguments(name, family, rest, n, k, m, optional)

    def _product_arguments(
        self, name: str, family: str, rest: str, n: int, k: int, m: int, optional: bool | None
    ) -> dict[str, Any]:
        parameters = inspect.signature(OPERATORS[name]).parameters
        given: dict[str, Any] = {"size": k}
        wide = {"bmm": m, "bspmm": k}[family]
        lengths = {
            "x_scale": n, "w_scale": m, "bias": wide, "threshold": wide, "x_threshold": k,
            "x_gain": k, "col": n, "row": m,
        }  # fmt: skip
        operands = {"bmm": {"x": (n, k), "w": (m, k)}, "bspmm": {"x": (n, k)}}[family]
        for place, (operand, shape) in enumerate(operands.items()):
            given[operand] = self.bits(*shape) if rest[place] == "b" else self.matrix(*shape)
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

    def _csr_pack_arguments(self, n: int, k: int, optional: bool | None) -> dict[str, Any]:
        """Entries in any order, columns that occur twice and zeros among them."""
        entries = self.integer(3 * n + 1) if k else 0
        rows = torch.randint(max(n, 1), (entries,), generator=self.generator).bincount(minlength=n)
        kinds = [(torch.int32, torch.int64)[self.integer(2)] for _ in range(2)]
        take = bool(self.integer(2)) if optional is None else optional
        indices = torch.randint(max(k, 1), (entries,), generator=self.generator)
        return {
            "rowptr": torch.cat([torch.zeros(1), rows.cumsum(0)]).to(kinds[0]),
            "indices": indices.to(kinds[1]),
            "values": self.matrix(1, entries).view(-1),
            "size": k,
            "threshold": self.floats(k) if take else None,
        }

    def _layout(self, rest: str, n: int, m: int) -> dict[str, Any]:
        adjacency = self.adjacency(m, n, coalesce=rest.endswith("frdc"))
        given: dict[str, Any] = {"num_rows": m}
        if rest.endswith("frdc"):
            tiles = adjacency.frdc()
            assert tiles is not None
            return given | vars(tiles)
        if rest.endswith("sliced"):
            # More columns than a GPU's shared memory holds make several slices.
            return vars(adjacency.sliced(min(6000, max(1, n // (1 + self.integer(3))))))
        values = self.floats(adjacency.nnz)
        return {"rowptr": adjacency.rowptr, "indices": adjacency.indices, "values": values}

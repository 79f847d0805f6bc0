"""Random arguments of an operator by its row of the table."""

import inspect
import math
from typing import Any

import torch
from draws import Draws
from torch import Tensor

from bitgnn.bits.tensor import words_for
from bitgnn.ops.reference.table import TABLE, size_of

__all__ = ["RowArguments"]


class RowArguments(Draws):
    """Arguments of operators whose operands may hold any values."""

    def _row_arguments(
        self, name: str, n: int, k: int, m: int, optional: bool | None
    ) -> dict[str, Any]:
        """Letters N, K, M and L are n, k, m and m, the first integers k and m."""
        row = TABLE[name]
        sizes = {"N": n, "K": k, "M": m, "L": m}
        parameters = inspect.signature(row.reference).parameters
        integers = [p.name for p in parameters.values() if p.annotation is int]
        given: dict[str, Any] = dict(zip(integers, (k, m), strict=False))
        for parameter in parameters.values():
            take = bool(self.integer(2)) if optional is None else optional
            if parameter.name in given or not (take or parameter.default is parameter.empty):
                continue
            if parameter.annotation is bool:
                given[parameter.name] = True
            else:
                given[parameter.name] = self._operand(name, parameter.name, given, sizes)
        return given

    def _operand(self, name: str, operand: str, given: dict[str, Any], sizes: Any) -> Tensor:
        *leading, last = TABLE[name].operands[operand]
        shape = [size_of(size, given, sizes) for size in leading]
        if last.startswith("W("):
            features = size_of(last[2:-1], given, sizes)
            words = self.bits(math.prod(shape), features)
            return words.view(*shape, words_for(features))
        shape.append(size_of(last, given, sizes))
        if TABLE[name].dtypes[operand] == (torch.bool,):
            return torch.rand(shape, generator=self.generator) < 0.5
        return self.matrix(*shape) if leading else self.floats(*shape)

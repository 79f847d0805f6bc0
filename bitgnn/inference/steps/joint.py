"""One call for a sum of neighbours' bits, a product of the nodes' own and the sign of the two."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.bits import BitAdjacency
from bitgnn.inference.program import Runner, Step
from bitgnn.inference.steps.layouts import bind_bits_aggregation, words_of

__all__ = ["bind_joint_product"]

_bmm_bbb = torch.ops.bitgnn.bmm_bbb.default
_bmm_add = torch.ops.bitgnn.bmm_add.default
_bspmm_bmm = torch.ops.bitgnn.bspmm_bmm.default
_bspmm_bmm_sliced = torch.ops.bitgnn.bspmm_bmm_sliced.default


def bind_joint_product(group: Sequence[Step], own: Sequence[Mapping[str, Tensor]]) -> Runner | None:
    """One call for ``bspmm_bbf`` and ``bmm_add_bits``, or two with a ``bmm_bbb`` in front.

    Args:
        group: the steps, each the only reader of the one before.
        own: their tensors.

    Returns:
        The call, or None where the steps are others.
    """
    *products, sums, root = group
    kinds = [step.kind for step in group]
    if kinds[-2:] != ["bspmm_bbf", "bmm_add_bits"] or root.inputs[-1] != sums.outputs[0]:
        return None
    if kinds[:-2] not in ([], ["bmm_bbb"]) or (products and own[0].keys() != {"weight"}):
        return None
    assert sums.graph is not None, "Program.check requires it"
    join, graph = _join(sums, root, own[-2], own[-1]), sums.graph
    x, *scale, _ = root.inputs
    (out,), first = root.outputs, group[0].inputs[0]
    if products:
        weight, size = own[0]["weight"], products[0].attributes["size"]

        def run_with_product(v: list[Any], graphs: Sequence[Any]) -> None:
            hidden = _bmm_bbb(v[first], weight, size)
            v[out] = join(hidden, graphs[graph], v[x], v[scale[0]] if scale else None)

        return run_with_product

    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        v[out] = join(v[first], graphs[graph], v[x], v[scale[0]] if scale else None)

    return run


def _join(
    sums: Step, root: Step, sum_tensors: Mapping[str, Tensor], tensors: Mapping[str, Tensor]
) -> Callable[[Tensor, BitAdjacency, Tensor, Tensor | None], Tensor]:
    """Takes neighbours' words, the pattern, the nodes' own words and row scale; gives words."""
    hidden_size, size = sums.attributes["size"], root.attributes["size"]
    sum_bias, weight, words = sum_tensors.get("bias"), tensors["weight"], words_of(hidden_size)
    rest = tuple(tensors.get(name) for name in ("weight_scale", "bias", "threshold", "flip"))
    sums_to_floats = bind_bits_aggregation(False, hidden_size, sum_bias)

    def join(neighbours: Tensor, a: BitAdjacency, x: Tensor, scale: Tensor | None) -> Tensor:
        layout = a.planned_layout(words)
        if layout == "csr":
            result: Tensor = _bspmm_bmm(
                neighbours, a.rowptr, a.indices, x, weight, size, a.row_scale, sum_bias,
                scale, *rest, trusted=True,
            )  # fmt: skip
        elif layout == "sliced":
            result = _bspmm_bmm_sliced(
                neighbours, *a.sliced().arguments, x, weight, size, a.row_scale, sum_bias,
                scale, *rest, trusted=True,
            )  # fmt: skip
        else:
            addend = sums_to_floats(neighbours, a)
            result = _bmm_add(x, weight, addend, size, scale, *rest, None, None, False, True)
        return result

    return join

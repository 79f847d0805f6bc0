"""Rows of the table tell front ends which argument an operator refuses, for every operator."""

import inspect

import pytest
import torch

from bitgnn.ops._arguments import call
from bitgnn.ops.reference.table import TABLE

SHOWN = {"codes": "x", "weight": "w"}
"""Parameters of functions by arguments that are called otherwise."""


@pytest.mark.parametrize("name", sorted(TABLE))
def test_a_wrong_operand_is_named(name, sampler):
    row = TABLE[name]
    given = sampler(seed=1).arguments(name, 20, 40, 33, optional=True)
    if given.get("scale") is False:
        given["scale"] = True  # else nothing looks at the other operand's scale
    bound = inspect.signature(row.reference).bind(**given)
    bound.apply_defaults()
    whole = bound.arguments
    call(f"front.{name}", name, *whole.values())
    for key, sizes in row.operands.items():
        if whole[key] is None:
            continue
        start = rf"^front.{name}: {SHOWN.get(key, key)} must"
        wrong = whole | {key: whole[key].to(torch.complex64)}
        with pytest.raises(TypeError, match=f"{start} be a .* tensor, got torch.complex64"):
            call(f"front.{name}", name, *wrong.values())
        if row.parameters[key] and len(sizes) == 1 and sizes != ("_",):
            wrong = whole | {key: torch.cat([whole[key], whole[key], whole[key][:1]])}
            with pytest.raises(ValueError, match=rf"{start} have shape \[\d+\], got"):
                call(f"front.{name}", name, *wrong.values())

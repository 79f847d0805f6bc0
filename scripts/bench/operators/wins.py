"""Gains of a route's variants: a call's chosen kernels against those without one variant."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from bench.cases import Case, Contender, WrongResultError, same_call
from bench.operators.recorded import Call, Operands, calls
from bitgnn._library import load_for_dry_runs
from bitgnn.ops.route import DeviceDescription, route

WATCHED = "*"
"""Watches calls without leaving anything out."""
Device = str | torch.device | DeviceDescription


def leave_out(variant: str) -> list[str]:
    """Leave out a variant from now on, none of them for ``""``; names that calls took before."""
    load_for_dry_runs()
    found: str = torch.ops.bitgnn_dry.leave_out_variants(variant)
    return found.split(";") if found else []


def alternatives(call: Call, given: tuple[Any, ...], device: Device) -> dict[str, list[str]]:
    """Kernels without each of the variants that a call takes, where they are others."""
    kernels, taken = _kernels(WATCHED, call, given, device)
    found = {variant: _kernels(variant, call, given, device)[0] for variant in taken}
    return {variant: others for variant, others in found.items() if others != kernels}


def _kernels(
    left_out: str, call: Call, given: tuple[Any, ...], device: Device
) -> tuple[list[str], list[str]]:
    """Kernels that a call launches without a variant, and the variants that it takes."""
    leave_out(left_out)
    try:
        found = route(call.operator, *given, device=device, **dict(call.keywords))
    finally:
        taken = leave_out("")
    return [launch.kernel for launch in found.launches], taken


def wins_cases() -> Iterator[Case]:
    """A case a call that has alternatives: the chosen kernels, and those without each variant."""
    operands, shapes = Operands("cuda"), Operands("meta")
    for call in calls():
        if others := alternatives(call, call.operands(shapes), operands.device):
            contenders = partial(_contenders, call, operands, others)
            yield Case(call.group, call.name, contenders, details={"operator": call.operator})


def _contenders(
    call: Call, operands: Operands, others: dict[str, list[str]]
) -> Iterator[Contender]:
    given = call.operands(operands)
    overload = getattr(torch.ops.bitgnn, call.operator).default
    keywords = dict(call.keywords)
    if any(argument.name == "trusted" for argument in overload._schema.arguments):
        keywords["trusted"] = True

    def without(variant: str) -> Any:
        leave_out(variant)
        try:
            return overload(*given, **keywords)
        finally:
            leave_out("")

    expected = overload(*given, **keywords)

    def make(variant: str) -> Callable[[], Any]:
        if not _agree(without(variant), expected):
            raise WrongResultError(variant)
        return partial(without, variant)

    yield Contender("chosen", True, same_call(lambda: overload(*given, **keywords)))
    for variant, kernels in others.items():
        yield Contender(variant, False, partial(make, variant), details={"next": kernels})


def _agree(found: Any, expected: Any) -> bool:
    """True if bits and integers are equal, and floats within the error of another order of sums."""
    if isinstance(found, tuple):
        return all(map(_agree, found, expected))
    if not found.is_floating_point():
        return torch.equal(found, expected)
    largest = float(expected.abs().amax()) if expected.numel() else 0.0
    return torch.allclose(found, expected, rtol=1e-3, atol=1e-3 * largest)

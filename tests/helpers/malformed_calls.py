"""Calls every operator with arguments of which one is wrong: errors or results, never a crash.

Run as: python malformed_calls.py LOG DEVICE SEED...

LOG begins with the call under way, should it crash.
"""

import faulthandler
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import torch
from sampler import Sampler
from torch import Tensor
from torch.utils._pytree import tree_leaves

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.ops.reference.table import HOST_TABLE, TABLE

# No crash and no result that the reference does not give; what kind of error is told by tests of
# single operators.
ERRORS = (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError)
SECONDS = 600  # for all calls
SHAPES = ((6, 70, 9), (3, 33, 1))  # of even and of odd seeds
REFERENCES = {name: row.reference for name, row in (TABLE | HOST_TABLE).items()}
# Words beside the names of arguments that say which argument is wrong.
OTHER_NAMES = ("counts", "row pointer", "tile rows", "size", "channels", "tensors")
HUGE = (-1, 0, 2**31, 2**62, 2**63 - 1, 2**63 - 64, -(2**63))


def values_of(t: Tensor) -> list[Any]:
    """Values that an element may not have, or may."""
    if t.is_floating_point():
        return [float("nan"), float("inf"), -1.0, 0.0]
    if t.dtype == torch.bool:
        return []
    info = torch.iinfo(t.dtype)
    numbers = (info.min, info.max, -1, 0, t.size(0), t.numel())
    return [number for number in numbers if info.min <= number <= info.max]


def tensors_like(t: Tensor) -> Iterator[tuple[str, Tensor]]:
    """A tensor with one thing wrong, or merely unusual."""
    for dtype in (torch.int8, torch.int32, torch.int64, torch.float16, torch.float64, torch.bool):
        if dtype != t.dtype:
            yield f"as {dtype}", t.to(dtype)
    yield "complex", t.to(torch.complex64)
    yield "on meta", t.to("meta")
    if t.is_cuda:
        yield "on the CPU", t.cpu()
    yield "with an axis more", t.unsqueeze(0)
    if t.dim():
        yield "with an axis less", t.flatten() if t.dim() > 1 else t.sum().to(t.dtype)
        yield "without entries", t[:0]
        yield "repeated", t.repeat_interleave(2, 0)
    if t.dim() > 1:
        yield "huge without entries", t.new_empty((2**62, *([0] * (t.dim() - 1))))
    for axis in range(t.dim()):
        if t.size(axis):
            yield f"shorter along {axis}", t.narrow(axis, 1, t.size(axis) - 1)
        yield f"longer along {axis}", torch.cat([t, t.narrow(axis, 0, min(1, t.size(axis)))], axis)
        yield f"expanded along {axis}", t.narrow(axis, 0, min(1, t.size(axis))).expand_as(t)
    if t.numel():
        spread = t.new_zeros((*t.shape[:-1], 2 * t.size(-1)))[..., ::2] if t.dim() else t
        yield "spread out", spread.copy_(t)
        for value in values_of(t):
            for place in {0, t.numel() // 2, t.numel() - 1}:
                changed = t.clone(memory_format=torch.contiguous_format)
                changed.view(-1)[place] = value
                yield f"with {value} at {place}", changed


def others(value: Any) -> Iterator[tuple[str, Any]]:
    """Other arguments in place of a valid one."""
    if isinstance(value, Tensor):
        yield from tensors_like(value)
    elif isinstance(value, bool):
        yield "inverted", not value
    elif isinstance(value, int):
        for number in (value - 1, value + 1, *HUGE):
            if -(2**63) <= number < 2**63:
                yield str(number), number
    elif isinstance(value, float):
        for number in (float("nan"), float("inf"), -1.0, 0.0, 1e300):
            yield str(number), number
    elif isinstance(value, (list, tuple)):
        yield "shorter", list(value)[:-1]
        yield "longer", [*value, 1]
        yield "empty", []
        for place in range(len(value)):
            for what, number in others(value[place]):
                yield f"{what} at {place}", [*value[:place], number, *value[place + 1 :]]


def moved(value: Any, device: str) -> Any:
    """A tensor on a device; anything else as it is."""
    return value.to(device) if isinstance(value, Tensor) and not value.is_meta else value


def calls(name: str, seed: int, device: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Malformed calls of an operator: the parameter, what is wrong with it, all arguments."""
    n, k, m = SHAPES[seed % 2]
    arguments = Sampler(seed).arguments(name, n, k, m, optional=True)
    # A caller who vouches for a pattern answers for it.
    arguments.pop("trusted", None)
    arguments = {key: moved(value, device) for key, value in arguments.items()}
    for parameter, value in arguments.items():
        for what, other in others(value):
            yield parameter, what, {**arguments, parameter: other}


def outcome(function: Any, arguments: dict[str, Any]) -> tuple[Tensor, ...] | Exception:
    """Results, or the error."""
    try:
        result = function(**arguments)
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
    except ERRORS as error:
        return error
    return tuple(tree_leaves(result))


def same(mine: tuple[Tensor, ...], theirs: tuple[Tensor, ...], by_shape: bool) -> bool:
    """Whether results are equal: bits and integers exactly, floats closely; or in shape alone."""
    for a, b in zip(mine, theirs, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        if by_shape:
            continue
        if not torch.allclose(a.double(), b.double(), rtol=1e-4, atol=1e-4, equal_nan=True):
            return False
    return True


def is_named(name: str, error: str, parameters: Iterable[str]) -> bool:
    """Whether an error begins with the operator, names an argument."""
    if error.startswith(("bitgnn: row_items and", "bitgnn: a result of 2^63", "bitgnn::sample_ne")):
        return True
    names = "|".join((*parameters, *OTHER_NAMES))
    said = re.match(rf"{name}: (.*)", error, re.DOTALL)
    return said is not None and re.search(rf"\b({names})\b", said[1]) is not None


def breaks_padding(parameter: str, what: str, value: Any) -> bool:
    """Whether padding bits may be set now, or counts not be those of their bits.

    Kernels make of such operands what they like.
    """
    if isinstance(value, Tensor):
        return not value.is_floating_point() or what.startswith("shorter")
    return parameter in ("a_size", "b_size", "channels", "layers", "root_size", "size")


def main(log: BinaryIO, device: str, seed: int) -> int:
    """Make all calls of a seed; gives how many went wrong."""
    count = wrong = 0
    for name in REFERENCES:
        operator = getattr(torch.ops.bitgnn, name)
        for parameter, what, arguments in calls(name, seed, device):
            call = f"{name}: {parameter} {what}"
            log.seek(0)  # opening it anew takes longer than the call
            log.write(f"{call:<120}\n".encode())
            by_shape = breaks_padding(parameter, what, arguments[parameter])
            count += 1
            result = outcome(operator, arguments)
            problem = ""
            if isinstance(result, Exception):
                if "csrc/" in str(result) or ".h:" in str(result):
                    problem = f"names C++: {result}"
                elif not is_named(name, str(result), arguments):
                    problem = f"names no argument: {result}"
            elif not any(t.is_meta for t in result):
                on_host = {key: moved(value, "cpu") for key, value in arguments.items()}
                expected = outcome(REFERENCES[name], on_host)
                result = tuple(t.cpu() for t in result)
                if isinstance(expected, tuple) and not same(result, expected, by_shape):
                    problem = "differs from the reference"
                tensors = [v for v in tree_leaves(arguments) if isinstance(v, Tensor)]
                if any(tensor.is_meta for tensor in tensors):
                    problem = "results although an operand has no memory"
                on_device = {tensor.device for tensor in tensors}
                if len(on_device) > 1:
                    problem = f"results of operands on {on_device}"
            if problem:
                wrong += 1
                print(f"{call}: {problem}"[:300])
    print(f"{count} calls, {wrong} wrong")
    return wrong


if __name__ == "__main__":
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    _, path, where, *seeds = sys.argv
    with open(path, "wb", buffering=0) as calls_made:
        sys.exit(min(1, sum(main(calls_made, where, int(seed)) for seed in seeds)))

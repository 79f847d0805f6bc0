"""Kernels and scratch memory of a call on a GPU, found without one."""

from __future__ import annotations

import mmap
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bitgnn._library import load_for_dry_runs


@dataclass(frozen=True)
class DeviceDescription:
    """Properties of a GPU on which the choice of kernels depends.

    Attributes:
        capability: 10 * major + minor compute capability.
        sm_count: multiprocessors.
        shared_bytes: shared memory that a block may ask for.
        cache_bytes: L2 cache.
    """

    capability: int
    sm_count: int
    shared_bytes: int
    cache_bytes: int


DEVICES: Mapping[str, DeviceDescription] = {
    "A100": DeviceDescription(80, 108, 166_912, 40 << 20),
    "H100": DeviceDescription(90, 132, 232_448, 50 << 20),
    "H200": DeviceDescription(90, 132, 232_448, 60 << 20),
    "RTX 4090": DeviceDescription(89, 128, 101_376, 72 << 20),
    "RTX 5090": DeviceDescription(120, 170, 101_376, 96 << 20),
}
"""Devices that :func:`route` knows by name."""


@dataclass(frozen=True)
class KernelLaunch:
    """One launch.

    Attributes:
        kernel: its name with template arguments.
        blocks: grid in x, y and z.
        threads: of a block.
        shared_bytes: dynamic shared memory of a block.
    """

    kernel: str
    blocks: tuple[int, int, int]
    threads: int
    shared_bytes: int


@dataclass(frozen=True)
class Route:
    """Kernels and scratch memory of a call.

    Attributes:
        launches: in order. Grids of kernels that fill the device may be larger than real ones:
            how many blocks a multiprocessor holds depends on their registers, too.
        scratch_bytes: most memory taken from the allocator at once, less the result's.
    """

    launches: tuple[KernelLaunch, ...]
    scratch_bytes: int

    def __str__(self) -> str:
        lines = [
            f"{launch.kernel}: "
            f"{' x '.join(map(str, launch.blocks))} blocks of {launch.threads} threads, "
            f"{launch.shared_bytes} bytes of shared memory"
            for launch in self.launches
        ]
        return "\n".join([*lines, f"scratch memory: {self.scratch_bytes} bytes"])


def route(
    operator: str,
    *arguments: Any,
    device: str | torch.device | DeviceDescription | None = None,
    **keywords: Any,
) -> Route:
    """Run an operator's launchers without launching.

    Args:
        operator: name of a raw operator, such as ``"bmm_bbf"`` for ``torch.ops.bitgnn.bmm_bbf``.
        *arguments: of the operator. Only shapes, dtypes and strides of tensors count: they may lie
            on the ``"meta"`` device. Patterns are not looked at.
        device: a name of :data:`DEVICES`, a description, or a CUDA device; by default the current
            CUDA device, or else an H200.
        **keywords: of the operator.

    Raises:
        ValueError: the operator has no CUDA kernels, or the device is unknown.
        RuntimeError: the library of CUDA kernels is not there, or the operator refuses the
            arguments.
    """
    problem = load_for_dry_runs()
    if problem:
        raise RuntimeError(f"route: {problem}")
    if not hasattr(torch.ops.bitgnn_dry, operator) or not _has_kernels(operator):
        raise ValueError(f"route: operator must be one with CUDA kernels, got {operator!r}")
    function = getattr(torch.ops.bitgnn_dry, operator).default
    names = [argument.name for argument in function._schema.arguments]
    if "trusted" in names:
        arguments = arguments[: names.index("trusted")]  # the last one
        keywords["trusted"] = True
    described = _description(device)
    torch.ops.bitgnn_dry.set_device(
        described.capability, described.sm_count, described.shared_bytes, described.cache_bytes
    )
    torch.ops.bitgnn_dry.take_notes()  # of a call that failed
    result = function(
        *(_unbacked(argument) for argument in arguments),
        **{name: _unbacked(argument) for name, argument in keywords.items()},
    )
    scratch, *lines = torch.ops.bitgnn_dry.take_notes().splitlines()
    del result  # what is there when the notes are taken is no scratch memory
    return Route(tuple(_launch(line) for line in lines), int(scratch))


def _has_kernels(operator: str) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(f"bitgnn_dry::{operator}", "CPU")


def _launch(line: str) -> KernelLaunch:
    *numbers, kernel = line.split(" ", 5)
    x, y, z, threads, shared_bytes = map(int, numbers)
    return KernelLaunch(_without_parameters(kernel), (x, y, z), threads, shared_bytes)


def _without_parameters(kernel: str) -> str:
    """Strip return type and parameters: ``void f<2>(int)`` becomes ``f<2>``."""
    kernel, depth = kernel.replace("(anonymous namespace)::", ""), 0
    for place, letter in enumerate(kernel):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0:
            return kernel[:place].removeprefix("void ")
    return kernel


def _description(device: str | torch.device | DeviceDescription | None) -> DeviceDescription:
    if isinstance(device, DeviceDescription):
        return device
    if device is None:
        device = torch.device("cuda") if torch.cuda.is_available() else "H200"
    if isinstance(device, str) and device in DEVICES:
        return DEVICES[device]
    found = torch.device(device) if isinstance(device, torch.device) or "cuda" in device else None
    if found is None or found.type != "cuda" or not torch.cuda.is_available():
        raise ValueError(
            f"route: device must be one of {', '.join(DEVICES)}, a DeviceDescription or a CUDA "
            f"device, got {device!r}"
        )
    properties = torch.cuda.get_device_properties(found)
    return DeviceDescription(
        10 * properties.major + properties.minor,
        properties.multi_processor_count,
        getattr(properties, "shared_memory_per_block_optin"),  # noqa: B009  (not in its stub)
        properties.L2_cache_size,
    )


def _unbacked(value: Any) -> Any:
    """A tensor with addresses but without memory; it is never read."""
    if not isinstance(value, Tensor):
        return value
    if value.numel() == 1:  # operators read scales on the host
        return torch.ones_like(value, device="cpu") if value.is_meta else value.cpu()
    reach = 1 + sum((n - 1) * s for n, s in zip(value.shape, value.stride(), strict=True))
    if value.numel() == 0:
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
    # Pages that nobody may write to take no memory, whatever their number.
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    pages = mmap.mmap(-1, reach * value.element_size(), flags=flags, prot=mmap.PROT_READ)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that they are not writable
        held = torch.frombuffer(pages, dtype=value.dtype, count=reach)
    return held.as_strided(value.shape, value.stride())

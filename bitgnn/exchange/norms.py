"""Batch norms: the part each plays, and its form as thresholds or as scale and bias, and back."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from bitgnn.convert.network.trace import trace_model
from bitgnn.inference.functions import sign_threshold
from bitgnn.nn import BinaryConv2d, BinaryLinear

# They leave a value's sign, and which value is the greatest, as they are.
MODULES = (nn.MaxPool2d, nn.Identity, nn.Dropout, nn.Dropout2d, nn.Flatten)
FUNCTIONS = ("flatten", "view", "reshape", "max_pool2d", "dropout", "contiguous", "size")
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)
Norm = nn.BatchNorm1d | nn.BatchNorm2d
FAR = 2.0**90
_SIDE = 2
"""Rows and columns of the images that norms are evaluated on, which take the loops of images."""


def norm_roles(function: str, model: nn.Module) -> dict[str, str]:
    """The part that each batch norm plays, by module name.

    ``"threshold"`` where only signs of its result are used, ``"affine"`` where the network
    gives it out, and nothing for others.
    """
    try:
        traced = trace_model(model)
    except ValueError as error:
        raise ValueError(f"{function}: {str(error).removeprefix('freeze: ')}") from error
    roles: dict[str, set[str]] = {}
    for node in traced.graph.nodes:
        if node.op == "call_module" and isinstance(_module(traced.root, node), NORMS):
            # A norm that is called twice has both parts to play.
            name = traced.name_of(str(node.target))
            roles.setdefault(name, set()).add(_role(traced.root, node))
    single = {name: parts.pop() for name, parts in roles.items() if len(parts) == 1}
    return {name: role for name, role in single.items() if role != "values"}


def _module(root: nn.Module, node: fx.Node) -> nn.Module:
    return root.get_submodule(str(node.target))


def _role(root: nn.Module, norm: fx.Node) -> str:
    found: set[str] = set()
    seen: set[fx.Node] = set()
    open_nodes = [norm]
    while open_nodes:
        for user in open_nodes.pop().users:
            if user in seen:
                continue
            seen.add(user)
            role = _of_reader(root, user)
            if role == "same":
                open_nodes.append(user)
            else:
                found.add(role)
    # Scores are what the norm gives, not what something behind it makes of them.
    is_direct = all(user.op == "output" for user in norm.users)
    if found == {"threshold"} or (found == {"affine"} and is_direct):
        return found.pop()
    return "values"


def _of_reader(root: nn.Module, user: fx.Node) -> str:
    """The part of the norm that one reader takes."""
    if user.op == "output":
        return "affine"
    if user.op == "call_module":
        module = _module(root, user)
        if isinstance(module, BinaryConv2d | BinaryLinear) and module.input_step is None:
            return "threshold"
        clamps = isinstance(module, nn.Hardtanh) and module.min_val < 0 <= module.max_val
        return "same" if clamps or isinstance(module, MODULES) else "values"
    name = user.target if isinstance(user.target, str) else getattr(user.target, "__name__", "")
    known = name in FUNCTIONS or user.target is functional.max_pool2d
    return "same" if known else "values"


def _statistics(norm: Norm) -> tuple[Tensor, Tensor]:
    """Running mean and variance."""
    if norm.running_mean is None or norm.running_var is None:
        raise ValueError("its norm keeps no running statistics; evaluation would depend on batches")
    return norm.running_mean, norm.running_var


def _evaluated(norm: Norm) -> Callable[[Tensor], Tensor]:
    """The norm in evaluation on channels ``[1, C]``, with its own arithmetic."""
    dtype = _statistics(norm)[0].dtype

    def on_channels(v: Tensor) -> Tensor:
        x = v.to(dtype)
        if isinstance(norm, nn.BatchNorm2d):
            x = x[:, :, None, None].expand(-1, -1, _SIDE, _SIDE)
            x = x.contiguous(memory_format=torch.channels_last)
        x = functional.batch_norm(
            x, norm.running_mean, norm.running_var, norm.weight, norm.bias, False, 0.0, norm.eps
        )
        return (x[:, :, 0, 0] if x.dim() == 4 else x).float()

    return on_channels


@torch.no_grad()
def threshold_of(norm: Norm) -> dict[str, Tensor]:
    """``threshold`` float32 ``[C]`` and ``turned`` bool ``[C]`` of the signs after a norm.

    ``norm(v) >= 0`` just where ``(v >= threshold) ^ turned``, rounding included.
    """
    mean, _ = _statistics(norm)
    threshold, turned = sign_threshold(_evaluated(norm), norm.num_features, mean.device)
    return {"threshold": threshold, "turned": turned}


@torch.no_grad()
def affine_of(norm: Norm) -> dict[str, Tensor]:
    """``scale`` and ``bias`` float32 ``[C]``: the norm gives ``scale * v + bias``.

    Read off the norm's own arithmetic: its value at 0, and at a power of two that drowns the bias.
    """
    mean, _ = _statistics(norm)
    evaluated = _evaluated(norm)
    zero = torch.zeros(1, norm.num_features, dtype=mean.dtype, device=mean.device)
    return {"scale": (evaluated(zero + FAR) / FAR).squeeze(0), "bias": evaluated(zero).squeeze(0)}


def can_hold(norm: Norm) -> bool:
    """True if a norm can hold a threshold, or scale and bias."""
    if norm.weight is None or norm.bias is None or norm.running_var is None:
        return False
    return bool((torch.sqrt(_unit_variance(norm) + norm.eps) == 1).all())


def _unit_variance(norm: Norm) -> Tensor:
    """The variance that makes the standard deviation 1 to the bit."""
    _, variance = _statistics(norm)
    return torch.full_like(variance, 1 - norm.eps)


def set_threshold(norm: Norm, threshold: Tensor, turned: Tensor) -> None:
    """Make ``norm(v) >= 0`` just where ``(v >= threshold) ^ turned``.

    Its gain becomes 1 or -1, and the difference of two floats has an exact sign. Where the
    comparison is turned, ``v < t`` is ``v <= t'`` for the float ``t'`` below ``t``.
    """
    below = torch.nextafter(threshold, torch.full_like(threshold, -torch.inf))
    gain = torch.where(turned, -1.0, 1.0).float()
    _set(norm, torch.where(turned, below, threshold), gain, torch.zeros_like(gain))


def set_affine(norm: Norm, scale: Tensor, bias: Tensor) -> None:
    """Make the norm give ``scale * v + bias``."""
    _set(norm, torch.zeros_like(scale), scale, bias)


@torch.no_grad()
def _set(norm: Norm, mean: Tensor, gain: Tensor, bias: Tensor) -> None:
    """Give a norm that can hold them a mean, gain and bias."""
    running_mean, running_var = _statistics(norm)
    running_mean.copy_(mean)
    running_var.copy_(_unit_variance(norm))
    norm.weight.copy_(gain)
    norm.bias.copy_(bias)

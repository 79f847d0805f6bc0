"""What each batch norm of a network is for: signs behind it, or the scores."""

from __future__ import annotations

from torch import fx, nn
from torch.nn import functional

from bitgnn.convert.tracing.trace import trace_model
from bitgnn.nn import BinaryConv2d, BinaryLinear

__all__ = ["NORMS", "norm_roles"]

# They leave a value's sign, and which value is the greatest, as they are.
MODULES = (nn.MaxPool2d, nn.Identity, nn.Dropout, nn.Dropout2d, nn.Flatten)
FUNCTIONS = ("flatten", "view", "reshape", "max_pool2d", "dropout", "contiguous", "size")
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)


def norm_roles(function: str, model: nn.Module) -> dict[str, str]:
    """The part that each batch norm plays.

    Args:
        function: name for messages.
        model: one that torch.fx can trace.

    Returns:
        By module name: ``"threshold"`` where signs alone are taken of what it gives, ``"affine"``
        where the network gives it out, and nothing for others.

    Raises:
        ValueError: the model cannot be traced.
    """
    try:
        traced = trace_model(model)
    except ValueError as error:
        raise ValueError(f"{function}: {str(error).removeprefix('freeze: ')}") from error
    roles: dict[str, set[str]] = {}
    for node in traced.graph.nodes:
        if node.op == "call_module" and isinstance(_module(traced.root, node), NORMS):
            role = _role(traced.root, node)
            # A norm that is called twice has both parts to play.
            roles.setdefault(traced.name_of(str(node.target)), set()).add(role)
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
    """What one reader takes."""
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

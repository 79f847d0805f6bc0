"""Finds the roles of the binary layers of a model by one pass that changes nothing."""

from __future__ import annotations

import copy
import threading
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from bitgnn.nn.inputs.input_statistics import TINY
from bitgnn.nn.spread import spread_graph

_functional = torch.nn.functional
_OPERATOR = torch.dropout
DROPOUTS = {
    _functional.dropout, _functional.dropout1d, _functional.dropout2d, _functional.dropout3d,
    _OPERATOR,
}  # fmt: skip
ZERO_STAYS = {
    _functional.relu, _functional.leaky_relu, _functional.elu, _functional.gelu, _functional.silu,
    torch.relu, torch.tanh, torch.reshape, torch.squeeze, torch.unsqueeze, torch.flatten,
    Tensor.relu, Tensor.tanh, Tensor.view, Tensor.reshape, Tensor.contiguous, Tensor.to,
    Tensor.float, Tensor.squeeze, Tensor.unsqueeze, Tensor.flatten, Tensor.detach, Tensor.clone,
    Tensor.requires_grad_,
}  # fmt: skip
"""Functions that leave a 0 a 0 and every entry where it is."""
HOOKS = ("forward_pre_hooks", "forward_hooks")
"""Ends of the names of what holds hooks: torch's, and those of PyG on messages."""
CONTAINERS = (dict, OrderedDict, defaultdict, Counter, list, set, deque)
MANY = 10_000
"""Entries of a container that is too large to look into."""
JOINS = {torch.cat, torch.concat, torch.concatenate, torch.stack, torch.hstack}


class Origin(NamedTuple):
    """Source of a tensor in the data flow."""

    layers: frozenset[Any] = frozenset()
    """Binary layers whose results it is made of, no other one in between."""
    is_mixed: bool = False
    """True if features or learnt vectors are columns next to results of layers."""
    kept: float = 1.0
    """Share of the entries that dropout keeps."""


class Read(NamedTuple):
    """One input that a layer took in the pass."""

    layer: Any
    bits: Any
    origin: Origin
    form: float
    """Form of features by the statistics of the pass, as :class:`InputBits` holds it."""
    tells_apart: bool
    """True if its signs tell rows apart."""


class DataFlow(TorchFunctionMode):
    """Follows tensors from layer to layer while a model runs."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[Read] = []
        # Held, so that no other tensor gets the same identity.
        self._origins: dict[int, tuple[Tensor, Origin]] = {}

    def origin(self, x: Tensor) -> Origin:
        """Origin of a tensor; one that no function made is a feature."""
        held = self._origins.get(id(x))
        return Origin() if held is None else held[1]

    def made(self, layer: Any, out: Tensor) -> None:
        """Note the result of a layer."""
        self._origins[id(out)] = out, Origin(frozenset((layer,)))

    def follows(self, out: Tensor, x: Tensor) -> None:
        """Note a result of a function that torch does not see, made of ``x``."""
        self._origins[id(out)] = out, self.origin(x)._replace(kept=1.0)

    def read(self, layer: Any, bits: Any, x: Tensor) -> None:
        """Note an input of a layer."""
        origin = self.origin(x)
        apart = tells_apart(x, origin.kept, layer.least_below)
        self.reads.append(Read(layer, bits, origin, float(bits.form), apart))

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        made = [leaf for leaf in tree_leaves(out) if _is_floating(leaf)]
        if not made:
            return out
        read = [leaf for leaf in tree_leaves((args, kwargs)) if _is_floating(leaf)]
        origins = [self.origin(leaf) for leaf in read]
        joined = self._joined(func, read, origins)
        if func in DROPOUTS:
            joined = joined._replace(kept=joined.kept * _kept_by(func, args, kwargs))
        for leaf in made:
            if not (isinstance(leaf, nn.Parameter) and leaf is out):
                self._origins[id(leaf)] = leaf, joined
        return out

    def _joined(self, func: Any, read: list[Tensor], origins: list[Origin]) -> Origin:
        layers = frozenset().union(*(origin.layers for origin in origins))
        mixed = any(origin.is_mixed for origin in origins)
        if func in JOINS:
            mixed = mixed or (bool(layers) and not all(origin.layers for origin in origins))
            shares = {origin.kept for origin in origins}
            return Origin(layers, mixed, shares.pop() if len(shares) == 1 else 1.0)
        keeps = func in DROPOUTS or func in ZERO_STAYS or _is_scaling(func, read)
        return Origin(layers, mixed, origins[0].kept if keeps and origins else 1.0)


def _is_floating(value: Any) -> bool:
    return isinstance(value, Tensor) and not is_lazy(value) and value.is_floating_point()


def _is_scaling(func: Any, read: list[Tensor]) -> bool:
    """True for a product or quotient with a number."""
    name = getattr(func, "__name__", "")
    return len(read) == 1 and name.strip("_") in ("mul", "div", "rmul", "truediv")


def _kept_by(func: Any, args: Any, kwargs: Any) -> float:
    """Share that a call of dropout keeps."""
    default, factor = (None, 1.0) if func is _OPERATOR else (0.5, _factor)
    p = kwargs.get("p", args[1] if len(args) > 1 else default)
    training = kwargs.get("training", kwargs.get("train", args[2] if len(args) > 2 else True))
    return 1.0 - min(factor * float(p), 1.0) if training and p is not None else 1.0


_factor = 1.0


@contextmanager
def dropout_times(factor: float) -> Iterator[None]:
    """Say that torch's functions of dropout drop ``factor`` times what they are called with."""
    global _factor
    before, _factor = _factor, factor * _factor
    try:
        yield
    finally:
        _factor = before


@torch.no_grad()
def tells_apart(x: Tensor, kept: float, least: float) -> bool:
    """True if more than ``least`` of an activation is not above 0, so that bits tell rows apart.

    After a sigmoid, a softplus or a sum of ReLUs few entries are. Zeros of a dropout before, which
    keeps the share ``kept``, do not count.
    """
    values, spread = x.detach(), spread_graph()
    if values.is_meta or (x.numel() == 0 and spread is None):
        return True
    if spread is None:
        not_above = float((values < TINY).float().mean())
    else:
        number = values.new_tensor(values.numel(), dtype=torch.float64)
        below, number = spread.total(torch.stack([(values < TINY).sum().double(), number]))
        not_above = float(below / number.clamp(min=1.0))
    return not_above - (1.0 - kept) > least * kept


_local = threading.local()


def current_flow() -> DataFlow | None:
    """The pass that this thread is in."""
    flow: DataFlow | None = getattr(_local, "flow", None)
    return flow


def follow(model: nn.Module, call: Callable[[], Any]) -> list[Read]:
    """Run ``call``, a forward of ``model``, and list what its binary layers read.

    Buffers, modes, attributes of modules and random numbers are what they were.
    """
    flow = DataFlow()
    _local.flow = flow
    try:
        with _unchanged(model), _without_hooks(model), _unseen_by_checkpoints(), flow:
            call()
    finally:
        _local.flow = None
    return flow.reads


def settle(reads: list[Read]) -> None:
    """Tell the layers of a pass where their inputs come from and who reads their results."""
    by_bits: dict[int, list[Read]] = {}
    takes_bits: dict[int, bool] = {}
    for read in reads:
        by_bits.setdefault(id(read.bits), []).append(read)
    for same in by_bits.values():
        layer, bits, form = same[0].layer, same[0].bits, same[0].form
        origins = [read.origin for read in same]
        # One layer for several places takes rows if one of its inputs is features, whose signs
        # would say too little; its own results are such rows then, too.
        reads_bits = all(
            read.origin.layers and not read.origin.is_mixed and read.tells_apart for read in same
        )
        takes_bits[id(bits)] = reads_bits
        layer.tell_source(bits, reads_bits, min(origin.kept for origin in origins), form)
    read_ones = {producer for read in reads for producer in read.origin.layers}
    for read in reads:
        is_end = read.layer.ends_in_floats and read.layer not in read_ones
        for producer in read.origin.layers:
            if is_end and not producer.ends_in_floats:
                continue  # a head of floats in the end reads all of what a graph layer gives
            if producer is not read.layer or takes_bits[id(read.bits)]:
                producer.tell_read_by_binary()
    for read in reads:
        read.layer.note_state()


@contextmanager
def _unchanged(model: nn.Module) -> Iterator[None]:
    """Put back random numbers, buffers, modes and attributes of modules, and gradients' absence."""
    devices = {p.device.index for p in model.parameters() if p.device.type == "cuda"}
    modules = list(model.modules())
    # What is lazy takes its shape in the pass, and keeps it.
    settled = [m for m in modules if not any(map(is_lazy, _own(m)))]
    held = [
        (m._buffers, name, buffer, None if is_lazy(buffer) else buffer.clone())
        for m in modules
        for name, buffer in m._buffers.items()
        if isinstance(buffer, Tensor)
    ]
    attributes = [(vars(m), copy.copy(vars(m))) for m in settled]
    contents = _contents(attributes, {id(buffer) for _, _, buffer, _ in held})
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices=sorted(devices)))
        try:
            yield
        finally:
            for now, before in attributes:
                now.clear()
                now.update(before)
            with torch.no_grad():
                for value, before in contents:
                    _put_back(value, before)
                for buffers, name, buffer, value in held:
                    if value is not None:
                        with torch.inference_mode(buffer.is_inference()):
                            buffer.copy_(value)
                        buffers[name] = buffer


@contextmanager
def _unseen_by_checkpoints() -> Iterator[None]:
    """Hide tensors that a pass saves for gradients from a surrounding checkpoint's count."""
    if torch._C._autograd._top_saved_tensors_default_hooks(True) is None:
        yield
        return
    with torch.autograd.graph.saved_tensors_hooks(lambda saved: saved, lambda saved: saved):
        yield


def _own(module: nn.Module) -> list[Any]:
    return [t for t in (*module._parameters.values(), *module._buffers.values()) if t is not None]


def _contents(
    attributes: list[tuple[dict[str, Any], dict[str, Any]]], seen: set[int]
) -> list[tuple[Any, Any]]:
    """Containers and plain tensors that modules hold, one in another, and copies of them.

    Those whose ``id`` was ``seen`` are left out.
    """
    found: list[tuple[Any, Any]] = []
    stack = [value for _, held in attributes for value in held.values()]
    while stack:
        value = stack.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if type(value) in CONTAINERS:
            found.append((value, copy.copy(value)))
        elif type(value) is Tensor and not value.requires_grad:
            found.append((value, value.clone()))
        if type(value) in (*CONTAINERS, tuple) and len(value) < MANY:
            stack.extend(value.values() if isinstance(value, dict) else value)
    return found


def _put_back(value: Any, before: Any) -> None:
    """Give a container or a tensor its contents again."""
    if isinstance(value, Tensor):
        with torch.inference_mode(value.is_inference()):
            value.copy_(before)
    elif isinstance(value, list):
        value[:] = before
    else:
        value.clear()
        value.extend(before) if isinstance(value, deque) else value.update(before)


@contextmanager
def _without_hooks(model: nn.Module) -> Iterator[None]:
    """Leave hooks of the user out, which may count or print; torch's own compute weights."""
    held: list[tuple[Any, Any]] = []
    for module in model.modules():
        for name, hooks in vars(module).items():
            if name.endswith(HOOKS) and hooks:
                held.append((hooks, copy.copy(hooks)))
                for key in [key for key, hook in hooks.items() if not _is_library(hook)]:
                    del hooks[key]
    try:
        yield
    finally:
        for hooks, before in held:
            # Hooks of lazy sizes, which are done, have taken themselves away.
            left = {k: h for k, h in before.items() if k in hooks or not _is_library(h)}
            left.update(hooks)
            hooks.clear()
            hooks.update(left)


def _is_library(hook: Any) -> bool:
    """True for a hook of torch or PyG: lazy sizes, pruning, weight norms."""
    kind = hook.__module__ if hasattr(hook, "__module__") else type(hook).__module__
    return str(kind).partition(".")[0] in ("torch", "torch_geometric")


def settle_by_call(model: nn.Module, call: Callable[[], Any]) -> bool:
    """Settle the layers of a model by a forward; False if that raises, which settles nothing.

    The real forward, which follows, raises the same.
    """
    try:
        reads = follow(model, call)
    except Exception:  # the user's own code
        return False
    settle(reads)
    return True

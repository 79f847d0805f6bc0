"""Layers of unknown role wait for their model: the first call of it in training settles them."""

from __future__ import annotations

import sys
import threading
import weakref
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as torch_modules
from torch.nn.modules.module import register_module_forward_pre_hook

from bitgnn.nn.roles.settling import current_flow, settle_by_call

_CALL = nn.Module._call_impl.__code__


class _Watch:
    """Calls the pass when a model with layers of unknown role first trains.

    A hook of torch for all modules sees the outermost call; it is there as long as there are such
    layers.
    """

    def __init__(self) -> None:
        self._young: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._barren: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._lock = threading.RLock()
        self._handle: Any = None

    @property
    def is_hooked(self) -> bool:
        """True if the hook is registered."""
        return self._handle is not None

    def add(self, layer: Any) -> None:
        """Wait for the model of a layer."""
        with self._lock:
            self._young.add(layer)
            self._barren.clear()
            layer.waits_for_model = True
            if self._handle is None:
                self._handle = register_module_forward_pre_hook(self._before)

    def remove(self, layer: Any) -> None:
        """Stop waiting: the role of a layer is known."""
        with self._lock:
            self._young.discard(layer)
            layer.waits_for_model = False
            self._unhook()

    def _unhook(self) -> None:
        """Take the hook away once nobody waits: calls of modules need not pay for it."""
        with self._lock:
            if not self._young and self._handle is not None:
                self._handle.remove()
                self._handle = None

    def _before(self, module: nn.Module, args: Any) -> None:
        if torch.compiler.is_compiling():
            return
        if not self._young:  # the last of them is gone, unseen
            self._unhook()
            return
        if not module.training or module in self._barren:
            return
        if current_flow() is not None:
            return
        with self._lock:
            young: list[Any] = [m for m in module.modules() if m in self._young]
            if not young:
                self._barren.add(module)
                return
        root: Any = _unwrapped(module)
        if root in young:  # a layer alone tells nothing of who reads it
            if root.is_past_settling:
                self.remove(root)
            return
        # torch hands a hook for all modules the positional arguments alone.
        kwargs = sys._getframe(1).f_locals.get("kwargs") or {}
        is_settled = settle_by_call(root, lambda: root.forward(*args, **kwargs))
        for layer in young:
            if is_settled or layer.is_past_settling:
                self.remove(layer)


def meet_model(layer: Any) -> None:
    """Settle the model around a layer that a compiler traces before a hook has seen its call.

    The model and its arguments are those of the outermost call of a module under way: of a model
    that was compiled in place, or by a compiled function.
    """
    if current_flow() is not None:
        return
    called = _outermost_call()
    if called is None:
        return
    module, args, kwargs = called
    root = _unwrapped(module)
    young: list[Any] = [m for m in root.modules() if getattr(m, "waits_for_model", False)]
    # A layer alone tells nothing of who reads it.
    is_settled = root is not layer and settle_by_call(root, lambda: root.forward(*args, **kwargs))
    for one in young:
        if is_settled or one.is_past_settling:
            watch.remove(one)


def _outermost_call() -> tuple[Any, Any, Any] | None:
    """The module whose call is furthest out in this thread, and its arguments."""
    found = None
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is _CALL:
            found = frame
        frame = frame.f_back
    if found is None:
        return None
    held = found.f_locals
    return held["self"], held["args"], held["kwargs"]


def _unwrapped(module: Any) -> nn.Module:
    """The user's module inside of torch.compile's and data-parallel wrappers."""
    while True:
        inner = module._modules.get("_orig_mod")
        if inner is None and isinstance(
            module, nn.DataParallel | nn.parallel.DistributedDataParallel
        ):
            inner = module.module
        if inner is None:
            found: nn.Module = module
            return found
        module = inner


watch = _Watch()
"""Calls the pass when a model with layers of unknown role first trains."""

_has_any_hook = getattr(torch_modules, "_has_any_global_hook", None)
_OTHERS = (
    "_global_backward_pre_hooks",
    "_global_backward_hooks",
    "_global_forward_hooks",
    "_global_forward_hooks_always_called",
    "_global_forward_hooks_with_kwargs",
)


def _has_hooks_of_others() -> bool:
    """True if there are global hooks other than the one above.

    torch asks for no other reason than to warn of them in each call of a compiled model, since a
    model inside of another runs them twice. The hook above does nothing the second time.
    """
    assert _has_any_hook is not None
    is_alone = watch.is_hooked and len(torch_modules._global_forward_pre_hooks) == 1
    if is_alone and not any(getattr(torch_modules, name, None) for name in _OTHERS):
        return False
    return bool(_has_any_hook())


if _has_any_hook is not None:
    torch_modules._has_any_global_hook = _has_hooks_of_others

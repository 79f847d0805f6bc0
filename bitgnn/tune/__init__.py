"""The tuner: precision of each layer, order and width for a model and a graph.

The package itself is the function: ``bitgnn.tune(model, data, ...)`` is
:func:`bitgnn.tune.tuner.tune`.
"""

import importlib
import inspect
import sys
from types import ModuleType
from typing import Any

# Imported on first use: a plan is read and frozen without what searching for one needs.
_HOMES = {
    "Accuracy": "space",
    "LimitsMissed": "result",
    "Space": "space",
    "Workload": "workload",
    "tune": "tuner",
}

__all__ = ["Accuracy", "LimitsMissed", "Space", "Workload", "tune"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'bitgnn.tune' has no attribute {name!r}")
    return getattr(importlib.import_module(f"bitgnn.tune.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Tuner(ModuleType):
    """A callable module: a function of the same name would hide the package or be hidden."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Tune a model; arguments, result and errors of :func:`bitgnn.tune.tuner.tune`."""
        return self.tune(*args, **kwargs)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self.tune)


sys.modules[__name__].__class__ = _Tuner

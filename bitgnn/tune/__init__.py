"""The tuner: the precision of each layer and the width that suit a model and a graph.

The package itself is the function: ``bitgnn.tune(model, data, ...)`` is
:func:`bitgnn.tune.tuner.tune`.
"""

import importlib
import inspect
import sys
from types import ModuleType
from typing import Any

# Imported on first use: the command line reads its defaults without torch.
_HOMES = {
    "Candidate": "candidates",
    "LimitsMissed": "result",
    "Point": "result",
    "TuneResult": "result",
    "tune": "tuner",
}

__all__ = ["Candidate", "LimitsMissed", "Point", "TuneResult", "tune"]


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

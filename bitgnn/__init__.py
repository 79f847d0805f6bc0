"""Binary graph neural networks for PyTorch: bits, operators, layers and inference."""

import importlib
from typing import TYPE_CHECKING, Any

from bitgnn._library import check_torch
from bitgnn._version import __version__

check_torch()

from bitgnn import ops  # noqa: E402
from bitgnn._files import FileError  # noqa: E402
from bitgnn.bits import BitAdjacency, BitTensor, TernaryTensor, cat, stack  # noqa: E402

if TYPE_CHECKING:
    from bitgnn import (  # noqa: F401
        convert,
        data,
        distillation,
        exchange,
        inference,
        models,
        nn,
        quantize,
        tune,
    )
    from bitgnn.convert import (
        BWTAConfig,
        GraphConfig,
        ImageConfig,
        Plan,
        binarize,
        freeze,
        report_of,
        summary,
    )
    from bitgnn.distillation import distill
    from bitgnn.inference import capture, load, save

__all__ = [
    "BWTAConfig", "BitAdjacency", "BitTensor", "FileError", "GraphConfig", "ImageConfig", "Plan",
    "TernaryTensor", "__version__", "binarize", "capture", "cat", "distill", "freeze", "load", "nn",
    "ops", "report_of", "save", "stack", "summary", "tune",
]  # fmt: skip

# Imported on first use: these need PyTorch Geometric, whose import takes seconds.
_SUBMODULES = (
    "convert", "data", "distillation", "distributed", "exchange", "inference", "models", "nn",
    "quantize", "tune",
)  # fmt: skip
_LAZY = {
    "distill": "distillation",
    **dict.fromkeys(("capture", "load", "save"), "inference"),
    **dict.fromkeys(
        ("BWTAConfig", "GraphConfig", "ImageConfig", "Plan", "binarize", "freeze", "report_of",
         "summary"),
        "convert",
    ),
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"bitgnn.{name}")
    if name not in _LAZY:
        raise AttributeError(f"module 'bitgnn' has no attribute {name!r}")
    return getattr(importlib.import_module(f"bitgnn.{_LAZY[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_SUBMODULES})

"""Warnings that name the line of the user's code, however deep in this package they arise."""

import sys
import warnings
from pathlib import Path

import torch

_INSIDE = tuple(f"{Path(module).parent}/" for module in (__file__, torch.__file__))


def warn(message: str) -> None:
    """Give a ``UserWarning`` at the innermost line that neither this package nor torch holds."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_INSIDE):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, UserWarning, stacklevel=level)

"""Objects that a command line names as ``package.module:Name``."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import Any

IMPORT_PATH = re.compile(r"[A-Za-z_]\w*(\.\w+)*:[A-Za-z_]\w*")


def is_import_path(name: str) -> bool:
    """Whether ``name`` reads like ``package.module:Name``."""
    return IMPORT_PATH.fullmatch(name) is not None


def imported(name: str) -> Any:
    """The object of an import path; modules in the working directory are found, after all others.

    Args:
        name: such as ``package.module:Name``.

    Raises:
        ValueError: the module cannot be imported, or has no such object.
    """
    module, _, attribute = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    try:
        found = importlib.import_module(module)
    except Exception as error:  # a module may do anything
        raise ValueError(
            f"{name}: {module} cannot be imported ({type(error).__name__}: {error})"
        ) from error
    if not hasattr(found, attribute):
        raise ValueError(f"{name}: {module} has no {attribute}")
    return getattr(found, attribute)

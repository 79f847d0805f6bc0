"""Tells at import that the installed torch lies outside the supported range."""

import re
import warnings

import torch

from bitgnn._version import __version__

FIRST, LAST = (2, 11), (2, 13)
"""Oldest and newest supported minor release; pyproject.toml requires the same."""
NAMES = " to ".join(f"{major}.{minor}" for major, minor in (FIRST, LAST))


def check_torch() -> None:
    """Refuse a torch that is too old, warn of one that is too new.

    An older torch lacks functions that the compiled operators call. A newer one keeps the stable
    ABI, so that it may well work.

    Raises:
        ImportError: torch is too old.
    """
    number = re.match(r"(\d+)\.(\d+)", torch.__version__)
    installed = (int(number[1]), int(number[2])) if number else LAST
    message = (
        f"bitgnn {__version__} supports torch {NAMES}, but torch {torch.__version__} is installed"
    )
    if installed < FIRST:
        upper = f"{LAST[0]}.{LAST[1] + 1}"
        wanted = f"torch>={FIRST[0]}.{FIRST[1]},<{upper}"
        raise ImportError(f"{message}; run `pip install '{wanted}'`")
    if installed > LAST:
        # Three frames up is the user's own import of bitgnn.
        warnings.warn(f"{message}; it has not been tested", RuntimeWarning, stacklevel=3)

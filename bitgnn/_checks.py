"""Argument checks that raise one clear error before any kernel runs."""

from collections.abc import Callable


def check_value(condition: bool, message: Callable[[], str]) -> None:
    """Raise ``ValueError(message())`` unless ``condition`` holds."""
    if not condition:
        raise ValueError(message())


def check_type(condition: bool, message: Callable[[], str]) -> None:
    """Raise ``TypeError(message())`` unless ``condition`` holds."""
    if not condition:
        raise TypeError(message())


def name_type(value: object) -> str:
    """The type of ``value`` as an error message names it: ``torch.int64 tensor``, ``str``."""
    dtype = getattr(value, "dtype", None)
    return type(value).__name__ if dtype is None else f"{dtype} {type(value).__name__}"

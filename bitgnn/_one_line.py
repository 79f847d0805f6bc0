"""What commands print of errors and warnings: a line each, on stderr."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer


def say(text: object) -> None:
    """Print one line, whatever breaks of lines the text has."""
    typer.echo(f"bitgnn: {' '.join(str(text).split())}", err=True)


@contextmanager
def warnings_in_one_line() -> Iterator[None]:
    """Print what the package warns of without the line of code that Python adds."""
    show: Any = warnings.showwarning

    def in_one_line(message: Any, category: type[Warning], *rest: Any) -> None:
        if category is UserWarning:
            say(f"warning: {message}")
        else:
            show(message, category, *rest)

    warnings.showwarning = in_one_line  # type: ignore[assignment]
    try:
        yield
    finally:
        warnings.showwarning = show

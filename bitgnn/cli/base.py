"""The command: its entry point, and the beginning and end of its jobs."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bitgnn._interpreter import INTERRUPTED, ctrl_c_always_stops, ctrl_c_ends_silently
from bitgnn._version import __version__

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["INTERRUPTED", "LIMITS_MISSED", "app", "main", "running"]

LIMITS_MISSED = 3
NO_MEMORY = ("out of memory", "can't allocate memory")
"""Words of torch's errors where memory is short."""

app = typer.Typer(
    name="bitgnn",
    help="Binary graph neural networks on real bits.",
    epilog="Examples: bitgnn demo; bitgnn distill --data Cora; bitgnn tune --data Cora. "
    "Exit status: 0 done, 1 an error, 2 a mistyped command, 3 nothing keeps the limits of tune, "
    "130 interrupted.",
    invoke_without_command=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"bitgnn {__version__}")
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version."),
]


@app.callback()
def common(context: typer.Context, version: Version = False) -> None:
    """Binary graph neural networks on real bits."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@contextmanager
def running(threads: int | None = None, quiet: bool = False) -> Iterator[Console]:
    """Run a job: errors that a user can fix become one line and exit status 1.

    An interrupt with a message, which says what is kept, is printed as one line, too. Yields where
    jobs print their results; ``quiet`` is for errors alone.
    """
    if quiet:
        os.environ["TQDM_DISABLE"] = "1"  # read when tqdm is imported
    try:
        with ctrl_c_always_stops(), warnings_in_one_line(quiet):
            load_package()
            import torch
            from rich.console import Console

            from bitgnn._files import OutputError
            from bitgnn.data import DataError

            mendable = (DataError, OutputError, OSError, ValueError, MemoryError)
            if threads is not None:
                torch.set_num_threads(threads)
            try:
                yield Console(quiet=quiet)
            except mendable as error:
                what = "out of memory: " if isinstance(error, MemoryError) else ""
                say(f"error: {what}{error}")
                raise typer.Exit(1) from None
            except RuntimeError as error:
                if not any(text in str(error) for text in NO_MEMORY):
                    raise
                say(f"error: out of memory: {str(error).splitlines()[0]}")
                raise typer.Exit(1) from None
    except KeyboardInterrupt as stopped:  # while importing, too
        if str(stopped):
            say(stopped)
        raise typer.Exit(INTERRUPTED) from None


def say(text: object) -> None:
    """Print a text in one line."""
    typer.echo(f"bitgnn: {' '.join(str(text).split())}", err=True)


@contextmanager
def warnings_in_one_line(quiet: bool) -> Iterator[None]:
    """Print warnings of the package without the line of code that Python adds, or not at all."""
    show: Any = warnings.showwarning

    def in_one_line(message: Any, category: type[Warning], *rest: Any) -> None:
        if quiet:
            return
        if category is UserWarning:
            say(f"warning: {message}")
        else:
            show(message, category, *rest)

    warnings.showwarning = in_one_line  # type: ignore[assignment]
    try:
        yield
    finally:
        warnings.showwarning = show


def load_package() -> None:
    """Run the package's ``__init__`` unless an ordinary import has done so.

    Exits with one line where torch is too old or another library is missing.
    """
    package = sys.modules["bitgnn"]
    if hasattr(package, "__version__"):
        return
    assert package.__spec__ is not None
    assert package.__spec__.loader is not None
    try:
        with ctrl_c_ends_silently():
            package.__spec__.loader.exec_module(package)
    except ImportError as error:
        say(f"error: {error}")
        raise typer.Exit(1) from None


def main() -> None:
    """Entry point of the console script."""
    app()

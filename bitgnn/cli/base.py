"""The command itself: its entry point and what its jobs share."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from bitgnn._ctrl_c import INTERRUPTED, ctrl_c_always_stops, ctrl_c_ends_silently
from bitgnn._version import __version__

__all__ = [
    "GRAPH", "INTERRUPTED", "LIMITS_MISSED", "OWN_PROCESS", "DataRoot", "Output", "Threads", "app",
    "guard", "main", "short", "stop",
]  # fmt: skip

LIMITS_MISSED = 3
OWN_PROCESS = "own process"
"""Object of the context where a command is all that its process does: starting it counts too."""

app = typer.Typer(
    name="bitgnn",
    help="Binary graph neural networks on real bits.",
    epilog="Examples: bitgnn demo; bitgnn train --data Cora; bitgnn tune --data Cora --budget 60s. "
    "Exit status: 0 done, 1 an error, 2 a mistyped command, 3 no plan keeps the limits of tune, "
    "130 interrupted.",
    invoke_without_command=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
)

Output = Annotated[Path | None, typer.Option("--output", "-o", help="Folder for the results.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads of torch (default: all).")]
DataRoot = Annotated[
    str | None,
    typer.Option(help="Folder of the data sets (default: BITGNN_DATA, else ./data)."),
]
GRAPH = (
    "Graph: the name of a data set, an .npz file, a folder of graph.safetensors and graph.json, or "
    "a class of PyG as package.module:Class"
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"bitgnn {__version__}")
        raise typer.Exit


@app.callback()
def common(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Binary graph neural networks on real bits."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def short(name: str) -> str:
    """Name of a graph or model as a part of a folder's name."""
    from bitgnn.data.own_graphs import graph_title

    return graph_title(name).lower()


def stop(stopped: KeyboardInterrupt) -> NoReturn:
    """Say what an interrupt left behind, and end with its status."""
    say(stopped)
    raise typer.Exit(INTERRUPTED) from None


def guard(job: Callable[[], None], threads: int | None) -> None:
    """Run ``job``; what a user can mend becomes one line and exit status 1, Ctrl-C a status."""
    try:
        with ctrl_c_always_stops(), warnings_in_one_line():
            load_package()
            import torch

            from bitgnn.train import MENDABLE

            if threads is not None:
                torch.set_num_threads(threads)
            try:
                job()
            except MENDABLE as error:
                say(f"error: {error}")
                raise typer.Exit(1) from None
    except KeyboardInterrupt:  # while importing, too
        raise typer.Exit(INTERRUPTED) from None


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


def load_package() -> None:
    """Run the package's ``__init__`` unless an ordinary import has done so.

    Raises:
        Exit: torch is too old or another library is missing, and one line has said so.
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
    app(obj=OWN_PROCESS)

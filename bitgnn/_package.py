"""Imports the package itself where the entry point of the command has put that off."""

import sys

import typer

from bitgnn._ctrl_c import ctrl_c_ends_silently
from bitgnn._one_line import say


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

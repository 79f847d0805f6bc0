"""Entry point of the command `bitgnn`: Ctrl-C ends it without a word while libraries are imported.

It stands beside the package, since importing any part of that imports torch.
"""

import os
import signal
from types import FrameType

__all__ = ["main"]

INTERRUPTED = 130


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)  # nothing was begun; an exception might be caught by whatever is imported


def main() -> None:
    """Run the command."""
    signal.signal(signal.SIGINT, _leave)
    from bitgnn.cli import main as run

    signal.signal(signal.SIGINT, signal.default_int_handler)
    run()

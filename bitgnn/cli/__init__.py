"""The command `bitgnn`: jobs on graphs and on saved models, and a report on the machine.

Exit statuses: 0 done; 1 something that the one line printed says how to mend; 2 a mistyped command;
3 `tune` found nothing that keeps the limits; 130 interrupted by Ctrl-C.
"""

from bitgnn.cli import commands, saved  # adds them
from bitgnn.cli.base import INTERRUPTED, LIMITS_MISSED, app, main, running

__all__ = ["INTERRUPTED", "LIMITS_MISSED", "app", "commands", "main", "running", "saved"]

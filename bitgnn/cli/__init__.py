"""The command `bitgnn`: demo, distill, tune, partition and doctor.

Exit statuses: 0 done; 1 something that the one line printed says how to mend; 2 a mistyped command;
3 `tune` found no plan that keeps the limits; 130 interrupted by Ctrl-C.
"""

from bitgnn.cli import commands  # adds them
from bitgnn.cli.base import INTERRUPTED, LIMITS_MISSED, OWN_PROCESS, app, main, running

__all__ = ["INTERRUPTED", "LIMITS_MISSED", "OWN_PROCESS", "app", "commands", "main", "running"]
